//! Plays a conversation against a command.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::{Conversation, Reply, Turn};
use crate::mailbox::{Mailbox, Missed};
use crate::peer::Message;
use crate::process::wait_for;

/// How long anything may take: servers of others take a while to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines that were not looked at yet.
const INBOX: usize = 4096;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcript {
    /// Every byte of standard output.
    pub bytes: Vec<u8>,
    pub status: ExitStatus,
}

impl Transcript {
    /// The lines, for comparing with others one by one.
    pub fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.lines().map(str::to_owned).collect()
    }

    /// The transcript with the first occurrence of a text replaced.
    #[must_use]
    pub fn replacing(&self, from: &str, to: &str) -> Self {
        let text = String::from_utf8_lossy(&self.bytes);
        Self {
            bytes: text.replacen(from, to, 1).into_bytes(),
            status: self.status,
        }
    }

    /// An error that shows the first line that differs, if one does.
    pub fn same_as(&self, other: &Self) -> anyhow::Result<()> {
        if self == other {
            return Ok(());
        }
        let (ours, theirs) = (self.lines(), other.lines());
        let pairs = ours.iter().zip(&theirs);
        if let Some((ours, theirs)) = pairs.clone().find(|(ours, theirs)| ours != theirs) {
            let shown = crate::peer::shortened;
            bail!("a line differs:\n  {}\n  {}", shown(ours), shown(theirs));
        }
        bail!(
            "{} lines and {}, against {} and {}",
            ours.len(),
            self.status,
            theirs.len(),
            other.status
        )
    }
}

/// Holds a conversation with a server that is started for it, ends it by end of input, and gives what
/// the server said.
pub fn hold(conversation: &Conversation, command: &mut Command) -> anyhow::Result<Transcript> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let held = talk(conversation, &mut child);
    if held.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let bytes = held.with_context(|| conversation.name.clone())?;
    let status = wait_for(&mut child, PATIENCE)?;
    Ok(Transcript { bytes, status })
}

fn talk(conversation: &Conversation, child: &mut Child) -> anyhow::Result<Vec<u8>> {
    let output = child.stdout.take().context("no pipe from the server")?;
    let inbox = Arc::new(Mailbox::new(INBOX));
    let to = Arc::clone(&inbox);
    thread::spawn(move || read_lines(output, &to));
    let mut talk = Talk {
        to: child.stdin.take(),
        inbox,
        bytes: Vec::new(),
        replies: BTreeMap::new(),
        notified: Vec::new(),
    };
    for (line, turn) in &conversation.turns {
        talk.take(turn)
            .with_context(|| format!("line {line} of the script"))?;
    }
    talk.to = None;
    while talk.hear()?.is_some() {}
    Ok(talk.bytes)
}

struct Talk {
    to: Option<ChildStdin>,
    inbox: Arc<Mailbox<Vec<u8>>>,
    bytes: Vec<u8>,
    replies: BTreeMap<String, Reply>,
    /// Methods of the notifications that nobody has waited for.
    notified: Vec<String>,
}

impl Talk {
    fn take(&mut self, turn: &Turn) -> anyhow::Result<()> {
        match turn {
            Turn::Reply { method, reply } => {
                self.replies.insert(method.clone(), reply.clone());
            }
            Turn::Tell(line) => self.send(&format!("{line}\n"))?,
            Turn::Await(method) => {
                let place = loop {
                    if let Some(place) = self.notified.iter().position(|one| one == method) {
                        break place;
                    }
                    ensure!(self.hear()?.is_some(), "the server ended before {method}");
                };
                self.notified.remove(place);
            }
            Turn::Ask { lines, ids } => {
                self.send(&format!("{}\n", lines.join("\n")))?;
                let mut waiting = ids.clone();
                while !waiting.is_empty() {
                    let Some(message) = self.hear()? else {
                        bail!("the server ended before the answer to {waiting:?}");
                    };
                    if message.method().is_none() {
                        waiting.retain(|id| message.id() != Some(id));
                    }
                }
            }
        }
        Ok(())
    }

    /// The next message, its bytes kept; requests of the server are answered. `None` at the end.
    fn hear(&mut self) -> anyhow::Result<Option<Message>> {
        let line = match self.inbox.take(|_| true, Some(Instant::now() + PATIENCE)) {
            Ok(line) => line,
            Err(Missed::Closed) => return Ok(None),
            Err(Missed::Late) => bail!("nothing was said for {PATIENCE:?}"),
        };
        self.bytes.extend_from_slice(&line);
        let message = Message::parse(line.strip_suffix(b"\n").unwrap_or(&line))?;
        match (message.method(), message.id()) {
            (Some(method), Some(id)) => {
                let reply = self.replies.get(&method);
                let reply = reply.with_context(|| format!("nobody can answer {message:?}"))?;
                let line = reply.line(id);
                self.send(&line)?;
            }
            (Some(method), None) => self.notified.push(method),
            (None, _) => {}
        }
        Ok(Some(message))
    }

    fn send(&mut self, text: &str) -> anyhow::Result<()> {
        let to = self.to.as_mut().context("the conversation is over")?;
        to.write_all(text.as_bytes())
            .context("writing to the server")
    }
}

fn read_lines(output: impl Read, inbox: &Mailbox<Vec<u8>>) {
    let mut output = BufReader::with_capacity(1 << 16, output);
    loop {
        let mut line = Vec::new();
        match output.read_until(b'\n', &mut line) {
            Ok(1..) if inbox.push(line, None).is_ok() => {}
            _ => break,
        }
    }
    inbox.close();
}
