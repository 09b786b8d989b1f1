//! The file that names a server to wrap: a client's own configuration, or ours.
//!
//! JSON as clients have it, with `mcpServers` (or VS Code's `servers`), each entry optionally with a
//! `mainstay` object; or TOML with the same under `[servers.NAME]`. What other programs keep in such
//! a file is left alone; what stands under `mainstay` must be known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use mainstay_contract::limits::Limits;
use mainstay_host::config::Remote;
use mainstay_host::wrap::Rules;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config_file::{self, ConfigFile, HOST_KEYS};
use crate::remote_server::{self, RemoteSettings};
use crate::secrets::{self, SecretSource, Secrets};
use crate::{config_words, sandbox};

/// Longest line of a client or of a wrapped server.
pub(crate) const FRAME_BYTES: usize = 16 * 1024 * 1024;

/// Keys under `mainstay` beside the rules and those of every host.
const MORE_KEYS: [&str; 7] = [
    "limits", "isolate", "prefix", "remote", "sandbox", "secrets", "shared",
];
/// Restrictions of a whole file, which a host of one server would leave out.
const OF_ALL_SERVERS: [&str; 2] = ["approvals", "quotas"];
/// Longest time for a server to open a session. The first start of `npx`, `uvx` or a container downloads
/// its program, and the client decides how long it waits for that.
const START_TIMEOUT_MS: u64 = 600_000;
/// For a server at a URL: sessions that are opened within a period, the longest pause before one, times that a call is
/// sent again, silence before a ping, and time for its answer.
const REMOTE_SESSIONS: u32 = 120;
const REMOTE_BACKOFF_MS: u64 = 1_000;
const REMOTE_REPLAYS: u32 = 8;
const REMOTE_PING_MS: u64 = 60_000;
const REMOTE_PONG_MS: u64 = 15_000;

/// One server of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerEntry {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// The values of secrets in `env`.
    pub(crate) secrets: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    /// The server at a URL, instead of a command.
    pub(crate) remote: Option<Remote>,
    pub(crate) rules: Rules,
    /// The host's own settings; only those of `HOST_KEYS` can be set here.
    pub(crate) host: ConfigFile,
    /// The names of those settings.
    pub(crate) host_keys: Vec<String>,
    /// What the file says about limits, over those of a wrapped server.
    pub(crate) limits: Limits,
    pub(crate) isolate: bool,
    pub(crate) sandbox: Option<sandbox::Settings>,
    /// The prefix of its names where it is served beside others.
    pub(crate) prefix: Option<String>,
    /// Its limits say if it has a standby.
    pub(crate) sets_standby: bool,
    /// One process serves all sessions, or each has its own; `None` if the file declares neither.
    pub(crate) shared: Option<bool>,
}

impl Default for ServerEntry {
    fn default() -> Self {
        Self {
            name: String::new(),
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            secrets: Vec::new(),
            cwd: None,
            remote: None,
            rules: Rules::default(),
            host: ConfigFile::default(),
            host_keys: Vec::new(),
            limits: default_limits(false),
            isolate: false,
            sandbox: None,
            prefix: None,
            sets_standby: false,
            shared: None,
        }
    }
}

impl ServerEntry {
    /// The variables, with the same mark in the place of every secret.
    pub(crate) fn env_without_secrets(&self) -> BTreeMap<String, String> {
        let env = self.env.iter();
        env.map(|(name, value)| (name.clone(), secrets::without(value, &self.secrets)))
            .collect()
    }
}

/// The limits of a wrapped server, where nothing else is said.
pub(crate) fn default_limits(is_remote: bool) -> Limits {
    let mut limits = Limits::default();
    if is_remote {
        // A new session costs a server little, and a network fails more often than a process. A ping is a request
        // to a machine of others.
        limits.restarts = REMOTE_SESSIONS;
        limits.backoff_max_ms = REMOTE_BACKOFF_MS;
        limits.replays = REMOTE_REPLAYS;
        limits.ping_interval_ms = REMOTE_PING_MS;
        limits.ping_timeout_ms = REMOTE_PONG_MS;
    }
    Limits {
        request_frame_bytes: FRAME_BYTES,
        worker_frame_bytes: FRAME_BYTES,
        // A server decides itself how much it does at a time.
        pool: limits.in_flight,
        start_timeout_ms: START_TIMEOUT_MS,
        ..limits
    }
}

/// Those limits, with what a file says instead.
fn limits_of(written: Option<Value>, is_remote: bool) -> anyhow::Result<Limits> {
    let mut limits = serde_json::to_value(default_limits(is_remote))?;
    match (limits.as_object_mut(), written) {
        (Some(limits), Some(Value::Object(written))) => limits.extend(written),
        (_, None) => {}
        _ => bail!("it must be a table"),
    }
    Ok(serde_json::from_value(limits)?)
}

/// What clients write; members that we do not know are theirs.
#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    mainstay: Map<String, Value>,
}

impl Written {
    /// Reads an entry. A mistake names its member.
    fn of(entry: &Value) -> anyhow::Result<Self> {
        let error = match serde_json::from_value(entry.clone()) {
            Ok(written) => return Ok(written),
            Err(error) => error,
        };
        let mut members = entry.as_object().into_iter().flatten();
        let wrong = members.find_map(|(name, value)| {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            let error = serde_json::from_value::<Self>(Value::Object(alone)).err()?;
            Some(anyhow!("{name}: {error}"))
        });
        Err(wrong.unwrap_or_else(|| error.into()))
    }
}

/// Every server of a file that `serve` starts, by its key. Clients leave out those with `disabled`.
pub(crate) fn entries(
    servers: &Map<String, Value>,
    secrets: &Secrets,
    variable: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Vec<ServerEntry>> {
    let is_disabled = |entry: &Value| entry.get("disabled") == Some(&Value::Bool(true));
    let enabled = servers.iter().filter(|(_, entry)| !is_disabled(entry));
    let mut entries = Vec::new();
    for (name, entry) in enabled {
        let entry = read(name, entry, false, secrets, variable);
        let entry = entry.map_err(|error| config_words::explain(&error));
        let mut entry = entry.with_context(|| format!("server {name}"))?;
        // The host's own keys have their place beside the servers.
        let lock = entry.host.lock.take();
        if entry.host != ConfigFile::default() {
            let keys: Vec<&str> = HOST_KEYS.into_iter().filter(|key| *key != "lock").collect();
            let keys = keys.join(", ");
            bail!(
                "server {name}: under mainstay: of the host's keys only lock belongs here; set {keys} beside the servers"
            );
        }
        entry.host.lock = lock;
        if entry.rules.has_tasks() {
            bail!(
                "server {name}: under mainstay: tasks belong to a server that is wrapped alone; use mainstay wrap --tasks"
            );
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Reads the one server that is meant.
pub(crate) fn load(
    path: &Path,
    wanted: Option<&str>,
    is_remote: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<ServerEntry> {
    let (text, is_json) = config_file::read(path)?;
    parse(&text, is_json, wanted, is_remote, &variable)
        .map_err(|error| config_words::explain(&error))
        .with_context(|| path.display().to_string())
}

fn parse(
    text: &str,
    is_json: bool,
    wanted: Option<&str>,
    is_remote: bool,
    variable: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<ServerEntry> {
    let file: Value = if is_json {
        serde_json::from_str(text)?
    } else {
        toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?
    };
    let ours = match is_json {
        true => file.get("mainstay"),
        false => Some(&file),
    };
    let has = |key: &&str| ours.is_some_and(|ours| ours.get(key).is_some());
    if let Some(key) = OF_ALL_SERVERS.iter().find(|key| has(key)) {
        bail!(
            "{key} of all servers of a file is for mainstay serve; write it under mainstay of the server, or leave it out"
        );
    }
    let source = ours.and_then(|ours| ours.get("secrets"));
    let secrets = Secrets::new(source_of(source.cloned())?);
    let servers = ["mcpServers", "servers", "mcp_servers"]
        .iter()
        .find_map(|key| file.get(key)?.as_object())
        .ok_or_else(|| anyhow!("the file has no mcpServers (JSON) or [servers.NAME] (TOML)"))?;
    let names = || servers.keys().cloned().collect::<Vec<_>>().join(", ");
    let (name, entry) = match wanted {
        Some(wanted) => servers
            .get_key_value(wanted)
            .ok_or_else(|| anyhow!("there is no server {wanted:?}; the file has {}", names()))?,
        None if servers.len() == 1 => servers
            .iter()
            .next()
            .ok_or_else(|| anyhow!("the file has no server"))?,
        None if servers.is_empty() => bail!("the file has no server; add one to mcpServers"),
        None => bail!(
            "the file has several servers ({}); choose one with --server",
            names()
        ),
    };
    read(name, entry, is_remote, &secrets, variable).with_context(|| format!("server {name}"))
}

/// Reads an entry. `is_remote` says that its rules are for a server at another URL.
fn read(
    name: &str,
    entry: &Value,
    is_remote: bool,
    secrets: &Secrets,
    variable: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<ServerEntry> {
    let mut written = Written::of(entry)?;
    let expand = |text: &str| expand(text, variable);
    let is_remote = is_remote || remote_server::is_remote(entry);
    let ours = &mut written.mainstay;
    let known = || Rules::KEYS.into_iter().chain(MORE_KEYS).chain(HOST_KEYS);
    if let Some(unknown) = ours.keys().find(|key| !known().any(|known| known == *key)) {
        let known: Vec<String> = known().map(|key| format!("`{key}`")).collect();
        let known = known.join(", ");
        bail!("under mainstay: unknown field `{unknown}`, expected one of {known}");
    }
    let of_host = HOST_KEYS.iter().filter_map(|key| ours.remove_entry(*key));
    let of_host: Map<String, Value> = of_host.collect();
    let host_keys = of_host.keys().cloned().collect();
    let host: ConfigFile =
        serde_json::from_value(Value::Object(of_host)).context("under mainstay")?;
    let limits = ours.remove("limits");
    let prefix = ours.remove("prefix");
    let remote = ours.remove("remote").map(serde_json::from_value);
    let remote: Option<RemoteSettings> = remote.transpose().context("under mainstay.remote")?;
    let sandbox = match ours.remove("sandbox") {
        Some(value) => sandbox::Settings::from_value(value).context("under mainstay.sandbox")?,
        None => None,
    };
    let own = ours.remove("secrets");
    let own = own.map(|own| source_of(Some(own)).map(Secrets::of_server));
    let own = own.transpose().context("under mainstay")?;
    let secrets = own.as_ref().unwrap_or(secrets);
    let shared = ours.remove("shared");
    let isolate = ours
        .remove("isolate")
        .map(serde_json::from_value)
        .transpose();
    let mut rules: Rules =
        serde_json::from_value(Value::Object(std::mem::take(ours))).context("under mainstay")?;
    let mut mistakes = rules.check();
    if prefix.as_ref().is_some_and(|prefix| !prefix.is_string()) {
        mistakes.push("prefix must be a string".to_owned());
    }
    if shared.as_ref().is_some_and(|shared| !shared.is_boolean()) {
        mistakes.push("shared must be true or false".to_owned());
    }
    mistakes.extend(host.check_host());
    let sets = |key: &str| {
        limits
            .as_ref()
            .is_some_and(|limits| limits.get(key).is_some())
    };
    let (sets_timeout, sets_standby) = (sets("call_timeout_ms"), sets("standby"));
    let limits = limits_of(limits, is_remote).context("under mainstay.limits")?;
    if sets_timeout {
        rules.timeout_ms.get_or_insert(limits.call_timeout_ms);
    }
    if let Err(wrong) = limits.check() {
        mistakes.extend(wrong.iter().map(ToString::to_string));
    }
    if !mistakes.is_empty() {
        bail!("under mainstay: {}", mistakes.join("; "));
    }
    let remote = match entry
        .as_object()
        .filter(|_| remote_server::is_remote(entry))
    {
        Some(members) => {
            let settings = remote.unwrap_or_default();
            Some(remote_server::of_entry(
                members,
                settings,
                variable,
                &expand,
                &|text: &str| secrets.fill(text, expand),
            )?)
        }
        None if remote.is_some() && !is_remote => {
            bail!("under mainstay: remote belongs to a server with a url")
        }
        None => None,
    };
    let (mut env, mut values) = (BTreeMap::new(), Vec::new());
    for (key, value) in &written.env {
        let filled = secrets.fill(value, expand);
        let (value, of_value) = filled.with_context(|| format!("env {key}"))?;
        env.insert(key.clone(), value);
        values.extend(of_value);
    }
    Ok(ServerEntry {
        name: name.to_owned(),
        command: expand(written.command.as_deref().unwrap_or_default())?,
        args: written
            .args
            .iter()
            .map(|arg| expand(arg))
            .collect::<Result<_, _>>()?,
        env,
        secrets: values,
        cwd: match &written.cwd {
            Some(cwd) => Some(expand(&cwd.to_string_lossy())?.into()),
            None => None,
        },
        remote,
        rules,
        host,
        host_keys,
        limits,
        isolate: isolate.context("under mainstay.isolate")?.unwrap_or(false),
        sandbox,
        prefix: prefix.and_then(|prefix| prefix.as_str().map(str::to_owned)),
        sets_standby,
        shared: shared.as_ref().and_then(Value::as_bool),
    })
}

fn source_of(written: Option<Value>) -> anyhow::Result<SecretSource> {
    let source = written.map(serde_json::from_value).transpose();
    Ok(source.context("secrets")?.unwrap_or_default())
}

/// `${NAME}` and `${NAME:-default}`, as most clients have them.
fn expand(text: &str, variable: &impl Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((inside, behind)) = after.split_once('}') else {
            bail!("{text:?} has a ${{ that is not closed");
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if name.starts_with("secret:") {
            bail!(
                "{text:?} has the reference ${{{inside}}}, which is filled in only in the values of env and headers: \
                 arguments, paths and URLs are visible to every user of this machine"
            );
        }
        // VS Code asks for these itself, and nobody is there to be asked.
        if name.contains(':') {
            bail!("{text:?} needs {inside:?}, which only the client can fill in");
        }
        match variable(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => expanded.push_str(&value),
            None => bail!("the variable {name} is not set; set it, or write ${{{name}:-default}}"),
        }
        rest = behind;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "HOME").then(|| "/srv/me".to_owned())
    }

    #[test]
    fn a_clients_file_is_read_as_it_stands() {
        let text = r#"{"theirs": 1, "mcpServers": {"files": {"type": "stdio", "command": "npx",
            "args": ["-y", "server", "${HOME}/x", "${ABSENT:-y}"], "env": {"A": "${HOME}"},
            "mainstay": {"timeout_ms": 5000, "tools": {"write": {"replay": "convergent"}},
                "limits": {"queue": 3}}}}}"#;
        let entry = parse(text, true, None, false, &variable).unwrap();
        assert_eq!(entry.name, "files");
        assert_eq!(entry.args, ["-y", "server", "/srv/me/x", "y"]);
        assert_eq!(entry.env["A"], "/srv/me");
        assert_eq!(entry.rules.timeout_ms, Some(5000));
        assert_eq!((entry.limits.queue, entry.limits.pool), (3, 128));
        assert_eq!(entry.limits.start_timeout_ms, 600_000);
    }

    #[test]
    fn a_server_at_a_url_is_read_with_its_limits() {
        let text = r#"{"servers": {"a": {"type": "http", "url": "https://${HOME}x/mcp",
            "mainstay": {"limits": {"replays": 2}, "remote": {"token_file": "/t"}}}}}"#;
        let text = text.replace("${HOME}x", "h");
        let entry = parse(&text, true, None, false, &variable).unwrap();
        let remote = entry.remote.unwrap();
        assert_eq!(remote.shown(), "https://h/mcp");
        assert!(remote.token.is_some());
        assert_eq!(
            (entry.limits.replays, entry.limits.restarts),
            (2, REMOTE_SESSIONS)
        );
    }

    #[test]
    fn toml_says_the_same() {
        let text = "[servers.files]\ncommand = \"npx\"\n[servers.files.mainstay]\nlazy = true\n";
        let entry = parse(text, false, Some("files"), false, &variable).unwrap();
        assert!(entry.rules.lazy && entry.command == "npx");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let said = |text: &str, wanted| {
            let error = parse(text, true, wanted, false, &variable).unwrap_err();
            format!("{error:#}")
        };
        let two = r#"{"mcpServers": {"a": {}, "b": {}}}"#;
        assert!(said(two, None).contains("several servers (a, b)"));
        assert!(said(two, Some("c")).contains("no server \"c\""));
        let unknown = r#"{"mcpServers": {"a": {"command": "x", "mainstay": {"tiemout_ms": 1}}}}"#;
        let said_unknown = said(unknown, None);
        assert!(
            said_unknown.contains("server a: under mainstay: unknown field `tiemout_ms`"),
            "{said_unknown}"
        );
        for key in ["`timeout_ms`", "`lock`", "`limits`", "`isolate`", "`http`"] {
            assert!(said_unknown.contains(key), "{said_unknown}");
        }
        let alone = r#"{"mcpServers": {"a": {"command": "x", "mainstay": {"remote": {}}}}}"#;
        assert!(said(alone, None).contains("belongs to a server with a url"));
        for key in OF_ALL_SERVERS {
            let text = format!(
                r#"{{"mainstay": {{"{key}": {{}}}}, "mcpServers": {{"a": {{"command": "x"}}}}}}"#
            );
            assert!(said(&text, None).contains("for mainstay serve"), "{key}");
        }
        let unset = r#"{"mcpServers": {"a": {"command": "${NOPE}"}}}"#;
        assert!(said(unset, None).contains("NOPE is not set"));
        let input = r#"{"servers": {"a": {"command": "x", "args": ["${input:key}"]}}}"#;
        assert!(said(input, None).contains("only the client can fill in"));
    }
}
