//! The file: effects are appended in single writes and read back whole.
//!
//! Several workers may have the same file open, and any of them may die at any moment. A line is
//! written by one `write` with `O_APPEND`, so lines never mix; a line torn by the end of the
//! machine is skipped by readers.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use mainstay_worker::{ErrorKind, Problem, Unable};

use crate::effect::{Effect, Transfer};

/// Bytes of a ledger that are still read.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The open ledger.
#[derive(Debug)]
pub(crate) struct Book {
    path: PathBuf,
    file: File,
}

/// The sum of the effects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Lines of `append`.
    pub(crate) entries: u64,
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) balances: BTreeMap<String, i64>,
}

impl Book {
    pub(crate) fn open(path: &Path) -> Result<Self, Unable> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| {
                Unable::new(format_args!(
                    "cannot open the ledger file {}: {error}",
                    path.display()
                ))
            })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Makes an effect happen.
    pub(crate) fn write(&self, effect: &Effect) -> Result<(), Problem> {
        let write = || -> io::Result<()> {
            let mut line = serde_json::to_vec(effect)?;
            line.push(b'\n');
            // One write, and no second one for a rest: half a line must not be completed by luck.
            match (&self.file).write(&line)? {
                written if written == line.len() => Ok(()),
                _ => Err(io::ErrorKind::WriteZero.into()),
            }
        };
        write().map_err(|error| self.problem("write to", &error))
    }

    /// The whole file as text.
    pub(crate) fn text(&self) -> Result<String, Problem> {
        let read = || -> io::Result<Option<String>> {
            let mut bytes = Vec::new();
            File::open(&self.path)?
                .take(MAX_BYTES + 1)
                .read_to_end(&mut bytes)?;
            let fits = bytes.len() as u64 <= MAX_BYTES;
            Ok(fits.then(|| String::from_utf8_lossy(&bytes).into_owned()))
        };
        read()
            .map_err(|error| self.problem("read", &error))?
            .ok_or_else(|| {
                Problem::new(ErrorKind::Unsupported, "the ledger has grown over 64 MiB")
                    .with_hint("start a new file")
            })
    }

    fn effects(&self) -> Result<Vec<Effect>, Problem> {
        let text = self.text()?;
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }

    pub(crate) fn state(&self) -> Result<State, Problem> {
        let mut state = State::default();
        for effect in self.effects()? {
            match effect {
                Effect::Append { .. } => state.entries += 1,
                Effect::Put { key, value } => {
                    state.values.insert(key, value);
                }
                Effect::Transfer(Transfer {
                    from, to, amount, ..
                }) => {
                    *state.balances.entry(from).or_default() -= i64::from(amount);
                    *state.balances.entry(to).or_default() += i64::from(amount);
                }
            }
        }
        Ok(state)
    }

    /// The transfer with this id, if it happened. A probe must stay cheap while the file grows, so
    /// only lines with the id in them are parsed; ids have no character that JSON escapes.
    pub(crate) fn find_transfer(&self, id: &str) -> Result<Option<Transfer>, Problem> {
        let text = self.text()?;
        let candidates = text.lines().filter(|line| line.contains(id));
        let mut effects = candidates.filter_map(|line| serde_json::from_str(line).ok());
        Ok(effects.find_map(|effect| match effect {
            Effect::Transfer(transfer) if transfer.id == id => Some(transfer),
            _ => None,
        }))
    }

    fn problem(&self, verb: &str, error: &io::Error) -> Problem {
        let path = self.path.display();
        Problem::new(
            ErrorKind::Internal,
            format!("cannot {verb} the ledger file {path}: {error}"),
        )
    }
}
