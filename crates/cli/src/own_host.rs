//! A host in this process, for one-off commands. Requests and their ends are typed.

use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Success;
use mainstay_contract::rpc::Progress;
use mainstay_host::wrap::WrapConfig;
use mainstay_host::{AskError, Level, Local, Log, ServeError, Served, serve_wrapped};
use mainstay_schema::lock::Surface;
use serde_json::Value;

use crate::answer::ToolAnswer;
use crate::args::Target;
use crate::config_file::ConfigFile;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::listing::Listing;
use crate::progress_bar::ProgressBar;
use crate::server_file::ServerEntry;
use crate::servers;
use crate::target::ToolList;
use crate::{local, serve, wrap};

/// How often a host restarts a server within one command before it reports the failure.
const RESTARTS: u32 = 2;

/// A host, before it runs.
type Host = Box<dyn FnOnce() -> Result<Option<Served>, ServeError> + Send>;

/// A host that wraps one server.
fn wrapping(mut config: WrapConfig) -> Host {
    config.limits.restarts = RESTARTS;
    let log = Log::start(Level::Quiet, wrap::redactor(&config));
    Box::new(move || serve_wrapped(config, &log).map(|()| None))
}

/// A host that ends with this command.
#[derive(Debug)]
pub(crate) struct OwnHost {
    local: Local,
    thread: JoinHandle<Result<Option<Served>, ServeError>>,
    /// Shows the progress of calls on a terminal.
    progress: Option<ProgressBar>,
}

impl OwnHost {
    /// Starts the host of a target. For a call of `tool` it starts no server that cannot have the tool.
    pub(crate) fn start(target: &Target, tool: Option<&str>) -> Result<Self, Failure> {
        let (local, transport) = Local::open();
        let host: Host = if target.command.is_empty() {
            let environment = Environment::read()?;
            let file = ConfigFile::named(target.packs.config.as_deref())?;
            let mut config = local::config(&target.packs, &environment, file, transport)?;
            if let Some(tool) = tool {
                servers::retain_owners(&mut config.servers, tool);
            }
            let log = Log::start(Level::Quiet, serve::redactor(&config));
            Box::new(move || mainstay_host::serve(config, &log).map(Some))
        } else {
            wrapping(wrap::config(&target.command, transport)?)
        };
        Self::run(local, host)
    }

    /// Starts a host that wraps a server of a configuration file.
    pub(crate) fn wrap(server: &ServerEntry) -> Result<Self, Failure> {
        let (local, transport) = Local::open();
        let config = wrap::config_of(server, transport)?;
        Self::run(local, wrapping(config))
    }

    fn run(local: Local, host: Host) -> Result<Self, Failure> {
        let thread = std::thread::Builder::new()
            .name("host".into())
            .spawn(host)
            .context("cannot start a thread")
            .map_err(Failure::fault)?;
        Ok(Self {
            local,
            thread,
            progress: ProgressBar::on_terminal(),
        })
    }

    /// True if a terminal shows the progress of calls.
    pub(crate) const fn is_watched(&self) -> bool {
        self.progress.is_some()
    }

    /// All tools.
    pub(crate) fn tools(&self) -> Result<ToolList, Failure> {
        let mut listing = match self.local.ask(Op::ListTools { full: true }, None)? {
            Success::Members(members) => members.to_value().unwrap_or_default(),
            Success::Tool(_) | Success::Forwarded(_) => Value::Null,
        };
        let mut list = ToolList::default();
        match list.add(&mut listing) {
            true => Ok(list),
            false => Err(Failure::fault(anyhow!("the list of tools cannot be read"))),
        }
    }

    /// Everything beside its tools that a wrapped server offers to a model.
    pub(crate) fn surface(&self) -> Result<Surface, Failure> {
        let handshake = match self.local.ask(Op::Discover {}, None)? {
            Success::Members(members) => members.to_value().unwrap_or_default(),
            Success::Tool(_) | Success::Forwarded(_) => Value::Null,
        };
        Listing::new(&handshake).read(|kind, cursor| {
            match self.local.list(kind, cursor.map(str::to_owned)) {
                Err(AskError::Server(problem)) if problem.kind == ErrorKind::UnknownMethod => {
                    Ok(None)
                }
                page => Ok(page?.to_value().ok()),
            }
        })
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Json) -> Result<ToolAnswer, Failure> {
        let op = Op::CallTool {
            name: tool.to_owned(),
            arguments: arguments.clone(),
        };
        let answer = match &mut self.progress {
            None => self.local.ask(op, None),
            Some(bar) => {
                let mut show = |number: u64, progress: &Progress| {
                    let total = progress.total.map(|total| total as f64);
                    bar.show(Some(number as f64), total, &progress.message);
                };
                let answer = self.local.ask(op, Some(&mut show));
                bar.clear();
                answer
            }
        };
        match answer {
            Ok(Success::Tool(reply)) => Ok(ToolAnswer::of_reply(&reply)),
            Ok(Success::Members(_) | Success::Forwarded(_)) => {
                Err(Failure::fault(anyhow!("the answer is not a tool's")))
            }
            Err(AskError::Host(problem)) => Ok(ToolAnswer::of_problem(&problem)),
            Err(AskError::Server(problem)) => Ok(ToolAnswer::of_server_problem(&problem)),
        }
    }

    /// Ends the host in order, so that no worker is left, and returns its offer.
    pub(crate) fn close(self) -> Result<Option<Served>, Failure> {
        drop(self.local);
        match self.thread.join() {
            Ok(Ok(served)) => Ok(served),
            Ok(Err(error)) => Err(serve::explain(error)),
            Err(_) => Err(Failure::fault(anyhow!("the host ended unexpectedly"))),
        }
    }
}
