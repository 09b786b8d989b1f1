//! A real host with the code pack, and the plainest client of it.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::at;
use crate::bench::Link;
use crate::process::{Serve, cpu_time, cpu_time_of_all_threads, wait_for};

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Whether the host builds the symbol layer beside its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layers {
    Text,
    All,
}

pub(super) struct Host {
    serve: Serve,
    child: Child,
    link: Link,
    next: u64,
    family: Vec<u32>,
}

impl Host {
    pub(super) fn start(tree: &Path, cache: &Path, layers: Layers) -> anyhow::Result<Self> {
        let serve = Serve::stdio()?;
        let config = serve.folder().join("config.toml");
        let off = layers == Layers::Text;
        fs::write(
            &config,
            format!("[packs.code.settings]\nno_symbols = {off}\n"),
        )?;
        let serve = serve
            .pack("code")
            .argument("--root")
            .argument(tree)
            .argument("--config")
            .argument(config)
            .env("MAINSTAY_CACHE_DIR", cache);
        let mut child = serve
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the host")?;
        let to = child.stdin.take().context("no pipe to the host")?;
        let from = child.stdout.take().context("no pipe from the host")?;
        let mut host = Self {
            serve,
            child,
            link: Link::new(from, to),
            next: 0,
            family: Vec::new(),
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        host.request("initialize", &hello)?;
        host.link
            .send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(host)
    }

    fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<(Duration, Value)> {
        self.next += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        let took = self.link.round_trip(format!("{message}\n").as_bytes())?;
        let answer: Value = serde_json::from_slice(self.link.last()).context("an answer")?;
        ensure!(
            at(&answer, "/id") == self.next,
            "no answer to {method}: {answer}"
        );
        Ok((took, answer))
    }

    /// Calls a tool; gives the round trip and the structured result.
    pub(super) fn timed(
        &mut self,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<(Duration, Value)> {
        let params = json!({"name": tool, "arguments": arguments});
        let (took, mut answer) = self.request("tools/call", &params)?;
        let result = answer
            .pointer_mut("/result/structuredContent")
            .map(Value::take)
            .unwrap_or_default();
        ensure!(result.is_object(), "{tool} {arguments}: {answer}");
        Ok((took, result))
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        Ok(self.timed(tool, arguments)?.1)
    }

    /// Asks until it holds.
    pub(super) fn wait_until(
        &mut self,
        time: Duration,
        mut holds: impl FnMut(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while !holds(self)? {
            ensure!(Instant::now() < until, "not within {time:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn family(&mut self) -> &[u32] {
        if self.family.len() < 2 {
            self.family = self.serve.family();
        }
        &self.family
    }

    /// Processor time of all our processes so far, without that of threads that have ended.
    pub(super) fn cpu(&mut self) -> anyhow::Result<Duration> {
        self.family().iter().map(|pid| cpu_time(*pid)).sum()
    }

    /// The same with all threads, less exactly.
    pub(super) fn whole_cpu(&mut self) -> anyhow::Result<Duration> {
        let pids = self.family().iter();
        pids.map(|pid| cpu_time_of_all_threads(*pid)).sum()
    }

    /// Anonymous resident memory of all our processes, in MB.
    pub(super) fn anonymous_mb(&self) -> f64 {
        anonymous_kib(&self.serve.family()) as f64 / 1024.0
    }

    /// Watches the memory until told to stop.
    pub(super) fn watch_memory(&self) -> Watch {
        let family = self.serve.family();
        let (peak, ended) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (seen, over) = (Arc::clone(&peak), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                seen.fetch_max(anonymous_kib(&family), Ordering::Relaxed);
                std::thread::sleep(LOOK);
            }
        });
        Watch {
            peak,
            ended,
            thread,
        }
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        let Self {
            link, mut child, ..
        } = self;
        drop(link);
        let status = wait_for(&mut child, crate::peer::PATIENCE)?;
        ensure!(status.success(), "the host ended with {status}");
        Ok(())
    }
}

/// See [`Host::watch_memory`].
pub(super) struct Watch {
    peak: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// The most there was, in MB.
    pub(super) fn stop(self) -> f64 {
        self.ended.store(true, Ordering::Relaxed);
        // It has nothing that could panic.
        let _ = self.thread.join();
        self.peak.load(Ordering::Relaxed) as f64 / 1024.0
    }
}

fn anonymous_kib(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    pids.iter().filter_map(of).sum()
}
