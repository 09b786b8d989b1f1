//! Peers: whoever stands at the other end of a stream, played by a test.
//!
//! [`Client`] speaks NDJSON over any pair of streams, keeps what arrives in order and finds
//! answers by id. [`FakeHost`] stands where the host would stand and drives a pack worker over
//! the private protocol, a process or a thread over [`pipe()`], so that a pack can be tested
//! without a host.

mod client;
mod fake_host;
mod message;
mod pipe;

pub use client::Client;
pub use client::request_line;
pub use fake_host::{FakeHost, Heard, start};
pub use message::Message;
pub(crate) use message::shortened;
pub use pipe::{PipeReader, PipeWriter, pipe};

use std::time::Duration;

/// How long a peer waits unless told otherwise. Generous: a wait that ends here has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);
