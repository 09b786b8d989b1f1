//! Clients that share servers: each names the server that it wants, and equal servers are one process.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mainstay_contract::control::{ControlReply, SharedClient, SharedServer, SharedSettings};
use mainstay_contract::id::{RequestId, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_kernel::server::{Rules, ServerConfig, ServerMemory};

use super::Engine;
use crate::config::{Command, ServerLaunch, TreeKill};
use crate::control::Replier;
use crate::entropy;
use crate::io::{Sink, Source};
use crate::transport::Client;

/// Different servers that one host may know.
const SERVERS: usize = 256;
/// Characters of a server's name.
const NAME_CHARS: usize = 48;
/// The variables of the host that is started on demand: its runtime directory and its cache directory. Servers get what
/// their clients name.
pub const SHARE_HOST_VARIABLES: [&str; 2] = ["MAINSTAY_RUNTIME_DIR", "MAINSTAY_CACHE_DIR"];

/// A server that a client names, as the host runs it. Equal ones are one process.
struct Wanted {
    launch: ServerLaunch,
    rules: Rules,
    limits: Limits,
}

impl Engine {
    /// Opens the session of a client on the server that it names.
    pub(super) fn share(&mut self, wanted: SharedClient, is_same_user: bool, reply: Replier) {
        let refuse = |reply: Replier, reason: &str| {
            let reason = reason.to_owned();
            reply.send(ControlReply::Refused { reason });
        };
        if !is_same_user {
            return refuse(reply, "only the user of this host shares its servers");
        }
        if self.facts.mode != "share" {
            return refuse(reply, "this host shares no servers");
        }
        let Replier::Connection(connection) = &reply else {
            return refuse(reply, "there is no connection to serve");
        };
        let client = match both_ends(connection) {
            Ok(client) => client,
            Err(error) => return refuse(reply, &format!("cannot read the connection: {error}")),
        };
        let SharedClient { server, unsettled } = wanted;
        let wanted = match self.wanted(&server) {
            Ok(wanted) => wanted,
            Err(why) => return refuse(reply, &why),
        };
        match self.open_shared(&server.name, wanted, unsettled) {
            Some(session) => {
                reply.send(ControlReply::Shared {});
                self.converse(session, client);
            }
            None if !self.core.is_serving() => refuse(reply, "the host is stopping"),
            None => refuse(reply, "the host has no room for another client or server"),
        }
    }

    fn open_shared(
        &mut self,
        name: &str,
        wanted: Wanted,
        unsettled: Vec<RequestId>,
    ) -> Option<SessionId> {
        let Wanted {
            launch,
            rules,
            limits,
        } = wanted;
        let known = self.launch.commands.servers.iter();
        let mut equal = known.filter(|(key, known)| {
            // A client never gets the server of another one under other rules.
            let config = self.core.served_config(key);
            **known == launch
                && config.is_some_and(|config| {
                    *config.rules == rules && config.limits.as_ref() == Some(&limits)
                })
        });
        let key = equal.next().map(|(key, _)| key.clone());
        let (key, memory) = match key {
            // Its memory is that of the core.
            Some(key) => (key, ServerMemory::default()),
            None => {
                self.reports.log.redactor().learn(launch.secrets());
                let key = self.add_command(name, launch.clone())?;
                let (files, log) = (&mut self.facts.remembered, &self.reports.log);
                let memory = files.open(&key, &launch, log);
                (key, memory)
            }
        };
        let config = ServerConfig {
            name: key,
            rules: Arc::new(rules),
            locked: None,
            memory,
            version: self.facts.version.clone(),
            trial: false,
            backend: None,
            prefix: Some(String::new()),
            limits: Some(limits),
            shared: Some(true),
        };
        let (now, nonce) = (self.clock.now(), entropy::random());
        self.core
            .open_to(now, nonce, config, unsettled.into_iter().collect())
    }

    /// Reads what a client says about its server. The reason why the host cannot run it is for that client.
    fn wanted(&self, server: &SharedServer) -> Result<Wanted, String> {
        let environment = &server.environment;
        let withheld = SHARE_HOST_VARIABLES.into_iter();
        let withheld = withheld.filter(|name| !environment.contains_key(*name));
        let mut command = Command {
            program: server.program.clone().into(),
            called: None,
            arguments: server.arguments.iter().map(OsString::from).collect(),
            without_env: withheld.map(str::to_owned).collect(),
            env: environment
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            secrets: Vec::new(),
            cwd: Some(server.directory.clone().into()),
            sandbox: None,
        };
        let mut tree_kill = self.launch.shim.tree_kill;
        let (rules, limits) = match &server.settings {
            None => (Rules::default(), self.core.limits().clone()),
            Some(settings) => {
                let unread = |error| format!("the settings of the server cannot be read: {error}");
                let (rules, limits) = rules_of(settings).map_err(unread)?;
                let sandbox = settings.sandbox.clone().map(serde_json::from_value);
                command.sandbox = sandbox
                    .transpose()
                    .map_err(|error| unread(error.to_string()))?;
                command.secrets.clone_from(&settings.secrets);
                if settings.isolate {
                    tree_kill = TreeKill::Namespace;
                }
                (rules, limits)
            }
        };
        Ok(Wanted {
            launch: ServerLaunch::Process { command, tree_kill },
            rules,
            limits,
        })
    }

    /// Adds the command of a server under a key that no other server has. `None` if too many are in use.
    fn add_command(&mut self, name: &str, launch: ServerLaunch) -> Option<String> {
        if self.launch.commands.servers.len() >= SERVERS {
            for unused in self.core.forget_unused_servers() {
                self.launch.commands.servers.remove(&unused);
            }
        }
        let servers = &mut self.launch.commands.servers;
        if servers.len() >= SERVERS {
            return None;
        }
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name: String = name.chars().filter(is_plain).take(NAME_CHARS).collect();
        let name = if name.is_empty() { "server" } else { &name };
        let numbered = (2..=SERVERS + 1).map(|number| format!("{name}-{number}"));
        let mut keys = std::iter::once(name.to_owned()).chain(numbered);
        let key = keys.find(|key| !servers.contains_key(key))?;
        servers.insert(key.clone(), launch);
        Some(key)
    }
}

/// The rules and the limits of a server's settings.
fn rules_of(settings: &SharedSettings) -> Result<(Rules, Limits), String> {
    let unread = |error: serde_json::Error| error.to_string();
    let rules: Rules = serde_json::from_value(settings.rules.clone()).map_err(unread)?;
    let limits: Limits = serde_json::from_value(settings.limits.clone()).map_err(unread)?;
    let mut mistakes = rules.check();
    if let Err(wrong) = limits.check() {
        mistakes.extend(wrong.iter().map(ToString::to_string));
    }
    match mistakes.is_empty() {
        true => Ok((rules, limits)),
        false => Err(mistakes.join("; ")),
    }
}

/// The two ends of a client's connection, beside the descriptor that its reply goes to.
fn both_ends(connection: &OwnedFd) -> io::Result<Client> {
    Ok(Client {
        source: Source::socket(connection.try_clone()?)?,
        sink: Sink::socket(connection.try_clone()?)?,
        caller: None,
        link: None,
    })
}
