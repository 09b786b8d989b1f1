//! The wrapped servers of a configuration file, as `serve` starts them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use anyhow::anyhow;
use mainstay_contract::limits::Limits;
use mainstay_host::config::{Command, Pack, Server, ServerLaunch, TreeKill};

use crate::config_file::ConfigFile;
use crate::environment::{inherited, variable, withheld};
use crate::exit::Failure;
use crate::lock;
use crate::program;
use crate::secrets::Secrets;
use crate::server_file::{self, ServerEntry};
use crate::share::server::is_listed;

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
    Ok(servers)
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
            let program = program.map_err(failed)?;
            let arguments: Vec<OsString> = entry.args.into_iter().map(OsString::from).collect();
            let cwd = entry.cwd.as_deref();
            let sandbox = entry.sandbox.as_ref();
            let sandbox = sandbox.map(|settings| settings.sandbox(&program, &arguments, cwd));
            let sandbox = sandbox.transpose().map_err(failed)?;
            let command = Command {
                program,
                called: None,
                arguments,
                without_env: match entry.shared {
                    Some(true) => withheld().into_iter().chain(unlisted()).collect(),
                    _ => withheld(),
                },
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

/// Variables of this process that a shared server does not get, unless its entry sets them.
fn unlisted() -> impl Iterator<Item = String> {
    let names = inherited().into_iter().map(|(name, _)| name);
    let names = names.filter_map(|name| name.into_string().ok());
    names.filter(|name| !is_listed(name))
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
