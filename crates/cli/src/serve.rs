//! `mainstay serve`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use mainstay_host::config::Transport;
use mainstay_host::{Log, ServeError};

use crate::args::Serve;
use crate::config_file::ConfigFile;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::{local, lock, transport};

/// Default of `MCP_READY_FILE`.
const READY_FILE: &str = "/tmp/mcp.ready";

/// Serves until the client leaves or a signal comes.
pub(crate) fn run(serve: &Serve) -> Result<ExitCode, Failure> {
    let environment = Environment::read()?;
    let file = ConfigFile::named(serve.packs.config.as_deref())?;
    let transport = transport::chosen(&serve.transport, &environment, &file)?;
    let waits_for_typing = matches!(transport, Transport::Stdio) && std::io::stdin().is_terminal();
    let ready_file = environment.ready_file.clone().or(file.ready_file.clone());
    let (log, lock) = (
        serve.log.or(file.log),
        serve.lock.as_ref().or(file.lock.as_ref()).cloned(),
    );
    let mut config = local::config(&serve.packs, &environment, file, transport)?;
    config.ready_file = Some(ready_file.unwrap_or_else(|| READY_FILE.into()));
    config.control_dir = Some(environment.runtime_dir);
    config.collector = environment
        .collector
        .map(|collector| collector.config("mainstay"));
    if let Some(lock) = &lock {
        config.locked = Some(Arc::new(lock::contracts(lock)?));
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
    if waits_for_typing {
        let _ = writeln!(
            std::io::stderr(),
            "mainstay is waiting for an MCP client on standard input.\n\
             Try: mainstay tools, mainstay call list_schemas, or mainstay --help. End with Ctrl-D."
        );
    }
    let log = Log::start(log.map(Into::into).unwrap_or_default());
    mainstay_host::serve(config, &log).map_err(explain)?;
    Ok(ExitCode::SUCCESS)
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
        ServeError::Telemetry { .. } => Some(
            "set --telemetry, MAINSTAY_TELEMETRY or the key telemetry to a file that can be written, or to none",
        ),
        ServeError::Packs(_) => Some("serve fewer packs with --pack"),
        // What a pack says about itself says what to do.
        ServeError::Setup(_) => None,
        ServeError::Io { .. } => None,
    };
    let failure = Failure::input(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
