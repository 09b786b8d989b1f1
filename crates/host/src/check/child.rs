//! The checker process: `mainstay checker MEMORY_BYTES`, run by the host only.
//!
//! One thread reads orders from standard input, another one compiles and checks. The reader ends the
//! process as soon as standard input ends, in the middle of a check too: a checker never outlives its
//! host. A check that needs more memory than allowed fails to allocate, and Rust aborts.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use mainstay_contract::json::Json;
use mainstay_schema::check::{Compiled, Definition, Parts, Subject, Verdict};
use rustix::process::{Resource, Rlimit};

use super::limits::STACK_BYTES;
use super::protocol::{Answer, Order};

/// The name of checkers in a listing of processes.
pub(super) const NAME: &str = "mainstay-checker";
/// The word on the command line.
pub(super) const WORD: &str = "checker";
/// Checks yield to everything else on the machine.
const NICE: i32 = 10;
/// Orders that are read ahead.
const ORDERS: usize = 1;
/// Exit codes: a panic, and a message that cannot be read.
const PANICKED: i32 = 101;
const GARBLED: i32 = 70;

/// Runs a checker, if the command line asks for one. Call it before anything else is parsed.
pub fn run_checker(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if words.next()? != WORD {
        return None;
    }
    let memory = words.next().and_then(|word| word.to_str()?.parse().ok());
    let Some(memory) = memory else {
        let usage = "mainstay: error: only the host starts a checker";
        let _ = writeln!(io::stderr(), "{usage}");
        return Some(ExitCode::from(2));
    };
    let _ = rustix::thread::set_name(c"mainstay-check");
    restrict(memory);
    let (sender, orders) = sync_channel(ORDERS);
    let worker = std::thread::Builder::new()
        .name("check".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let done = catch_unwind(AssertUnwindSafe(|| work(&orders)));
            std::process::exit(if done.is_ok() { 0 } else { PANICKED });
        });
    if worker.is_err() {
        return Some(ExitCode::FAILURE);
    }
    match read_orders(&sender) {
        // The host closed its end. A check in progress ends with the process.
        Ok(()) => std::process::exit(0),
        Err(_) => std::process::exit(GARBLED),
    }
}

/// Limits what a check can do to the machine. Where a limit cannot be set, the deadline remains.
fn restrict(memory: u64) {
    let set = |resource, bytes| {
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        let _ = rustix::process::setrlimit(resource, limit);
    };
    set(Resource::Data, memory);
    set(Resource::Core, 0);
    let _ = rustix::process::nice(NICE);
}

/// An order with its texts.
enum Job {
    Learn(Definition),
    Check(usize, Subject),
    Compile(usize),
}

fn read_orders(jobs: &SyncSender<Job>) -> io::Result<()> {
    let mut input = BufReader::new(io::stdin());
    let mut head = Vec::new();
    loop {
        head.clear();
        if input.read_until(b'\n', &mut head)? == 0 {
            return Ok(());
        }
        let job = match serde_json::from_slice(&head)? {
            Order::Learn {
                name,
                aliases,
                side,
                input: input_bytes,
                output: output_bytes,
            } => {
                let mut text = |bytes: Option<usize>| {
                    let read = |bytes| read_text(&mut input, bytes);
                    bytes.map(read).transpose()
                };
                Job::Learn(Definition::new(Parts {
                    name,
                    input: text(input_bytes)?,
                    output: text(output_bytes)?,
                    aliases,
                    side,
                }))
            }
            Order::Check {
                definition,
                subject,
                bytes,
            } => {
                let subject = match subject {
                    Subject::Arguments(_) => Subject::Arguments(read_text(&mut input, bytes)?),
                    Subject::Reply(_) => Subject::Reply(read_text(&mut input, bytes)?),
                    Subject::NoReply => Subject::NoReply,
                };
                Job::Check(definition, subject)
            }
            Order::Compile { definition } => Job::Compile(definition),
        };
        if jobs.send(job).is_err() {
            return Ok(());
        }
    }
}

fn read_text(input: &mut impl Read, bytes: usize) -> io::Result<Json> {
    let mut text = vec![0; bytes];
    input.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(Json::from_scanned(&text))
}

/// A definition, compiled at its first use.
struct Learned {
    definition: Definition,
    compiled: Option<Result<Compiled, String>>,
}

impl Learned {
    fn compiled(&mut self) -> &Result<Compiled, String> {
        self.compiled
            .get_or_insert_with(|| Compiled::compile(&self.definition))
    }
}

fn work(jobs: &Receiver<Job>) {
    let mut learned: Vec<Learned> = Vec::new();
    while let Ok(job) = jobs.recv() {
        let (verdict, subject) = match job {
            Job::Learn(definition) => {
                learned.push(Learned {
                    definition,
                    compiled: None,
                });
                continue;
            }
            Job::Check(number, subject) => {
                let Some(known) = learned.get_mut(number) else {
                    return;
                };
                let verdict = match known.compiled() {
                    Ok(compiled) => compiled.run(&subject),
                    Err(reason) => super::rejected("", reason),
                };
                (verdict, subject)
            }
            Job::Compile(number) => {
                let Some(known) = learned.get_mut(number) else {
                    return;
                };
                let verdict = super::vetted(&known.definition.clone(), known.compiled());
                (verdict, Subject::NoReply)
            }
        };
        if answer(verdict, &subject).is_err() {
            return;
        }
    }
}

fn answer(mut verdict: Verdict, subject: &Subject) -> io::Result<()> {
    let mut text = None;
    if let Verdict::Prepared { arguments, .. } = &mut verdict {
        let prepared = std::mem::replace(arguments, Json::null());
        let is_given = *subject == Subject::Arguments(prepared.clone());
        text = (!is_given).then_some(prepared);
    }
    let head = Answer {
        verdict,
        bytes: text.as_ref().map(Json::len),
        peak: peak_memory(),
    };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    bytes.extend(text.iter().flat_map(|text| text.as_str().as_bytes()));
    let mut output = io::stdout().lock();
    output.write_all(&bytes)?;
    output.flush()
}

fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_checker_makes_a_checker() {
        for words in [&["serve"][..], &["--pack", "checker"], &[]] {
            assert!(run_checker(words.iter().map(OsString::from)).is_none());
        }
    }
}
