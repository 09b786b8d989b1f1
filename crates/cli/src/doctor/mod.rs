//! `mainstay doctor`: what is wrong on this machine or in a configuration, each finding with its fix.
//!
//! [`machine`] tries what the kernel offers with real processes, [`places`] looks at directories, sockets and files that were
//! left, [`settings`] at variables, configurations and schemas, and starts servers. [`finding`] prints.

mod finding;
mod machine;
mod places;
mod settings;

use std::process::ExitCode;

use self::finding::Findings;
use crate::args::Doctor;
use crate::exit::{self, Failure, print};

/// Looks at everything, and reports.
pub(crate) fn run(doctor: &Doctor) -> Result<ExitCode, Failure> {
    if let Some(path) = &doctor.config {
        // A file that is not there is a mistake of this command line.
        std::fs::metadata(path).map_err(|error| {
            Failure::input(anyhow::anyhow!("cannot read {}: {error}", path.display()))
                .hint("name the configuration file with --config FILE")
        })?;
    }
    let mut findings = Findings::default();
    settings::variables(&mut findings);
    machine::look(&mut findings);
    places::look(&mut findings)?;
    settings::configuration(&mut findings, doctor);
    settings::clients(&mut findings, doctor.no_start)?;
    print(&match doctor.json {
        true => findings.json()?,
        false => findings.text(),
    })?;
    Ok(ExitCode::from(match findings.problems() {
        0 => exit::SUCCESS,
        _ => exit::NO,
    }))
}
