//! `mainstay adopt`: a client's configuration, so rewritten that its servers survive.
//!
//! Reading, deciding and writing are apart: [`tree`] knows where values stand ([`jsonc`],
//! [`toml_tree`], [`yaml_tree`]), [`servers`] what they mean, [`rewrite`] which [`edits`] put us before a server
//! and take us away again, [`plan`] what becomes of a file, [`memory`] how it was before, [`file`]
//! how it is backed up and replaced, [`binary`] which program is named in it, [`report`] how all that is told. [`client_file`]
//! serves the commands that look at the files of all clients.
//!
//! A file that cannot be read as a whole is never touched.

mod at_url;
mod binary;
mod client_file;
mod edits;
mod file;
mod jsonc;
mod memory;
mod plan;
mod report;
mod rewrite;
mod servers;
mod settings;
mod toml_tree;
mod tree;
mod yaml_tree;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;

pub(crate) use self::binary::choose as choose_binary;
pub(crate) use self::client_file::{Launch, Prepared, Start, servers_of};
use self::file::ClientFile;
use self::plan::{Chosen, NoPlan, Plan, What};
use self::report::Report;
use self::tree::{Document, Mistake, Position, Syntax};
use crate::args::Adopt;
use crate::exit::{Failure, print};

/// Rewrites a client's file, or takes that back.
pub(crate) fn run(adopt: &Adopt) -> Result<ExitCode, Failure> {
    let file = ClientFile::open(&adopt.file)?;
    let document = parse(&file)?;
    let chosen = Chosen {
        only: adopt.only.clone(),
        except: adopt.except.clone(),
        share: adopt.share.then(|| adopt.shared.clone()),
    };
    let mut report = Report::new(&adopt.file, adopt.undo, adopt.dry_run);
    let plan = if adopt.undo {
        let backups = older(&file, document.syntax);
        let before: Vec<&Document> = backups.iter().collect();
        Plan::undo(&document, &before, &chosen)
    } else {
        let binary = binary::choose(adopt.binary.as_deref())?;
        let is_missing = |program: &str| binary::missing(program, None, false).is_some();
        let plan = Plan::adopt(&document, &binary, &chosen, is_missing);
        report.binary = Some(binary);
        plan
    };
    let plan = plan.map_err(|why| explain(why, &file.path))?;
    if plan.changed() == 0 {
        print(&report.text(&plan))?;
        return Ok(ExitCode::SUCCESS);
    }
    file.check_writable(plan.text.len())?;
    report.other_names = file.other_names();
    if adopt.dry_run {
        report.difference = edits::difference(&document.text, &plan.text);
        print(&report.text(&plan))?;
        return Ok(ExitCode::SUCCESS);
    }
    let loses = |what: &What| matches!(what, What::Unwrapped { loses: true, .. });
    if !adopt.undo || plan.fates.iter().any(|fate| loses(&fate.what)) {
        report.backup = Some(file.back_up()?);
    }
    file.replace(plan.text.as_bytes())?;
    if adopt.undo {
        let same = |bytes: &Vec<u8>| bytes == plan.text.as_bytes();
        let mut backups = file.backups().into_iter();
        report.identical = backups.find(|(_, bytes)| same(bytes)).map(|(path, _)| path);
    }
    print(&report.text(&plan))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a file as what it is written in.
fn parse(file: &ClientFile) -> Result<Document, Failure> {
    let read = match std::str::from_utf8(&file.bytes) {
        Ok(text) => Document::parse(text, syntax(&file.path, text)),
        Err(error) => Err(Mistake {
            at: error.valid_up_to(),
            what: "this is not UTF-8 text".to_owned(),
        }),
    };
    read.map_err(|Mistake { at, what }| {
        let place = Position::of(&file.bytes, at);
        let shown = file.path.display();
        let failure = Failure::input(anyhow!("{shown}: {place}: {what}"));
        match file.backups().first() {
            Some((backup, _)) => failure.hint(format!(
                "nothing was changed; it was adopted before, and {} is from before that",
                backup.display()
            )),
            None => failure.hint("nothing was changed; correct the file first"),
        }
    })
}

/// By the name of the file, else by how it begins.
fn syntax(path: &Path, text: &str) -> Syntax {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("toml") => Syntax::Toml,
        Some("yaml" | "yml") => Syntax::Yaml,
        Some("json" | "jsonc") => Syntax::Json,
        _ => {
            let start = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
            if start.starts_with(['{', '/']) {
                Syntax::Json
            } else {
                Syntax::Toml
            }
        }
    }
}

/// Older states of the file, newest first; those that cannot be read say nothing.
fn older(file: &ClientFile, syntax: Syntax) -> Vec<Document> {
    let parse = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).ok()?;
        Document::parse(&text, syntax).ok()
    };
    let backups = file.backups().into_iter();
    backups.filter_map(|(_, bytes)| parse(bytes)).collect()
}

fn explain(why: NoPlan, path: &Path) -> Failure {
    let shown = path.display();
    match why {
        NoPlan::UnknownForm => {
            Failure::input(anyhow!("{shown} has no servers in a form that is known"))
                .hint(servers::KNOWN)
        }
        NoPlan::UnknownName { name, known } => {
            Failure::input(anyhow!("{shown} has no server {name:?}"))
                .hint(format!("it has: {}", known.join(", ")))
        }
        NoPlan::Broken(what) => Failure::fault(anyhow!(
            "{shown} was not changed: {what}; this is our mistake"
        )),
    }
}
