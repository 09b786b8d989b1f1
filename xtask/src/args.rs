//! The command line of the tasks, parsed by hand.
//!
//! `Task` is the whole of what can be asked for. A few words and one flag need
//! no parser library.

use std::ffi::OsString;

pub(crate) const USAGE: &str = "\
usage: cargo xtask TASK

  test [--install]    build and run every test; with CI=true, run the checks of `ci` first
  ci [--install]      tidy, format, clippy and dependency checks, then test
  tidy                check crate directions, file sizes, words, links and argument tests
  schemas             write the lock and the published definitions of our tools anew
  tools [--install]   install the clients and servers of others that tests talk to
  bench [ARGS...]     build for release and run the benchmarks
  storm [SECONDS]     kill workers, kill hosts, and upgrade hosts under load, each for so long (60)
  crosstalk [COUNT]   so many messages of sessions over shared servers (1000000)
  recording           build for release and record the picture of the README
  sim [ARGS...]       simulate hosts: --seeds N, --seed S, --catalogue
  soak [SECONDS]      clients and servers come and go for so long (600); memory stays flat
  help                print this

  --install           let the tests install system packages they miss (CI=true implies it)";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Tidy,
    Schemas,
    Test(TestOptions),
    /// Only what the tests install.
    Tools(TestOptions),
    Bench(Vec<OsString>),
    Sim(Vec<OsString>),
    Recording,
    Storm {
        seconds: u64,
    },
    Crosstalk {
        messages: u64,
    },
    Soak {
        seconds: u64,
    },
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    /// Run the static checks before the tests, whatever `CI` says.
    pub(crate) checks: bool,
    /// System packages may be installed.
    pub(crate) install: bool,
}

/// Reads the arguments after the program's name. The error is a sentence for
/// the person who typed them.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Task, String> {
    let mut arguments = arguments.into_iter();
    let Some(name) = arguments.next() else {
        return Err("name a task".to_owned());
    };
    match name.to_str() {
        Some("help" | "--help" | "-h") => nothing_more(arguments, Task::Help),
        Some("tidy") => nothing_more(arguments, Task::Tidy),
        Some("schemas") => nothing_more(arguments, Task::Schemas),
        Some("test") => test_options(arguments, false).map(Task::Test),
        Some("ci") => test_options(arguments, true).map(Task::Test),
        Some("tools") => test_options(arguments, false).map(Task::Tools),
        Some("bench") => Ok(Task::Bench(arguments.collect())),
        Some("sim") => Ok(Task::Sim(arguments.collect())),
        Some("storm") => number(arguments, 60).map(|seconds| Task::Storm { seconds }),
        Some("soak") => number(arguments, 600).map(|seconds| Task::Soak { seconds }),
        Some("crosstalk") => {
            number(arguments, 1_000_000).map(|messages| Task::Crosstalk { messages })
        }
        Some("recording") => Ok(Task::Recording),
        _ => Err(format!("no task is called {}", name.display())),
    }
}

fn nothing_more(mut rest: impl Iterator<Item = OsString>, task: Task) -> Result<Task, String> {
    match rest.next() {
        None => Ok(task),
        Some(extra) => Err(format!("unexpected argument {}", extra.display())),
    }
}

fn test_options(rest: impl Iterator<Item = OsString>, checks: bool) -> Result<TestOptions, String> {
    let mut options = TestOptions {
        checks,
        install: false,
    };
    for argument in rest {
        match argument.to_str() {
            Some("--install") => options.install = true,
            _ => return Err(format!("unexpected argument {}", argument.display())),
        }
    }
    Ok(options)
}

fn number(mut rest: impl Iterator<Item = OsString>, default: u64) -> Result<u64, String> {
    let seconds = match rest.next() {
        None => default,
        Some(text) => text
            .to_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("{} is not a number", text.display()))?,
    };
    match rest.next() {
        None => Ok(seconds),
        Some(more) => Err(format!("{} is one word too many", more.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Task, TestOptions, parse};

    fn parsed(line: &str) -> Result<Task, String> {
        parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn every_task_is_reached_by_its_name() {
        assert_eq!(parsed("tidy"), Ok(Task::Tidy));
        assert_eq!(parsed("schemas"), Ok(Task::Schemas));
        assert_eq!(parsed("test"), Ok(Task::Test(TestOptions::default())));
        assert_eq!(
            parsed("ci --install"),
            Ok(Task::Test(TestOptions {
                checks: true,
                install: true
            }))
        );
        assert_eq!(parsed("bench frames --quick"), {
            Ok(Task::Bench(vec!["frames".into(), "--quick".into()]))
        });
        assert_eq!(parsed("tools"), Ok(Task::Tools(TestOptions::default())));
        assert_eq!(parsed("sim --seed 7"), {
            Ok(Task::Sim(vec!["--seed".into(), "7".into()]))
        });
        assert_eq!(parsed("storm"), Ok(Task::Storm { seconds: 60 }));
        assert_eq!(parsed("storm 5"), Ok(Task::Storm { seconds: 5 }));
        assert_eq!(parsed("soak"), Ok(Task::Soak { seconds: 600 }));
        assert!(parsed("soak 5 6").is_err());
        let messages = 1_000_000;
        assert_eq!(parsed("crosstalk"), Ok(Task::Crosstalk { messages }));
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        assert_eq!(parsed("tset"), Err("no task is called tset".to_owned()));
        assert_eq!(
            parsed("tidy --fix"),
            Err("unexpected argument --fix".to_owned())
        );
        assert_eq!(parsed("test -v"), Err("unexpected argument -v".to_owned()));
        assert_eq!(parsed("storm soon"), Err("soon is not a number".to_owned()));
        assert!(parsed("storm 5 6").is_err());
        assert!(parsed("").is_err());
    }
}
