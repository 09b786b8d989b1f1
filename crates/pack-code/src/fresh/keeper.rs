//! The keeper: one thread per repository that sweeps, builds, compacts and adds symbols, so that
//! no call has to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::build::{Built, Place, Progress, Request, build, compact, describe};
use crate::fresh::tracker::{Due, Tracker};
use crate::limits;
use crate::store::StoreError;
use crate::store::job::{Job, State};
use crate::store::lock::WriterLock;
use crate::symbols::layer::{self, Effort};
use crate::view::View;

/// How often the keeper looks by itself.
const LOOK: Duration = Duration::from_millis(500);
/// How often it looks at another process's build.
const OTHERS: Duration = Duration::from_millis(50);
/// Builds that may wait for the one that runs.
const WAITING: usize = 8;
/// Rest after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Keeper {
    place: Arc<Place>,
    tracker: Arc<Tracker>,
    shared: Mutex<Shared>,
    changed: Condvar,
    ended: AtomicBool,
    /// Set while something more urgent than symbols waits.
    hurry: AtomicBool,
    /// Whether there is to be a symbol layer.
    pub(crate) symbols: bool,
}

#[derive(Debug, Default)]
struct Shared {
    running: bool,
    /// Builds that wait for their turn, at most [`WAITING`].
    asked: VecDeque<(Request, Arc<Progress>)>,
    current: Option<(Request, Arc<Progress>)>,
    last_error: Option<String>,
    failed_at: Option<Instant>,
    next_job: u64,
    sweeps: u64,
    symbols: Symbols,
}

/// Somebody waits for the symbol layer as long as this lives.
#[derive(Debug)]
pub(crate) struct AwaitedSymbols<'a>(&'a Keeper);

impl Drop for AwaitedSymbols<'_> {
    fn drop(&mut self) {
        self.0.lock().symbols.awaited -= 1;
    }
}

/// How the symbol layer of this process goes.
#[derive(Debug, Default)]
struct Symbols {
    /// Batches that were made.
    batches: u32,
    /// Since when there is nothing to do for it.
    settled: Option<Instant>,
    /// Calls that wait for it.
    awaited: u32,
}

impl Keeper {
    pub(crate) fn new(place: Arc<Place>, tracker: Arc<Tracker>, symbols: bool) -> Arc<Self> {
        Arc::new(Self {
            place,
            tracker,
            shared: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            symbols,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, once.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut shared = self.lock();
        if shared.running || self.ended.load(Ordering::Relaxed) {
            return;
        }
        let keeper = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name("code-keeper".to_owned())
            .spawn(move || keeper.run());
        match spawned {
            Ok(_) => shared.running = true,
            Err(error) => shared.last_error = Some(format!("no thread for builds: {error}")),
        }
    }

    /// Ends the thread as soon as it can.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.hurry.store(true, Ordering::Relaxed);
        let shared = self.lock();
        if let Some((_, progress)) = &shared.current {
            progress.stop.store(true, Ordering::Relaxed);
        }
        drop(shared);
        self.changed.notify_all();
    }

    /// Asks for a build, or joins one that runs or waits and does all of it. Says `None` when too
    /// many wait.
    pub(crate) fn ask(self: &Arc<Self>, request: Request) -> Option<Arc<Progress>> {
        self.start();
        let mut shared = self.lock();
        let serves = |(known, progress): &&(Request, Arc<Progress>)| {
            known.covers(&request) && !progress.stop.load(Ordering::Relaxed)
        };
        if let Some((_, progress)) = shared.current.iter().chain(&shared.asked).find(serves) {
            return Some(Arc::clone(progress));
        }
        if shared.asked.len() >= WAITING {
            return None;
        }
        let progress = self.new_job(&mut shared);
        shared.asked.push_back((request, Arc::clone(&progress)));
        self.hurry.store(true, Ordering::Relaxed);
        drop(shared);
        self.changed.notify_all();
        Some(progress)
    }

    fn new_job(&self, shared: &mut Shared) -> Arc<Progress> {
        shared.next_job += 1;
        let progress = Progress::default();
        {
            let mut job = progress.job.lock().unwrap_or_else(PoisonError::into_inner);
            job.job_id = format!(
                "{:x}-{:x}-{:x}",
                crate::build::now_ms(),
                std::process::id(),
                shared.next_job
            );
            job.started_at = crate::build::now_ms();
        }
        Arc::new(progress)
    }

    /// The builds that this process runs or is about to, in their order.
    pub(crate) fn jobs(&self) -> Vec<Arc<Progress>> {
        let shared = self.lock();
        let known = shared.current.iter().chain(&shared.asked);
        known.map(|(_, progress)| Arc::clone(progress)).collect()
    }

    /// Whether a build runs or is about to.
    pub(crate) fn is_pending(&self, progress: &Arc<Progress>) -> bool {
        let shared = self.lock();
        let mut known = shared.current.iter().chain(&shared.asked);
        known.any(|(_, known)| Arc::ptr_eq(known, progress))
    }

    /// Whether a build has failed so shortly before that another one is not worth a try.
    pub(crate) fn rests(&self) -> bool {
        let shared = self.lock();
        let failed = shared.last_error.is_some();
        failed
            && shared
                .failed_at
                .is_some_and(|at| at.elapsed() < AFTER_FAILURE)
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Whether the symbol layer has covered what it can since the last build.
    pub(crate) fn has_settled_symbols(&self) -> bool {
        !self.symbols || self.ended.load(Ordering::Relaxed) || self.lock().symbols.settled.is_some()
    }

    /// From now on somebody waits for the symbol layer, until the guard goes.
    pub(crate) fn await_symbols(&self) -> AwaitedSymbols<'_> {
        self.lock().symbols.awaited += 1;
        AwaitedSymbols(self)
    }

    /// Waits until something has happened, or for `time`.
    pub(crate) fn wait(&self, time: Duration) {
        let shared = self.lock();
        drop(self.changed.wait_timeout(shared, time));
    }

    /// Waits until the tree has been compared with the index, at most `time`.
    pub(crate) fn wait_swept(self: &Arc<Self>, time: Duration) {
        self.start();
        let deadline = Instant::now() + time;
        while !self.tracker.is_swept() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.changed.notify_all();
            self.wait(left.min(Duration::from_millis(2)));
        }
    }

    fn run(&self) {
        let mut idle = Duration::ZERO;
        while !self.ended.load(Ordering::Relaxed) {
            {
                let shared = self.lock();
                if shared.asked.is_empty() && !idle.is_zero() {
                    drop(self.changed.wait_timeout(shared, idle));
                }
            }
            if self.ended.load(Ordering::Relaxed) {
                return;
            }
            // A defect in here must not end the thread: nothing would ever be built again.
            let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.step()));
            idle = match step {
                Ok(true) => Duration::ZERO,
                Ok(false) => LOOK,
                Err(_) => {
                    self.broke();
                    LOOK
                }
            };
        }
    }

    /// A step ended in a panic.
    fn broke(&self) {
        let mut shared = self.lock();
        let error = "a build ended in a panic; standard error has the details";
        shared.last_error = Some(error.to_owned());
        shared.failed_at = Some(Instant::now());
        if let Some((_, progress)) = shared.current.take() {
            let mut job = progress.job.lock().unwrap_or_else(PoisonError::into_inner);
            job.state = State::Failed;
            job.error = Some(error.to_owned());
        }
        drop(shared);
        self.changed.notify_all();
    }

    /// Does the most urgent thing; says whether there may be more.
    fn step(&self) -> bool {
        self.hurry.store(false, Ordering::Relaxed);
        // It is known as waiting until it is known as running.
        let asked = self.lock().asked.front().cloned();
        if let Some((request, progress)) = asked {
            self.build(&request, &progress);
            return true;
        }
        match self.tracker.due() {
            Due::Sweep => {
                self.tracker.sweep();
                self.lock().sweeps += 1;
                self.changed.notify_all();
                return true;
            }
            due @ (Due::Build(_) | Due::BuildAll) => {
                let failed_at = self.lock().failed_at;
                if failed_at.is_none_or(|at| at.elapsed() >= AFTER_FAILURE) {
                    let request = Request {
                        changed: match due {
                            Due::Build(paths) => Some(paths),
                            _ => None,
                        },
                        ..Request::default()
                    };
                    let progress = {
                        let mut shared = self.lock();
                        self.new_job(&mut shared)
                    };
                    self.build(&request, &progress);
                    return self.lock().failed_at.is_none();
                }
            }
            Due::SweepAgain => {
                self.tracker.sweep_again(true);
                return true;
            }
            Due::Nothing => {}
        }
        self.tidy()
    }

    fn build(&self, request: &Request, progress: &Arc<Progress>) {
        {
            let mut shared = self.lock();
            shared
                .asked
                .retain(|(_, waiting)| !Arc::ptr_eq(waiting, progress));
            shared.current = Some((request.clone(), Arc::clone(progress)));
        }
        let result = loop {
            match build(&self.place, request, progress) {
                Ok(Built::Busy) => {
                    if !self.wait_for_other(progress) {
                        break Err(StoreError::Stopped);
                    }
                    // The other one may have built for other reasons: ours still has to be done,
                    // and is quick when there is nothing left.
                }
                Ok(Built::Done) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if result.is_ok() {
            crate::cache::trim(&self.place.folder, self.place.cache_bytes);
        }
        // Whoever waits for the build wants to see its generation, fresh. A build of the whole tree
        // also sets right whatever this process believes about it.
        if !self.ended.load(Ordering::Relaxed) {
            self.tracker.refresh();
            if !self.tracker.is_swept() || request.changed.is_none() {
                self.tracker.sweep();
            }
        }
        let mut shared = self.lock();
        shared.current = None;
        shared.symbols.settled = None;
        match result {
            Ok(()) => {
                shared.last_error = None;
                shared.failed_at = None;
            }
            Err(StoreError::Stopped) => shared.failed_at = Some(Instant::now()),
            Err(error) => {
                shared.last_error = Some(describe(&error));
                shared.failed_at = Some(Instant::now());
                let mut job = progress.job.lock().unwrap_or_else(PoisonError::into_inner);
                job.state = State::Failed;
                job.error = Some(describe(&error));
            }
        }
        drop(shared);
        self.changed.notify_all();
    }

    /// Waits until another process has finished writing; false when told to stop.
    fn wait_for_other(&self, progress: &Progress) -> bool {
        loop {
            if progress.stop.load(Ordering::Relaxed) || self.ended.load(Ordering::Relaxed) {
                return false;
            }
            if let Some(job) = Job::read(&self.place.folder) {
                progress
                    .files_total
                    .store(job.files_total, Ordering::Relaxed);
                progress.files_done.store(job.files_done, Ordering::Relaxed);
                progress.bytes_done.store(job.bytes_done, Ordering::Relaxed);
            }
            match WriterLock::take(&self.place.folder) {
                Ok(None) => self.wait(OTHERS),
                // Let go at once: the build takes it again.
                Ok(Some(_)) => {
                    progress.files_total.store(0, Ordering::Relaxed);
                    progress.files_done.store(0, Ordering::Relaxed);
                    progress.bytes_done.store(0, Ordering::Relaxed);
                    return true;
                }
                Err(_) => return false,
            }
        }
    }

    /// What can wait: symbols, then joining segments. Says whether there may be more.
    fn tidy(&self) -> bool {
        let Some(view) = self.tracker.refresh() else {
            return false;
        };
        if self.symbols && self.add_symbols(&view) {
            return true;
        }
        match compact(&self.place, &self.hurry) {
            Ok(true) => {
                self.tracker.refresh();
                true
            }
            Ok(false) => false,
            Err(StoreError::Stopped) => true,
            Err(error) => {
                self.lock().last_error = Some(describe(&error));
                false
            }
        }
    }

    /// One batch of symbols. Says whether there may be more.
    fn add_symbols(&self, view: &View) -> bool {
        let until_sweep = self.tracker.until_sweep();
        let effort = {
            let mut shared = self.lock();
            let symbols = &mut shared.symbols;
            let rested = symbols
                .settled
                .is_none_or(|since| since.elapsed() >= limits::SYMBOLS_AGAIN);
            let (covered, all) = view.generation.symbol_docs();
            if covered >= all {
                symbols.settled.get_or_insert_with(Instant::now);
                drop(shared);
                self.changed.notify_all();
                return false;
            }
            symbols.batches = symbols.batches.saturating_add(1);
            Effort {
                time: limits::FIRST_SYMBOL_BATCH
                    .saturating_mul(1 << symbols.batches.min(16) >> 1)
                    .min(limits::SYMBOL_BATCH)
                    .min(until_sweep)
                    .max(limits::FIRST_SYMBOL_BATCH),
                awaited: symbols.awaited > 0,
                again: rested,
            }
        };
        match layer::extend(&self.place, view, effort, &self.hurry) {
            Ok(outcome) => {
                self.tracker.doubt(&outcome.doubted);
                if !outcome.more && effort.again {
                    self.settle_symbols();
                }
                outcome.more
            }
            Err(StoreError::Stopped) => true,
            Err(error) => {
                self.lock().last_error = Some(describe(&error));
                self.settle_symbols();
                false
            }
        }
    }

    fn settle_symbols(&self) {
        self.lock().symbols.settled = Some(Instant::now());
        self.changed.notify_all();
    }
}
