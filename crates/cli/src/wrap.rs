//! `mainstay wrap`, and wrapping for the moment of one command.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::anyhow;
use mainstay_contract::envelope::redact::Redactor;
use mainstay_host::Log;
use mainstay_host::config::{
    Changed, Command, EnvelopeMode, Found, ReadLock, Remote, Reread, Sandbox, ServerLaunch,
    Transport, TreeKill, Watched,
};
use mainstay_host::wrap::WrapConfig;
use mainstay_host::{check_wrapped_state, serve_wrapped};

use crate::VERSION;
use crate::args::{Wrap, WrapRules};
use crate::audit;
use crate::builtin::Executable;
use crate::config_file::Watch;
use crate::environment::{self, Environment, variable, withheld};
use crate::exit::Failure;
use crate::lock;
use crate::program;
use crate::remote_server;
use crate::sandbox::Subject;
use crate::secrets;
use crate::serve::{approve, explain};
use crate::server_file::{self, ServerEntry};
use crate::start;
use crate::transport;
use crate::values;

/// Wraps a server until its client leaves or a signal comes.
pub(crate) fn run(wrap: &Wrap, is_check: bool) -> Result<ExitCode, Failure> {
    start::begin();
    let environment = Environment::read_for_wrap()?;
    let wanted = Wanted::read(&wrap.server, &wrap.command)?;
    let file = wanted.entry.host.clone();
    let transport = transport::chosen(&wrap.transport, &environment, &file)?;
    let mut config = wanted.config(&wrap.server, transport)?;
    config.reread = Some(reread(wrap.server.clone(), wrap.command.clone())?);
    config
        .watch
        .extend(watched(&wrap.watch, file.watch.as_ref())?);
    config.tool_list = wrap.tool_lists.over(config.tool_list);
    config.audit = audit::config(&wrap.audit, &file, &config.limits)?;
    config.ready_file = environment.ready_file.or(file.ready_file);
    config.control_dir = Some(environment.runtime_dir);
    config.cache_dir = environment.cache_dir;
    config.state_dir = environment.state_dir;
    config.environment = environment::inherited();
    let telemetry = wrap.telemetry.clone().or(environment.telemetry);
    config.telemetry = telemetry.or(file.telemetry);
    config.collector = environment
        .collector
        .map(|collector| collector.config(&config.name));
    let envelopes = wrap.envelopes.map(Into::into).or(environment.envelopes);
    config.envelopes = envelopes.or(file.envelopes).unwrap_or_default();
    if let Some(name) = wrap.name.as_ref().or(file.name.as_ref()) {
        config.host_name.clone_from(name);
    }
    let reads_stdio = matches!(config.transport, Transport::Stdio);
    if reads_stdio && !is_check && std::io::stdin().is_terminal() {
        let _ = writeln!(
            std::io::stderr(),
            "mainstay wraps {} and waits for an MCP client on standard input.\n\
             Put this command into a client's configuration, or try: mainstay tools -- COMMAND. \
             End with Ctrl-D.",
            config.name
        );
    }
    let level = wrap.log.or(file.log).map(Into::into).unwrap_or_default();
    let log = Log::start(level, redactor(&config));
    let upgrade = environment::upgrade()?;
    let approval = upgrade.approval();
    config.upgrade = Some(upgrade);
    if is_check {
        check_wrapped_state(config, &log).map_err(explain)?;
        return approve(approval);
    }
    serve_wrapped(config, &log).map_err(explain)?;
    Ok(ExitCode::SUCCESS)
}

/// The files of the server whose changes roll it out: those of the command line and of the file.
fn watched(named: &[PathBuf], file: Option<&Watch>) -> Result<Option<Watched>, Failure> {
    let of_file = match file {
        Some(Watch::Packs(_)) => {
            let said = anyhow!("watch: a server has no files that the host knows");
            return Err(Failure::input(said).hint("write watch = [\"PATH\"]"));
        }
        Some(Watch::Paths(paths)) => paths.as_slice(),
        None => &[],
    };
    let paths = [named, of_file].concat();
    let mut all = paths.iter();
    if let Some(missing) = all.find(|path| !path.exists() && !start::is_continuing()) {
        let said = anyhow!("watch {}: there is no such file", missing.display());
        return Err(Failure::input(said).hint("name a file or a directory of the server"));
    }
    Ok((!paths.is_empty()).then_some(Watched { pack: None, paths }))
}

/// Knows the secrets that this process and its server are started with.
pub(crate) fn redactor(config: &WrapConfig) -> Redactor {
    let token = match &config.transport {
        Transport::Http(http) => http.token.clone(),
        _ => None,
    };
    let approver = match &config.transport {
        Transport::Http(http) => http.approver_token.clone(),
        _ => None,
    };
    Redactor::new(
        environment::secret_values()
            .into_iter()
            .chain(config.launch.secrets())
            .chain(token)
            .chain(approver),
    )
}

/// Reads the same again, and says what of it cannot change while the host runs.
fn reread(rules: WrapRules, command: Vec<OsString>) -> Result<Reread, Failure> {
    let first = Wanted::read(&rules, &command)?;
    Ok(Reread::new(move || {
        let now =
            Wanted::read(&rules, &command).map_err(|failure| format!("{:#}", failure.error))?;
        let later = now.differences(&first);
        let may_change = now.has_secrets() && now.is_same_but_for_secrets(&first);
        let entry = now.entry.clone();
        let name = server_name(&entry, &now.server);
        let launch = launch_of(&name, entry, now.server, first.isolates);
        let launch = launch.map_err(|failure| format!("{:#}", failure.error))?;
        let secrets = launch.secrets();
        let rules = Arc::new(now.entry.rules);
        let launch = may_change.then(|| Box::new(launch));
        let changed = Changed::Wrapped { rules, launch };
        Ok(Found {
            changed,
            later,
            secrets,
        })
    }))
}

/// What the command line and the file say together.
struct Wanted {
    entry: ServerEntry,
    server: WantedServer,
    isolates: bool,
}

/// A server of a command line and a file, for the share host.
pub(crate) struct Named {
    pub(crate) entry: ServerEntry,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) isolates: bool,
}

impl Named {
    /// Reads the file. `None` for a server at a URL.
    pub(crate) fn read(rules: &WrapRules, command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Wanted {
            entry,
            server,
            isolates,
        } = Wanted::read(rules, command)?;
        let WantedServer::Process { program, arguments } = server else {
            return Ok(None);
        };
        Ok(Some(Self {
            entry,
            program,
            arguments,
            isolates,
        }))
    }

    /// The name of the server: its key in the file, else one made from its command.
    pub(crate) fn name(&self) -> String {
        match self.entry.name.as_str() {
            "" => name_of(&self.program, &self.arguments),
            name => name.to_owned(),
        }
    }

    /// Its sandbox, if it has one.
    pub(crate) fn sandbox(&self, name: &str) -> Result<Option<Box<Sandbox>>, Failure> {
        let subject = Subject {
            name,
            program: &self.program,
            arguments: &self.arguments,
            cwd: self.entry.cwd.as_deref(),
        };
        let sandbox = self.entry.sandbox.as_ref();
        sandbox
            .map(|settings| settings.sandbox(subject))
            .transpose()
    }
}

/// The server itself.
#[derive(PartialEq)]
enum WantedServer {
    Process {
        program: PathBuf,
        arguments: Vec<OsString>,
    },
    Remote(Arc<Remote>),
}

impl Wanted {
    fn read(rules: &WrapRules, command: &[OsString]) -> Result<Self, Failure> {
        let is_remote = rules.remote.url.is_some();
        let name = rules.server.as_deref();
        let mut entry = match &rules.config {
            Some(path) => {
                server_file::load(path, name, is_remote, variable).map_err(Failure::input)?
            }
            None => ServerEntry {
                limits: server_file::default_limits(is_remote),
                ..ServerEntry::default()
            },
        };
        if !command.is_empty() {
            entry.remote = None;
        }
        let remote = remote_server::of_arguments(&rules.remote, entry.remote.take(), &variable)
            .map_err(Failure::input)?;
        if let Some(remote) = remote {
            apply(rules, &mut entry)?;
            let isolates = entry.isolate || rules.isolate;
            if isolates || entry.rules.max_memory.is_some() {
                let said = anyhow!("isolate and max_memory are for servers that the host starts");
                return Err(Failure::input(said).hint("leave them out for a server at a URL"));
            }
            let server = WantedServer::Remote(Arc::new(remote));
            return Ok(Self {
                entry,
                server,
                isolates,
            });
        }
        let (program, arguments) = match command.split_first() {
            Some((program, arguments)) => {
                // The file then gives only the rules.
                entry.env.clear();
                entry.secrets.clear();
                entry.cwd = None;
                (program.clone(), arguments.to_vec())
            }
            None if !entry.command.is_empty() => (
                OsString::from(&entry.command),
                entry.args.iter().map(OsString::from).collect(),
            ),
            None => {
                return Err(Failure::input(anyhow!("there is no server to wrap")).hint(
                    "put its command after --, as in mainstay wrap -- npx -y SERVER, or name its URL with --url",
                ));
            }
        };
        let place = program::Place {
            cwd: entry.cwd.as_deref(),
            path: entry.env.get("PATH").map(OsStr::new),
        };
        let program = match program::find_at(&program, place) {
            Err(_) if start::is_continuing() => program.into(),
            found => found?,
        };
        apply(rules, &mut entry)?;
        let server = WantedServer::Process { program, arguments };
        let isolates = entry.isolate || rules.isolate;
        Ok(Self {
            entry,
            server,
            isolates,
        })
    }

    fn has_secrets(&self) -> bool {
        let of_remote: &[String] = match &self.server {
            WantedServer::Process { .. } => &[],
            WantedServer::Remote(remote) => remote.secrets.as_slice(),
        };
        !self.entry.secrets.is_empty() || !of_remote.is_empty()
    }

    /// True if the host was started with the same server, where its secrets do not count.
    fn is_same_but_for_secrets(&self, first: &Self) -> bool {
        let (now, before) = (&self.entry, &first.entry);
        self.server.without_secrets() == first.server.without_secrets()
            && now.env_without_secrets() == before.env_without_secrets()
            && now.cwd == before.cwd
            && now.sandbox == before.sandbox
            && self.isolates == first.isolates
    }

    /// Names the settings that differ from those of the start, apart from the rules and the values of secrets.
    fn differences(&self, first: &Self) -> Vec<&'static str> {
        let (now, before) = (&self.entry, &first.entry);
        let differs = [
            ("name", now.name != before.name),
            (
                "command",
                self.server.without_secrets() != first.server.without_secrets(),
            ),
            (
                "env",
                now.env_without_secrets() != before.env_without_secrets(),
            ),
            ("cwd", now.cwd != before.cwd),
            ("host", now.host != before.host),
            ("isolate", now.isolate != before.isolate),
            ("sandbox", now.sandbox != before.sandbox),
            ("limits", now.limits != before.limits),
            ("lazy", now.rules.lazy != before.rules.lazy),
            ("tasks", now.rules.has_tasks() != before.rules.has_tasks()),
        ];
        let differs = differs.into_iter().filter(|(_, differs)| *differs);
        differs.map(|(what, _)| what).collect()
    }

    /// A host's configuration for the server.
    fn config(self, rules: &WrapRules, transport: Transport) -> Result<WrapConfig, Failure> {
        let Self {
            entry,
            server,
            isolates,
        } = self;
        let (mut locked, mut read_lock) = (None, None);
        if let Some(path) = rules.lock.as_ref().or(entry.host.lock.as_ref()).cloned() {
            locked = Some(Arc::new(lock::foreign(&path)?));
            read_lock = Some(ReadLock::new(move || {
                lock::foreign(&path).map_err(|failure| format!("{:#}", failure.error))
            }));
        }
        let executable = Executable::open()?;
        let name = server_name(&entry, &server);
        let launch = launch_of(&name, entry.clone(), server, isolates)?;
        Ok(WrapConfig {
            host_name: name.clone(),
            name,
            launch,
            rules: Arc::new(entry.rules),
            tool_list: entry.host.tool_list,
            quotas: entry.host.quotas,
            locked,
            read_lock,
            limits: entry.limits,
            shim: executable.shim(tree_kill_of(isolates)),
            transport,
            ready_file: None,
            telemetry: None,
            collector: None,
            control_dir: None,
            cache_dir: None,
            state_dir: None,
            environment: Vec::new(),
            version: VERSION.to_owned(),
            reread: None,
            upgrade: None,
            envelopes: EnvelopeMode::default(),
            watch: Vec::new(),
            audit: None,
        })
    }
}

impl WantedServer {
    fn without_secrets(&self) -> Self {
        match self {
            Self::Process { program, arguments } => Self::Process {
                program: program.clone(),
                arguments: arguments.clone(),
            },
            Self::Remote(remote) => Self::Remote(Arc::new(secrets::remote_without(remote))),
        }
    }
}

/// Namespaces change what a server sees; it gets one only when that is asked for.
const fn tree_kill_of(isolates: bool) -> TreeKill {
    match isolates {
        true => TreeKill::Namespace,
        false => TreeKill::Subreaper,
    }
}

/// The name of a server: its key in the file, else one made from its command or URL.
fn server_name(entry: &ServerEntry, server: &WantedServer) -> String {
    match server {
        _ if !entry.name.is_empty() => entry.name.clone(),
        WantedServer::Process { program, arguments } => name_of(program, arguments),
        WantedServer::Remote(remote) => remote.host(),
    }
}

/// The way in which a server is started or reached.
fn launch_of(
    name: &str,
    entry: ServerEntry,
    server: WantedServer,
    isolates: bool,
) -> Result<ServerLaunch, Failure> {
    let (program, arguments) = match server {
        WantedServer::Remote(remote) => return Ok(ServerLaunch::Remote(remote)),
        WantedServer::Process { program, arguments } => (program, arguments),
    };
    let (env, cwd) = (entry.env.into_iter(), entry.cwd.as_deref());
    let sandbox = entry.sandbox.as_ref();
    let subject = Subject {
        name,
        program: &program,
        arguments: &arguments,
        cwd,
    };
    let sandbox = sandbox.map(|settings| settings.sandbox(subject));
    let sandbox = sandbox.transpose()?;
    let command = Command {
        program,
        called: None,
        arguments,
        without_env: withheld(),
        env: env.map(|(key, value)| (key.into(), value.into())).collect(),
        secrets: entry.secrets,
        cwd: entry.cwd,
        sandbox,
    };
    Ok(ServerLaunch::Process {
        command,
        tree_kill: tree_kill_of(isolates),
    })
}

/// A host's configuration for a server of a file, without its rules and its lock.
pub(crate) fn config_of(server: &ServerEntry, transport: Transport) -> Result<WrapConfig, Failure> {
    let place = program::Place {
        cwd: server.cwd.as_deref(),
        path: server.env.get("PATH").map(OsStr::new),
    };
    let wanted = Wanted {
        server: match &server.remote {
            Some(remote) => WantedServer::Remote(Arc::new(remote.clone())),
            None => WantedServer::Process {
                program: program::find_at(&OsString::from(&server.command), place)?,
                arguments: server.args.iter().map(OsString::from).collect(),
            },
        },
        isolates: false,
        entry: ServerEntry {
            name: server.name.clone(),
            env: server.env.clone(),
            secrets: server.secrets.clone(),
            cwd: server.cwd.clone(),
            sandbox: server.sandbox.clone(),
            ..ServerEntry::default()
        },
    };
    wanted.config(&WrapRules::default(), transport)
}

/// A host's configuration for one server, without rules.
pub(crate) fn config(command: &[OsString], transport: Transport) -> Result<WrapConfig, Failure> {
    let rules = WrapRules::default();
    Wanted::read(&rules, command)?.config(&rules, transport)
}

/// What the command line says counts before the file.
fn apply(rules: &WrapRules, entry: &mut ServerEntry) -> Result<(), Failure> {
    let limits = &mut entry.limits;
    if let Some(time) = rules.timeout {
        entry.rules.timeout_ms = Some(values::millis(time));
    }
    if let Some(time) = rules.start_timeout {
        limits.start_timeout_ms = values::millis(time);
    }
    if let Some((restarts, period)) = rules.restarts {
        (limits.restarts, limits.restart_period_ms) = (restarts, values::millis(period));
    }
    if rules.standby {
        limits.standby = 1;
    }
    if let Some(choice) = &rules.sandbox {
        let settings = entry.sandbox.get_or_insert_default();
        choice.clone().over(settings);
        settings.profile = rules.profile.clone().or(settings.profile.take());
        settings.preset.extend(rules.preset.iter().copied());
        settings.read.extend(rules.read.iter().cloned());
        settings.write.extend(rules.write.iter().cloned());
        settings.env.extend(rules.env.iter().cloned());
        if !rules.net.is_empty() {
            settings.net.clone_from(&rules.net);
        }
    } else if let Some(settings) = &mut entry.sandbox {
        settings.env.extend(rules.env.iter().cloned());
    }
    let target = &mut entry.rules;
    if let Some(bytes) = rules.max_output {
        target.max_output = Some(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    target.max_memory = rules.max_memory.or(target.max_memory);
    // Whole seconds: less than one is one.
    let idle_stop = rules
        .idle_stop
        .map(|time| values::millis(time).div_ceil(1000));
    target.idle_stop = idle_stop.or(target.idle_stop);
    target.lazy |= rules.lazy;
    target.remember &= !rules.no_remember;
    target.bridge |= rules.bridge;
    target.tasks |= rules.tasks;
    target.system_tools |= rules.system_tools;
    target.trust_hints &= !rules.distrust_hints;
    target.allow.extend(rules.allow.iter().cloned());
    target.deny.extend(rules.deny.iter().cloned());
    rules
        .ask
        .iter()
        .rev()
        .for_each(|tool| target.approvals.ask_for(tool));
    let mut mistakes = target.check();
    if let Err(wrong) = limits.check() {
        mistakes.extend(wrong.iter().map(ToString::to_string));
    }
    if mistakes.is_empty() {
        Ok(())
    } else {
        Err(Failure::input(anyhow!("{}", mistakes.join("; "))))
    }
}

/// A short name for a command: what follows `npx`, `uvx` and the like, else the program.
pub(crate) fn name_of(program: &Path, arguments: &[OsString]) -> String {
    let stem = |path: &Path| {
        let stem = path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    };
    let starters = [
        "npx", "uvx", "node", "python", "python3", "bunx", "deno", "pipx", "uv",
    ];
    let own = stem(program);
    if !starters.contains(&own.as_str()) {
        return own;
    }
    let words = arguments.iter().map(|word| word.to_string_lossy());
    let named = words
        .filter(|word| !word.starts_with('-') && !matches!(word.as_ref(), "run" | "exec" | "tool"))
        .map(|word| stem(Path::new(word.as_ref())))
        .find(|name| !name.is_empty());
    named.unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_after_its_package() {
        let name = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let (program, arguments) = words.split_first().unwrap();
            name_of(Path::new(program), arguments)
        };
        assert_eq!(
            name(&["/usr/bin/npx", "-y", "@scope/server-memory"]),
            "server-memory"
        );
        assert_eq!(
            name(&["uvx", "mcp-server-git", "--repository", "."]),
            "mcp-server-git"
        );
        assert_eq!(name(&["node", "dist/index.js"]), "index");
        assert_eq!(name(&["./my-server"]), "my-server");
    }
}
