//! `mainstay audit`: checks and shows audit files; and their settings.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use mainstay_contract::audit::{AuditLine, Key, Verifier};
use mainstay_contract::limits::Limits;
use mainstay_contract::render::{Bounds, Porcelain, visible, visible_json};
use mainstay_host::audit::{AuditConfig, read_anchor};

use crate::args::{AuditArgs, AuditCommand, AuditShow, AuditVerify};
use crate::config_file::ConfigFile;
use crate::exit::{self, Failure, print};
use crate::start;

/// Longest file with a key.
const KEY_BYTES: u64 = 4096;
/// Longest line of an audit file.
const LINE_BYTES: u64 = 64 * 1024;

/// The settings of a host for its audit file: those of the command line, then those of the file.
pub(crate) fn config(
    arguments: &AuditArgs,
    file: &ConfigFile,
    limits: &Limits,
) -> Result<Option<AuditConfig>, Failure> {
    let anchor = arguments
        .audit_anchor
        .as_ref()
        .or(file.audit_anchor.as_ref());
    let key = arguments.audit_key.as_ref().or(file.audit_key.as_ref());
    let Some(path) = arguments.audit.as_ref().or(file.audit.as_ref()) else {
        if anchor.is_some() || key.is_some() {
            let said = anyhow!("there is no audit file that an anchor or a key could belong to");
            return Err(Failure::input(said).hint("name it with --audit or the key audit"));
        }
        return Ok(None);
    };
    let absolute = |path: &PathBuf| {
        let absolute = std::path::absolute(path);
        absolute.map_err(|error| Failure::input(anyhow!("{}: {error}", path.display())))
    };
    Ok(Some(AuditConfig {
        file: absolute(path)?,
        anchor: anchor.map(absolute).transpose()?,
        key: key.map(|path| read_key(path)).transpose()?,
        most_bytes: limits.audit_file_bytes as u64,
    }))
}

fn read_key(path: &Path) -> Result<Key, Failure> {
    let read = || {
        let file = start::read(path, KEY_BYTES)?;
        if file.mode & 0o077 != 0 {
            return Err(anyhow!("others than its owner may read it"));
        }
        Ok(Key::new(&file.bytes)?)
    };
    let key = read().with_context(|| format!("the key of the audit file {}", path.display()));
    key.map_err(|error| {
        Failure::input(error).hint("make one with: (umask 077; openssl rand -hex 32 > FILE)")
    })
}

pub(crate) fn run(command: &AuditCommand) -> Result<ExitCode, Failure> {
    match command {
        AuditCommand::Verify(verify) => self::verify(verify),
        AuditCommand::Show(show) => self::show(show),
    }
}

/// A line that is not what a host wrote, with its place.
struct Mismatch {
    place: String,
    why: String,
}

/// Reads files line by line. Stops at the first line that `take` refuses.
fn read_lines(
    files: &[PathBuf],
    mut begin: impl FnMut(),
    mut take: impl FnMut(&str) -> Result<(), String>,
) -> Result<Option<Mismatch>, Failure> {
    for path in files {
        begin();
        let shown = visible(&path.display().to_string()).into_owned();
        let failed =
            |error: std::io::Error| Failure::input(anyhow!("cannot read {shown}: {error}"));
        let mut reader = BufReader::new(File::open(path).map_err(failed)?);
        let mut number = 0_u64;
        loop {
            let mut line = Vec::new();
            let read = reader
                .by_ref()
                .take(LINE_BYTES)
                .read_until(b'\n', &mut line);
            if read.map_err(failed)? == 0 {
                break;
            }
            number += 1;
            let place = || format!("{shown} line {number}");
            let text = line.strip_suffix(b"\n").map(std::str::from_utf8);
            let why = match text {
                None => Err("it is cut off".to_owned()),
                Some(Err(_)) => Err("it is not UTF-8".to_owned()),
                Some(Ok(text)) => take(text),
            };
            if let Err(why) = why {
                return Ok(Some(Mismatch {
                    place: place(),
                    why,
                }));
            }
        }
    }
    Ok(None)
}

fn verify(arguments: &AuditVerify) -> Result<ExitCode, Failure> {
    let key = arguments.key.as_deref().map(read_key).transpose()?;
    let anchored = match &arguments.anchor {
        None => None,
        Some(path) => {
            let read = read_anchor(path).with_context(|| path.display().to_string());
            read.map_err(Failure::input)?
        }
    };
    let verifier = std::cell::RefCell::new(Verifier::new(key));
    let mut first = None;
    let mut at_anchor = None;
    let mismatch = read_lines(
        &arguments.files,
        || verifier.borrow_mut().begin_file(),
        |line| {
            let mut verifier = verifier.borrow_mut();
            let read = verifier.check(line).map_err(|error| error.to_string())?;
            first.get_or_insert(read.seq);
            at_anchor = at_anchor.or(verifier
                .head()
                .filter(|head| anchored.is_some_and(|anchored| anchored.seq == head.seq)));
            Ok(())
        },
    )?;
    let head = verifier.borrow().head();
    let refused = |why: String| {
        print(&format!("not intact: {why}\n"))?;
        Ok(ExitCode::from(exit::NO))
    };
    if let Some(Mismatch { place, why }) = mismatch {
        return refused(format!("{place}: {why}"));
    }
    let (Some(first), Some(head)) = (first, head) else {
        return match anchored {
            Some(anchored) => refused(format!(
                "there is no line, and the anchor knows line {}",
                anchored.seq
            )),
            None => refused("there is no line".to_owned()),
        };
    };
    let anchor = match (anchored, at_anchor) {
        (None, _) => String::new(),
        (Some(known), Some(found)) if known == found => {
            format!("; the anchor fits line {}", known.seq)
        }
        (Some(known), Some(_)) => {
            return refused(format!(
                "line {} differs from the anchor: the chain was made anew",
                known.seq
            ));
        }
        (Some(known), None) => {
            return refused(format!(
                "the last line is {}, and the anchor knows line {}: lines were removed",
                head.seq, known.seq
            ));
        }
    };
    print(&format!(
        "intact: lines {first} to {}, last hash {}{anchor}\n",
        head.seq,
        head.hex()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn show(arguments: &AuditShow) -> Result<ExitCode, Failure> {
    let mut lines: Vec<AuditLine> = Vec::new();
    let most = arguments.last.max(1);
    let mismatch = read_lines(
        &arguments.files,
        || {},
        |line| {
            let end = line.rfind(",\"hash\":\"").ok_or("it has no hash")?;
            let body = format!("{}}}", line.get(..end).unwrap_or_default());
            let read: AuditLine = serde_json::from_str(&body).map_err(|error| error.to_string())?;
            let is_wanted = arguments
                .event
                .as_ref()
                .is_none_or(|event| read.record.event.as_str().starts_with(event.as_str()));
            if is_wanted {
                if lines.len() >= most {
                    lines.remove(0);
                }
                lines.push(read);
            }
            Ok(())
        },
    )?;
    if arguments.json {
        let lines = lines.iter().map(|line| format!("{}\n", line.to_value()));
        print(&visible_json(&lines.collect::<String>()))?;
    } else {
        let rows = lines.iter().map(row);
        let headers = [
            "line", "at", "event", "who", "server", "tool", "verdict", "outcome", "more",
        ];
        let summary = mainstay_contract::render::count(lines.len(), "record", "records");
        let page = Porcelain::summary(summary).table(&headers, rows);
        let bounds = Bounds {
            lines: most + 10,
            bytes: 1 << 24,
        };
        print(&format!("{}\n", page.finish(bounds)))?;
    }
    match mismatch {
        None => Ok(ExitCode::SUCCESS),
        Some(Mismatch { place, why }) => Err(Failure::input(anyhow!("{place}: {why}"))
            .hint("mainstay audit verify checks every line")),
    }
}

fn row(line: &AuditLine) -> Vec<String> {
    let record = &line.record;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let approval = record.approval.as_ref().map(|id| format!("approval {id}"));
    let by = record.by.as_ref().map(|by| format!("by {by}"));
    let more = [approval, by, record.rule.clone(), record.detail.clone()];
    let more: Vec<String> = more.into_iter().flatten().collect();
    vec![
        line.seq.to_string(),
        line.at.clone(),
        record.event.to_string(),
        text(&record.who),
        text(&record.server),
        text(&record.tool),
        record
            .verdict
            .map_or_else(String::new, |verdict| verdict.to_string()),
        text(&record.outcome),
        more.join(" "),
    ]
}
