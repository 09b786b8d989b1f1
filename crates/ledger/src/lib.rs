//! The ledger: durable records of tasks, kept so that they outlive the client, the worker and the host.
//!
//! A task is recorded before anything of it is sent, and its outcome is recorded once. [`Ledger`] is the whole
//! interface: orders go in together, and every reply is durable when they come back. [`SqliteLedger`] keeps them
//! in a file that all hosts of one user share. [`Clerk`] runs a ledger on a thread of its own and commits the
//! orders of many tasks together. [`Lease`] proves that a host, or a worker that it started, still lives.
//!
//! Deliberately absent: the meaning of a task. What runs and how it ended are opaque texts here; the rules of
//! replay belong to the kernel.

mod clerk;
mod error;
mod lease;
mod order;
mod schema;
mod sqlite;

pub use self::clerk::Clerk;
pub use self::error::LedgerError;
pub use self::lease::{Lease, LeaseHolder, LeaseSlot, is_held};
pub use self::order::{Key, NewTask, Order, Origin, Owner, Recorded, Reply, Status, Task, TaskId};
pub use self::sqlite::{Flush, Settings, SqliteLedger};

/// A durable store of tasks that one host uses; other hosts may use the same store at the same time.
///
/// The first outcome of a task counts. Only the host that holds a task can finish it; the owner of a task can
/// cancel it through any host.
pub trait Ledger {
    /// Carries out orders together, at this time in milliseconds since the epoch. What a reply says is durable
    /// when this returns. An order that fails changes nothing and does not disturb the others.
    fn apply(&mut self, now_ms: u64, orders: &[Order]) -> Vec<Result<Reply, LedgerError>>;
}
