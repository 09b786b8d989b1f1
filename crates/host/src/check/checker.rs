//! One checker process, as the host sees it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use mainstay_contract::json::Json;
use mainstay_schema::Fingerprint;
use mainstay_schema::check::{Definition, GaveUp, Subject, Verdict};
use rustix::process::Signal;

use super::child;
use super::limits::{ANSWER_HEAD_BYTES, ARGUMENT_GROWTH, CheckLimits};
use super::protocol::{Answer, Order};
use crate::io::{Sink, Source};
use crate::process::{ChildPipes, PipedChild};

/// Bytes that are read at a time.
const CHUNK: usize = 16 * 1024;

/// A process that waits for orders. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Checker {
    child: PipedChild,
    input: Sink,
    output: Source,
    /// Bytes that were read and not used.
    unread: Vec<u8>,
    /// The definitions it knows; their positions are their numbers.
    learned: Vec<Fingerprint>,
    learned_bytes: usize,
    /// The most memory it ever used, as it last reported.
    peak: u64,
}

impl Checker {
    pub(super) fn spawn(program: &Path, memory_bytes: u64) -> io::Result<Self> {
        let arguments = [child::WORD.to_owned(), memory_bytes.to_string()];
        let (child, pipes) = PipedChild::spawn(program, child::NAME, &arguments)?;
        let ChildPipes { stdin, stdout } = pipes;
        Ok(Self {
            child,
            input: Sink::pipe(stdin)?,
            output: Source::pipe(stdout)?,
            unread: Vec::new(),
            learned: Vec::new(),
            learned_bytes: 0,
            peak: 0,
        })
    }

    /// True if the checker can take another check of this definition.
    pub(super) fn is_fit(&mut self, definition: &Definition, limits: &CheckLimits) -> bool {
        let is_known = self.learned.contains(&definition.digest());
        let bytes = self.learned_bytes.saturating_add(definition.schema_bytes());
        let has_room = is_known || self.learned.is_empty() || bytes <= limits.learned_bytes;
        has_room && self.peak <= limits.recycle_bytes && self.child.is_alive()
    }

    /// True if the checker is worth keeping.
    pub(super) const fn is_small(&self, limits: &CheckLimits) -> bool {
        self.peak <= limits.recycle_bytes
    }

    /// Checks one value. The process is unusable after an error.
    pub(super) async fn check(
        &mut self,
        definition: &Definition,
        subject: &Subject,
    ) -> Result<Verdict, GaveUp> {
        let (head, text) = match subject {
            Subject::Arguments(text) => (Subject::Arguments(Json::null()), text.as_str()),
            Subject::Reply(text) => (Subject::Reply(Json::null()), text.as_str()),
            Subject::NoReply => (Subject::NoReply, ""),
        };
        let bytes = text.len();
        let order = |definition| Order::Check {
            definition,
            subject: head,
            bytes,
        };
        let sent = self.order(definition, order, text).await;
        self.answer(sent, subject).await
    }

    /// Compiles a definition. The process is unusable after an error.
    pub(super) async fn compile(&mut self, definition: &Definition) -> Result<Verdict, GaveUp> {
        let order = |definition| Order::Compile { definition };
        let sent = self.order(definition, order, "").await;
        self.answer(sent, &Subject::NoReply).await
    }

    /// Kills the process and reaps it.
    pub(super) async fn end(mut self) {
        self.child.kill();
        let _ = self.child.wait().await;
    }

    /// Sends an order about a definition, which it learns first if necessary.
    async fn order(
        &mut self,
        definition: &Definition,
        order: impl FnOnce(usize) -> Order,
        text: &str,
    ) -> io::Result<()> {
        let number = self.learn(definition).await?;
        self.send(&order(number), &[text]).await
    }

    async fn learn(&mut self, definition: &Definition) -> io::Result<usize> {
        let digest = definition.digest();
        if let Some(number) = self.learned.iter().position(|known| *known == digest) {
            return Ok(number);
        }
        let order = Order::Learn {
            name: definition.name.clone(),
            aliases: definition.aliases.clone(),
            side: definition.side,
            input: definition.input.as_ref().map(Json::len),
            output: definition.output.as_ref().map(Json::len),
        };
        let schemas = [&definition.input, &definition.output];
        let texts = schemas.map(|schema| schema.as_ref().map_or("", Json::as_str));
        self.send(&order, &texts).await?;
        self.learned.push(digest);
        self.learned_bytes = self.learned_bytes.saturating_add(definition.schema_bytes());
        Ok(self.learned.len() - 1)
    }

    async fn send(&mut self, order: &Order, texts: &[&str]) -> io::Result<()> {
        let mut head = serde_json::to_vec(order)?;
        head.push(b'\n');
        let texts = texts.iter().map(|text| text.as_bytes());
        for part in std::iter::once(head.as_slice()).chain(texts) {
            let mut rest = part;
            while !rest.is_empty() {
                let written = self.input.write(rest).await?;
                rest = rest.get(written..).unwrap_or_default();
            }
        }
        Ok(())
    }

    async fn answer(&mut self, sent: io::Result<()>, subject: &Subject) -> Result<Verdict, GaveUp> {
        let received = match sent {
            Ok(()) => self.receive(subject).await,
            Err(error) => Err(error),
        };
        if let Ok(verdict) = received {
            return Ok(verdict);
        }
        self.child.kill();
        let status = self.child.wait().await.ok();
        let signal = status.and_then(|status| status.signal());
        // Rust aborts where it cannot allocate. A kill of ours comes too late to hide that.
        if signal == Some(Signal::ABORT.as_raw()) {
            Err(GaveUp::Memory)
        } else {
            Err(GaveUp::Crashed)
        }
    }

    async fn receive(&mut self, subject: &Subject) -> io::Result<Verdict> {
        let head = loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                break self.unread.drain(..=end).collect::<Vec<u8>>();
            }
            if self.unread.len() > ANSWER_HEAD_BYTES {
                return Err(io::Error::other("the checker's answer is too long"));
            }
            self.read_more().await?;
        };
        let Answer {
            verdict,
            bytes,
            peak,
        } = serde_json::from_slice(&head)?;
        self.peak = peak.unwrap_or(u64::MAX);
        let Verdict::Prepared { render, .. } = verdict else {
            return Ok(verdict);
        };
        let Subject::Arguments(given) = subject else {
            return Err(io::Error::other("the checker prepared a reply"));
        };
        let arguments = match bytes {
            None => given.clone(),
            Some(bytes) => self.read_text(bytes, given.len()).await?,
        };
        Ok(Verdict::Prepared { arguments, render })
    }

    async fn read_text(&mut self, bytes: usize, given: usize) -> io::Result<Json> {
        if bytes > given.saturating_mul(2).saturating_add(ARGUMENT_GROWTH) {
            return Err(io::Error::other("the checker's arguments are too long"));
        }
        while self.unread.len() < bytes {
            self.read_more().await?;
        }
        let text: Vec<u8> = self.unread.drain(..bytes).collect();
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        Ok(Json::from_scanned(&text))
    }

    async fn read_more(&mut self) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        let count = self.output.read(&mut chunk).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread.extend(chunk.iter().take(count));
        Ok(())
    }
}
