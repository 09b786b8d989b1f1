//! One step of a task: a heading, the work, the time it took.
//!
//! A child's output is passed through untouched, so that the closing lines of
//! a test runner are the runner's own.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};

/// Runs `work` under a heading and reports how long it took.
pub(crate) fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("\n== {name}");
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("== {name}: ok in {seconds:.1} s"),
        Err(_) => println!("== {name}: FAILED after {seconds:.1} s"),
    }
    result.with_context(|| format!("{name} failed"))
}

/// A step that is one command.
pub(crate) fn command_step(name: &str, command: Command) -> anyhow::Result<()> {
    step(name, || run(command))
}

/// Reports a step that is not taken.
pub(crate) fn skip(name: &str, reason: &str) {
    println!("\n== {name}: SKIPPED, {reason}");
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn run(mut command: Command) -> anyhow::Result<()> {
    let line = line_of(&command);
    println!("$ {line}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{line} cannot be started"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// True if a probe such as `TOOL --version` succeeds; its output is dropped.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Output of a successful command, without surrounding white space.
pub(crate) fn output(mut command: Command) -> anyhow::Result<String> {
    let line = line_of(&command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{line} cannot be started"))?;
    if !output.status.success() {
        bail!("{line}: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).with_context(|| format!("{line}: not UTF-8"))?;
    Ok(text.trim().to_owned())
}

/// The command as one would type it, the program without its folder.
fn line_of(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{line_of, succeeds};

    #[test]
    fn a_command_is_shown_without_its_folder() {
        let mut command = Command::new("/opt/bin/cargo");
        command.args(["test", "--doc"]);
        assert_eq!(line_of(&command), "cargo test --doc");
    }

    #[cfg(unix)]
    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        use super::run;
        let error = run(Command::new("false")).unwrap_err();
        assert!(
            error.to_string().starts_with("false: exit status: 1"),
            "{error}"
        );
        assert!(run(Command::new("true")).is_ok());
    }

    #[test]
    fn a_missing_program_does_not_succeed() {
        assert!(!succeeds(Command::new("no-such-program-here")));
    }
}
