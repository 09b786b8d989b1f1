//! Every variable that is read, as data: the reference page and the reading agree by test.

use std::fmt::Write as _;

/// One variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// What holds without it, in Markdown.
    pub(crate) default: &'static str,
    pub(crate) meaning: &'static str,
}

const fn row(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable {
        name,
        default,
        meaning,
    }
}

/// All of them, in the order of the page.
pub(crate) const VARIABLES: &[Variable] = &[
    row(
        "MCP_ENDPOINT",
        "`stdio`",
        "`stdio`: one client on standard input and output, and the process ends with it; `socket`: a \
         lasting server for many clients on a Unix socket; `http`: the same over [HTTP](http.md)",
    ),
    row(
        "MCP_READY_FILE",
        "`/tmp/mcp.ready`",
        "written when the host is ready (`<pid> <time>`), removed at its end; left alone while \
         another living host of the same user owns it. A host that cannot write it logs so and serves",
    ),
    row(
        "MCP_SOCKET_PATH",
        "`/tmp/mcp.sock`",
        "path of the socket with `MCP_ENDPOINT=socket`",
    ),
    row(
        "MCP_SOCKET_MODE",
        "`0600`",
        "permissions of the socket, octal; the owner must be able to read and write",
    ),
    row(
        "MCP_HTTP_ADDR",
        "`127.0.0.1:8080`",
        "address and port with `MCP_ENDPOINT=http`; port 0 takes any free one",
    ),
    row(
        "MAINSTAY_TOKEN_FILE",
        "none",
        "file with the token that clients over HTTP must present; only its owner may read it (mode \
         `0600`), or it is a mounted secret (of root, mode `0440`). Without a token of 16 characters only a \
         loopback address is served",
    ),
    row(
        "MAINSTAY_TOKEN",
        "none",
        "the same token itself, where there is no file",
    ),
    row(
        "MAINSTAY_ISSUER",
        "none",
        "URL of an authorization server whose access tokens clients over HTTP may present",
    ),
    row(
        "MAINSTAY_ISSUER_KEYS",
        "none",
        "file with that issuer's public keys, a JSON Web Key Set; nothing is fetched",
    ),
    row(
        "MAINSTAY_RESOURCE",
        "`http://ADDRESS/mcp`",
        "the audience that access tokens must name: the URL under which clients know this server",
    ),
    row(
        "MCP_MAX_BATCH",
        "`100`",
        "assets that one `validate_many` may have, 1 to 10000",
    ),
    row(
        "SYN_SCHEMAS_DIR",
        "`libs/synesthetic-schemas/jsonschema` if it exists, else none",
        "directory of the asset pack's `*.schema.json` files",
    ),
    row(
        "SYN_EXAMPLES_DIR",
        "`libs/synesthetic-schemas/examples` if it exists, else none",
        "directory of the asset pack's examples",
    ),
    row(
        "SYN_BACKEND_URL",
        "none: `populate_backend` is off",
        "base URL of the backend that `populate_backend` sends assets to, `http` or `https`",
    ),
    row(
        "SYN_BACKEND_ASSETS_PATH",
        "`/synesthetic-assets/`",
        "path below that URL; begins with `/`",
    ),
    row(
        "MAINSTAY_ALLOW_UNVALIDATED",
        "`0`",
        "`1` lets `populate_backend` send an asset with `validate_first: false`",
    ),
    row(
        "MAINSTAY_RUNTIME_DIR",
        "`$XDG_RUNTIME_DIR/mainstay`, else `mainstay-UID` in the temporary directory",
        "where hosts have their control sockets; if it is unset, `status`, `stop` and `rollout` look in \
         every default place, since clients start servers with fewer variables than a shell has",
    ),
    row(
        "MAINSTAY_TELEMETRY",
        "none",
        "file for [events](telemetry.md), like `--telemetry`",
    ),
    row(
        "MAINSTAY_ENVELOPE_VALIDATION",
        "`shadow`",
        "`off`, `shadow` or `enforce`, like `--envelopes`; see [envelopes](envelopes.md)",
    ),
    row(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "none: nothing is sent",
        "URL of an OpenTelemetry collector, spoken to with OTLP over HTTP in JSON; `/v1/traces` and \
         `/v1/metrics` are added ([telemetry](telemetry.md))",
    ),
    row(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "none",
        "the whole URL for spans, where it differs",
    ),
    row(
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "none",
        "the whole URL for durations, where it differs",
    ),
    row(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "none",
        "headers for the collector, `name=value,name=value`; never shown, not inherited by workers and servers",
    ),
    row(
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "`http/json`",
        "`grpc` is a mistake: it is not spoken; not looked at when wrapping",
    ),
    row(
        "OTEL_SERVICE_NAME",
        "`mainstay`, or the name of the wrapped server",
        "what the collector calls this host",
    ),
    row(
        "OTEL_RESOURCE_ATTRIBUTES",
        "none",
        "more about this host, `key=value,key=value`",
    ),
    row(
        "OTEL_SDK_DISABLED",
        "`false`",
        "`true` sends nothing, whatever the others say",
    ),
    row(
        "MAINSTAY_CACHE_DIR",
        "`$XDG_CACHE_HOME/mainstay`, else `.cache/mainstay` in the home directory",
        "where indexes, and what wrapped servers said about themselves, are kept between runs",
    ),
    row(
        "XDG_CACHE_HOME",
        "none",
        "only for the default of `MAINSTAY_CACHE_DIR`",
    ),
    row(
        "MAINSTAY_STATE_DIR",
        "`$XDG_STATE_HOME/mainstay`, else `.local/state/mainstay` in the home directory",
        "where tasks are recorded; hosts of one user share it",
    ),
    row(
        "XDG_STATE_HOME",
        "none",
        "only for the default of `MAINSTAY_STATE_DIR`",
    ),
    row(
        "HOME",
        "none",
        "only for the defaults of `MAINSTAY_CACHE_DIR` and `MAINSTAY_STATE_DIR`",
    ),
    row(
        "XDG_RUNTIME_DIR",
        "none",
        "only for the default of `MAINSTAY_RUNTIME_DIR`",
    ),
    row(
        "TMPDIR",
        "`/tmp`",
        "only for the default of `MAINSTAY_RUNTIME_DIR`",
    ),
];

/// The page `docs/environment.md`.
pub(crate) fn markdown() -> String {
    let mut page = String::from(
        "# Environment\n\n\
         This page is generated: `mainstay environment --markdown > docs/environment.md`.\n\n\
         Read once, at the start. An empty variable counts as unset. A wrong value is exit code 2 with\n\
         one line that names every mistake and says what to set. The command line counts before the\n\
         environment, the environment before the [configuration file](configuration.md).\n\n\
         | variable | default | meaning |\n|---|---|---|\n",
    );
    for variable in VARIABLES {
        let Variable {
            name,
            default,
            meaning,
        } = variable;
        // A string takes whatever is written to it.
        let _ = writeln!(page, "| `{name}` | {default} | {meaning} |");
    }
    page.push_str(
        "\nWorkers and wrapped servers inherit the environment without `MAINSTAY_TOKEN`, `MAINSTAY_TOKEN_FILE` and\n\
         `OTEL_EXPORTER_OTLP_HEADERS`, and read none of these variables themselves: the host hands workers their\n\
         settings. The host takes the two secrets among them out of its own environment, too; see\n\
         [operation.md](operation.md#what-a-server-can-reach). Commands to running hosts (`status`, `stop`, `rollout`,\n\
         `cache`, `once`, and `--url`) do not look at variables of packs and transports.\n",
    );
    page
}
