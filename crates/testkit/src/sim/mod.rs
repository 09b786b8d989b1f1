//! The simulation of a host: the real engine and shell over pipes in memory, in virtual time, with
//! peers that a seed decides (`docs/simulation.md`).
//!
//! * [`plan`]: a scenario, from a seed; [`shrink()`]: a smaller one that fails in the same way;
//! * `body`, `worker`, `server`: simulated processes; `client`: simulated clients; `machine`: what spawns;
//! * `tasks`: runs with tasks, whose hosts end one after the other;
//! * [`run()`]: one run; [`sweep()`]: many; `book`: its notes; `check`: the judge;
//! * [`catalogue`]: deliberate defects, and how many seeds it takes to find each.

#![allow(
    clippy::indexing_slicing,
    reason = "members of JSON values, and tables of constants"
)]

mod body;
mod book;
pub mod catalogue;
mod check;
mod client;
mod http;
mod machine;
pub mod plan;
mod run;
mod server;
mod several;
mod shrink;
mod sweep;
mod tasks;
mod worker;

pub use self::book::Violation;
pub use self::plan::Scenario;
pub use self::run::{Report, run};
pub use self::shrink::shrink;
pub use self::sweep::{Sweep, sweep};
