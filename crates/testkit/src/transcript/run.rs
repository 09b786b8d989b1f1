//! Runs a transcript against a real host.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};

use super::matches;
use super::step::{Expected, Setup, Step, Transcript};
use crate::http::{Era, bridge};
use crate::peer::{Client, Message};
use crate::process::{Running, Serve, Transport};

/// How long an expected message may take. It covers the start of host and workers on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs one file over one transport. The error shows place, pattern and the whole exchange.
pub fn run_file(path: &Path, transport: Transport) -> anyhow::Result<()> {
    let transcript = Transcript::load(path)?;
    let mut running = start(&transcript, transport)
        .with_context(|| format!("{}: starting the host", transcript.name))?;
    let client = match transport {
        Transport::Stdio | Transport::Socket => running.take_client()?,
        Transport::Http => bridge(running.address()?, era(&transcript.name)?),
    };
    let client = client.with_patience(PATIENCE);
    let mut exchange = String::new();
    for (line, step) in &transcript.steps {
        play(&client, step, &mut exchange).map_err(|error| {
            let name = &transcript.name;
            let stderr = running.stderr().join("\n    ");
            anyhow!(
                "{name}:{line} over {transport:?}: {error:#}\n  the exchange:\n{exchange}  \
                 standard error:\n    {stderr}"
            )
        })?;
    }
    end(&transcript.name, &client, running)
}

/// HTTP carries MCP only, and each era in its own way.
fn era(name: &str) -> anyhow::Result<Era> {
    match name.split_once('-') {
        Some(("legacy", _)) => Ok(Era::Legacy),
        Some(("modern", _)) => Ok(Era::Modern),
        _ => bail!("{name} is not of one era of MCP"),
    }
}

/// Runs every `*.jsonl` of a folder and reports all that failed.
pub fn run_folder(folder: &Path, transport: Transport) -> anyhow::Result<usize> {
    run_some(folder, transport, |_| true)
}

/// The same for the files whose names `wanted` accepts.
pub fn run_some(
    folder: &Path,
    transport: Transport,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<usize> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(|| format!("reading {}", folder.display()))?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    paths.retain(|path| {
        path.file_name()
            .is_some_and(|name| wanted(&name.to_string_lossy()))
    });
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no transcripts", folder.display());
    let mut failures = String::new();
    for path in &paths {
        if let Err(error) = run_file(path, transport) {
            let _ = writeln!(failures, "{error:#}\n");
        }
    }
    ensure!(failures.is_empty(), "transcripts failed:\n\n{failures}");
    Ok(paths.len())
}

fn start(transcript: &Transcript, transport: Transport) -> anyhow::Result<Running> {
    let Setup { packs, args, env } = &transcript.setup;
    let mut serve = Serve::new(transport)?;
    let folder = serve.folder().to_owned();
    let filled = |text: &str| text.replace("{folder}", &folder.to_string_lossy());
    for (path, text) in &transcript.files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for pack in packs {
        serve = match (pack.as_str(), pack.strip_prefix("bad ")) {
            ("ledger", _) => serve.ledger()?,
            (_, Some(mode)) => serve.misbehaving(mode)?,
            _ => serve.pack(filled(pack)),
        };
    }
    for argument in args {
        serve = serve.argument(filled(argument));
    }
    for (name, value) in env {
        serve = serve.env(name, filled(value));
    }
    serve.spawn()
}

fn play(client: &Client, step: &Step, exchange: &mut String) -> anyhow::Result<()> {
    match step {
        Step::Send(bytes) => {
            let _ = write!(exchange, "    > {}", shown(bytes));
            client.send_raw(bytes.clone())
        }
        Step::Expect(expected) => {
            let message = client.take(&expected.what(), |message| expected.is_for(message));
            judge(expected, message, exchange)
        }
        Step::ExpectNext(expected) => judge(expected, client.next(), exchange),
        Step::ExpectNone { ms } => client.silence(Duration::from_millis(*ms)),
    }
}

fn judge(
    expected: &Expected,
    message: anyhow::Result<Message>,
    exchange: &mut String,
) -> anyhow::Result<()> {
    let id = expected.id.as_deref().unwrap_or("(none)");
    let wanted = || format!("expected id {id} and {}", expected.pattern);
    let message = message.with_context(wanted)?;
    let _ = writeln!(exchange, "    < {message:?}");
    let same_id = message.id() == expected.id.as_deref();
    ensure!(same_id, "{}, got another id: {message:?}", wanted());
    let mut pattern = expected.pattern.clone();
    if let (Some(pattern), Some(id)) = (pattern.as_object_mut(), message.value().get("id")) {
        // Compared as text above, where `1` and `1.0` differ.
        pattern.insert("id".to_owned(), id.clone());
    }
    matches(&pattern, &message.value())
        .map_err(|mismatch| anyhow!("{mismatch}\n  {}\n  got      {message:?}", wanted()))
}

impl Expected {
    fn is_for(&self, message: &Message) -> bool {
        match (&self.id, &self.method) {
            (Some(id), _) => message.id() == Some(id),
            (None, Some(method)) => {
                message.id().is_none() && message.method().as_ref() == Some(method)
            }
            (None, None) => message.id().is_none() && message.method().is_none(),
        }
    }

    fn what(&self) -> String {
        match (&self.id, &self.method) {
            (Some(id), _) => format!("a message with id {id}"),
            (None, Some(method)) => format!("a notification {method}"),
            (None, None) => "a message without id".to_owned(),
        }
    }
}

/// The client closes its side; the host owes it nothing more.
fn end(name: &str, client: &Client, running: Running) -> anyhow::Result<()> {
    let rest = client
        .finish()
        .with_context(|| format!("{name}: at the end"))?;
    ensure!(rest.is_empty(), "{name}: unexpected at the end: {rest:#?}");
    running
        .stop()
        .with_context(|| format!("{name}: at the end"))
}

fn shown(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if let Some((cut, _)) = text.char_indices().nth(600) {
        text.truncate(cut);
        text.push_str("...\n");
    }
    text
}
