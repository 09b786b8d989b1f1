//! Floors and measurements for `cargo xtask bench`.
//!
//! What a machine can do at all is measured in the same run as the product, in turn with it, so
//! that a busy moment hits both: [`Floor::SingleHop`] is a client and an echo process joined by
//! pipes, [`Floor::TwoHops`] has a relay that copies lines between them, which is the least that
//! a host between client and worker can be. There are two such
//! relays, one thread that takes turns and a thread for each direction; which of them is cheaper
//! changes with the load of the machine, and the floor is the cheaper one of the run. Compare ratios and differences within one run;
//! absolute figures move with the machine. Nothing is pinned.

pub mod code;
mod faults;
mod flood;
mod floor;
mod foreign;
mod hostile;
mod http;
mod link;
mod measure;
pub mod pairs;
mod recovery;
mod report;
mod sandbox;
mod servers;
mod stats;
mod validate;
mod wrap;

pub use floor::{Floor, play_role};
pub use link::{Link, request};
pub use measure::{Options, Part, run};
pub use report::{Report, Row};
pub use stats::Samples;
