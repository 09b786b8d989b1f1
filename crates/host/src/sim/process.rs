//! A simulated process: the host's half, and that of the program which plays it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::{PipeReader, PipeWriter};
use crate::flag::Flag;
use crate::io::{Sink, Source};
use crate::process::{self, End, Happened, Pipes, Rung};

/// Reports and orders that may wait; a process has a handful of each.
const MESSAGES: usize = 64;

/// Orders of the host about a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Terminate,
    Kill,
    /// The host kills the shim and what it kept.
    TakeOver,
}

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// The host's half.
#[derive(Debug)]
pub struct Process {
    happened: Arc<Mutex<mpsc::Receiver<Happened>>>,
    orders: mpsc::Sender<Order>,
}

/// The program's half.
#[derive(Debug)]
pub struct Child {
    happened: mpsc::Sender<Happened>,
    orders: mpsc::Receiver<Order>,
    /// True once the host has crashed.
    crashed: Option<Arc<Flag>>,
    /// The host has gone, and the process knows it.
    is_orphan: bool,
    /// The lease of the host.
    _lease: Option<Arc<()>>,
}

/// A program that was started, as the host gets it.
#[derive(Debug)]
pub struct Spawned {
    process: Process,
    pipes: Pipes,
}

impl Spawned {
    /// Joins a new process with the host's ends of its pipes.
    pub fn new(stdin: PipeWriter, stdout: PipeReader, stderr: PipeReader) -> (Self, Child) {
        let (happens, happened) = mpsc::channel(MESSAGES);
        let (orders, incoming) = mpsc::channel(MESSAGES);
        let pipes = Pipes {
            stdin: Sink::Simulated(stdin),
            stdout: Source::Simulated(stdout),
            stderr: Source::Simulated(stderr),
        };
        let happened = Arc::new(Mutex::new(happened));
        let process = Process { happened, orders };
        let child = Child {
            happened: happens,
            orders: incoming,
            crashed: super::crashed(),
            is_orphan: false,
            _lease: super::ledger::lease(),
        };
        (Self { process, pipes }, child)
    }

    pub(super) fn into_parts(self) -> (Process, Pipes) {
        (self.process, self.pipes)
    }
}

impl Process {
    pub(crate) async fn next(&mut self) -> Happened {
        let next = poll_fn(|context| {
            let mut happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
            happened.poll_recv(context)
        });
        next.await.unwrap_or(Happened::Gone)
    }

    /// This process, for a host that continues this one.
    pub(crate) fn duplicate(&self) -> Self {
        Self {
            happened: Arc::clone(&self.happened),
            orders: self.orders.clone(),
        }
    }

    pub(crate) fn order(&self, order: process::Order) {
        let _ = self.orders.try_send(match order {
            process::Order::Terminate => Order::Terminate,
            process::Order::Kill => Order::Kill,
        });
    }

    pub(crate) fn take_over(&self) {
        let _ = self.orders.try_send(Order::TakeOver);
    }
}

impl Child {
    /// The process runs.
    pub fn up(&self, pid: u32) {
        let rung = Rung::Namespace;
        let _ = self.happened.try_send(Happened::Up { rung, pid });
    }

    /// The program cannot be started.
    pub fn not_started(&self, why: &str) {
        let _ = self.happened.try_send(Happened::NotStarted(why.to_owned()));
    }

    /// The first process ended; others of its tree may be alive.
    pub fn ended(&self, exit: Exit) {
        let _ = self.happened.try_send(Happened::Ended(match exit {
            Exit::Code(code) => End::Code(code),
            Exit::Signal(signal) => End::Signal(signal),
        }));
    }

    /// Nothing of the tree is left.
    pub fn gone(self) {
        let _ = self.happened.try_send(Happened::Gone);
    }

    /// Waits for the next order. A host that has gone means [`Order::Kill`], once.
    pub async fn order(&mut self) -> Order {
        if self.is_orphan {
            return std::future::pending().await;
        }
        let order = tokio::select! {
            biased;
            () = has_crashed(self.crashed.as_deref()) => None,
            order = self.orders.recv() => order,
        };
        self.is_orphan = order.is_none();
        order.unwrap_or(Order::Kill)
    }
}

async fn has_crashed(crashed: Option<&Flag>) {
    match crashed {
        Some(crashed) => crashed.is(true).await,
        None => std::future::pending().await,
    }
}
