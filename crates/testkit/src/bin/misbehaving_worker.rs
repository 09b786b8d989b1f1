//! `misbehaving-worker MODE`: a pack worker that breaks the rules (see `testkit::misbehave`).

use std::io::Write as _;
use std::process::ExitCode;

use mainstay_testkit::misbehave::{Mode, help, run};

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).and_then(|name| Mode::parse(&name));
    let Some(mode) = mode else {
        let _ = std::io::stderr().write_all(help().as_bytes());
        return ExitCode::from(2);
    };
    match run(mode) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "misbehaving-worker: {error}");
            ExitCode::FAILURE
        }
    }
}
