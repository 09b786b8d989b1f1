//! The configuration file: TOML, or JSON with a `mainstay` object. Unknown keys are errors, with
//! their place.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use mainstay_contract::limits::Limits;
use mainstay_host::SettingsFile;
use mainstay_host::config::{EnvelopeMode, Policy, ToolListRules, ToolQuotas, TreeKill};
use mainstay_host::tasks::TaskRules;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::args::{LogLevel, Render};
use crate::exit::{self, Failure};
use crate::secrets::SecretSource;
use crate::start;
use crate::{config_words, json_comments, sandbox, values};

/// Largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Everything a file can set. Each option and variable of a host has its key here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    pub(crate) limits: Limits,
    pub(crate) packs: BTreeMap<String, PackSection>,
    /// Servers that are served beside the packs, as clients write them.
    #[serde(alias = "mcp_servers", alias = "mcpServers")]
    pub(crate) servers: Map<String, Value>,
    pub(crate) roots: Roots,
    /// The rules for calls of all servers and packs.
    pub(crate) approvals: Policy,
    /// Where the values of `${secret:NAME}` come from.
    pub(crate) secrets: SecretSource,
    /// By what means the trees of workers are killed.
    pub(crate) tree_kill: TreeKill,
    pub(crate) render: Option<Render>,
    // The keys from here on are those of `HOST_KEYS`.
    pub(crate) name: Option<String>,
    pub(crate) socket: Option<PathBuf>,
    #[serde(deserialize_with = "socket_mode")]
    pub(crate) socket_mode: Option<u32>,
    #[serde(deserialize_with = "address")]
    pub(crate) http: Option<SocketAddr>,
    pub(crate) allow_host: Vec<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) issuer: Option<String>,
    pub(crate) issuer_keys: Option<PathBuf>,
    pub(crate) resource: Option<String>,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) lock: Option<PathBuf>,
    pub(crate) telemetry: Option<PathBuf>,
    pub(crate) envelopes: Option<EnvelopeMode>,
    pub(crate) log: Option<LogLevel>,
    /// The settings of `tools/list`.
    pub(crate) tool_list: ToolListRules,
    /// Quotas of each caller, by tool.
    pub(crate) quotas: ToolQuotas,
    pub(crate) watch: Option<Watch>,
    pub(crate) audit: Option<PathBuf>,
    pub(crate) audit_anchor: Option<PathBuf>,
    pub(crate) audit_key: Option<PathBuf>,
    pub(crate) approver_token_file: Option<PathBuf>,
}

/// `watch`: a host of packs knows their files itself, a server's are named.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "watch must be true or false for packs, a list of paths for a server"
)]
pub(crate) enum Watch {
    Packs(bool),
    Paths(Vec<PathBuf>),
}

/// Keys that every host can have: also one that wraps a server, under the server's `mainstay`.
pub(crate) const HOST_KEYS: [&str; 21] = [
    "name",
    "socket",
    "socket_mode",
    "http",
    "allow_host",
    "token_file",
    "issuer",
    "issuer_keys",
    "resource",
    "ready_file",
    "lock",
    "telemetry",
    "envelopes",
    "log",
    "tool_list",
    "quotas",
    "watch",
    "audit",
    "audit_anchor",
    "audit_key",
    "approver_token_file",
];

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    let address = values::address(&text);
    address
        .map(Some)
        .map_err(|wanted| D::Error::custom(format!("{text:?}: {wanted}")))
}

fn socket_mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(from)?;
    let mode = values::socket_mode(&text);
    mode.map(Some)
        .map_err(|wanted| D::Error::custom(format!("{text:?}: {wanted}")))
}

fn sandbox<'de, D: Deserializer<'de>>(from: D) -> Result<Option<sandbox::Settings>, D::Error> {
    let value = Value::deserialize(from)?;
    sandbox::Settings::from_value(value).map_err(D::Error::custom)
}

/// One pack.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PackSection {
    /// False keeps a built-in pack, or this one, from being served where `--pack` names none.
    pub(crate) enabled: Option<bool>,
    /// Program and arguments, for a pack that is not built in.
    pub(crate) command: Option<Vec<String>>,
    /// The pack's own settings.
    pub(crate) settings: Option<Value>,
    /// The restrictions of its processes.
    #[serde(deserialize_with = "sandbox")]
    pub(crate) sandbox: Option<sandbox::Settings>,
    /// Settings for single tools of the pack.
    pub(crate) tools: TaskRules,
}

/// Directories that packs may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Roots {
    pub(crate) schemas: Option<PathBuf>,
    pub(crate) examples: Option<PathBuf>,
}

/// A JSON configuration of ours alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonFile {
    #[serde(default)]
    mainstay: ConfigFile,
}

/// The ecosystem's file, with our object beside the servers. Other members belong to other programs.
#[derive(Debug, Deserialize)]
struct ServersFile {
    #[serde(default)]
    mainstay: ConfigFile,
    #[serde(alias = "mcpServers", alias = "mcp_servers")]
    servers: Map<String, Value>,
}

/// The text of a configuration, and whether it is JSON rather than TOML.
pub(crate) fn read(path: &Path) -> anyhow::Result<(String, bool)> {
    let cannot = || format!("cannot read {}", path.display());
    let file = start::read(path, MAX_BYTES).with_context(cannot)?;
    if let Some(warning) = untrusted(&file) {
        exit::warn_once(format!("{} {warning}", path.display()));
    }
    let text = String::from_utf8(file.bytes).with_context(cannot)?;
    let extension = path.extension().and_then(OsStr::to_str);
    // No TOML begins like this.
    let begins = text.trim_start_matches('\u{feff}').trim_start();
    let is_json = matches!(extension, Some("json" | "jsonc")) || begins.starts_with(['{', '/']);
    let text = if is_json {
        json_comments::remove(&text)
    } else {
        text
    };
    Ok((text, is_json))
}

/// The reason why other users can decide what a configuration starts.
fn untrusted(file: &SettingsFile) -> Option<&'static str> {
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&file.uid);
    if file.mode & 0o002 != 0 {
        return Some("can be written by every user, and names programs to run: chmod o-w");
    }
    (!ours).then_some("belongs to another user, and names programs to run")
}

impl ConfigFile {
    /// The file that `--config` names, or an empty one.
    pub(crate) fn named(path: Option<&Path>) -> Result<Self, Failure> {
        match path {
            Some(path) => Self::load(path).map_err(Failure::input),
            None => Ok(Self::default()),
        }
    }

    /// Reads and checks a file.
    fn load(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let (text, is_json) = read(path)?;
        let config = Self::parse(&text, is_json)
            .map_err(|error| config_words::explain(&error))
            .with_context(|| shown.to_string())?;
        config.check().with_context(|| shown.to_string())?;
        Ok(config)
    }

    fn parse(text: &str, is_json: bool) -> anyhow::Result<Self> {
        if !is_json {
            return toml::from_str(text)
                .map_err(|error| anyhow!("{}", error.to_string().trim_end()));
        }
        // An empty list would pass for a table of which every key is left out.
        if text.trim_start().starts_with('[') {
            bail!("the file holds a list; write an object with the members mainstay or mcpServers");
        }
        let has_servers = |file: &Value| {
            let keys = ["mcpServers", "servers", "mcp_servers"];
            keys.iter().any(|key| file.get(key).is_some())
        };
        // A mistake in the syntax is named before keys that would be unknown.
        let file: Value = serde_json::from_str(text)?;
        if has_servers(&file) {
            let ServersFile {
                mut mainstay,
                servers,
            } = serde_json::from_str(text)?;
            mainstay.servers.extend(servers);
            return Ok(mainstay);
        }
        Ok(serde_json::from_str::<JsonFile>(text)?.mainstay)
    }

    fn check(&self) -> anyhow::Result<()> {
        let mut mistakes: Vec<String> = match self.limits.check() {
            Ok(()) => Vec::new(),
            Err(wrong) => wrong.iter().map(ToString::to_string).collect(),
        };
        mistakes.extend(self.check_host());
        mistakes.extend(self.approvals.check());
        for (name, pack) in &self.packs {
            if pack.command.as_ref().is_some_and(Vec::is_empty) {
                mistakes.push(format!("packs.{name}.command is empty; name a program"));
            }
            if pack
                .settings
                .as_ref()
                .is_some_and(|settings| !settings.is_object())
            {
                mistakes.push(format!("packs.{name}.settings must be a table"));
            }
        }
        for (name, root) in [
            ("schemas", &self.roots.schemas),
            ("examples", &self.roots.examples),
        ] {
            if let Some(root) = root
                .as_ref()
                .filter(|root| !root.is_dir() && !start::is_continuing())
            {
                mistakes.push(format!(
                    "roots.{name} is {}, which is not a directory",
                    root.display()
                ));
            }
        }
        if mistakes.is_empty() {
            Ok(())
        } else {
            bail!("{}", mistakes.join("; "))
        }
    }
}

impl ConfigFile {
    /// Mistakes in the keys that every host can have.
    pub(crate) fn check_host(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.socket.is_some() && self.http.is_some() {
            mistakes.push("socket and http exclude each other; keep one".to_owned());
        }
        if self.issuer.is_some() != self.issuer_keys.is_some() {
            mistakes.push("issuer and issuer_keys go together; set both".to_owned());
        }
        mistakes
    }
}

/// Reads any bytes as a configuration; for tests with hostile input.
#[cfg(test)]
fn parse_any(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for is_json in [false, true] {
        if let Ok(config) = ConfigFile::parse(&text, is_json) {
            let _ = config.check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_the_syntax_is_named_as_one() {
        let error = ConfigFile::parse("{\"mcpServers\": {", true).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("EOF") && !said.contains("unknown"), "{said}");
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = ConfigFile::parse(
            "[limits]\nqueue = 8\n[packs.ledger]\ncommand = [\"ledger\", \"--file\", \"x\"]\n",
            false,
        )
        .unwrap();
        let json = ConfigFile::parse(
            r#"{"mainstay": {"limits": {"queue": 8},
                "packs": {"ledger": {"command": ["ledger", "--file", "x"]}}}}"#,
            true,
        )
        .unwrap();
        assert_eq!(toml, json);
        assert_eq!(toml.limits.queue, 8);
        assert_eq!(toml.limits.pool, Limits::default().pool);
    }

    #[test]
    fn unknown_keys_are_refused_with_their_place() {
        let error = ConfigFile::parse("[limits]\nqueu = 8\n", false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2") && error.contains("queu"),
            "{error}"
        );
        let json = "{\"mainstay\": {\n \"limit\": {}}}";
        let error = ConfigFile::parse(json, true).unwrap_err().to_string();
        assert!(
            error.contains("unknown field `limit`") && error.contains("line 2"),
            "{error}"
        );
    }

    #[test]
    fn servers_are_read_as_every_client_writes_them() {
        let entry = r#"{"files": {"command": "npx"}}"#;
        let toml = "name = \"x\"\n[servers.files]\ncommand = \"npx\"\n";
        let toml = ConfigFile::parse(toml, false).unwrap();
        let codex = "name = \"x\"\n[mcp_servers.files]\ncommand = \"npx\"\n";
        assert_eq!(ConfigFile::parse(codex, false).unwrap(), toml);
        for key in ["mcpServers", "servers"] {
            let text = format!(
                r#"{{"theirs": 1, "inputs": [], "mainstay": {{"name": "x"}}, "{key}": {entry}}}"#
            );
            assert_eq!(ConfigFile::parse(&text, true).unwrap(), toml, "{key}");
        }
        let twice = format!(r#"{{"mcpServers": {entry}, "servers": {entry}}}"#);
        let error = ConfigFile::parse(&twice, true).unwrap_err().to_string();
        assert!(error.contains("duplicate field"), "{error}");
    }

    #[test]
    fn every_mistake_is_reported() {
        let text = "[limits]\nqueue = 0\npool = 0\n[packs.x]\ncommand = []\n[roots]\nschemas = \"/absent\"\n";
        let error = ConfigFile::parse(text, false)
            .unwrap()
            .check()
            .unwrap_err()
            .to_string();
        for part in [
            "limits.queue",
            "limits.pool",
            "packs.x.command",
            "roots.schemas",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn every_host_key_is_a_key_of_the_file() {
        for key in HOST_KEYS {
            let error = ConfigFile::parse(&format!("{key} = 1.5"), false).unwrap_err();
            assert!(!error.to_string().contains("unknown field"), "{error}");
        }
        let file = ConfigFile::parse(
            "http = \"localhost:8080\"\nsocket_mode = \"0660\"\nlog = \"warn\"\n",
            false,
        );
        let file = file.unwrap();
        assert_eq!(file.http, Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(file.socket_mode, Some(0o660));
        assert_eq!(file.log, Some(LogLevel::Warn));
    }

    #[test]
    fn the_rules_of_the_page_about_approvals_are_read() {
        let page = include_str!("../../../docs/approvals.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let file = ConfigFile::parse(text, false).unwrap();
        file.check().unwrap();
        assert_eq!(file.approvals.rules.len(), 2);
        let secrets = crate::secrets::Secrets::new(file.secrets.clone());
        let entries = crate::server_file::entries(&file.servers, &secrets, &|_| None).unwrap();
        assert_eq!(entries[0].rules.approvals.rules.len(), 1);
        let wrong = "[[approvals.rules]]\nverdict = \"ask\"\narguments = [{ path = \"x\", glob = \"*\" }]\n";
        let error = ConfigFile::parse(wrong, false)
            .unwrap()
            .check()
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("approvals.rules[0].arguments[0]"),
            "{error}"
        );
    }

    #[test]
    fn an_address_without_a_host_is_refused_with_its_line() {
        let error = ConfigFile::parse("name = \"x\"\nhttp = \":80\"\n", false).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("line 2") && error.contains("127.0.0.1:80"),
            "{error}"
        );
    }

    #[test]
    fn hostile_files_are_errors_not_panics() {
        for bytes in [
            &b"\xff\xfe"[..],
            b"[[[[[[",
            b"{\"mainstay\":",
            b"\0",
            b"[limits]\nqueue=1e99",
        ] {
            parse_any(bytes);
        }
        parse_any("[".repeat(100_000).as_bytes());
        parse_any(format!("a={}", "[".repeat(100_000)).as_bytes());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_configuration_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            key in "(limits|packs|roots|telemetry|tree_kill|[a-z]{1,6})",
            value in "[ -~]{0,40}",
        ) {
            parse_any(&bytes);
            parse_any(format!("{key} = {value}").as_bytes());
            parse_any(format!("[{key}]\nqueue = {value}").as_bytes());
            parse_any(format!("{{\"mainstay\": {{\"{key}\": {value}}}}}").as_bytes());
        }
    }
}
