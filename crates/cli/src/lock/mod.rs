//! `mainstay lock`: what the tools promise, on record.
//!
//! The rules live in `mainstay_schema::lock`; here are the files, the tools as they are now, and
//! the words.

mod definitions;
mod page;
mod present;
mod store;

use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use mainstay_contract::render::visible_json;
use mainstay_host::wrap::Locked;
use mainstay_schema::lock::{Judgement, Lock, Reason, ReasonGiven, judge};
use serde_json::json;

use self::definitions::Definitions;
use self::present::Present;
use crate::args::{self, LockCheck, LockCommand, LockWrite};
use crate::config_file::ConfigFile;
use crate::environment::variable;
use crate::exit::{self, Failure, print};
use crate::hidden;
use crate::secrets::Secrets;
use crate::server_file;

/// Where the lock is unless somebody says otherwise.
pub(crate) const FILE: &str = "mainstay.lock.json";

/// Runs one of the commands.
pub(crate) fn run(command: &LockCommand) -> Result<ExitCode, Failure> {
    let locks = match command {
        LockCommand::Write(arguments) => locks(&arguments.locked)?,
        LockCommand::Check(arguments) => locks(&arguments.locked)?,
        LockCommand::Diff(arguments) => locks(&arguments.locked)?,
    };
    let mut worst = exit::SUCCESS;
    for locked in &locks {
        let code = match command {
            LockCommand::Write(arguments) => write(locked, arguments)?,
            LockCommand::Check(arguments) => check(locked, arguments)?,
            LockCommand::Diff(arguments) => diff(locked, arguments.json)?,
        };
        worst = worst.max(code);
    }
    Ok(ExitCode::from(worst))
}

/// The locks that a command is about: those of the servers of a configuration file, each at its own path, and
/// the lock of packs.
fn locks(locked: &args::Locked) -> Result<Vec<args::Locked>, Failure> {
    let file = ConfigFile::named(locked.target.packs.config.as_deref())?;
    let servers = server_file::entries(
        &file.servers,
        &Secrets::new(file.secrets.clone()),
        &variable,
    )
    .map_err(Failure::input)?;
    let mut locks: Vec<args::Locked> = servers
        .into_iter()
        .filter_map(|server| {
            Some(args::Locked {
                file: server.host.lock.clone()?,
                server: Some(Box::new(server)),
                ..locked.clone()
            })
        })
        .collect();
    let enabled = file.packs.values().any(|pack| pack.enabled != Some(false));
    let has_packs = enabled || !locked.target.packs.packs.is_empty();
    if locks.is_empty() && !has_packs && !file.servers.is_empty() {
        let said = anyhow!("no server of the file has a lock");
        let hint =
            "name its file in the entry, as in \"mainstay\": { \"lock\": \"files.lock.json\" }";
        return Err(Failure::input(said).hint(hint));
    }
    if locks.is_empty() || has_packs {
        locks.push(locked.clone());
    }
    Ok(locks)
}

/// Everything of a wrapped server that an operator has reviewed.
pub(crate) fn foreign(file: &Path) -> Result<Locked, Failure> {
    let lock = store::read(file)?;
    let mut entries = lock.tools.iter();
    if let Some((name, _)) = entries.find(|(_, entry)| entry.contract().is_some()) {
        let shown = file.display();
        let said = anyhow!("{shown} is the lock of a pack: it has the contract of {name}");
        let hint = "write one for this server: mainstay lock write --file FILE -- COMMAND";
        return Err(Failure::input(said).hint(hint));
    }
    Ok(Locked::from(&lock))
}

/// The fingerprints of a lock of packs.
pub(crate) fn contracts(file: &Path) -> Result<Locked, Failure> {
    let lock = store::read(file)?;
    let mut entries = lock.tools.iter();
    if let Some((name, _)) = entries.find(|(_, entry)| entry.contract().is_none()) {
        let shown = file.display();
        let said = anyhow!("{shown} is the lock of somebody else's server, with {name}");
        let hint = "write one for the packs: mainstay lock write --file FILE [--pack PACK]";
        return Err(Failure::input(said).hint(hint));
    }
    Ok(Locked::from(&lock))
}

fn write(locked: &args::Locked, arguments: &LockWrite) -> Result<u8, Failure> {
    let (file, target) = (&locked.file, &locked.target);
    // Reasons and published definitions are about contracts, which servers do not have.
    let is_server = locked.server.is_some();
    if target.socket.is_some() || target.url.is_some() {
        let said = anyhow!("a running host does not list the deprecated names of its tools");
        return Err(
            Failure::input(said).hint("write the lock of its packs: use --pack or --config")
        );
    }
    let given = arguments
        .reasons
        .iter()
        .filter(|_| !is_server)
        .map(|text| ReasonGiven::parse(text))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::input(error).hint("write --reason \"TOOL.ARGUMENT: TEXT\""))?;
    let recorded = store::read_if_there(file)?;
    let before = recorded.clone().unwrap_or_default();
    let present = Present::of(locked, &before)?;
    hidden::warn(present.published.values());
    let reasons = given
        .iter()
        .map(|given| given.resolve(&before, &present.lock))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::input)?;
    // With no lock yet there is nothing that could have changed.
    let judgement = match &recorded {
        Some(before) => judge(before, &present.lock, &reasons),
        None => Judgement {
            unneeded: reasons.clone(),
            ..Judgement::default()
        },
    };
    if let Some(reason) = judgement.unneeded.first() {
        let said = anyhow!("the reason for {reason} is not needed: nothing there asks for one");
        return Err(Failure::input(said).hint("mainstay lock diff shows what changed"));
    }
    let schemas = arguments.schemas.as_deref().filter(|_| !is_server);
    let again = page::command(locked, schemas);
    if judgement.missing().next().is_some() {
        print(&page::missing(
            &file.display().to_string(),
            &judgement,
            &again,
        ))?;
        return Ok(exit::NO);
    }
    let mut after = present.lock;
    after.reasons = before.reasons.iter().cloned().chain(reasons).collect();
    let mut said = String::new();
    if let Some(folder) = schemas {
        let written = Definitions::load(folder)?.write(&present.published)?;
        said.push_str(&page::definitions_written(folder, &written));
    }
    let is_new = store::write(file, &after)?;
    said.push_str(&page::written(file, &after, is_new, &judgement));
    print(&said)?;
    Ok(exit::SUCCESS)
}

fn check(locked: &args::Locked, arguments: &LockCheck) -> Result<u8, Failure> {
    let file = &locked.file;
    let recorded = store::read(file)?;
    let is_server = locked.server.is_some();
    let schemas = arguments.schemas.as_deref().filter(|_| !is_server);
    let again = page::command(locked, schemas);
    let mut no = String::new();
    if let Some(older) = arguments.since.as_ref().filter(|_| !is_server) {
        let judgement = since(older, &recorded)?;
        if judgement.missing().next().is_some() {
            let title = format!("{} since {}", file.display(), older.display());
            no.push_str(&page::missing(&title, &judgement, &again));
        }
    }
    let present = Present::of(locked, &recorded)?;
    hidden::warn(present.published.values());
    let judgement = judge(&recorded, &present.lock, &[]);
    if judgement.missing().next().is_some() {
        let title = file.display().to_string();
        no.push_str(&page::missing(&title, &judgement, &again));
    } else if !judgement.is_equal() {
        no.push_str(&page::old(file, &judgement, &again));
    }
    if let Some(folder) = schemas {
        let differences = Definitions::load(folder)?.differences(&present.published)?;
        if !differences.is_empty() {
            no.push_str(&page::definitions_differ(folder, &differences, &again));
        }
    }
    if no.is_empty() {
        print(&page::equal(file, &recorded, &present))?;
        return Ok(exit::SUCCESS);
    }
    print(&no)?;
    Ok(exit::NO)
}

/// What happened between two locks that were written, with the reasons that were recorded.
fn since(older: &Path, now: &Lock) -> Result<Judgement, Failure> {
    let before = store::read(older)?;
    let mut known = before.reasons.clone();
    let is_new = |reason: &&Reason| match known.iter().position(|known| known == *reason) {
        Some(position) => {
            known.swap_remove(position);
            false
        }
        None => true,
    };
    let reasons: Vec<Reason> = now.reasons.iter().filter(is_new).cloned().collect();
    Ok(judge(&before, now, &reasons))
}

fn diff(locked: &args::Locked, as_json: bool) -> Result<u8, Failure> {
    let file = &locked.file;
    let recorded = store::read(file)?;
    let present = Present::of(locked, &recorded)?;
    hidden::warn(present.published.values());
    let judgement = judge(&recorded, &present.lock, &[]);
    let text = if as_json {
        let report = json!({
            "file": file,
            "equal": judgement.is_equal(),
            "changes": judgement.changes,
        });
        visible_json(&format!("{report:#}\n")).into_owned()
    } else if judgement.is_equal() {
        page::equal(file, &recorded, &present)
    } else {
        page::diff(file, &judgement, &recorded, &present)
    };
    print(&text)?;
    Ok(match judgement.is_equal() {
        true => exit::SUCCESS,
        false => exit::NO,
    })
}
