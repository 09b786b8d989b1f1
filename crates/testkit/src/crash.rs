//! Any pack worker, killed at a chosen point of its conversation with the host.
//!
//! The program `crash-relay POINT [--generations FIRST-LAST] -- COMMAND...` starts the worker COMMAND
//! and stands between it and the host. In those generations (only the first, unless told otherwise)
//! it waits for the [`Point`], kills the worker and then itself with KILL; in the others it copies
//! lines. Since it sees every line before the other side does, the points are exact for a worker of
//! which it knows nothing: an answer that the relay holds back is an effect that happened and an
//! answer that did not. Use it as `--pack name="path/to/crash-relay after-effect -- COMMAND"`.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mainstay_contract::rpc::ToWorker;
use rustix::process::{Signal, getpid, kill_process};

/// Between the closing of the input and the end: the host writes to a pipe that nobody reads.
const DEAF: Duration = Duration::from_millis(300);
/// As many bytes of a line tell a call from everything else.
const TELLING: usize = 4;

/// Where the worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before it becomes ready.
    Handshake,
    /// In the middle of the line that says that it is ready.
    HalfReady,
    /// Ready, but with its input closed: not one byte of a call can be handed over.
    BeforeWrite,
    /// After so many bytes of a call were read, and no more.
    AfterBytes(usize),
    /// After the whole call was read, before anything is done.
    BeforeEffect,
    /// After everything is done, before anything is answered.
    AfterEffect,
    /// In the middle of the answer.
    HalfAnswer,
    /// When it is asked to finish and to go.
    Drain,
    /// Not dead at all: from its first call on the host hears nothing more, its output is closed,
    /// and the worker goes on with the call. What it still does is what the fence is for.
    Mute,
}

impl Point {
    /// The point of this name: `handshake`, `half-ready`, `before-write`, `after-bytes=K`,
    /// `before-effect`, `after-effect`, `half-answer`, `drain`, `mute`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "handshake" => Self::Handshake,
            "half-ready" => Self::HalfReady,
            "before-write" => Self::BeforeWrite,
            "before-effect" => Self::BeforeEffect,
            "after-effect" => Self::AfterEffect,
            "half-answer" => Self::HalfAnswer,
            "drain" => Self::Drain,
            "mute" => Self::Mute,
            _ => Self::AfterBytes(name.strip_prefix("after-bytes=")?.parse().ok()?),
        })
    }
}

/// What the relay was told to do.
#[derive(Debug)]
pub struct Relay {
    point: Point,
    generations: RangeInclusive<u64>,
    command: Vec<String>,
}

impl Relay {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: &[String]) -> Option<Self> {
        let (point, rest) = arguments.split_first()?;
        let point = Point::parse(point)?;
        let (generations, command) = match rest {
            [flag, count, dashes, command @ ..] if flag == "--generations" && dashes == "--" => {
                let (first, last) = count.split_once('-')?;
                (first.parse().ok()?..=last.parse().ok()?, command)
            }
            [dashes, command @ ..] if dashes == "--" => (1..=1, command),
            _ => return None,
        };
        (!command.is_empty()).then(|| Self {
            point,
            generations,
            command: command.to_vec(),
        })
    }

    /// Relays until the point, or until the worker ends.
    pub fn run(self) -> io::Result<ExitCode> {
        let mut host = Bytes(io::stdin().as_fd().try_clone_to_owned()?.into());
        let start = host.line()?;
        let message: ToWorker = serde_json::from_slice(&start).map_err(io::Error::other)?;
        let point = match message {
            ToWorker::Start(start) if self.generations.contains(&start.generation.get()) => {
                Some(self.point)
            }
            _ => None,
        };
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("no command"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut to, from) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        let victim = Victim(Arc::new(Mutex::new(child)));
        if point == Some(Point::Handshake) {
            victim.die();
        }
        to.write_all(&start)?;
        let mut from = BufReader::new(from);
        let host = shake_hands(point, host, &mut from, &victim)?;
        let (answers, back) = (victim.clone(), point);
        let back = thread::spawn(move || relay_back(back, from, &answers));
        relay_forth(point, host, to, &victim)?;
        back.join()
            .map_err(|_| io::Error::other("the relay panicked"))??;
        victim.wait()
    }
}

/// The worker's ready line goes to the host, or what the point leaves of it.
fn shake_hands(
    point: Option<Point>,
    host: Bytes,
    from: &mut BufReader<ChildStdout>,
    victim: &Victim,
) -> io::Result<Bytes> {
    let mut ready = Vec::new();
    from.read_until(b'\n', &mut ready)?;
    match point {
        Some(Point::HalfReady) => {
            say(ready.get(..ready.len() / 2).unwrap_or_default())?;
            victim.die();
        }
        Some(Point::BeforeWrite) => {
            // Closed before the host hears that it may write; both descriptors of it.
            drop(host);
            rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
            say(&ready)?;
            thread::sleep(DEAF);
            victim.die();
        }
        _ => {
            say(&ready)?;
            Ok(host)
        }
    }
}

fn relay_forth(
    point: Option<Point>,
    mut host: Bytes,
    mut to: ChildStdin,
    victim: &Victim,
) -> io::Result<()> {
    loop {
        let line = match point {
            Some(Point::AfterBytes(count)) => host.line_or_die(count, victim)?,
            _ => host.line()?,
        };
        if line.is_empty() {
            return Ok(());
        }
        let is_fatal = match point {
            Some(Point::BeforeEffect) => is_call(&line),
            Some(Point::Drain) => line.starts_with(b"{\"drain\""),
            _ => false,
        };
        if is_fatal {
            victim.die();
        }
        if to.write_all(&line).is_err() {
            // The worker has gone; its end is told by the other direction.
            return Ok(());
        }
        if point == Some(Point::Mute) && is_call(&line) {
            rustix::stdio::dup2_stdout(File::create("/dev/null")?)?;
            loop {
                // Its input stays open, so that nothing but a signal stops the call.
                thread::park();
            }
        }
    }
}

fn relay_back(
    point: Option<Point>,
    mut from: BufReader<ChildStdout>,
    victim: &Victim,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.starts_with(b"{\"answer\"") {
            match point {
                Some(Point::AfterEffect) => victim.die(),
                Some(Point::HalfAnswer) => {
                    say(line.get(..line.len() / 2).unwrap_or_default())?;
                    victim.die();
                }
                _ => {}
            }
        }
        say(&line)?;
    }
}

fn is_call(line: &[u8]) -> bool {
    line.starts_with(b"{\"call\"")
}

fn say(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// The host's lines, of which not one byte more is read than is asked for.
struct Bytes(File);

impl Bytes {
    /// A line with its end; empty at the end of input.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        while self.more(&mut line)? {}
        Ok(line)
    }

    /// A line, unless it is a call.
    fn line_or_die(&mut self, count: usize, victim: &Victim) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        while self.more(&mut line)? {
            let is_call = b"{\"call\"".starts_with(line.get(..TELLING).unwrap_or(&line));
            if line.len() == count.max(1) && is_call {
                victim.die();
            }
        }
        Ok(line)
    }

    /// One byte more; false at the end of the line or of input.
    fn more(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        let mut byte = [0];
        let count = self.0.read(&mut byte)?;
        line.extend(byte.iter().take(count));
        Ok(count > 0 && byte != *b"\n")
    }
}

/// The worker, and the relay with it.
#[derive(Clone)]
struct Victim(Arc<Mutex<Child>>);

impl Victim {
    /// Nothing of the worker is left when the relay dies.
    fn die(&self) -> ! {
        {
            let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = kill_process(getpid(), Signal::KILL);
        // The signal ends this process before the call returns; this is for the compiler.
        std::process::abort()
    }

    fn wait(&self) -> io::Result<ExitCode> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.wait()?;
        Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Relay> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Relay::parse(&words)
    }

    #[test]
    fn arguments_say_point_generations_and_command() {
        let relay = parsed("after-bytes=40 --generations 2-3 -- ledger --file f").unwrap();
        assert_eq!(
            (relay.point, relay.generations),
            (Point::AfterBytes(40), 2..=3)
        );
        assert_eq!(relay.command, ["ledger", "--file", "f"]);
        assert_eq!(parsed("drain -- ledger").unwrap().generations, 1..=1);
    }

    #[test]
    fn arguments_without_point_or_command_are_refused() {
        for line in [
            "",
            "drain",
            "drain --",
            "never -- ledger",
            "after-bytes=x -- ledger",
        ] {
            assert!(parsed(line).is_none(), "{line}");
        }
    }
}
