//! Where a one-off command finds its tools: a running host, or one of its own for the moment.

use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use mainstay_host::config::Transport;
use mainstay_host::serve_wrapped;
use mainstay_host::{Level, Log, ServeError, Served};
use serde_json::Value;

use crate::answer::{ToolAnswer, Wants};
use crate::args::{Target, WrapRules};
use crate::client::Client;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::remote::Remote;
use crate::{local, serve, transport, wrap};

/// How often a server is started again within one command, before whoever waits is told.
const RESTARTS: u32 = 2;

/// A host of our own, before it runs.
type Host = Box<dyn FnOnce() -> Result<Option<Served>, ServeError> + Send>;

/// A connection, and the host behind it if it is ours.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Asks,
    host: Option<JoinHandle<Result<Option<Served>, ServeError>>>,
}

/// How a host is asked.
#[derive(Debug)]
enum Asks {
    /// In a session of MCP.
    Session(Client),
    /// Over HTTP.
    Remote(Remote),
}

impl Connection {
    /// Connects to the target.
    pub(crate) fn open(target: &Target) -> Result<Self, Failure> {
        if let Some(url) = &target.url {
            let token = transport::token(&Environment::read()?)?;
            let client = Asks::Remote(Remote::new(url, token)?);
            return Ok(Self { client, host: None });
        }
        if let Some(path) = &target.socket {
            let stream = UnixStream::connect(path)
                .with_context(|| format!("cannot connect to {}", path.display()))
                .map_err(|error| {
                    Failure::input(error).hint("start a host there with mainstay serve --socket")
                })?;
            let client = Asks::Session(Client::open(stream)?);
            return Ok(Self { client, host: None });
        }
        let (ours, theirs) = UnixStream::pair()
            .context("cannot make a connection")
            .map_err(Failure::fault)?;
        let transport = Transport::Connected(theirs.into());
        let log = Log::start(Level::Quiet);
        let host: Host = if target.command.is_empty() {
            let environment = Environment::read()?;
            let config = local::config(&target.packs, &environment, transport)?;
            Box::new(move || mainstay_host::serve(config, &log).map(Some))
        } else {
            let mut config = wrap::config(&WrapRules::default(), &target.command, transport)?;
            config.limits.restarts = RESTARTS;
            Box::new(move || serve_wrapped(config, &log).map(|()| None))
        };
        let host = std::thread::Builder::new()
            .name("host".into())
            .spawn(host)
            .context("cannot start a thread")
            .map_err(Failure::fault)?;
        match Client::open(ours) {
            Ok(client) => Ok(Self {
                client: Asks::Session(client),
                host: Some(host),
            }),
            // The host says more than the connection that it closed.
            Err(error) => match host.join() {
                Ok(Err(refused)) => Err(serve::explain(refused)),
                _ => Err(error.into()),
            },
        }
    }

    /// Whether the host ends with this command.
    pub(crate) const fn is_ours(&self) -> bool {
        self.host.is_some()
    }

    /// Whether somebody watches how a call gets on.
    pub(crate) const fn is_watched(&self) -> bool {
        match &self.client {
            Asks::Session(client) => client.is_watched(),
            Asks::Remote(_) => false,
        }
    }

    /// The definitions of all tools.
    pub(crate) fn tools(&mut self) -> Result<Vec<Value>, Failure> {
        match &mut self.client {
            Asks::Session(client) => Ok(client.tools()?),
            Asks::Remote(remote) => remote.tools(),
        }
    }

    /// Calls a tool. Over HTTP only that comes which is wanted.
    pub(crate) fn call(
        &mut self,
        tool: &str,
        arguments: &Value,
        wants: Wants,
    ) -> Result<ToolAnswer, Failure> {
        match &mut self.client {
            Asks::Session(client) => Ok(client.call(tool, arguments)?),
            Asks::Remote(remote) => remote.call(tool, arguments, wants),
        }
    }

    /// Ends our own host in order, so that no worker is left, and gives what it had on offer.
    pub(crate) fn close(self) -> Result<Option<Served>, Failure> {
        let Self { client, host } = self;
        drop(client);
        match host.map(JoinHandle::join) {
            None => Ok(None),
            Some(Ok(Ok(served))) => Ok(served),
            Some(Ok(Err(error))) => Err(serve::explain(error)),
            Some(Err(_)) => Err(Failure::fault(anyhow!("the host ended unexpectedly"))),
        }
    }
}
