//! Where clients keep their servers, and what each of them is.

use super::tree::{Document, Kind, Member, Node, Span, Syntax};
use crate::values;

/// The forms that are known, for those who come with another.
pub(super) const KNOWN: &str = "known are: mcpServers in JSON (Claude Desktop, Claude Code, Cursor, and \
     others), its projects.PATH.mcpServers (Claude Code), servers or mcp.servers in JSON (VS Code), \
     context_servers in JSON (Zed), mcp in JSON (opencode), [mcp_servers.NAME] in TOML (Codex), and \
     extensions in YAML (goose)";

/// The argument that makes a host of us, and the one before the server's own command.
pub(super) const WRAP: &str = "wrap";
/// The argument that leads to the host of all clients.
pub(super) const SHARE: &str = "share";
pub(super) const DASHES: &str = "--";

/// Options that adopting writes between those two.
const NAME: &str = "--name";
const START_TIMEOUT: &str = "--start-timeout";
const SHARED: &str = "--shared";
const ENV: &str = "--env";
/// Members with a client's own start timeout, and the unit of their numbers.
const START_TIMEOUTS: [(&str, &str); 2] =
    [("startup_timeout_sec", "s"), ("startup_timeout_ms", "ms")];

/// What clients write for a server that they do not start themselves.
const REMOTE_TYPES: [&str; 6] = [
    "http",
    "sse",
    "streamable-http",
    "streamableHttp",
    "streamable_http",
    "ws",
];
const REMOTE_MEMBERS: [&str; 3] = ["url", "serverUrl", "httpUrl"];
/// Why a server that is not started by its client may have to stay.
const OVER_HTTP: &str = "it is reached over HTTP";
/// Members with which a client itself signs in.
const SIGN_IN: [&str; 5] = ["oauth", "auth", "authorization", "scopes", "oauth_resource"];
/// Members of which one is enough.
const ONCE: [&str; 9] = [
    "url",
    "type",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "env",
    "command",
    "args",
];
/// Types of goose's extensions that goose runs itself.
const OWN_TYPES: [&str; 4] = ["builtin", "platform", "frontend", "inline_python"];
const UNUSUAL_REMOTE: &str =
    "it is reached over HTTP in a form of this client alone; use mainstay wrap --url";
/// Options for a server at a URL.
pub(super) const URL: &str = "--url";
pub(super) const URL_TYPE: &str = "--url-type";
pub(super) const TOKEN_ENV: &str = "--token-env";
pub(super) const HEADER_ENV: &str = "--header-env";

/// The members with which a client writes how it starts a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `command`, `args` and `env`, as nearly all clients write it.
    Common,
    /// `path`, `args` and `env`, inside the member `command` of an entry: Zed, formerly.
    Nested,
    /// `command` is a list with program and arguments, beside `environment`: opencode.
    List,
    /// `cmd`, `args` and `envs`: goose.
    Goose,
}

impl Form {
    fn of(member: &Member, syntax: Syntax, may_be_list: bool) -> Self {
        let command = member.value.get("command");
        let has_path = command.is_some_and(|command| command.value.get("path").is_some());
        match syntax {
            Syntax::Yaml => Self::Goose,
            Syntax::Toml => Self::Common,
            Syntax::Json if may_be_list && is_of_opencode(member) => Self::List,
            Syntax::Json if has_path => Self::Nested,
            Syntax::Json => Self::Common,
        }
    }

    const fn command(self) -> &'static str {
        match self {
            Self::Common | Self::List => "command",
            Self::Nested => "path",
            Self::Goose => "cmd",
        }
    }

    const fn env(self) -> &'static str {
        match self {
            Self::Common | Self::Nested => "env",
            Self::List => "environment",
            Self::Goose => "envs",
        }
    }
}

/// One server of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server<'d> {
    pub(super) name: &'d str,
    /// The project whose server it is, where a file has several.
    pub(super) project: Option<&'d str>,
    /// The table that holds the servers.
    pub(super) container: &'d Node,
    /// The table that says how it is started.
    pub(super) entry: &'d Node,
    pub(super) form: Form,
}

/// What a server is to us.
#[derive(Debug)]
pub(super) enum Standing<'d> {
    /// The client starts it.
    Plain(Started<'d>),
    /// The client reaches it at a URL.
    Remote(Reached<'d>),
    /// The client starts us, and we start it, or reach it at its URL.
    Wrapped(Wrapped<'d>),
    /// It is none of our business, for this reason.
    Foreign(&'static str),
}

/// A program with its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started<'d> {
    pub(super) command: &'d Member,
    pub(super) program: &'d str,
    pub(super) args: Option<&'d Member>,
    pub(super) items: &'d [Node],
    /// Where program and arguments are one list: the item of the program.
    pub(super) in_list: Option<&'d Node>,
}

/// A server at a URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached<'d> {
    pub(super) url: &'d Member,
    pub(super) kind: Option<&'d Member>,
    pub(super) headers: Option<&'d Member>,
    /// Headers, as Codex calls them.
    pub(super) http_headers: Option<&'d Member>,
    /// The variables of Codex that hold headers, by their names.
    pub(super) env_headers: Option<&'d Member>,
    /// The variable of Codex that holds the bearer token.
    pub(super) token: Option<&'d Member>,
}

impl Reached<'_> {
    /// True if it has members that only Codex knows.
    pub(super) const fn is_of_codex(&self) -> bool {
        self.http_headers.is_some() || self.env_headers.is_some() || self.token.is_some()
    }
}

/// A server behind `mainstay wrap`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrapped<'d> {
    /// What the client starts: us.
    pub(super) outer: Started<'d>,
    /// Index of the server's own program among our arguments; none if a file names it.
    pub(super) inner: Option<usize>,
    /// Index of the server's URL among our arguments, if it is reached at one.
    pub(super) url: Option<usize>,
}

impl<'d> Wrapped<'d> {
    /// Our options: what stands between the word wrap and the dashes.
    pub(super) fn options(&self) -> &'d [Node] {
        let end = self.inner.or(self.url);
        let end = end.map_or(0, |end| end.saturating_sub(1));
        self.outer.items.get(1..end).unwrap_or_default()
    }
}

/// The servers of a document, in the order of the text; none if it has no place for any.
pub(super) fn find(document: &Document) -> Option<Vec<Server<'_>>> {
    let root = &document.root;
    let mut containers: Vec<(Option<&str>, &Node)> = Vec::new();
    // Of these the command may be a list.
    let mut of_mcp: Vec<Span> = Vec::new();
    let mut add = |name: &'static str| containers.extend(root.all(name).map(|m| (None, &m.value)));
    match document.syntax {
        Syntax::Toml => add("mcp_servers"),
        Syntax::Yaml => add("extensions"),
        Syntax::Json => {
            let direct = ["mcpServers", "servers", "mcp.servers", "context_servers"];
            direct.into_iter().for_each(add);
            for mcp in root.all("mcp") {
                for servers in mcp.value.all("servers") {
                    of_mcp.push(servers.value.span.clone());
                    containers.push((None, &servers.value));
                }
                if mcp.value.members().iter().any(is_of_opencode) {
                    of_mcp.push(mcp.value.span.clone());
                    containers.push((None, &mcp.value));
                }
            }
            for project in root.all("projects").flat_map(|all| all.value.members()) {
                let name = Some(project.name.as_str());
                let inner = project.value.all("mcpServers");
                containers.extend(inner.map(|member| (name, &member.value)));
            }
        }
    }
    containers.retain(|(_, container)| container.is_table());
    if containers.is_empty() {
        return None;
    }
    let is_mcp = |container: &Node| {
        let mut all = root.all("mcp");
        all.any(|mcp| mcp.value.span == container.span)
    };
    let mut servers: Vec<Server<'_>> = containers
        .into_iter()
        .flat_map(|(project, container)| {
            // The other members of this object are not servers.
            let is_mixed = document.syntax == Syntax::Json && is_mcp(container);
            let may_be_list = of_mcp.contains(&container.span);
            let members = container.members().iter();
            members
                .filter(move |member| !is_mixed || is_of_opencode(member))
                .map(move |member| {
                    let form = Form::of(member, document.syntax, may_be_list);
                    Server::new(member, project, container, form)
                })
        })
        .collect();
    servers.sort_by_key(|server| server.entry.span.start);
    Some(servers)
}

/// True for a server as opencode writes it.
fn is_of_opencode(member: &Member) -> bool {
    let kind = member.value.get("type");
    let kind = kind.and_then(|kind| kind.value.as_text());
    matches!(kind, Some("local" | "remote")) || has_list(&member.value)
}

/// True if the command of an entry is a list.
fn has_list(entry: &Node) -> bool {
    let command = entry.get("command");
    command.is_some_and(|command| matches!(command.value.kind, Kind::List(_)))
}

impl<'d> Server<'d> {
    fn new(member: &'d Member, project: Option<&'d str>, container: &'d Node, form: Form) -> Self {
        let entry = &member.value;
        let nested = entry.get("command").filter(|_| form == Form::Nested);
        Server {
            name: &member.name,
            project,
            container,
            entry: nested.map_or(entry, |command| &command.value),
            form,
        }
    }

    /// The variables with which the client starts it.
    pub(super) fn env(&self) -> Option<&'d Member> {
        self.entry.get(self.form.env())
    }

    /// What people call it.
    pub(super) fn label(&self) -> String {
        match self.project {
            Some(project) => format!("{} ({project})", self.name),
            None => self.name.to_owned(),
        }
    }

    /// The options that adopting it writes: its name in the file, and the client's own start timeout.
    pub(super) fn options(&self, document: &Document) -> Vec<String> {
        let mut options = self.name_option();
        let timeout = START_TIMEOUTS.iter().find_map(|(member, unit)| {
            let number = &self.entry.get(member)?.value;
            let text = format!("{}{unit}", document.slice(number.span.clone()));
            values::time(&text).is_ok().then_some(text)
        });
        options.extend(
            timeout
                .into_iter()
                .flat_map(|time| [START_TIMEOUT.to_owned(), time]),
        );
        options
    }

    /// The options of `mainstay share`: the variables that the entry sets reach the server, too.
    pub(super) fn share_options(&self, is_declared: bool) -> Vec<String> {
        let mut options = self.name_option();
        options.extend(is_declared.then(|| SHARED.to_owned()));
        let variables = self.env().into_iter();
        for variable in variables.flat_map(|env| env.value.members()) {
            options.extend([ENV.to_owned(), variable.name.clone()]);
        }
        options
    }

    fn name_option(&self) -> Vec<String> {
        match self.name {
            "" => Vec::new(),
            name if name.starts_with('-') => vec![format!("{NAME}={name}")],
            name => vec![NAME.to_owned(), name.to_owned()],
        }
    }

    /// Options without those that adopting writes, whatever the timeout was then. Earlier versions
    /// wrote none.
    pub(super) fn options_by_hand(&self, options: &[Node]) -> Vec<String> {
        let text = |option: &Node| option.as_text().unwrap_or_default().to_owned();
        let options: Vec<String> = options.iter().map(text).collect();
        let rest = options.strip_prefix(&self.name_option()[..]);
        let mut rest = rest.unwrap_or(&options);
        loop {
            rest = match rest {
                [option, _, rest @ ..] if option == START_TIMEOUT || option == ENV => rest,
                [option, rest @ ..] if option == SHARED => rest,
                rest => return rest.to_owned(),
            };
        }
    }

    /// What it is to us.
    pub(super) fn standing(&self) -> Standing<'d> {
        let started = match self.started() {
            Ok(started) => started,
            Err(OVER_HTTP) if self.form != Form::Common => {
                return Standing::Foreign(UNUSUAL_REMOTE);
            }
            Err(OVER_HTTP) => {
                return self
                    .reached()
                    .map_or_else(Standing::Foreign, Standing::Remote);
            }
            Err(reason) => return Standing::Foreign(reason),
        };
        let first = started.items.first().and_then(Node::as_text);
        let is_wrap = matches!(first, Some(WRAP | SHARE));
        if !(is_wrap && is_mainstay(started.program)) {
            return Standing::Plain(started);
        }
        let dashes = started
            .items
            .iter()
            .position(|item| item.as_text() == Some(DASHES));
        let inner = dashes
            .map(|dashes| dashes + 1)
            .filter(|inner| *inner < started.items.len());
        let url = started
            .items
            .iter()
            .position(|item| item.as_text() == Some(URL))
            .map(|option| option + 1)
            .filter(|url| inner.is_none() && *url < started.items.len());
        Standing::Wrapped(Wrapped {
            outer: started,
            inner,
            url,
        })
    }

    /// How the client reaches it at a URL, or why it must go on to.
    fn reached(&self) -> Result<Reached<'d>, &'static str> {
        let entry = self.entry;
        let members = entry.members();
        let once = |name: &str| entry.all(name).count() <= 1;
        if !ONCE.into_iter().all(once) {
            return Err("a member stands in it twice; remove one");
        }
        if members
            .iter()
            .any(|member| SIGN_IN.contains(&member.name.as_str()))
        {
            return Err("its client signs in for it; use mainstay wrap --url with a token");
        }
        if entry.get("command").is_some() || entry.get("args").is_some() {
            return Err("it is reached over HTTP and has a command; remove one of them");
        }
        if entry.get("env").is_some() || entry.get("env_vars").is_some() {
            return Err("it is reached over HTTP and has an env; remove it");
        }
        let url = entry.get("url").filter(|url| url.value.as_text().is_some());
        let Some(url) = url else {
            return Err("its URL is not under url; use mainstay wrap --url");
        };
        let text = url.value.as_text().unwrap_or_default();
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err("its URL is not one of http or https");
        }
        let kind = entry.get("type");
        if kind.is_some_and(|kind| kind.value.as_text() == Some("ws")) {
            return Err("it is reached over a WebSocket");
        }
        let is_plain = |table: &Member| {
            let mut members = table.value.members().iter();
            table.value.is_table() && members.all(|member| member.value.as_text().is_some())
        };
        let [headers, http_headers, env_headers] =
            ["headers", "http_headers", "env_http_headers"].map(|name| entry.get(name));
        let mut tables = [headers, http_headers, env_headers].into_iter().flatten();
        if !tables.all(is_plain) {
            return Err("its headers are not an object of texts");
        }
        let token = entry.get("bearer_token_env_var");
        let is_named = |token: &Member| token.value.as_text().is_some_and(|name| !name.is_empty());
        if token.is_some_and(|token| !is_named(token)) {
            return Err("its bearer_token_env_var is not the name of a variable");
        }
        Ok(Reached {
            url,
            kind,
            headers,
            http_headers,
            env_headers,
            token,
        })
    }

    /// How the client starts it, or why it does not.
    fn started(&self) -> Result<Started<'d>, &'static str> {
        let entry = self.entry;
        if !entry.is_table() {
            return Err("it is not an object");
        }
        let text = |name: &str| entry.get(name).and_then(|member| member.value.as_text());
        match text("type") {
            Some(kind) if REMOTE_TYPES.contains(&kind) => return Err(OVER_HTTP),
            Some("remote") if self.form == Form::List => return Err(OVER_HTTP),
            Some(kind) if self.form == Form::Goose && OWN_TYPES.contains(&kind) => {
                return Err("it is a part of its client");
            }
            _ => {}
        }
        let key = self.form.command();
        let Some(command) = entry.get(key) else {
            let is_remote = REMOTE_MEMBERS.iter().any(|name| entry.get(name).is_some());
            return Err(if is_remote {
                OVER_HTTP
            } else {
                "it has no command"
            });
        };
        if entry.all(key).count() > 1 || entry.all("args").count() > 1 {
            return Err("its command or args stand in it twice; remove one");
        }
        if self.form == Form::List {
            return started_by_list(command);
        }
        let program = match command.value.as_text() {
            Some("") => return Err("its command is empty"),
            Some(program) => program,
            None => return Err("its command is not a text"),
        };
        let args = entry.get("args");
        let items = match args.map(|args| &args.value.kind) {
            None => &[][..],
            Some(Kind::List(items)) if items.iter().all(|item| item.as_text().is_some()) => items,
            Some(_) => return Err("its args are not a list of texts"),
        };
        // VS Code then looks for the language's own program in the command.
        let debugged = entry.get("dev").and_then(|dev| dev.value.get("debug"));
        if debugged.is_some_and(|debug| debug.value.is_table()) {
            return Err("its client runs it under a debugger (dev.debug)");
        }
        Ok(Started {
            command,
            program,
            args,
            items,
            in_list: None,
        })
    }
}

/// A command whose first item is the program.
fn started_by_list(command: &Member) -> Result<Started<'_>, &'static str> {
    let Kind::List(all) = &command.value.kind else {
        return Err("its command is not a list of texts");
    };
    if all.iter().any(|item| item.as_text().is_none()) {
        return Err("its command is not a list of texts");
    }
    match all.split_first() {
        Some((first, items)) if first.as_text() != Some("") => Ok(Started {
            command,
            program: first.as_text().unwrap_or_default(),
            args: Some(command),
            items,
            in_list: Some(first),
        }),
        _ => Err("its command is empty"),
    }
}

/// Whether a command is one of us, wherever it is installed.
pub(super) fn is_mainstay(command: &str) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    name.starts_with("mainstay")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document::parse(text, Syntax::Json).unwrap()
    }

    fn labels(text: &str) -> Option<Vec<String>> {
        let document = document(text);
        find(&document).map(|servers| servers.iter().map(Server::label).collect())
    }

    #[test]
    fn servers_are_found_in_every_known_place() {
        let claude = r#"{"projects": {"/srv/p": {"mcpServers": {"b": {}}}, "/srv/q": {}},
            "mcpServers": {"a": {}}}"#;
        assert_eq!(labels(claude).unwrap(), ["b (/srv/p)", "a"]);
        assert_eq!(labels(r#"{"servers": {"a": {}}}"#).unwrap(), ["a"]);
        assert_eq!(labels(r#"{"mcp": {"servers": {"a": {}}}}"#).unwrap(), ["a"]);
        assert_eq!(labels(r#"{"mcp.servers": {"a": {}}}"#).unwrap(), ["a"]);
        assert!(labels(r#"{"mcpServers": {}}"#).unwrap().is_empty());
        assert_eq!(
            labels(r#"{"servers": [], "other": {"mcpServers": {}}}"#),
            None
        );
        let twice = r#"{"mcpServers": {"a": {}, "a": {}}, "mcpServers": {"a": {}}}"#;
        assert_eq!(labels(twice).unwrap(), ["a", "a", "a"]);
        let toml = "[mcp_servers.a]\ncommand = 'x'\n[other]\n";
        let toml = Document::parse(toml, Syntax::Toml).unwrap();
        assert_eq!(find(&toml).unwrap().len(), 1);
    }

    #[test]
    fn a_server_keeps_its_name_and_its_clients_start_timeout() {
        let options = |entry: &str| {
            let text = format!("[mcp_servers.files]\ncommand = 'x'\n{entry}\n");
            let document = Document::parse(&text, Syntax::Toml).unwrap();
            let servers = find(&document).unwrap();
            servers[0].options(&document).join(" ")
        };
        assert_eq!(options(""), "--name files");
        assert_eq!(
            options("startup_timeout_sec = 20"),
            "--name files --start-timeout 20s"
        );
        assert_eq!(
            options("startup_timeout_sec = 2.5"),
            "--name files --start-timeout 2.5s"
        );
        assert_eq!(
            options("startup_timeout_ms = 900"),
            "--name files --start-timeout 900ms"
        );
        assert_eq!(options("startup_timeout_sec = true"), "--name files");
        let document = document(r#"{"servers": {"-x": {}, "": {}}}"#);
        let servers = find(&document).unwrap();
        assert_eq!(servers[0].options(&document), ["--name=-x"]);
        assert!(servers[1].options(&document).is_empty());
    }

    #[test]
    fn what_a_server_is_shows_in_its_members() {
        let standing = |entry: &str| {
            let document = document(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#));
            let servers = find(&document).unwrap();
            match servers[0].standing() {
                Standing::Plain(started) => format!("plain {}", started.program),
                Standing::Wrapped(wrapped) => format!("wrapped {:?}", wrapped.inner),
                Standing::Remote(reached) => format!("remote {:?}", reached.url.value.as_text()),
                Standing::Foreign(reason) => reason.to_owned(),
            }
        };
        for (entry, expected) in [
            (r#"{"command": "npx"}"#, "plain npx"),
            (r#"{"command": "npx", "url": "x"}"#, "plain npx"),
            (r#"{"command": "mainstay"}"#, "plain mainstay"),
            (
                r#"{"command": "mainstay", "args": ["serve"]}"#,
                "plain mainstay",
            ),
            (
                r#"{"command": "sh", "args": ["wrap", "--", "x"]}"#,
                "plain sh",
            ),
            (
                r#"{"command": "/opt/mainstay", "args": ["wrap", "--", "x"]}"#,
                "wrapped Some(2)",
            ),
            (
                r#"{"command": "mainstay-0.2", "args": ["wrap", "--lazy", "--", "x", "--"]}"#,
                "wrapped Some(3)",
            ),
            (
                r#"{"command": "mainstay", "args": ["wrap", "--"]}"#,
                "wrapped None",
            ),
            (
                r#"{"command": "mainstay", "args": ["wrap", "--config", "x"]}"#,
                "wrapped None",
            ),
            (r#"{"url": "https://x"}"#, "remote Some(\"https://x\")"),
            (
                r#"{"type": "sse", "command": "x"}"#,
                "it is reached over HTTP and has a command; remove one of them",
            ),
            (
                r#"{"url": "https://x", "oauth": {}}"#,
                "its client signs in for it; use mainstay wrap --url with a token",
            ),
            (r#"{"disabled": true}"#, "it has no command"),
            (r#"{"command": ["npx"]}"#, "its command is not a text"),
            (r#"{"command": ""}"#, "its command is empty"),
            (
                r#"{"command": "x", "args": [1]}"#,
                "its args are not a list of texts",
            ),
            (
                r#"{"command": "x", "args": null}"#,
                "its args are not a list of texts",
            ),
            (
                r#"{"command": "x", "command": "y"}"#,
                "its command or args stand in it twice; remove one",
            ),
            (
                r#"{"command": "node", "dev": {"debug": {"type": "node"}}}"#,
                "its client runs it under a debugger (dev.debug)",
            ),
            (
                r#"{"command": "node", "dev": {"watch": "**"}}"#,
                "plain node",
            ),
            ("7", "it is not an object"),
        ] {
            assert_eq!(standing(entry), expected, "{entry}");
        }
    }
}
