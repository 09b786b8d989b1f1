//! `mainstay serve`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::anyhow;
use mainstay_contract::envelope::redact::{Redactor, is_secret_variable};
use mainstay_contract::limits::Limits;
use mainstay_host::config::{
    Changed, Command, Config, EnvelopeMode, Found, ReadLock, Reread, ToolQuotas, Transport,
    TreeKill,
};
use mainstay_host::{Log, ServeError};
use serde_json::Value;

use crate::args::{Packs, Serve};
use crate::audit;
use crate::config_file::{ConfigFile, Watch};
use crate::environment::{self, Environment};
use crate::exit::{Failure, print};
use crate::{local, lock, servers, start, transport};

/// Default of `MCP_READY_FILE`.
const READY_FILE: &str = "/tmp/mcp.ready";

/// Serves until the client leaves or a signal comes.
pub(crate) fn run(serve: &Serve, is_check: bool) -> Result<ExitCode, Failure> {
    start::begin();
    let environment = Environment::read()?;
    let file = ConfigFile::named(serve.packs.config.as_deref())?;
    let transport = transport::chosen(&serve.transport, &environment, &file)?;
    let waits_for_typing = matches!(transport, Transport::Stdio) && std::io::stdin().is_terminal();
    let reads_stdio = matches!(transport, Transport::Stdio);
    let ready_file = environment.ready_file.clone().or(file.ready_file.clone());
    let watches = match &file.watch {
        Some(Watch::Paths(_)) => {
            let said = anyhow!("watch: packs have no paths to name");
            return Err(Failure::input(said).hint("write watch = true"));
        }
        Some(Watch::Packs(watches)) => serve.watch || *watches,
        None => serve.watch,
    };
    let (level, lock) = (
        serve.log.or(file.log),
        serve.lock.as_ref().or(file.lock.as_ref()).cloned(),
    );
    let audit = audit::config(&serve.audit, &file, &file.limits)?;
    let mut config = local::config(&serve.packs, &environment, file, transport)?;
    config.audit = audit;
    let first = Fixed::of(&config);
    config.reread = Some(reread(serve.packs.clone(), reads_stdio, first));
    config.ready_file = Some(ready_file.unwrap_or_else(|| READY_FILE.into()));
    config.control_dir = Some(environment.runtime_dir);
    config.state_dir = environment.state_dir;
    config.cache_dir = environment.cache_dir;
    config.environment = environment::inherited();
    config.collector = environment
        .collector
        .map(|collector| collector.config("mainstay"));
    if let Some(lock) = &lock {
        config.locked = Some(Arc::new(lock::contracts(lock)?));
        let lock = lock.clone();
        config.read_lock = Some(ReadLock::new(move || {
            lock::contracts(&lock).map_err(|failure| format!("{:#}", failure.error))
        }));
    }
    if watches {
        config.watch = config.packs.iter().filter_map(local::watched).collect();
        if config.watch.is_empty() && !start::is_continuing() {
            let said = anyhow!("watch: none of the packs has files to watch");
            return Err(Failure::input(said).hint(
                "add --pack NAME=COMMAND, or set SYN_SCHEMAS_DIR for the asset pack; the code pack \
                 notices changes itself",
            ));
        }
    }
    if let Some(name) = &serve.name {
        config.host_name.clone_from(name);
    }
    if let Some(telemetry) = &serve.telemetry {
        config.telemetry = Some(telemetry.clone());
    }
    if let Some(mode) = serve.envelopes {
        config.envelopes = mode.into();
    }
    if let Some(render) = serve.render {
        config.render = render.into();
    }
    config.tool_list = serve.tool_lists.over(config.tool_list);
    if waits_for_typing && !is_check {
        let _ = writeln!(
            std::io::stderr(),
            "mainstay is waiting for an MCP client on standard input.\n\
             Try: mainstay tools, mainstay call list_schemas, or mainstay --help. End with Ctrl-D."
        );
    }
    let level = level.map(Into::into).unwrap_or_default();
    let log = Log::start(level, redactor(&config));
    let upgrade = environment::upgrade()?;
    let approval = upgrade.approval();
    config.upgrade = Some(upgrade);
    if is_check {
        mainstay_host::check_state(config, &log).map_err(explain)?;
        return approve(approval);
    }
    mainstay_host::serve(config, &log).map_err(explain)?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the host whose state was read that this executable can continue it.
pub(crate) fn approve(approval: Option<String>) -> Result<ExitCode, Failure> {
    let missing = || Failure::input(anyhow!("standard input carries no saved state to check"));
    print(&format!("{}\n", approval.ok_or_else(missing)?))?;
    Ok(ExitCode::SUCCESS)
}

/// Knows the secrets that this process and its packs are started with.
pub(crate) fn redactor(config: &Config) -> Redactor {
    let mut values = environment::secret_values();
    values.extend(secrets_of(config));
    if let Transport::Http(http) = &config.transport {
        values.extend(http.token.clone());
    }
    Redactor::new(values)
}

/// The secrets that packs and servers are started with.
fn secrets_of(config: &Config) -> Vec<String> {
    let mut values = Vec::new();
    for pack in &config.packs {
        if let Ok(settings) = pack.settings.to_value() {
            add_secrets(&settings, &mut values);
        }
    }
    values.extend(servers::secrets(&config.servers));
    if let Transport::Http(http) = &config.transport {
        values.extend(http.token.clone());
        values.extend(http.approver_token.clone());
    }
    values
}

/// Adds every text below a name that is that of a secret.
fn add_secrets(settings: &Value, values: &mut Vec<String>) {
    match settings {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if is_secret_variable(name) => values.push(text.clone()),
                    _ => add_secrets(member, values),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_secrets(item, values)),
        _ => {}
    }
}

/// The part of a configuration that cannot change while the host runs.
struct Fixed {
    packs: Vec<(String, Command)>,
    limits: Limits,
    telemetry: Option<PathBuf>,
    tree_kill: TreeKill,
    envelopes: EnvelopeMode,
    quotas: ToolQuotas,
}

impl Fixed {
    fn of(config: &Config) -> Self {
        let packs = config.packs.iter();
        Self {
            packs: packs
                .map(|pack| (pack.name.clone(), pack.command.clone()))
                .collect(),
            limits: config.limits.clone(),
            telemetry: config.telemetry.clone(),
            tree_kill: config.shim.tree_kill,
            envelopes: config.envelopes,
            quotas: config.quotas.clone(),
        }
    }

    fn differences(&self, first: &Self) -> Vec<&'static str> {
        let differs = [
            ("packs", self.packs != first.packs),
            ("limits", self.limits != first.limits),
            ("telemetry", self.telemetry != first.telemetry),
            ("tree_kill", self.tree_kill != first.tree_kill),
            ("envelopes", self.envelopes != first.envelopes),
            ("quotas", self.quotas != first.quotas),
        ];
        let differs = differs.into_iter().filter(|(_, differs)| *differs);
        differs.map(|(what, _)| what).collect()
    }
}

/// Reads the configuration `first` again.
fn reread(packs: Packs, reads_stdio: bool, first: Fixed) -> Reread {
    Reread::new(move || {
        let read = read_packs(&packs, reads_stdio);
        let now = read.map_err(|failure| format!("{:#}", failure.error))?;
        let later = Fixed::of(&now).differences(&first);
        let secrets = secrets_of(&now);
        let settings = now.packs.into_iter();
        let settings = settings.map(|pack| (pack.name, pack.settings)).collect();
        let servers = now.servers;
        let approvals = now.approvals;
        let changed = Changed::Served {
            settings,
            servers,
            approvals,
        };
        Ok(Found {
            changed,
            later,
            secrets,
        })
    })
}

/// The configuration of the packs; clients are not its concern.
fn read_packs(packs: &Packs, reads_stdio: bool) -> Result<Config, Failure> {
    let transport = if reads_stdio {
        Transport::Stdio
    } else {
        let (path, mode) = (PathBuf::new(), 0);
        Transport::Socket { path, mode }
    };
    let file = ConfigFile::named(packs.config.as_deref())?;
    local::config(packs, &Environment::read()?, file, transport)
}

/// Setup errors are the operator's to mend; each says what to set.
pub(crate) fn explain(error: ServeError) -> Failure {
    let hint = match &error {
        ServeError::Socket(_) => {
            Some("choose another path with --socket, MCP_SOCKET_PATH or the key socket")
        }
        ServeError::Http { .. } => {
            Some("choose another address with --http, MCP_HTTP_ADDR or the key http")
        }
        ServeError::NoToken { .. } => {
            Some("set MAINSTAY_TOKEN_FILE, or listen on a loopback address such as 127.0.0.1:8080")
        }
        ServeError::ShortToken { .. } => {
            Some("make a longer token, for example with openssl rand -hex 32")
        }
        ServeError::Telemetry { .. } => Some(
            "set --telemetry, MAINSTAY_TELEMETRY or the key telemetry to a file that can be written, or to none",
        ),
        ServeError::Audit(_) => {
            Some("set --audit or the key audit to a file of this host alone that can be written")
        }
        ServeError::Packs(_) => Some("serve fewer packs with --pack"),
        // What a pack says about itself says what to do.
        ServeError::Setup(_) => None,
        ServeError::State(_) | ServeError::Io { .. } => None,
    };
    let failure = Failure::input(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
