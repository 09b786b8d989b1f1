//! A small MCP client for one-off commands that ask a running host on its socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, anyhow};
use mainstay_contract::dialect::LEGACY_VERSIONS;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::Method;
use mainstay_schema::lock::Surface;
use serde_json::{Value, json};

use crate::answer::{Refused, ToolAnswer};
use crate::exit::Failure;
use crate::listing::Listing;
use crate::progress_bar::ProgressBar;
use crate::target::ToolList;

/// Longest answer that is read.
const MAX_LINE: u64 = 64 * 1024 * 1024;
/// Pages that a list may have.
const MAX_PAGES: usize = 1000;
/// Longer than any call may take.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection to a host.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    next_id: u64,
    /// The host's answer to the handshake.
    handshake: Value,
    /// Shows the progress of calls, where somebody watches.
    progress: Option<ProgressBar>,
}

impl Client {
    /// Opens a session on a connected stream.
    pub(crate) fn open(stream: UnixStream) -> Result<Self, Refused> {
        let cannot = "the connection cannot be used";
        stream.set_read_timeout(Some(PATIENCE)).context(cannot)?;
        let writer = stream.try_clone().context(cannot)?;
        let mut client = Self {
            reader: BufReader::new(stream),
            writer,
            next_id: 1,
            handshake: Value::Null,
            progress: ProgressBar::on_terminal(),
        };
        client.handshake = client.request(
            Method::Initialize,
            &json!({
                "protocolVersion": LEGACY_VERSIONS[0], "capabilities": {},
                "clientInfo": { "name": "mainstay", "version": crate::VERSION },
            })
            .into(),
        )?;
        let ready = json!({ "jsonrpc": "2.0", "method": Method::Initialized.name() });
        client.send(&ready.to_string())?;
        Ok(client)
    }

    /// All tools.
    pub(crate) fn tools(&mut self) -> Result<ToolList, Refused> {
        let mut list = ToolList::default();
        let form = json!({ meta::DEFINITIONS: "full" });
        let mut params = Json::from(json!({ "_meta": form }));
        for _ in 0..MAX_PAGES {
            let mut result = match self.request(Method::ListTools, &params) {
                // A server may well have no tools.
                Err(refused) if refused.is_unknown_method() => return Ok(list),
                result => result?,
            };
            if !list.add(&mut result) {
                return Err(anyhow!("the list of tools cannot be read").into());
            }
            match result.get("nextCursor") {
                Some(cursor) if cursor.is_string() => {
                    params = json!({ "cursor": cursor, "_meta": form }).into();
                }
                _ => return Ok(list),
            }
        }
        Err(anyhow!("the list of tools does not end").into())
    }

    /// Everything beside its tools that the host offers to a model.
    pub(crate) fn surface(&mut self) -> Result<Surface, Failure> {
        let handshake = self.handshake.clone();
        Listing::new(&handshake).read(|kind, cursor| {
            let params = match cursor {
                Some(cursor) => json!({ "cursor": cursor }),
                None => json!({}),
            };
            match self.request(kind.method(), &params.into()) {
                Err(refused) if refused.is_unknown_method() => Ok(None),
                page => Ok(Some(page?)),
            }
        })
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Json) -> Result<ToolAnswer, Refused> {
        let mut params = ObjectWriter::with_capacity(arguments.len() + 128)
            .string("name", tool)
            .raw("arguments", arguments.as_str());
        if self.progress.is_some() {
            params = params.value("_meta", &json!({ meta::PROGRESS_TOKEN: "call" }));
        }
        let result = self.request(Method::CallTool, &Json::from_scanned(&params.finish()));
        if let Some(bar) = &mut self.progress {
            bar.clear();
        }
        match result {
            Err(Refused::Problem { message, facts }) => Ok(ToolAnswer::problem(&message, &facts)),
            result => result.map(ToolAnswer::of_result),
        }
    }

    /// Whether somebody watches the progress of calls.
    pub(crate) const fn is_watched(&self) -> bool {
        self.progress.is_some()
    }

    fn request(&mut self, method: Method, params: &Json) -> Result<Value, Refused> {
        let id = self.next_id;
        self.next_id += 1;
        let line = ObjectWriter::with_capacity(params.len() + 96)
            .string("jsonrpc", "2.0")
            .value("id", &id)
            .string("method", method.name())
            .raw("params", params.as_str());
        self.send(&line.finish())?;
        loop {
            let mut answer = self.receive()?;
            if answer.get("id").and_then(Value::as_u64) != Some(id) {
                let method = answer.get("method").and_then(Value::as_str);
                if let Some(bar) = &mut self.progress
                    && method == Some(Method::Progress.name())
                {
                    let param = |key: &str| answer.get("params").and_then(|params| params.get(key));
                    let number = |key| param(key).and_then(Value::as_f64);
                    let message = param("message").and_then(Value::as_str);
                    bar.show(
                        number("progress"),
                        number("total"),
                        message.unwrap_or_default(),
                    );
                }
                continue;
            }
            if let Some(error) = answer.get("error") {
                return Err(Refused::of_error(error));
            }
            return Ok(answer
                .get_mut("result")
                .map(Value::take)
                .unwrap_or_default());
        }
    }

    fn send(&mut self, message: &str) -> anyhow::Result<()> {
        let line = format!("{message}\n");
        self.writer
            .write_all(line.as_bytes())
            .context("the host does not take requests")
    }

    fn receive(&mut self) -> anyhow::Result<Value> {
        let mut line = Vec::new();
        let count = (&mut self.reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .context("the host does not answer")?;
        if count == 0 {
            return Err(anyhow!("the host closed the connection"));
        }
        serde_json::from_slice(&line).context("the host's answer is not JSON")
    }
}
