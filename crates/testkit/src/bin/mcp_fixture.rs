//! `mcp-fixture [OPTION]...`: a small MCP server, good and bad as asked (see `testkit::fixture`).

use std::io::Write as _;
use std::process::ExitCode;

use mainstay_testkit::fixture::{Options, run, usage};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(mistake) => {
            let _ = write!(std::io::stderr(), "mcp-fixture: {mistake}\n{}", usage());
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mcp-fixture: {error}");
            ExitCode::FAILURE
        }
    }
}
