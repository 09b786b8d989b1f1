//! The proof that a new executable can read the state of this host, in a process of its own.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::{CHECK, MARKER, parcel, program};
use crate::io::Source;
use crate::process::{End, PipedChild, end_orphans};

/// Time for the new executable to read the state.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of its output that are read.
const OUTPUT: usize = 4096;
/// Characters of its standard error that are reported.
const SHOWN: usize = 400;

/// Lets `file` read a state. Returns its build, or the reason why it must not be executed.
pub(crate) async fn probe(
    file: &File,
    words: &[OsString],
    state: &OwnedFd,
) -> Result<String, String> {
    let failed = |error: &std::io::Error| format!("the new executable cannot be started: {error}");
    let (mark, socket) = parcel::post(state, &[]).map_err(|error| failed(&error))?;
    let mut words = words.iter();
    let mut command = program(file);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    let child = command
        .arg(CHECK)
        .args(words)
        .env(MARKER, &mark)
        .stdin(socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&error))?;
    let (mut child, output) = watch(child).map_err(|error| failed(&error))?;
    let proved = prove(&mut child, output, &mark).await;
    // Kills and reaps it.
    drop(child);
    end_orphans().await;
    proved
}

/// Waits until the new executable has read the state.
async fn prove(child: &mut PipedChild, output: Outputs, mark: &str) -> Result<String, String> {
    let failed = |error: &std::io::Error| format!("the new executable cannot be watched: {error}");
    let ended = async {
        let (stdout, stderr) = output;
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        (stdout, stderr, child.wait().await)
    };
    let Ok((stdout, stderr, status)) = tokio::time::timeout(PATIENCE, ended).await else {
        let seconds = PATIENCE.as_secs();
        return Err(format!(
            "the new executable did not read the state within {seconds} s"
        ));
    };
    let said = mainstay_contract::render::shorten(stderr.trim(), SHOWN);
    let status = status.map_err(|error| failed(&error))?;
    let build = stdout.strip_prefix(&parcel::approval(mark, ""));
    match build.and_then(|build| build.strip_suffix('\n')) {
        Some(build) if status.success() => Ok(build.to_owned()),
        _ => {
            let end = End::of_exit(status);
            let end = end.map_or_else(|| "ended".to_owned(), |end| end.to_string());
            Err(format!(
                "the new executable {end} instead of reading the state: {said}"
            ))
        }
    }
}

type Outputs = (Source, Source);

fn watch(mut child: Child) -> std::io::Result<(PipedChild, Outputs)> {
    let pipes = child.stdout.take().zip(child.stderr.take());
    let watched = PipedChild::watch(child)?;
    let missing = || std::io::Error::other("a pipe of the new process is missing");
    let (stdout, stderr) = pipes.ok_or_else(missing)?;
    let outputs = (Source::pipe(stdout.into())?, Source::pipe(stderr.into())?);
    Ok((watched, outputs))
}

/// Reads all of an output and keeps its beginning.
async fn read(mut source: Source) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(count) = source.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let room = OUTPUT.saturating_sub(text.len());
        text.extend(buffer.iter().take(count.min(room)));
    }
    String::from_utf8_lossy(&text).into_owned()
}
