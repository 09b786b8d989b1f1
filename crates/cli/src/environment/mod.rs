//! The environment, read once and checked whole. [`table`] lists every variable.

mod collector;
mod secrets;
mod table;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use mainstay_host::config::EnvelopeMode;

use crate::exit::Failure;
use crate::values;

pub(crate) use self::collector::Collector;
pub(crate) use self::secrets::{
    HEADER, headers, inherited, is_second_start, protect, upgrade, values as secret_values,
    withheld,
};
pub(crate) use self::table::{VARIABLES, markdown};

/// How the names of our own variables begin.
const PREFIX: &str = "MAINSTAY_";
/// Names, or their beginnings, that hosts, adopted files and tests set.
const INTERNAL: [&str; 4] = [
    HEADER,
    "MAINSTAY_UPGRADE",
    "MAINSTAY_SECRETS",
    "MAINSTAY_TEST",
];
/// Default of `TMPDIR`.
const TEMPORARY: &str = "/tmp";
/// The variables of commands that operate running hosts.
const OPERATOR: [&str; 10] = [
    "MAINSTAY_RUNTIME_DIR",
    "XDG_RUNTIME_DIR",
    "TMPDIR",
    "MAINSTAY_CACHE_DIR",
    "XDG_CACHE_HOME",
    "MAINSTAY_STATE_DIR",
    "XDG_STATE_HOME",
    "HOME",
    "MAINSTAY_TOKEN",
    "MAINSTAY_TOKEN_FILE",
];
/// Where schemas are when nothing else is said, relative to the working directory.
const SUBMODULE_SCHEMAS: &str = "libs/synesthetic-schemas/jsonschema";
const SUBMODULE_EXAMPLES: &str = "libs/synesthetic-schemas/examples";

/// The settings in the environment. A setting that the configuration file can hold as well is `None`
/// where its variable is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) socket_path: Option<PathBuf>,
    pub(crate) socket_mode: Option<u32>,
    pub(crate) http_address: Option<SocketAddr>,
    /// What clients over HTTP must present, and the file in which it stands.
    pub(crate) token: Option<Secret>,
    pub(crate) token_file: Option<PathBuf>,
    /// Whose access tokens are taken, the keys they are checked with, and whom they must be for.
    pub(crate) issuer: Option<String>,
    pub(crate) keys_file: Option<PathBuf>,
    pub(crate) resource: Option<String>,
    /// Where hosts have their control sockets.
    pub(crate) runtime_dir: PathBuf,
    /// Where what can be made again is kept between runs, if there is a place for it.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Where tasks are recorded, if there is a place for them.
    pub(crate) state_dir: Option<PathBuf>,
    /// The user's home directory, which is a workspace only when it is named.
    pub(crate) home: Option<PathBuf>,
    /// Where else hosts of this user may have theirs: clients start servers with a short
    /// environment, in which the variables that decide it are missing.
    pub(crate) other_runtime_dirs: Vec<PathBuf>,
    pub(crate) telemetry: Option<PathBuf>,
    pub(crate) collector: Option<Collector>,
    pub(crate) envelopes: Option<EnvelopeMode>,
    pub(crate) schemas_dir: Option<PathBuf>,
    pub(crate) examples_dir: Option<PathBuf>,
    /// The submodule's directories, where they exist: for want of anything else.
    pub(crate) submodule: Submodule,
    pub(crate) max_batch: Option<u32>,
    pub(crate) backend_url: Option<String>,
    pub(crate) backend_assets_path: Option<String>,
    pub(crate) allow_unvalidated: Option<bool>,
}

/// Where schemas and examples are when nobody says where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Submodule {
    pub(crate) schemas: Option<PathBuf>,
    pub(crate) examples: Option<PathBuf>,
}

/// `MCP_ENDPOINT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Stdio,
    Socket,
    Http,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Environment {
    /// Reads the process's environment.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::from(secrets::lookup, Path::is_dir)
    }

    /// Reads the environment that a wrapped server is started with. What stands there may be meant
    /// for the server, whose author knows other meanings of the same names; so nothing of it that
    /// wrapping does not need can be a mistake.
    pub(crate) fn read_for_wrap() -> Result<Self, Failure> {
        Self::for_wrap(secrets::lookup)
    }

    /// Reads the environment of a command that operates running hosts or their files. Settings of packs and
    /// transports do not concern it.
    pub(crate) fn read_for_operator() -> Result<Self, Failure> {
        Self::for_operator(secrets::lookup)
    }

    fn for_operator(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let concerns = |name: &str| OPERATOR.contains(&name);
        Self::from(|name| get(name).filter(|_| concerns(name)), |_| false)
    }

    fn for_wrap(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let endpoint = get("MCP_ENDPOINT");
        let on_socket = endpoint.as_ref().is_some_and(|one| one == "socket");
        let on_http = endpoint.as_ref().is_some_and(|one| one == "http");
        let ours = |name: &str| match name {
            "MCP_ENDPOINT" => on_socket || on_http,
            "MCP_SOCKET_PATH" | "MCP_SOCKET_MODE" => on_socket,
            "MCP_HTTP_ADDR" => on_http,
            // A protocol that only the server speaks.
            "OTEL_EXPORTER_OTLP_PROTOCOL" => false,
            "MCP_MAX_BATCH" | "MAINSTAY_ALLOW_UNVALIDATED" => false,
            _ => !name.starts_with("SYN_"),
        };
        Self::from(|name| get(name).filter(|_| ours(name)), |_| false)
    }

    /// Reads from `get`; every mistake is reported, not only the first. An empty variable counts
    /// as unset.
    fn from(
        get: impl Fn(&str) -> Option<OsString>,
        is_dir: impl Fn(&Path) -> bool,
    ) -> Result<Self, Failure> {
        let mut mistakes = Vec::new();
        let value = |name: &str| get(name).filter(|value| !value.is_empty());
        let mut shown = |name: &str, wanted: String| {
            let set = value(name).unwrap_or_default();
            let set = set.to_string_lossy().into_owned();
            mistakes.push(format!("{name} is {set:?}; {wanted}"));
        };
        let endpoint = value("MCP_ENDPOINT").and_then(|set| match set.to_str() {
            Some("stdio") => Some(Endpoint::Stdio),
            Some("socket") => Some(Endpoint::Socket),
            Some("http") => Some(Endpoint::Http),
            _ => {
                shown("MCP_ENDPOINT", "set it to stdio, socket or http".to_owned());
                None
            }
        });
        let socket_mode = value("MCP_SOCKET_MODE").and_then(|set| {
            let mode = values::socket_mode(&set.to_string_lossy());
            mode.map_err(|wanted| shown("MCP_SOCKET_MODE", wanted)).ok()
        });
        let http_address = value("MCP_HTTP_ADDR").and_then(|set| {
            let address = values::address(&set.to_string_lossy());
            address
                .map_err(|wanted| shown("MCP_HTTP_ADDR", wanted))
                .ok()
        });
        let mut directory = |name: &str| match value(name).map(PathBuf::from) {
            Some(set) if is_dir(&set) => Some(set),
            Some(set) => {
                let shown = set.display();
                mistakes.push(format!(
                    "{name} is {shown}, which is not a directory; set it to one"
                ));
                None
            }
            None => None,
        };
        let schemas_dir = directory("SYN_SCHEMAS_DIR");
        let examples_dir = directory("SYN_EXAMPLES_DIR");
        let there = |path: &str| Some(PathBuf::from(path)).filter(|path| is_dir(path));
        let mut text = |name: &str, wanted: &str, good: fn(&str) -> bool| {
            let set = value(name)?;
            match set.to_str().filter(|text| good(text)) {
                Some(text) => Some(text.to_owned()),
                None => {
                    // Not shown: an address may carry a password.
                    mistakes.push(format!("{name} cannot be used; set it to {wanted}"));
                    None
                }
            }
        };
        let max_batch = text("MCP_MAX_BATCH", "a number from 1 to 10000", |text| {
            text.parse()
                .is_ok_and(|number: u32| (1..=10_000).contains(&number))
        });
        let is_url = |url: &str| {
            let mut schemes = ["http://", "https://"].iter();
            schemes.any(|scheme| url.starts_with(scheme))
        };
        let backend_url = text(
            "SYN_BACKEND_URL",
            "a URL such as http://127.0.0.1:8000",
            is_url,
        );
        let issuer = text("MAINSTAY_ISSUER", "the URL of an issuer", is_url);
        let resource = text("MAINSTAY_RESOURCE", "the URL of this server's /mcp", is_url);
        let backend_assets_path = text(
            "SYN_BACKEND_ASSETS_PATH",
            "a path such as /synesthetic-assets/",
            |path| path.starts_with('/'),
        );
        let token = text("MAINSTAY_TOKEN", "visible ASCII characters", is_token);
        let allow_unvalidated = text("MAINSTAY_ALLOW_UNVALIDATED", "1 or 0", |text| {
            matches!(text, "0" | "1")
        });
        let envelopes = text(
            "MAINSTAY_ENVELOPE_VALIDATION",
            "off, shadow or enforce",
            |text| EnvelopeMode::parse(text).is_some(),
        );
        if value("MAINSTAY_ISSUER").is_some() != value("MAINSTAY_ISSUER_KEYS").is_some() {
            let said = "MAINSTAY_ISSUER and MAINSTAY_ISSUER_KEYS go together; set both";
            mistakes.push(said.to_owned());
        }
        let collector =
            Collector::from(|name| value(name)?.into_string().ok()).unwrap_or_else(|said| {
                mistakes.push(said);
                None
            });
        if !mistakes.is_empty() {
            return Err(Failure::input(anyhow!(
                "the environment: {}",
                mistakes.join("; ")
            )));
        }
        let runtime_dir = |user: Option<PathBuf>, temporary: &Path| {
            let named = value("MAINSTAY_RUNTIME_DIR").map(PathBuf::from);
            mainstay_host::runtime_dir(named, user, temporary)
        };
        let user = value("XDG_RUNTIME_DIR").map(PathBuf::from);
        let login = format!("/run/user/{}", rustix::process::geteuid().as_raw());
        let temporary = value("TMPDIR").map_or_else(|| PathBuf::from(TEMPORARY), PathBuf::from);
        let mut runtime_dirs = vec![
            runtime_dir(user, &temporary),
            runtime_dir(Some(login.into()), &temporary),
            runtime_dir(None, &temporary),
            runtime_dir(None, Path::new(TEMPORARY)),
        ];
        let first = runtime_dirs.remove(0);
        runtime_dirs.retain(|dir| *dir != first);
        runtime_dirs.dedup();
        Ok(Self {
            endpoint,
            ready_file: value("MCP_READY_FILE").map(PathBuf::from),
            socket_path: value("MCP_SOCKET_PATH").map(PathBuf::from),
            socket_mode,
            http_address,
            token: token.map(Secret),
            token_file: value("MAINSTAY_TOKEN_FILE").map(PathBuf::from),
            issuer,
            keys_file: value("MAINSTAY_ISSUER_KEYS").map(PathBuf::from),
            resource,
            runtime_dir: first,
            other_runtime_dirs: runtime_dirs,
            cache_dir: place(
                value("MAINSTAY_CACHE_DIR").map(PathBuf::from),
                value("XDG_CACHE_HOME").map(PathBuf::from),
                value("HOME").map(|home| Path::new(&home).join(".cache")),
            ),
            state_dir: place(
                value("MAINSTAY_STATE_DIR").map(PathBuf::from),
                value("XDG_STATE_HOME").map(PathBuf::from),
                value("HOME").map(|home| Path::new(&home).join(".local/state")),
            ),
            home: value("HOME").map(PathBuf::from),
            telemetry: value("MAINSTAY_TELEMETRY").map(PathBuf::from),
            collector,
            envelopes: envelopes.as_deref().and_then(EnvelopeMode::parse),
            schemas_dir,
            examples_dir,
            submodule: Submodule {
                schemas: there(SUBMODULE_SCHEMAS),
                examples: there(SUBMODULE_EXAMPLES),
            },
            max_batch: max_batch.and_then(|number| number.parse().ok()),
            backend_url,
            backend_assets_path,
            allow_unvalidated: allow_unvalidated.map(|flag| flag == "1"),
        })
    }
}

/// A variable that somebody else's configuration refers to.
pub(crate) fn variable(name: &str) -> Option<String> {
    secrets::lookup(name)?.into_string().ok()
}

/// Variables with our prefix that are set and that no command reads.
pub(crate) fn unknown() -> Vec<String> {
    let is_known = |name: &String| {
        let mut all = VARIABLES.iter();
        all.any(|variable| variable.name == name)
            || INTERNAL.iter().any(|one| name.starts_with(one))
    };
    let mut names = secrets::names();
    names.retain(|name| name.starts_with(PREFIX) && !is_known(name));
    names.sort();
    names
}

/// Whether a variable is set, for the page about them.
pub(crate) fn is_set(name: &str) -> bool {
    secrets::lookup(name).is_some_and(|value| !value.is_empty())
}

/// The place of files between runs: the one named, else the user's, else the one below the home directory.
/// Relative ones are of no use: the working directory is the client's choice.
fn place(
    named: Option<PathBuf>,
    user: Option<PathBuf>,
    below_home: Option<PathBuf>,
) -> Option<PathBuf> {
    let of_user = || {
        let user = user.filter(|path| path.is_absolute());
        let base = user.or(below_home)?;
        Some(base.join("mainstay"))
    };
    let place = named.or_else(of_user)?;
    place.is_absolute().then_some(place)
}

/// Whether a text can stand in an `Authorization` header.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Environment, String> {
        let get = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        Environment::from(get, |path| path.starts_with("/there"))
            .map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn an_empty_environment_means_stdio_and_the_documented_defaults() {
        let environment = with(&[("MCP_ENDPOINT", "")]).unwrap();
        assert_eq!(environment.endpoint, None);
        assert_eq!(environment.ready_file, None);
        assert_eq!(environment.socket_path, None);
        assert_eq!(environment.socket_mode, None);
        assert_eq!(environment.schemas_dir, None);
    }

    #[test]
    fn hosts_are_looked_for_wherever_they_may_be() {
        let dirs = |variables| {
            let environment = with(variables).unwrap();
            let dirs = [
                vec![environment.runtime_dir],
                environment.other_runtime_dirs,
            ]
            .concat();
            let id = rustix::process::geteuid().as_raw();
            dirs.iter()
                .map(|dir| dir.to_string_lossy().replace(&id.to_string(), "ID"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            dirs(&[("MAINSTAY_RUNTIME_DIR", "/there/run")]),
            ["/there/run"]
        );
        assert_eq!(
            dirs(&[("XDG_RUNTIME_DIR", "/there/x"), ("TMPDIR", "/there/tmp")]),
            [
                "/there/x/mainstay",
                "/run/user/ID/mainstay",
                "/there/tmp/mainstay-ID",
                "/tmp/mainstay-ID"
            ]
        );
        assert_eq!(dirs(&[]), ["/tmp/mainstay-ID", "/run/user/ID/mainstay"]);
    }

    #[test]
    fn what_is_meant_for_a_wrapped_server_is_no_mistake() {
        let with = |variables: &[(&str, &str)]| {
            let get = |name: &str| {
                let mut set = variables.iter();
                let value = set.find(|(key, _)| *key == name)?.1;
                Some(OsString::from(value))
            };
            Environment::for_wrap(get).map_err(|failure| failure.error.to_string())
        };
        let environment = with(&[
            ("MCP_ENDPOINT", "wss://example.com/mcp"),
            ("MCP_SOCKET_MODE", "rw"),
            ("MCP_MAX_BATCH", "many"),
            ("SYN_BACKEND_URL", "none"),
            ("MAINSTAY_TELEMETRY", "/there/events"),
        ]);
        let environment = environment.unwrap();
        assert_eq!(environment.endpoint, None);
        assert!(environment.telemetry.is_some());
        let socket = with(&[("MCP_ENDPOINT", "socket"), ("MCP_SOCKET_PATH", "/there/x")]);
        let socket = socket.unwrap();
        assert_eq!(socket.endpoint, Some(Endpoint::Socket));
        assert_eq!(socket.socket_path, Some(PathBuf::from("/there/x")));
        assert!(with(&[("MCP_ENDPOINT", "socket"), ("MCP_SOCKET_MODE", "rw")]).is_err());
    }

    #[test]
    fn every_mistake_is_named_with_what_to_set() {
        let said = with(&[
            ("MCP_ENDPOINT", "sokcet"),
            ("MCP_SOCKET_MODE", "rw"),
            ("SYN_SCHEMAS_DIR", "/absent"),
            ("SYN_EXAMPLES_DIR", "/there/examples"),
        ])
        .unwrap_err();
        assert!(
            said.contains("MCP_ENDPOINT is \"sokcet\"; set it to stdio, socket or http"),
            "{said}"
        );
        assert!(said.contains("MCP_SOCKET_MODE is \"rw\""), "{said}");
        assert!(
            said.contains("SYN_SCHEMAS_DIR is /absent, which is not a directory"),
            "{said}"
        );
        assert!(!said.contains("SYN_EXAMPLES_DIR"), "{said}");
    }

    #[test]
    fn what_is_read_is_what_the_table_lists() {
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let get = |name: &str| {
            asked.borrow_mut().insert(name.to_owned());
            None
        };
        Environment::from(get, |_| false)
            .map_err(|failure| failure.error)
            .unwrap();
        let listed = VARIABLES.iter().map(|variable| variable.name.to_owned());
        assert_eq!(asked.into_inner(), listed.collect());
    }

    #[test]
    fn settings_of_the_asset_pack_are_checked_and_never_shown() {
        let environment = with(&[
            ("MCP_MAX_BATCH", "7"),
            ("SYN_BACKEND_URL", "https://example.com/api"),
            ("SYN_BACKEND_ASSETS_PATH", "/assets/"),
            ("MAINSTAY_ALLOW_UNVALIDATED", "1"),
        ])
        .unwrap();
        assert_eq!(environment.max_batch, Some(7));
        assert_eq!(
            environment.backend_url.as_deref(),
            Some("https://example.com/api")
        );
        assert_eq!(environment.backend_assets_path.as_deref(), Some("/assets/"));
        assert_eq!(environment.allow_unvalidated, Some(true));
        let said = with(&[
            ("MCP_MAX_BATCH", "0"),
            ("SYN_BACKEND_URL", "ftp://me:secret@example.com"),
            ("SYN_BACKEND_ASSETS_PATH", "assets"),
            ("MAINSTAY_ALLOW_UNVALIDATED", "yes"),
        ])
        .unwrap_err();
        for part in [
            "MCP_MAX_BATCH cannot be used; set it to a number from 1 to 10000",
            "SYN_BACKEND_URL cannot be used; set it to a URL such as",
            "SYN_BACKEND_ASSETS_PATH cannot be used",
            "MAINSTAY_ALLOW_UNVALIDATED cannot be used; set it to 1 or 0",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("secret"), "{said}");
    }

    #[test]
    fn a_socket_mode_is_octal_and_lets_its_owner_in() {
        assert_eq!(
            with(&[("MCP_SOCKET_MODE", "0660")]).unwrap().socket_mode,
            Some(0o660)
        );
        assert!(with(&[("MCP_SOCKET_MODE", "0066")]).is_err());
        assert!(with(&[("MCP_SOCKET_MODE", "10777")]).is_err());
    }
}
