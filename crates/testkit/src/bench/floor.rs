//! The least that pipes and processes cost.
//!
//! The benchmark starts itself in these roles; a line comes in, a line goes out, with blocking
//! reads and writes and nothing in between.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use anyhow::Context as _;

use super::Link;

/// A chain of processes to measure against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Client and echo.
    SingleHop,
    /// Client, relay and echo, the relay one thread that takes turns: one request at a time.
    TwoHops,
    /// The same with a thread for each direction, which carries many requests at a time.
    TwoHopsPipelined,
}

/// The floor's processes; they end with their input.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) link: Link,
    child: Child,
}

impl Floor {
    pub(super) fn spawn(self) -> anyhow::Result<Running> {
        let role = match self {
            Self::SingleHop => "echo",
            Self::TwoHops => "relay",
            Self::TwoHopsPipelined => "relay-pipelined",
        };
        let (child, to, from) = start(role)?;
        Ok(Running {
            link: Link::new(from, to),
            child,
        })
    }
}

impl Running {
    pub(super) fn stop(self) -> anyhow::Result<()> {
        let Self { link, mut child } = self;
        drop(link);
        crate::process::wait_for(&mut child, crate::peer::PATIENCE).map(|_| ())
    }
}

fn start(role: &str) -> anyhow::Result<(Child, ChildStdin, ChildStdout)> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(program)
        .args(["--role", role])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting the {role}"))?;
    let to = child.stdin.take().context("no pipe to the child")?;
    let from = child.stdout.take().context("no pipe from the child")?;
    Ok((child, to, from))
}

/// Runs as one process of a floor, until end of input.
pub fn play_role(role: &str) -> anyhow::Result<()> {
    // Not through the standard library's own handles: stdout is line buffered.
    let (input, output) = (raw(io::stdin().as_fd())?, raw(io::stdout().as_fd())?);
    match role {
        "echo" => copy_lines(input, output).context("echo"),
        "relay" => {
            let (mut child, to, from) = start("echo")?;
            take_turns(input, to, from, output).context("relay")?;
            child.wait().context("waiting for the echo")?;
            Ok(())
        }
        "relay-pipelined" => {
            let (mut child, to, from) = start("echo")?;
            let back = thread::spawn(move || copy_lines(from, output));
            copy_lines(input, to).context("relay, forth")?;
            let back = back
                .join()
                .map_err(|_| anyhow::anyhow!("the relay panicked"))?;
            back.context("relay, back")?;
            child.wait().context("waiting for the echo")?;
            Ok(())
        }
        _ => anyhow::bail!("no role is called {role}"),
    }
}

/// One request at a time: a line forth, a line back.
fn take_turns(
    input: impl io::Read,
    mut to: impl io::Write,
    from: impl io::Read,
    mut output: impl io::Write,
) -> io::Result<()> {
    let (mut input, mut from) = (BufReader::new(input), BufReader::new(from));
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        to.write_all(&line)?;
        line.clear();
        from.read_until(b'\n', &mut line)?;
        output.write_all(&line)?;
    }
}

/// One direction. Lines that came together are written together, as a good relay
/// does.
fn copy_lines(from: impl io::Read, mut to: impl io::Write) -> io::Result<()> {
    let mut from = BufReader::with_capacity(1 << 16, from);
    let mut lines = Vec::new();
    loop {
        lines.clear();
        if from.read_until(b'\n', &mut lines)? == 0 {
            return Ok(());
        }
        while from.buffer().contains(&b'\n') {
            from.read_until(b'\n', &mut lines)?;
        }
        to.write_all(&lines)?;
        to.flush()?;
    }
}

fn raw(descriptor: BorrowedFd<'_>) -> io::Result<File> {
    descriptor.try_clone_to_owned().map(File::from)
}
