//! One repository of the workspace.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_worker::{Digest, RootedDir};

use crate::build::{Place, Progress, Request};
use crate::fresh::keeper::Keeper;
use crate::fresh::tracker::Tracker;
use crate::limits;
use crate::settings::{CodeSettings, RootSetting};
use crate::store::job::{Job, State};
use crate::store::lock::WriterLock;
use crate::tree::file::Reader;
use crate::tree::walk::Rules;
use crate::view::View;

/// A repository that can be searched.
#[derive(Debug)]
pub(crate) struct Repo {
    pub(crate) id: String,
    pub(crate) alias: String,
    /// The directory that is held: its device and its number there.
    pub(crate) identity: (u64, u64),
    pub(crate) place: Arc<Place>,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) keeper: Arc<Keeper>,
}

/// The folder of a root's index. The root's whole path is in the name's hash and in the manifest.
pub(crate) fn folder_of(cache: &Path, root: &Path) -> PathBuf {
    let hash = Digest::default()
        .part(root.as_os_str().as_encoded_bytes())
        .hex();
    let hash = hash.get(..16).unwrap_or(&hash);
    let name: String = root
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '_'
            }
        })
        .take(40)
        .collect();
    cache
        .join(crate::cache::FOLDER)
        .join(format!("{name}-{hash}"))
}

/// Device and number of the directory that a path names now.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    metadata.is_dir().then(|| (metadata.dev(), metadata.ino()))
}

impl Repo {
    /// Opens a root. The index is looked at by the first call, or by the keeper.
    pub(crate) fn open(
        setting: &RootSetting,
        settings: &CodeSettings,
        cache: &Path,
    ) -> Result<Self, String> {
        let shown = setting.path.display();
        let root = setting
            .path
            .canonicalize()
            .map_err(|error| format!("the root {shown} cannot be opened: {error}"))?;
        // Before it is opened: a directory that comes between them is noticed by the next call.
        let identity = identity(&root).ok_or_else(|| format!("the root {shown} is gone"))?;
        let rooted = RootedDir::open(&root).map_err(|error| {
            format!("the root {shown} cannot be opened as a directory: {error}")
        })?;
        let folder = folder_of(cache, &root);
        let alias = setting.alias.clone().unwrap_or_else(|| {
            root.file_name().map_or_else(
                || "root".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            )
        });
        let id = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let place = Arc::new(Place {
            root,
            rooted,
            folder,
            rules: Rules {
                hidden: settings.hidden,
                no_ignore: settings.no_ignore,
            },
            max_bytes: settings.max_file_bytes.unwrap_or(limits::FILE_BYTES),
            cache_bytes: settings.cache_bytes.unwrap_or(limits::CACHE_BYTES),
        });
        let tracker = Arc::new(Tracker::new(Arc::clone(&place), !settings.no_watch));
        let keeper = Keeper::new(
            Arc::clone(&place),
            Arc::clone(&tracker),
            !settings.no_symbols,
        );
        let repo = Self {
            id,
            alias,
            identity,
            place,
            tracker,
            keeper,
        };
        // An index that is there is kept fresh from the start; so is one whose build was cut off.
        if repo
            .place
            .folder
            .join(crate::store::manifest::FILE)
            .exists()
        {
            repo.keeper.start();
        } else if repo.job().is_some_and(|job| job.state == State::Failed) {
            repo.keeper.ask(Request::default());
        }
        Ok(repo)
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.place.rooted, self.place.max_bytes)
    }

    /// Whether a call means this repository.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.alias == name || self.id == name || self.place.root.as_os_str() == name
    }

    /// The view of a call: as fresh as it can be had without making anybody wait for long.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        let view = self.tracker.refresh()?;
        if view.freshness.is_fresh() {
            return Some(view);
        }
        // A sweep of a large tree is not over by then anyway.
        let files: u32 = view
            .generation
            .manifest
            .segments
            .iter()
            .map(|entry| entry.docs)
            .sum();
        if files > limits::SWEPT_AT_ONCE {
            self.keeper.start();
            return Some(view);
        }
        self.keeper.wait_swept(limits::SWEEP_WAIT);
        self.tracker.refresh()
    }

    /// The view of a call that may be the first of all: starts a build where there is no index and
    /// waits for it a while.
    pub(crate) fn first_view(&self) -> Option<Arc<View>> {
        if let Some(view) = self.view() {
            return Some(view);
        }
        if self.keeper.rests() {
            return None;
        }
        if let Some(progress) = self.keeper.ask(Request::default()) {
            self.wait(&progress, limits::FIRST_BUILD_WAIT, &|| false);
        }
        self.view()
    }

    /// Waits until a job has ended, for a time, or until told to stop waiting.
    pub(crate) fn wait(
        &self,
        progress: &Arc<Progress>,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Job {
        let deadline = Instant::now() + time;
        loop {
            let job = progress.snapshot();
            let pending = self.keeper.is_pending(progress);
            let left = deadline.saturating_duration_since(Instant::now());
            if !pending || left.is_zero() || stop() {
                return job;
            }
            self.keeper.wait(left.min(Duration::from_millis(25)));
        }
    }

    /// How many files the symbol layer covers, and of how many; nothing without an index.
    pub(crate) fn symbol_docs(&self) -> Option<(u64, u64)> {
        let view = self.tracker.refresh()?;
        Some(view.generation.symbol_docs())
    }

    /// Why there is no index and will be none soon: the last build failed.
    pub(crate) fn unbuilt(&self) -> Option<String> {
        self.keeper
            .last_error()
            .filter(|_| self.keeper.jobs().is_empty())
    }

    /// The last job as the folder knows it. One that runs without a writer was cut off.
    pub(crate) fn job(&self) -> Option<Job> {
        let mut job = Job::read(&self.place.folder)?;
        if job.state == State::Running
            && matches!(WriterLock::take(&self.place.folder), Ok(Some(_)))
        {
            job.state = State::Failed;
            job.error = Some(
                "its worker was gone before it ended; the next build repairs the index".to_owned(),
            );
        }
        Some(job)
    }
}

impl Drop for Repo {
    fn drop(&mut self) {
        self.keeper.end();
    }
}
