//! Workers that break the rules, each in one way.
//!
//! The program `misbehaving-worker MODE` speaks the private protocol just well enough to be
//! taken for a pack, then does what its [`Mode`] says. Use it as
//! `--pack bad="path/to/misbehaving-worker hang"`. Its catalog has two tools without required
//! arguments: `once` (never replayed) and `again` (convergent), which answer with the arguments
//! they got wherever the mode lets them.

use std::io::{self, BufRead as _, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use mainstay_contract::id::CallId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::ToolReply;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{
    Answer, Call, FromWorker, Op, PROTOCOL, Probed, Progress, Ready, Start, ToWorker,
};
use mainstay_contract::tool::{Annotations, Catalog, Pace, Rejections, ToolSpec};
use serde_json::json;

use crate::built;

macro_rules! modes {
    ($($mode:ident = $name:literal, $doc:literal;)*) => {
        /// The ways to misbehave.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mode { $(#[doc = $doc] $mode,)* }

        impl Mode {
            /// All modes, with their names and what they do.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$mode, $name, $doc),)*];
        }
    };
}

modes! {
    Honest = "honest", "Does nothing wrong; for comparison.";
    Hang = "hang", "Never answers a call, though it answers pings and obeys a drain and TERM.";
    IgnoreTerm = "ignore-term", "As hang, and neither TERM nor a drain nor end of input ends it.";
    ForkDaemon = "fork-daemon", "On a call starts a daemon in a session of its own, twice forked, \
        then answers.";
    Slow = "slow", "On a call reports progress once and answers after as many milliseconds as the \
        argument ms says.";
    Flood = "flood", "On a call reports progress 50,000 times, then answers with 4 MiB.";
    Babble = "babble", "On a call writes lines that are no messages.";
    NeverReady = "never-ready", "Reads everything and never says that it is ready.";
    ExitAtStart = "exit-at-start", "Ends with code 3 instead of becoming ready.";
    Unable = "unable", "Says that it is unable to start, then ends.";
    WrongBuild = "wrong-build", "In its first generation dies as soon as it reads a call; later announces another catalog.";
    WrongProtocol = "wrong-protocol", "Announces a protocol version that does not exist.";
    HalfFrame = "half-frame", "On a call dies in the middle of the answer.";
    OversizeAnswer = "oversize-answer", "Answers with a line over the host's limit.";
    DieOnCall = "die-on-call", "Dies as soon as it reads a call.";
    DieOnce = "die-once", "In its first generation dies as soon as it reads a call.";
    DuplicateAnswer = "duplicate-answer", "Answers every call twice.";
    AnswerUnknownCall = "answer-unknown-call", "Before every answer answers a call that nobody made.";
    Fail = "fail", "Fails every call with the problem that stands in its arguments.";
    BareAnswer = "bare-answer", "Answers with JSON that is no object.";
    WrongAnswer = "wrong-answer", "Answers a call of a tool as if it had been a probe.";
    UnableLater = "unable-later", "As die-once, and is unable to start ever after.";
    ExitLater = "exit-later", "As die-once, and ends with code 3 instead of becoming ready ever after.";
    NoPong = "no-pong", "Answers calls but no pings.";
    Built = "built", "Does nothing wrong, with the catalog at the end of its executable (see testkit::built).";
    Deaf = "deaf", "In its first generation closes its input, says that it is ready, and lives on.";
}

impl Mode {
    /// The mode of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known, _)| *known == name)
            .map(|(mode, _, _)| *mode)
    }
}

/// What `misbehaving-worker` prints when it is called wrongly.
pub fn help() -> String {
    let modes = Mode::ALL
        .iter()
        .map(|(_, name, what)| format!("  {name:<20} {what}\n"));
    format!(
        "usage: misbehaving-worker MODE\n\n{}",
        modes.collect::<String>()
    )
}

/// Runs a worker over standard input and output.
pub fn run(mode: Mode) -> io::Result<ExitCode> {
    if mode == Mode::IgnoreTerm && std::env::args_os().nth(2).is_none() {
        // A program without unsafe code cannot ignore a signal; a shell can, for whom it becomes.
        let itself = std::env::current_exe()?;
        let script = r#"trap "" TERM; exec "$0" ignore-term ignoring"#;
        return Err(Command::new("sh").args(["-c", script]).arg(itself).exec());
    }
    let mut worker = Worker {
        mode,
        output: io::stdout().lock(),
    };
    let mut input = BufReader::new(io::stdin().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let message = serde_json::from_str(&line).map_err(io::Error::other)?;
        if let Some(code) = worker.handle(message)? {
            return Ok(code);
        }
        line.clear();
    }
    worker.outlive();
    Ok(ExitCode::SUCCESS)
}

struct Worker<W> {
    mode: Mode,
    output: W,
}

/// How the worker that dies says so.
const DEAD: u8 = 9;

impl<W: Write> Worker<W> {
    /// Obeys or does not obey one message; a code ends the worker.
    fn handle(&mut self, message: ToWorker) -> io::Result<Option<ExitCode>> {
        match message {
            ToWorker::Start(start) => return self.start(&start),
            ToWorker::Call(call) => return self.call(call),
            ToWorker::Ping { nonce } => {
                if self.mode != Mode::NoPong {
                    self.say(&FromWorker::Pong { nonce })?;
                }
            }
            // Calls are answered while they are read, so there is nothing left to cancel.
            ToWorker::Cancel { .. } => {}
            ToWorker::Drain {} => {
                self.outlive();
                self.say(&FromWorker::Drained {})?;
                return Ok(Some(ExitCode::SUCCESS));
            }
        }
        Ok(None)
    }

    fn start(&mut self, start: &Start) -> io::Result<Option<ExitCode>> {
        let generation = start.generation.get();
        let later = generation > 1;
        match self.mode {
            Mode::NeverReady => return Ok(None),
            Mode::ExitAtStart => return Ok(Some(ExitCode::from(3))),
            Mode::ExitLater if later => return Ok(Some(ExitCode::from(3))),
            Mode::Unable | Mode::UnableLater if later || self.mode == Mode::Unable => {
                let detail = "told to be unable".to_owned();
                self.say(&FromWorker::Unable { detail })?;
                return Ok(Some(ExitCode::from(1)));
            }
            Mode::DieOnce | Mode::Deaf if later => self.mode = Mode::Honest,
            _ => {}
        }
        let wrong = self.mode == Mode::WrongBuild && later;
        if wrong {
            self.mode = Mode::Honest;
        }
        let protocol = match self.mode {
            Mode::WrongProtocol => PROTOCOL + 998,
            _ => PROTOCOL,
        };
        if self.mode == Mode::Deaf {
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        }
        self.say(&FromWorker::Ready(Ready {
            protocol,
            build: "misbehaving".to_owned(),
            catalog: match self.mode {
                Mode::Built => built::own_catalog()?,
                _ => catalog(if wrong { 2 } else { 1 }),
            },
            facts: Json::empty_object(),
        }))?;
        if self.mode == Mode::Deaf {
            loop {
                std::thread::park();
            }
        }
        Ok(None)
    }

    fn call(&mut self, call: Call) -> io::Result<Option<ExitCode>> {
        let (name, arguments) = match call.op {
            Op::Tool {
                name, arguments, ..
            } => (name, arguments),
            _ => (String::new(), Json::empty_object()),
        };
        if self.mode == Mode::Built {
            return match built::answer(&name, &arguments)? {
                Some(json) => self.say(&answer(call.call, json)).map(|()| None),
                None => Ok(Some(ExitCode::from(DEAD))),
            };
        }
        let ms = arguments
            .to_value()
            .ok()
            .and_then(|value| value.get("ms")?.as_u64());
        let wanted = ms.unwrap_or_default();
        let told = arguments.clone();
        let answer = answer(call.call, arguments);
        match self.mode {
            Mode::Hang | Mode::IgnoreTerm => return Ok(None),
            Mode::DieOnCall | Mode::DieOnce | Mode::WrongBuild => {
                return Ok(Some(ExitCode::from(DEAD)));
            }
            Mode::UnableLater | Mode::ExitLater => return Ok(Some(ExitCode::from(DEAD))),
            Mode::Fail => {
                let problem = serde_json::from_str(told.as_str())?;
                return self
                    .say(&ended(call.call, Answer::Failed(problem)))
                    .map(|()| None);
            }
            Mode::BareAnswer => {
                let bare = Json::parse("[1, 2]").map_err(io::Error::other)?;
                return self.say(&self::answer(call.call, bare)).map(|()| None);
            }
            Mode::WrongAnswer => {
                let probed = Answer::Probed(Probed::NotApplied {});
                return self.say(&ended(call.call, probed)).map(|()| None);
            }
            Mode::HalfFrame => {
                let line = serde_json::to_vec(&answer)?;
                self.output
                    .write_all(line.get(..line.len() / 2).unwrap_or_default())?;
                self.output.flush()?;
                return Ok(Some(ExitCode::from(DEAD)));
            }
            Mode::Babble => {
                self.output
                    .write_all(b"hello, \xff\xfe world\n\0\0\n[[[\n{\"pong\":\n")?;
                return self.output.flush().map(|()| None);
            }
            Mode::ForkDaemon => {
                let daemon = "(setsid sleep 1000 >/dev/null 2>&1 </dev/null &)";
                Command::new("sh")
                    .args(["-c", daemon])
                    .stdout(Stdio::null())
                    .status()?;
            }
            Mode::Slow => {
                self.say(&progress(call.call, 0))?;
                std::thread::sleep(Duration::from_millis(wanted));
            }
            Mode::Flood => {
                for step in 0..50_000 {
                    self.say(&progress(call.call, step))?;
                }
                self.say(&padded(call.call, 4 << 20))?;
                return Ok(None);
            }
            Mode::OversizeAnswer => {
                self.say(&padded(call.call, 17 << 20))?;
                return Ok(None);
            }
            Mode::DuplicateAnswer => self.say(&answer)?,
            Mode::AnswerUnknownCall => {
                let nobody = CallId::new(u64::MAX);
                self.say(&self::answer(nobody, Json::empty_object()))?;
            }
            Mode::Honest | Mode::NeverReady | Mode::ExitAtStart | Mode::Unable => {}
            Mode::WrongProtocol | Mode::NoPong | Mode::Deaf | Mode::Built => {}
        }
        self.say(&answer)?;
        Ok(None)
    }

    /// Stays when it was told to go, if the mode says so.
    fn outlive(&self) {
        if self.mode == Mode::IgnoreTerm {
            loop {
                std::thread::park();
            }
        }
    }

    fn say(&mut self, message: &FromWorker) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.output.write_all(&line)?;
        self.output.flush()
    }
}

fn ended(call: CallId, answer: Answer) -> FromWorker {
    FromWorker::Answer { call, answer }
}

fn answer(call: CallId, json: Json) -> FromWorker {
    ended(call, Answer::Tool(ToolReply { json, text: None }))
}

fn progress(call: CallId, step: u64) -> FromWorker {
    FromWorker::Progress {
        call,
        progress: Progress {
            message: format!("step {step}"),
            done: Some(step),
            phase: "work".to_owned(),
            ..Progress::default()
        },
    }
}

fn padded(call: CallId, bytes: usize) -> FromWorker {
    answer(call, json!({ "padding": "x".repeat(bytes) }).into())
}

/// What the misbehaving worker announces.
pub fn catalog(schema_version: u32) -> Catalog {
    let tool = |name: &str, replay| ToolSpec {
        name: name.to_owned(),
        description: "Answers with its arguments, or misbehaves.".to_owned(),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        annotations: Annotations::default(),
        schema_version,
        tooling_version: "0.0.0".to_owned(),
        replay,
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
        rejections: Rejections::Plain,
        pace: Pace::Short,
        tasks: false,
    };
    Catalog {
        pack: "bad".to_owned(),
        tools: vec![
            tool("again", Replay::Convergent),
            tool("once", Replay::NeverReplay),
        ],
        ..Catalog::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_found_by_its_name_and_stands_in_the_help() {
        let help = help();
        for (mode, name, what) in Mode::ALL {
            assert_eq!(Mode::parse(name), Some(*mode));
            assert!(help.contains(what), "{name}");
        }
        assert_eq!(Mode::parse("nice"), None);
    }
}
