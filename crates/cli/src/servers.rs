//! The wrapped servers of a configuration file, as `serve` starts them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use anyhow::anyhow;
use mainstay_contract::limits::Limits;
use mainstay_contract::method::ListKind;
use mainstay_host::config::{Command, Pack, Server, ServerLaunch, TreeKill};
use mainstay_host::wrap::SEPARATOR;

use crate::config_file::ConfigFile;
use crate::environment::{variable, withheld};
use crate::exit::Failure;
use crate::lock;
use crate::program;
use crate::sandbox::Subject;
use crate::secrets::Secrets;
use crate::server_file::{self, ServerEntry};

/// Longest prefix: names of tools have at most 64 characters.
const PREFIX_CHARS: usize = 48;

/// The servers of a file, by their keys. None may share its key with a pack, or its prefix with another one.
pub(crate) fn of_file(file: &ConfigFile, packs: &[Pack]) -> Result<Vec<Server>, Failure> {
    let secrets = Secrets::new(file.secrets.clone());
    let entries =
        server_file::entries(&file.servers, &secrets, &variable).map_err(Failure::input)?;
    let servers = entries
        .into_iter()
        .map(|entry| server(entry, &file.limits))
        .collect::<Result<Vec<_>, _>>()?;
    let is_pack = |server: &&Server| packs.iter().any(|pack| pack.name == server.name);
    if let Some(server) = servers.iter().find(is_pack) {
        let said = anyhow!("a pack and a server are both called {}", server.name);
        return Err(Failure::input(said).hint("give the server another key"));
    }
    reject_equal_prefixes(&servers)?;
    reject_equal_names(&servers, packs)?;
    Ok(servers)
}

/// Leaves out the servers whose prefix does not begin the name of a tool, if another one's does.
pub(crate) fn retain_owners(servers: &mut Vec<Server>, tool: &str) {
    let has_name = |server: &Server| {
        let rest = tool.strip_prefix(server.prefix.as_str());
        !server.prefix.is_empty() && rest.is_some_and(|rest| rest.starts_with(SEPARATOR))
    };
    if servers.iter().any(has_name) {
        servers.retain(|server| server.prefix.is_empty() || has_name(server));
    }
}

/// The secrets that servers are started or reached with.
pub(crate) fn secrets(servers: &[Server]) -> impl Iterator<Item = String> {
    servers.iter().flat_map(|server| server.launch.secrets())
}

/// A server of a file. `host` has the limits of all servers that do not set their own.
fn server(mut entry: ServerEntry, host: &Limits) -> Result<Server, Failure> {
    if !entry.sets_standby {
        entry.limits.standby = host.standby;
    }
    let key = entry.name.clone();
    let failed = |failure: Failure| Failure {
        error: failure.error.context(format!("server {key}")),
        ..failure
    };
    let prefix = prefix_of(&entry)?;
    let locked = match &entry.host.lock {
        Some(path) => Some(Arc::new(lock::foreign(path).map_err(failed)?)),
        None => None,
    };
    let launch = match entry.remote {
        Some(remote) => ServerLaunch::Remote(Arc::new(remote)),
        None if entry.command.is_empty() => {
            let said = anyhow!("server {key}: it has no command");
            return Err(
                Failure::input(said).hint("write \"command\" or \"url\", or \"disabled\": true")
            );
        }
        None => {
            let place = program::Place {
                cwd: entry.cwd.as_deref(),
                path: entry.env.get("PATH").map(OsStr::new),
            };
            let program = program::find_at(&OsString::from(&entry.command), place);
            let tree_kill = match entry.isolate {
                true => TreeKill::Namespace,
                false => TreeKill::Subreaper,
            };
            // One missing program does not take the other servers away: it is looked for at each start.
            let program = program.unwrap_or_else(|_| entry.command.clone().into());
            let arguments: Vec<OsString> = entry.args.into_iter().map(OsString::from).collect();
            let cwd = entry.cwd.as_deref();
            let sandbox = entry.sandbox.as_ref();
            let subject = Subject {
                name: &key,
                program: &program,
                arguments: &arguments,
                cwd,
            };
            let sandbox = sandbox.map(|settings| settings.sandbox(subject));
            let sandbox = sandbox.transpose().map_err(failed)?;
            let command = Command {
                program,
                called: None,
                arguments,
                without_env: withheld(),
                env: entry
                    .env
                    .into_iter()
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
                secrets: entry.secrets,
                cwd: entry.cwd,
                sandbox,
            };
            ServerLaunch::Process { command, tree_kill }
        }
    };
    Ok(Server {
        prefix,
        launch,
        rules: Arc::new(entry.rules),
        locked,
        limits: entry.limits,
        shared: entry.shared,
        name: key,
    })
}

/// The prefix of a server's names: the configured one, else its key.
fn prefix_of(entry: &ServerEntry) -> Result<String, Failure> {
    let key = &entry.name;
    let prefix = entry.prefix.as_ref().unwrap_or(key);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_short = prefix.len() <= PREFIX_CHARS;
    if prefix.chars().all(fits) && is_short && (entry.prefix.is_some() || !prefix.is_empty()) {
        return Ok(prefix.clone());
    }
    let said = match entry.prefix {
        Some(_) => anyhow!("server {key}: its prefix {prefix:?} cannot begin names"),
        None => anyhow!("server {key:?}: its key cannot begin the names of its tools"),
    };
    Err(Failure::input(said).hint(format!(
        "set prefix under mainstay of that server: letters, digits, '_' and '-', at most {PREFIX_CHARS}"
    )))
}

fn reject_equal_prefixes(servers: &[Server]) -> Result<(), Failure> {
    let mut owners = BTreeMap::new();
    for server in servers.iter().filter(|server| !server.prefix.is_empty()) {
        if let Some(other) = owners.insert(&server.prefix, &server.name) {
            let (name, prefix) = (&server.name, &server.prefix);
            let said = anyhow!("the servers {other} and {name} both have the prefix {prefix}");
            return Err(
                Failure::input(said).hint("set another prefix under mainstay of one of them")
            );
        }
    }
    Ok(())
}

/// Rejects a name that two servers have by their locks, or that a pack has: it is known before any of them starts.
fn reject_equal_names(servers: &[Server], packs: &[Pack]) -> Result<(), Failure> {
    let expected = packs
        .iter()
        .filter_map(|pack| Some((pack, pack.expected.as_ref()?)));
    let catalogs = expected.map(|(pack, expected)| (&pack.name, &expected.catalog));
    for kind in [ListKind::Tools, ListKind::Prompts] {
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for (pack, catalog) in catalogs.clone() {
            let tools = catalog.tools.iter().map(|tool| &tool.name);
            let prompts = catalog.prompts.iter().map(|prompt| &prompt.name);
            let names: Vec<&String> = match kind {
                ListKind::Tools => tools.collect(),
                _ => prompts.collect(),
            };
            owners.extend(names.into_iter().map(|name| (name.clone(), pack.clone())));
        }
        for server in servers {
            let locked = server.locked.as_ref().and_then(|locked| locked.names(kind));
            let is_served = |name: &&String| kind != ListKind::Tools || server.rules.permits(name);
            for own in locked
                .into_iter()
                .flat_map(BTreeMap::keys)
                .filter(is_served)
            {
                let name = match server.prefix.as_str() {
                    "" => own.clone(),
                    prefix => format!("{prefix}{SEPARATOR}{own}"),
                };
                if let Some(owner) = owners.insert(name.clone(), server.name.clone()) {
                    let (noun, server) = (kind.noun(), &server.name);
                    let said = anyhow!("{owner} and {server} both have the {noun} {name}");
                    let hint = match kind {
                        ListKind::Tools => {
                            format!("give {server} another prefix, or deny the tool")
                        }
                        _ => format!("give {server} another prefix"),
                    };
                    return Err(Failure::input(said).hint(hint));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, prefix: Option<&str>) -> ServerEntry {
        ServerEntry {
            name: name.to_owned(),
            prefix: prefix.map(str::to_owned),
            ..ServerEntry::default()
        }
    }

    #[test]
    fn names_begin_with_the_key_or_the_configured_prefix() {
        let prefix = |name, prefix| prefix_of(&entry(name, prefix)).ok();
        assert_eq!(prefix("files", None).as_deref(), Some("files"));
        assert_eq!(prefix("my files", Some("files")).as_deref(), Some("files"));
        assert_eq!(prefix("files", Some("")).as_deref(), Some(""));
        for (name, given) in [
            ("my files", None),
            ("a.b", None),
            ("@scope/x", None),
            ("", None),
            ("files", Some("a b")),
            ("ü", None),
        ] {
            assert_eq!(prefix(name, given), None, "{name:?} {given:?}");
        }
        let long = "x".repeat(PREFIX_CHARS + 1);
        assert_eq!(prefix(&long, None), None);
    }
}
