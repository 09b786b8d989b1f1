//! The present or last job of an index, kept in its folder so that it survives its worker.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::store::manifest::TEMPORARY;

const FILE: &str = "job";

/// How a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Running,
    Done,
    Failed,
    Cancelled,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A build, as `index_build` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) job_id: String,
    pub(crate) state: State,
    pub(crate) generation: u64,
    pub(crate) files_total: u64,
    pub(crate) files_done: u64,
    pub(crate) bytes_done: u64,
    pub(crate) added: u64,
    pub(crate) changed: u64,
    pub(crate) removed: u64,
    pub(crate) skipped: BTreeMap<String, u64>,
    pub(crate) duration_ms: u64,
    /// Milliseconds since 1970.
    pub(crate) started_at: u64,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl Job {
    /// The job as its folder knows it.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
    }

    /// Keeps the job. It is for showing: what cannot be kept is not worth failing a build.
    pub(crate) fn write(&self, folder: &Path) {
        let temporary = folder.join(format!("{TEMPORARY}{FILE}"));
        if let Ok(text) = serde_json::to_vec(self)
            && fs::write(&temporary, text).is_ok()
        {
            let _ = fs::rename(&temporary, folder.join(FILE));
        }
    }
}
