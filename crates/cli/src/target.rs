//! Where a one-off command finds its tools: a running host, or a host of its own for the moment.

use std::os::unix::net::UnixStream;

use anyhow::Context;
use mainstay_contract::json::Json;
use mainstay_contract::meta;
use mainstay_host::Served;
use mainstay_schema::lock::Surface;
use serde_json::Value;

use crate::answer::{ToolAnswer, Wants};
use crate::args::Target;
use crate::client::Client;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::own_host::OwnHost;
use crate::remote::Remote;
use crate::server_file::ServerEntry;
use crate::transport;

/// The tools of a host.
#[derive(Debug, Default)]
pub(crate) struct ToolList {
    /// Their definitions.
    pub(crate) tools: Vec<Value>,
    /// The servers whose tools are missing, and why.
    pub(crate) missing: Vec<(String, String)>,
}

impl ToolList {
    /// Adds a page: the result of `tools/list`. False if it is not one.
    pub(crate) fn add(&mut self, page: &mut Value) -> bool {
        let missing = page.get("_meta").and_then(|meta| meta.get(meta::MISSING));
        let missing = missing.and_then(Value::as_object).into_iter().flatten();
        self.missing.extend(missing.map(|(server, reason)| {
            let reason = reason.as_str().unwrap_or_default();
            (server.clone(), reason.to_owned())
        }));
        match page.get_mut("tools").map(Value::take) {
            Some(Value::Array(tools)) => {
                self.tools.extend(tools);
                true
            }
            _ => false,
        }
    }
}

/// A host that answers a command.
#[derive(Debug)]
pub(crate) enum Connection {
    /// A host in this process.
    Own(OwnHost),
    /// A running host on a Unix socket, in a session of MCP.
    Session(Client),
    /// A running host over HTTP.
    Remote(Remote),
}

impl Connection {
    /// Connects to the target, for a call of `tool` or for its whole offer.
    pub(crate) fn open(target: &Target, tool: Option<&str>) -> Result<Self, Failure> {
        if let Some(url) = &target.url {
            let token = transport::token(&Environment::read_for_operator()?, None)?;
            return Ok(Self::Remote(Remote::new(url, token)?));
        }
        if let Some(path) = &target.socket {
            let stream = UnixStream::connect(path)
                .with_context(|| format!("cannot connect to {}", path.display()))
                .map_err(|error| {
                    Failure::input(error).hint("start a host there with mainstay serve --socket")
                })?;
            return Ok(Self::Session(Client::open(stream)?));
        }
        OwnHost::start(target, tool).map(Self::Own)
    }

    /// Wraps a server of a configuration file for the moment, without its rules and its lock.
    pub(crate) fn to_server(server: &ServerEntry) -> Result<Self, Failure> {
        OwnHost::wrap(server).map(Self::Own)
    }

    /// True if the host ends with this command.
    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// True if a terminal shows the progress of calls.
    pub(crate) const fn is_watched(&self) -> bool {
        match self {
            Self::Own(host) => host.is_watched(),
            Self::Session(client) => client.is_watched(),
            Self::Remote(_) => false,
        }
    }

    /// All tools.
    pub(crate) fn tools(&mut self) -> Result<ToolList, Failure> {
        match self {
            Self::Own(host) => host.tools(),
            Self::Session(client) => Ok(client.tools()?),
            Self::Remote(remote) => Ok(ToolList {
                tools: remote.tools()?,
                missing: Vec::new(),
            }),
        }
    }

    /// Everything beside its tools that a wrapped server, or a running host, offers to a model. REST has no
    /// lists of it.
    pub(crate) fn surface(&mut self) -> Result<Option<Surface>, Failure> {
        match self {
            Self::Own(host) => host.surface().map(Some),
            Self::Session(client) => client.surface().map(Some),
            Self::Remote(_) => Ok(None),
        }
    }

    /// Calls a tool. Over HTTP, fetches only the requested form.
    pub(crate) fn call(
        &mut self,
        tool: &str,
        arguments: &Json,
        wants: Wants,
    ) -> Result<ToolAnswer, Failure> {
        match self {
            Self::Own(host) => host.call(tool, arguments),
            Self::Session(client) => Ok(client.call(tool, arguments)?),
            Self::Remote(remote) => remote.call(tool, arguments, wants),
        }
    }

    /// Ends a host of our own in order, and returns its offer.
    pub(crate) fn close(self) -> Result<Option<Served>, Failure> {
        match self {
            Self::Own(host) => host.close(),
            Self::Session(_) | Self::Remote(_) => Ok(None),
        }
    }
}
