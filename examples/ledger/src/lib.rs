//! An example pack: a ledger in a file, one line per effect.
//!
//! It is written only against `mainstay_worker`, with one tool of each replay class, so that an
//! observer can count in the file what really happened while workers were killed under it:
//!
//! | tool | replay class | effect |
//! |---|---|---|
//! | `append` | never replay | one line per run |
//! | `put` | convergent | the last value of a key counts |
//! | `transfer` | probe required | one line with the client's own id, which the probe looks for |
//! | `get` | convergent, reads | none |
//! | `wait` | convergent, reads | none: time, progress, and ways to fail |

mod book;
mod effect;
mod offers;
mod specs;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;

use mainstay_worker::{Json, Pack, Settings, Unable, typed};
use serde::Deserialize;

use crate::book::Book;
use crate::offers::{Entries, Reconcile};

/// Settings from the host.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerSettings {
    /// The effects file.
    file: Option<PathBuf>,
}

/// Builds the pack. A `file` from the command line beats the one in the settings.
pub fn pack(settings: &Settings, file: Option<PathBuf>) -> Result<Pack, Unable> {
    let configured = settings.parse::<LedgerSettings>()?.file;
    let file = file.or(configured).ok_or_else(|| {
        Unable::new("no ledger file; give --file PATH or the pack setting `file`")
    })?;
    let book = Arc::new(Book::open(&file)?);
    // One handle per tool.
    let [append, put, transfer, probe, get, complete] = [(); 6].map(|()| Arc::clone(&book));
    Ok(Pack::new("ledger")
        .tool(
            specs::append(),
            typed(move |a, context| tools::append(&append, a, context)),
        )
        .tool(
            specs::put(),
            typed(move |a, context| tools::put(&put, a, context)),
        )
        .tool(
            specs::transfer(),
            typed(move |a, context| tools::transfer(&transfer, a, context))
                .probe(move |a, _| tools::probe_transfer(&probe, &a)),
        )
        .tool(specs::get(), typed(move |a, _| tools::get(&get, a)))
        .tool(specs::wait(), typed(tools::wait))
        .resources(Entries(Arc::clone(&book)))
        .prompts(Reconcile(Arc::clone(&book)))
        .completions(move |request: &_, _: &_| offers::complete(&complete, request))
        .facts(Json::from(serde_json::json!({"file": file}))))
}
