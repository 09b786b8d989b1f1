//! The decisions of Mainstay.
//!
//! State machines without I/O: time is passed in, `handle_*` says what happened, `poll_action`
//! says what the driver must do next. The same events at the same times give the same actions.
//! [`Kernel`] puts the machines together; each of them stands on its own: [`session`] (whose
//! turn it is), [`queue`] (bounded waiting), [`supervisor`] (when a worker is started again),
//! [`progress`] (how often a client hears of a call), [`stats`] (what happened so far).
//!
//! It must never know a clock, a runtime, randomness, a log or a file.

pub mod action;
pub mod approvals;
pub mod call;
pub mod catalog;
pub mod core;
pub mod defect;
mod kernel;
pub mod locked;
pub mod log_limit;
pub mod progress;
pub mod queue;
pub mod quotas;
pub mod server;
pub mod session;
pub mod slot;
pub mod stats;
pub mod supervisor;
pub mod system_tools;
pub mod time;
pub mod tool_list;

pub use self::core::{
    Core, CoreConfig, Lifetime, PackConfig, STATE_VERSION, SetupError, StateError,
};
pub use self::kernel::{Conduct, Kernel};
