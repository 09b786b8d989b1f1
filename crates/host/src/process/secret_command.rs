//! A command that prints a secret: its output is read within a time and a size, and never shown.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::orphans;

/// Between two looks whether a command that has closed its output has ended, too.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a command and gives what it prints: at most `most` bytes, until `until`. It has no input and none of the
/// variables `without`. An error says what happened, and nothing of what was printed.
pub fn read_secret_command(
    words: &[String],
    without: &[String],
    until: Instant,
    most: u64,
) -> Result<Vec<u8>, String> {
    let (program, arguments) = words.split_first().ok_or("the command is empty")?;
    let failed = |why: &dyn std::fmt::Display| format!("the command {program} {why}");
    let mut command = Command::new(program);
    for name in without {
        command.env_remove(name);
    }
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&format!("cannot be started: {error}")))?;
    let pid = Pid::from_child(&child);
    // Else a sweep for orphans would take it for one.
    orphans::know(pid);
    let read = read(&mut child, until, most);
    if read.is_err() {
        // With everything that it started.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = child.wait();
    }
    orphans::forget(pid);
    let took_too_long = "took too long, and was ended";
    match read {
        Ok((status, output)) if status.success() => match output.len() as u64 > most {
            true => Err(failed(&format!("printed more than {most} bytes"))),
            false => Ok(output),
        },
        Ok((status, _)) => Err(failed(&format!("failed: {status}"))),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(failed(&took_too_long)),
        Err(error) => Err(failed(&error)),
    }
}

fn read(child: &mut Child, until: Instant, most: u64) -> io::Result<(ExitStatus, Vec<u8>)> {
    let (done, output) = sync_channel(1);
    let stdout = child.stdout.take();
    // A thread of its own, because something that the command started may keep the pipe open.
    std::thread::Builder::new()
        .name("secret".into())
        .spawn(move || {
            let mut text = Vec::new();
            let read = stdout.map_or(Ok(0), |stdout| {
                stdout.take(most.saturating_add(1)).read_to_end(&mut text)
            });
            let _ = done.send(read.map(|_| text));
        })?;
    let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
    let left = until.saturating_duration_since(Instant::now());
    let text = output.recv_timeout(left).map_err(|_| timed_out())??;
    if text.len() as u64 > most {
        // It may print for ever.
        let _ = child.kill();
        return Ok((ExitStatus::default(), text));
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, text));
        }
        if Instant::now() >= until {
            return Err(timed_out());
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, within: Duration) -> Result<Vec<u8>, String> {
        let words = ["sh", "-c", script].map(str::to_owned);
        read_secret_command(&words, &["HOME".to_owned()], Instant::now() + within, 16)
    }

    #[test]
    fn a_command_is_read_within_its_time_and_its_size() {
        let hour = Duration::from_secs(3600);
        assert_eq!(run("printf %s s3cret", hour).unwrap(), b"s3cret");
        assert_eq!(run("printf %s \"$HOME\"", hour).unwrap(), b"");
        assert_eq!(run("printf 1234567890123456", hour).unwrap().len(), 16);
        let said = |script, within| {
            let said = run(script, within).unwrap_err();
            assert!(!said.contains("s3cret"), "{said}");
            said
        };
        assert!(said("yes s3cret", hour).contains("more than 16 bytes"));
        assert!(said("echo s3cret; exit 3", hour).contains("exit status: 3"));
        let moment = Duration::from_millis(200);
        assert!(said("echo s3cret; sleep 3600", moment).contains("took too long"));
        assert!(said("sleep 3600 & exec >&-; wait", moment).contains("took too long"));
        let words = ["/no/such/program".to_owned()];
        let none = read_secret_command(&words, &[], Instant::now() + hour, 16);
        assert!(none.unwrap_err().contains("cannot be started"));
    }
}
