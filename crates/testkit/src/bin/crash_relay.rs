//! `crash-relay POINT [--generations FIRST-LAST] -- COMMAND...`: a worker killed at a chosen point (see
//! `testkit::crash`).

use std::io::Write as _;
use std::process::ExitCode;

use mainstay_testkit::crash::Relay;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(relay) = Relay::parse(&arguments) else {
        let usage = "usage: crash-relay POINT [--generations FIRST-LAST] -- COMMAND...\n";
        let _ = std::io::stderr().write_all(usage.as_bytes());
        return ExitCode::from(2);
    };
    match relay.run() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "crash-relay: {error}");
            ExitCode::FAILURE
        }
    }
}
