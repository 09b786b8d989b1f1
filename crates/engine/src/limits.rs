//! The times of a lease, and how much one call may carry.
//!
//! A node that was not heard of for a whole lease has lost its calls, and other nodes may get them. The node itself stops
//! its tools earlier, after [`fence_after`], so that two nodes do not work on one call while both are running.

use std::time::Duration;

/// The lease of a call that may run again.
pub const LEASE: Duration = Duration::from_secs(8);

/// The lease of a call that must not run again: nothing else can save it, so the engine waits longer for its node.
pub const ONCE_LEASE: Duration = Duration::from_secs(30);

/// The pause between two heartbeats of a call. A cancel reaches a tool within this time.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// The time for the engine to acknowledge one heartbeat; after it the node sends another one.
pub const HEARTBEAT_PATIENCE: Duration = Duration::from_secs(2);

/// The time for which one request for work waits in the engine. A node that stops waits for its last request, since
/// the engine may have given a call to it.
pub const POLL: Duration = Duration::from_secs(10);

/// Largest input or answer of a call, sealed. The limit of a Temporal server is 2 MiB for one payload.
pub const PAYLOAD_BYTES: usize = 2 * 1024 * 1024 - 64 * 1024;

/// The time without an acknowledged heartbeat after which a node stops its own tool: three quarters of the lease.
pub fn fence_after(lease: Duration) -> Duration {
    lease.mul_f64(0.75)
}

/// The time for a node to take a call: nine tenths of the time for the call, so that its client learns that the call did
/// not run before its own time is over.
pub fn start_within(timeout: Duration) -> Duration {
    timeout.mul_f64(0.9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stops_its_tool_before_the_engine_gives_it_away() {
        for lease in [LEASE, ONCE_LEASE] {
            assert!(fence_after(lease) < lease);
            assert!(
                HEARTBEAT + HEARTBEAT_PATIENCE < fence_after(lease),
                "one lost heartbeat stops no tool"
            );
        }
        assert_eq!(fence_after(LEASE), Duration::from_secs(6));
    }
}
