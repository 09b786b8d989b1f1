//! `mainstay share`: one server process for all clients of this user.
//!
//! Each client starts a relay instead of the server. The relay passes lines between its standard input and output and the
//! user's share host ([`relay`]), which it starts if there is none ([`host`]). The host starts one process for all
//! clients whose servers are equal: command, arguments, environment and working directory ([`server`]).
//!
//! A server that is neither declared shared nor stateless ([`era`]) stays the client's own: this process then wraps it.

mod check;
mod connect;
mod era;
mod host;
mod probe;
mod relay;
pub(crate) mod server;
mod session;

use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;

use crate::args::{Share, ShareCommand, ShareServer, Wrap};
use crate::environment::Environment;
use crate::exit::{Failure, eprint_line};
use crate::start;
use crate::wrap;

/// The socket of the share host, in the runtime directory.
const SOCKET: &str = "share.socket";

impl Share {
    /// True if this process becomes a host.
    pub(crate) const fn is_host(&self) -> bool {
        match &self.command {
            Some(ShareCommand::Host(_)) => true,
            Some(ShareCommand::Check(_)) => false,
            None => !self.server.shared,
        }
    }
}

pub(crate) fn run(share: &Share, is_check: bool) -> Result<ExitCode, Failure> {
    match &share.command {
        Some(ShareCommand::Host(host)) => host::run(host, is_check),
        Some(ShareCommand::Check(wanted)) => check::run(wanted),
        None if share.server.command.is_empty() && share.server.config.is_none() => {
            Err(Failure::input(anyhow!("there is no server to share"))
                .hint("put its command after --, as in mainstay share -- npx -y SERVER, or name a file with --config"))
        }
        None if share.server.exclusive => {
            own_server(&share.server, "declared with --exclusive", is_check)
        }
        // A program that continues a host, or is asked if it can, wraps its server already.
        None if is_check || start::is_continuing() => own_server(&share.server, "", is_check),
        None => join(&share.server),
    }
}

/// Leads the client to the share host, if its server may be shared.
fn join(wanted: &ShareServer) -> Result<ExitCode, Failure> {
    // Neither a relay nor a server that is asked for its era reads signals.
    mainstay_system::unblock_operator_signals();
    let environment = Environment::read_for_operator()?;
    // Secrets are read once, whichever way the server is served.
    start::begin();
    let server = server::of(wanted)?;
    let is_declared = server.declared == Some(true);
    let is_stateless = |server: &_| era::is_stateless(server, environment.cache_dir.as_deref());
    let why = match server.shared {
        Ok(_) if server.declared == Some(false) => "declared with \"shared\": false",
        Ok(server) if is_declared || !server::is_boxed(&server) && is_stateless(&server) => {
            return relay::run(server, &environment.runtime_dir);
        }
        Err(failure) if is_declared => return Err(failure),
        Ok(server) if server::is_boxed(&server) => {
            "it has a sandbox, in which it is not asked for its revision, and is not declared with --shared"
        }
        Ok(_) | Err(_) => "it has sessions, and is not declared with --shared",
    };
    mainstay_system::block_operator_signals();
    own_server(wanted, why, false)
}

/// Serves a server that only this client uses.
fn own_server(server: &ShareServer, why: &str, is_check: bool) -> Result<ExitCode, Failure> {
    if !why.is_empty() && !is_check {
        eprint_line(&format!(
            "mainstay: this client has a server of its own: {why}"
        ));
    }
    if let Some(directory) = &server.cwd {
        std::env::set_current_dir(directory)
            .map_err(|error| server::no_directory(directory, &error))?;
    }
    let wrapped = Wrap {
        name: server.name.clone(),
        command: server.command.clone(),
        server: server.rules().unwrap_or_default(),
        ..Wrap::default()
    };
    wrap::run(&wrapped, is_check)
}

fn socket_of(runtime_dir: &Path) -> std::path::PathBuf {
    runtime_dir.join(SOCKET)
}
