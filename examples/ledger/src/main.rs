//! The worker process of the ledger pack: `ledger --file PATH`.

use std::path::PathBuf;
use std::process::ExitCode;

use mainstay_worker::{Unable, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(env!("CARGO_PKG_VERSION"), |settings| {
        let file = match arguments.as_slice() {
            [] => None,
            [flag, path] if flag == "--file" => Some(PathBuf::from(path)),
            _ => return Err(Unable::new("usage: ledger [--file PATH]")),
        };
        ledger::pack(settings, file)
    })
}
