//! The engine's part of an upgrade in place: proof, pause, hand-over, and the way back.
//!
//! The engine pauses every task, saves what they own, and executes the new program. If anything before that
//! fails, it starts the tasks again with the parts that they returned: nothing has changed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mainstay_contract::audit::AuditRecord;
use mainstay_contract::control::ControlReply;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::rpc::Ready;
use mainstay_kernel::call::SlotId;
use mainstay_ledger::LeaseSlot;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::clients::{Conversation, Links, SavedClient};
use super::control::SavedOperators;
use super::workers::{Handle, Incarnation, SavedHandle};
use super::{Commands, Engine, Event};
use crate::audit::SavedAudit;
use crate::clock::{Clock, SavedClock};
use crate::drivers::Surroundings;
use crate::envelopes::SavedEnvelopes;
use crate::file_watch::{self, Marks, SavedMarks};
use crate::http::{Front, Moved, SavedFront};
use crate::process;
use crate::process::programs::{Programs, SavedPrograms};
use crate::ready::ReadyFile;
use crate::transport::socket::{Bound, SavedBound};
use crate::upgrade::{self, Header, Incoming, Outgoing, Pauses, Place, Start};

/// Time for all tasks to reach a point where nothing is half done.
const REST: Duration = Duration::from_secs(3);
/// Time for clients to be sent the errors that end their requests.
pub(super) const FAREWELL: Duration = Duration::from_millis(500);
/// Pause between two looks whether they have.
const LOOK: Duration = Duration::from_millis(1);
/// Turns of the tasks after a pause, before anything counts as late: they read, report and write what waited.
const TURNS: usize = 16;

/// The state of upgrades in an engine.
#[derive(Debug, Default)]
pub(crate) struct Upgrades {
    facts: Option<Facts>,
    pub(crate) pauses: Pauses,
    /// The sockets that the host listens on.
    pub(crate) listener: Weak<Bound>,
    pub(crate) control: Weak<Bound>,
    pub(crate) front: Option<Arc<Front>>,
    /// The files of `--watch` at their last rollouts.
    pub(crate) marks: Marks,
    /// The inotify descriptor of the files that are watched.
    pub(crate) inotify: Option<Arc<OwnedFd>>,
    /// Cloned for each operator whose request is being read.
    pub(crate) reading: Arc<()>,
    /// Cloned for each client that was accepted on a socket and is not delivered yet: its wish for a shared server is being
    /// read, or the queue is full.
    pub(crate) sharing: Arc<()>,
    /// Both, while the host pauses.
    doors: (Option<Arc<Bound>>, Option<Arc<Bound>>),
    /// The HTTP listener and connections, while the host pauses.
    moved: Option<Moved>,
    /// Lookups of a client's roots that have not ended.
    pub(super) lookups: usize,
    attempt: Option<Attempt>,
    /// This program continues another one.
    pub(super) resumed: bool,
}

#[derive(Debug)]
struct Facts {
    words: Vec<OsString>,
    start: Start,
    build: String,
}

/// An upgrade under way.
#[derive(Clone, Debug)]
struct Attempt {
    waiter: Option<u64>,
    /// Answers over HTTP that do not end in time are ended.
    now: bool,
    file: Arc<File>,
    path: PathBuf,
    /// The new executable can read the state.
    proved: bool,
}

/// The state of the shell, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shell {
    clock: SavedClock,
    started: String,
    commands: Commands,
    named_only: Vec<PathBuf>,
    clients: Vec<(SessionId, SavedClient)>,
    workers: Vec<(Generation, SlotId, u32, SavedHandle)>,
    vetting: Vec<(Generation, Box<Ready>)>,
    operators: SavedOperators,
    /// The operator who asked for the upgrade.
    waiter: Option<u64>,
    announced: bool,
    has_ready_file: bool,
    uses: u64,
    /// Processes that the host has started and not reaped.
    children: BTreeSet<i32>,
    envelopes: SavedEnvelopes,
    pub(crate) listener: Option<SavedBound>,
    pub(crate) control: Option<SavedBound>,
    /// The lease of the host's tasks.
    lease: Option<(String, Place)>,
    /// The two ends of the place for a lease that the host does not have yet.
    #[serde(default)]
    lease_slot: Option<(Place, Place)>,
    pub(crate) front: Option<SavedFront>,
    pub(crate) inotify: Option<Place>,
    programs: SavedPrograms,
    #[serde(default)]
    pub(crate) marks: SavedMarks,
    #[serde(default)]
    pub(crate) audit: Option<SavedAudit>,
}

/// The state of another program that this one continues.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) from: String,
    pub(crate) shell: Shell,
    pub(crate) descriptors: Incoming,
}

impl Resumed {
    /// The inotify descriptor of the program that this one continues.
    pub(crate) fn take_inotify(&mut self) -> Option<OwnedFd> {
        let place = self.shell.inotify.take()?;
        self.descriptors.take(place).ok()
    }
}

impl Upgrades {
    pub(crate) fn new(words: Vec<OsString>, start: Start, build: String) -> Self {
        Self {
            facts: Some(Facts {
                words,
                start,
                build,
            }),
            ..Self::default()
        }
    }

    /// Lives as long as the host, for tasks that must not outlive it.
    #[cfg(feature = "simulation")]
    pub(super) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.reading)
    }

    pub(super) fn build(&self) -> &str {
        self.facts.as_ref().map_or("", |facts| &facts.build)
    }

    /// True once the new executable has proved that it can read the state.
    pub(super) fn is_proved(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.proved)
    }
}

impl Engine {
    /// Begins an upgrade. Nothing changes before the new executable has read the state in a process of its own.
    pub(super) fn begin_upgrade(
        &mut self,
        waiter: Option<u64>,
        binary: Option<PathBuf>,
        now: bool,
    ) {
        if self.upgrade.attempt.is_some() {
            let reason = "another upgrade is under way".to_owned();
            return self.refuse_upgrade(waiter, reason);
        }
        match self.prove(binary) {
            Ok((file, path)) => {
                self.upgrade.attempt = Some(Attempt {
                    waiter,
                    now,
                    file,
                    path,
                    proved: false,
                });
            }
            Err(reason) => self.refuse_upgrade(waiter, reason),
        }
    }

    fn prove(&mut self, binary: Option<PathBuf>) -> Result<(Arc<File>, PathBuf), String> {
        let Some(facts) = &self.upgrade.facts else {
            return Err("this host cannot be upgraded in place".to_owned());
        };
        if !self.core.is_serving() {
            return Err("the host is stopping".to_owned());
        }
        let fixed = |conversation: &Conversation| {
            matches!(conversation, Conversation::Lines { .. }) && !conversation.can_move()
        };
        if self.conversations.values().any(fixed) {
            return Err(
                "standard input or output cannot be handed over: it is a terminal, a file, \
                        or a pipe of another user; restart the host"
                    .to_owned(),
            );
        }
        let path = binary.unwrap_or_else(|| facts.start.program.clone().into());
        let file = Arc::new(upgrade::open(&path)?);
        let words = facts.words.clone();
        let state = self.seal(None, false, &mut Outgoing::default())?;
        let (events, proved) = (self.events(), Arc::clone(&file));
        tokio::spawn(async move {
            let proved = upgrade::probe(&proved, &words, &state).await;
            let _ = events.send(Event::Proved(proved)).await;
        });
        Ok((file, path))
    }

    /// The new executable has read the state, or has not.
    pub(super) fn proved(&mut self, proved: Result<String, String>) {
        match proved {
            Ok(_) => {
                if let Some(attempt) = &mut self.upgrade.attempt {
                    attempt.proved = true;
                }
            }
            Err(reason) => {
                let waiter = self
                    .upgrade
                    .attempt
                    .take()
                    .and_then(|attempt| attempt.waiter);
                self.refuse_upgrade(waiter, reason);
            }
        }
    }

    fn refuse_upgrade(&mut self, waiter: Option<u64>, reason: String) {
        let line = format!("mcp:warning reason=upgrade_refused {reason}");
        self.reports.log.line(&line);
        if let Some(waiter) = waiter {
            self.operators.refused(waiter, reason);
        }
    }

    /// Executes the new program. Returns only if that failed, and then the host serves as before.
    pub(super) async fn hand_over(&mut self) {
        let Some(attempt) = self.upgrade.attempt.clone() else {
            return;
        };
        let reason = match self.replace(&attempt).await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        self.upgrade.attempt = None;
        self.upgrade.doors = (None, None);
        self.audit_files = None;
        if let Some(front) = &self.upgrade.front {
            front.set_draining(false);
            if let Some(moved) = self.upgrade.moved.take() {
                front.put_back(moved);
            }
        }
        self.go_on().await;
        self.refuse_upgrade(attempt.waiter, reason);
        self.act();
    }

    /// Ends the pause: the tasks start again where they stopped.
    pub(super) async fn go_on(&mut self) {
        self.upgrade.pauses.set(false);
        self.collect().await;
        self.run_tasks();
        self.catch_up().await;
    }

    /// Hears what happened in a pause before anything counts as late: an answer that waits in a pipe is there, and a
    /// worker that has answered a ping lives.
    pub(super) async fn catch_up(&mut self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            while let Ok(event) = self.queue.incoming.try_recv() {
                self.handle(event);
            }
        }
    }

    /// Handles the next event or what is due. Returns after a moment without either.
    pub(super) async fn step(&mut self) {
        let next = self.core.next_timeout();
        if next.is_some_and(|at| at <= self.clock.now()) {
            return self.handle_timeout();
        }
        tokio::select! {
            biased;
            Some(event) = self.queue.incoming.recv() => self.handle(event),
            () = tokio::time::sleep(LOOK) => {
                self.clock.tick();
            }
        }
    }

    /// Ends all single requests with an error.
    pub(super) fn end_singles(&mut self) {
        let all = self.conversations.values_mut();
        all.for_each(|conversation| conversation.end_single(ErrorKind::ShuttingDown));
    }

    async fn replace(&mut self, attempt: &Attempt) -> Result<std::convert::Infallible, String> {
        self.drain(attempt.now).await?;
        self.pause().await?;
        let Some(facts) = &self.upgrade.facts else {
            return Err("this host cannot be upgraded in place".to_owned());
        };
        let words = facts.words.clone();
        let state = self.seal(attempt.waiter, true, &mut Outgoing::default())?;
        let to = upgrade::probe(&attempt.file, &words, &state).await?;
        // Events may have arrived meanwhile.
        self.pause().await?;
        let from = self.upgrade.build();
        self.reports
            .log
            .line(&format!("mcp:upgrade from={from} to={to}"));
        self.reports.recorder.flush();
        self.reports.audit.record(AuditRecord::operator(
            "upgraded",
            Some(format!("from {from} to {to}")),
        ));
        self.audit_files = self.reports.audit.flush();
        if self.reports.audit.is_on() && self.audit_files.is_none() {
            return Err("the audit file cannot be written in time".to_owned());
        }
        self.reports.log.flush();
        let mut descriptors = Outgoing::default();
        let state = self.seal(attempt.waiter, true, &mut descriptors)?;
        let error = upgrade::execute(&attempt.file, &words, &state, descriptors.all());
        Err(format!("the new executable cannot be executed: {error}"))
    }

    /// Lets the answers over HTTP end, within the drain limit. New connections wait.
    async fn drain(&mut self, now: bool) -> Result<(), String> {
        let Some(front) = self.upgrade.front.clone() else {
            return Ok(());
        };
        front.set_draining(true);
        let limit = Duration::from_millis(self.core.limits().drain_ms);
        let mut until = Instant::now() + limit;
        let mut ended = false;
        while front.is_answering() {
            if Instant::now() >= until {
                let open = front.open_answers();
                // Answers of sessions continue in streams that their clients resume.
                if open.is_empty() {
                    break;
                }
                if ended {
                    // Their clients do not send the rest of a request, or do not read its answer.
                    front.close_open(true);
                    break;
                }
                if !now {
                    return Err(format!(
                        "answers are still open after {} s: {}; try again later, or use --now, which \
                         ends them with an error",
                        limit.as_secs(),
                        open.join(", ")
                    ));
                }
                front.end_answers();
                self.end_singles();
                ended = true;
                until = Instant::now() + FAREWELL;
            }
            // The host serves on: deadlines and restarts of workers are due meanwhile.
            self.step().await;
            if !self.core.is_serving() {
                return Err("the host is stopping".to_owned());
            }
        }
        front.release_streams();
        Ok(())
    }

    /// Lets every task come to rest. Events are handled until none is left.
    pub(super) async fn pause(&mut self) -> Result<(), String> {
        self.upgrade.pauses.set(true);
        let (listener, control) = (&self.upgrade.listener, &self.upgrade.control);
        self.upgrade.doors = (listener.upgrade(), control.upgrade());
        let until = Instant::now() + REST;
        let mut close_at = Some(Instant::now() + REST / 2);
        let now = self.upgrade.attempt.as_ref();
        let now = now.is_some_and(|attempt| attempt.now);
        loop {
            while let Ok(event) = self.queue.incoming.try_recv() {
                self.handle(event);
            }
            if !self.core.is_serving() {
                return Err("the host is stopping".to_owned());
            }
            if self.is_at_rest() {
                self.collect().await;
                let mut clients = self.conversations.values();
                let is_taken = clients.all(Conversation::is_taken);
                if is_taken && self.is_at_rest() && self.queue.incoming.is_empty() {
                    let front = self.upgrade.front.as_ref();
                    let moved = front.and_then(|front| front.take_moved());
                    self.upgrade.moved = moved.or(self.upgrade.moved.take());
                    return Ok(());
                }
            }
            let front = self.upgrade.front.as_ref();
            if let (Some(_), Some(front)) = (close_at.take_if(|at| Instant::now() >= *at), front) {
                front.close_open(now);
            }
            if Instant::now() >= until {
                let seconds = REST.as_secs();
                let open = front.map_or_else(Vec::new, |front| front.open_answers());
                let open = match open.as_slice() {
                    [] => String::new(),
                    open => format!(": {}", open.join(", ")),
                };
                return Err(format!(
                    "the host did not come to rest within {seconds} s{open}; try again"
                ));
            }
            tokio::select! {
                biased;
                Some(event) = self.queue.incoming.recv() => self.handle(event),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        // One of the host, one of the task that listens.
        let is_read = [&self.upgrade.reading, &self.upgrade.sharing]
            .iter()
            .any(|reading| Arc::strong_count(reading) > 2);
        let mut clients = self.conversations.values();
        let mut workers = self.workers.values();
        let front = self.upgrade.front.as_ref();
        !is_read
            && (self.upgrade.moved.is_some() || front.is_none_or(|front| front.is_moved()))
            && self.upgrade.lookups == 0
            && self.tasks.is_idle()
            && self.unrecorded == 0
            && clients.all(Conversation::is_paused)
            && workers.all(|worker| worker.handle.is_paused())
    }

    async fn collect(&mut self) {
        for conversation in self.conversations.values_mut() {
            conversation.collect().await;
        }
        for worker in self.workers.values_mut() {
            worker.handle.collect().await;
        }
    }

    /// Starts the tasks whose parts were collected.
    fn run_tasks(&mut self) {
        let events = self.events();
        let limit = self.core.limits().request_frame_bytes;
        for (session, conversation) in &mut self.conversations {
            let pause = self.upgrade.pauses.watch();
            conversation.run(*session, limit, &events, pause);
        }
        for (generation, worker) in &mut self.workers {
            worker.handle.run(Surroundings {
                generation: *generation,
                limits: self.core.limits(),
                events: events.clone(),
                log: &self.reports.log,
                pause: self.upgrade.pauses.watch(),
            });
        }
        self.unpaced.extend(self.conversations.keys());
    }

    /// The state as a sealed file. Without `tasks` it has no clients and no workers.
    fn seal<'a>(
        &'a mut self,
        waiter: Option<u64>,
        tasks: bool,
        descriptors: &mut Outgoing<'a>,
    ) -> Result<OwnedFd, String> {
        let mut start = match &self.upgrade.facts {
            Some(facts) => facts.start.clone(),
            None => Start::default(),
        };
        if let Some(attempt) = &self.upgrade.attempt {
            start.program = attempt.path.clone().into_os_string();
        }
        let header = Header::new(self.upgrade.build(), start);
        let (core, shell) = self.state(waiter, tasks, descriptors)?;
        upgrade::seal(&header, &core, &shell)
            .map_err(|error| format!("the state cannot be saved: {error}"))
    }

    /// The core and the shell as text.
    pub(super) fn state<'a>(
        &'a mut self,
        waiter: Option<u64>,
        tasks: bool,
        descriptors: &mut Outgoing<'a>,
    ) -> Result<(String, String), String> {
        let clock = self.clock.save();
        let this = &*self;
        let core = this.core.save().map_err(|error| error.to_string())?;
        let mut shell = Shell {
            clock,
            started: this.facts.started.clone(),
            commands: this.launch.commands.clone(),
            named_only: this.launch.named_only.clone(),
            clients: Vec::new(),
            workers: Vec::new(),
            vetting: this.launch.vetting.values().cloned().collect(),
            operators: SavedOperators::default(),
            waiter,
            announced: this.announcement.line.is_none(),
            has_ready_file: this.ready_file.is_some(),
            uses: this.uses,
            children: process::children(),
            envelopes: this.reports.envelopes.save(),
            listener: None,
            control: None,
            lease: None,
            lease_slot: None,
            front: None,
            inotify: None,
            programs: SavedPrograms::default(),
            marks: file_watch::saved(&this.upgrade.marks),
            audit: None,
        };
        if tasks {
            this.save_tasks(&mut shell, descriptors)?;
        }
        let text = serde_json::to_string(&shell).map_err(|error| error.to_string())?;
        Ok((core, text))
    }

    fn save_tasks<'a>(
        &'a self,
        shell: &mut Shell,
        descriptors: &mut Outgoing<'a>,
    ) -> Result<(), String> {
        for (session, conversation) in &self.conversations {
            let saved = conversation.save(descriptors);
            let saved = saved.ok_or_else(|| format!("session {session} cannot be handed over"))?;
            shell.clients.push((*session, saved));
        }
        for (generation, worker) in &self.workers {
            let saved = worker.handle.save(descriptors);
            let saved =
                saved.ok_or_else(|| format!("worker {generation} cannot be handed over"))?;
            shell
                .workers
                .push((*generation, worker.slot, worker.pid, saved));
        }
        shell.operators = self.operators.save(descriptors);
        let lease = self.tasks.lease();
        shell.lease = lease.map(|(holder, lease)| (holder.to_owned(), descriptors.add(lease)));
        let slot = self.tasks.lease_slot().map(LeaseSlot::ends);
        shell.lease_slot =
            slot.map(|(sender, receiver)| (descriptors.add(sender), descriptors.add(receiver)));
        shell.programs = self.launch.programs.save(descriptors);
        if let (Some(front), Some(moved)) = (&self.upgrade.front, &self.upgrade.moved) {
            shell.front = Some(front.save(moved, descriptors));
        }
        let files = self.audit_files.as_ref();
        shell.audit = files.and_then(|files| self.reports.audit.save(files, descriptors));
        let inotify = self.upgrade.inotify.as_ref();
        shell.inotify = inotify.map(|inotify| descriptors.add(inotify.as_fd()));
        shell.listener = self
            .upgrade
            .doors
            .0
            .as_ref()
            .map(|bound| bound.save(descriptors));
        shell.control = self
            .upgrade
            .doors
            .1
            .as_ref()
            .map(|bound| bound.save(descriptors));
        Ok(())
    }

    pub(crate) fn set_front(&mut self, front: Arc<Front>) {
        self.upgrade.front = Some(front);
    }

    /// Continues the host of another program.
    pub(crate) fn resume(&mut self, resumed: Resumed) -> io::Result<Links> {
        let Resumed {
            from,
            shell,
            mut descriptors,
        } = resumed;
        self.upgrade.resumed = true;
        self.clock = Clock::restore(&shell.clock);
        self.facts.started = shell.started;
        self.launch.commands = shell.commands;
        // Secrets may have changed since the settings were read that this program starts with.
        let (files, log) = (&mut self.facts.remembered, &self.reports.log);
        for (key, launch) in &self.launch.commands.servers {
            log.redactor().learn(launch.secrets());
            files.open(key, launch, log);
        }
        self.launch.named_only = shell.named_only;
        self.launch.programs = Programs::restore(shell.programs, &mut descriptors)?;
        self.uses = shell.uses;
        self.reports.envelopes.restore(shell.envelopes);
        if shell.announced {
            let announcement = std::mem::take(&mut self.announcement);
            let path = announcement.ready_file.filter(|_| shell.has_ready_file);
            self.ready_file = path.map(ReadyFile::written);
        }
        if let Some((holder, place)) = shell.lease {
            self.tasks.restore(holder, descriptors.take(place)?);
            self.launch.shim.lease = self.tasks.share_lease();
        }
        if let Some((sender, receiver)) = shell.lease_slot {
            let (sender, receiver) = (descriptors.take(sender)?, descriptors.take(receiver)?);
            self.tasks
                .restore_slot(LeaseSlot::restore(sender, receiver));
            self.launch.shim.lease = self.tasks.share_lease();
        }
        let limits = self.core.limits().clone();
        for (generation, slot, pid, saved) in shell.workers {
            let handle = Handle::restore(saved, &mut descriptors, &limits)?;
            let worker = Incarnation { slot, handle, pid };
            self.workers.insert(generation, worker);
        }
        let mut links = Links::new();
        for (session, saved) in shell.clients {
            let conversation = Conversation::restore(saved, &mut descriptors, &mut links, &limits)?;
            self.conversations.insert(session, conversation);
        }
        self.operators.restore(shell.operators, &mut descriptors)?;
        // Its checkers; this program starts its own.
        process::end_others(&shell.children);
        self.run_tasks();
        self.core.resume_checks();
        for (generation, ready) in shell.vetting {
            self.vet(generation, ready);
        }
        let to = self.upgrade.build().to_owned();
        self.reports
            .log
            .line(&format!("mcp:upgraded from={from} to={to}"));
        if let Some(waiter) = shell.waiter {
            let reply = ControlReply::Upgraded { from, to };
            self.operators.reply(waiter, reply);
        }
        Ok(links)
    }
}
