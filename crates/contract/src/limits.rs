//! Every limit, in one type, each with its configuration key.
//!
//! A limit is a fixed ceiling. [`Limits::default`] is what `docs/configuration.md` documents;
//! [`Limits::KEYS`] names each with its meaning and the range it may be set to, so that the
//! reference page and the check of a configuration come from one place.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::render::Bounds;

macro_rules! limits {
    ($($key:ident : $type:ty = $default:expr, $min:expr => $max:expr, $doc:literal;)*) => {
        /// All limits of a host.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits { $(#[doc = $doc] pub $key: $type,)* }

        impl Default for Limits {
            fn default() -> Self { Self { $($key: $default,)* } }
        }

        impl Limits {
            /// Name, default, smallest and largest value, meaning.
            pub const KEYS: &'static [LimitKey] = &[$(LimitKey {
                key: stringify!($key), default: $default as u64,
                min: $min as u64, max: $max as u64, meaning: $doc,
            },)*];

            /// Refuses values outside their range; every mistake is reported.
            #[expect(clippy::cast_lossless, reason = "one expression for every width")]
            pub fn check(&self) -> Result<(), Vec<OutOfRange>> {
                let values = [$(self.$key as u64,)*];
                let wrong: Vec<_> = Self::KEYS.iter().zip(values)
                    .filter(|(key, value)| !(key.min..=key.max).contains(value))
                    .map(|(key, value)| OutOfRange { key: key.key, value, min: key.min, max: key.max })
                    .collect();
                if wrong.is_empty() { Ok(()) } else { Err(wrong) }
            }
        }
    };
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Largest quota.
const QUOTA: u64 = 1_000_000_000_000_000;

limits! {
    request_frame_bytes: usize = MIB, 4 * KIB => 64 * MIB, "longest request line";
    worker_frame_bytes: usize = 16 * MIB, 64 * KIB => 256 * MIB, "longest line of a worker";
    json_depth: usize = 128, 8 => 128, "nested containers in a message";
    queue: usize = 64, 1 => 4096, "calls waiting for one worker";
    in_flight: usize = 128, 1 => 4096, "requests in flight in one session";
    ordered_backlog: usize = 4096, 16 => 65_536,
        "requests of the direct dialect waiting for their turn before reading pauses";
    backlog_bytes: usize = 16 * MIB, 64 * KIB => 1024 * MIB,
        "bytes of unanswered requests of one session before reading pauses";
    pool: usize = 4, 1 => 1024, "calls that one worker runs at the same time; 128 for a wrapped server";
    connections: usize = 256, 1 => 4096, "clients of one socket at the same time";
    http_connections: usize = 1024, 1 => 16_384, "connections of HTTP clients at the same time";
    http_sessions: usize = 256, 1 => 65_536, "MCP sessions over HTTP at the same time";
    http_credential_sessions: usize = 64, 1 => 65_536, "MCP sessions over HTTP of one credential, where an issuer vouches for several";
    http_session_idle_ms: u64 = 1_800_000, 1_000 => DAY_MS, "silence after which an MCP session over HTTP ends";
    http_in_flight: usize = 1024, 1 => 65_536, "HTTP requests in flight";
    http_header_bytes: usize = 16 * KIB, 8 * KIB => MIB, "head of an HTTP request";
    share_idle_ms: u64 = 600_000, 1_000 => DAY_MS, "time without clients after which the host of mainstay share ends";
    http_header_ms: u64 = 15_000, 100 => DAY_MS, "time for the head of an HTTP request, and for an idle connection";
    http_body_ms: u64 = 30_000, 100 => DAY_MS, "time for the body of an HTTP request, and for a client to take what it was sent";
    http_keep_alive_ms: u64 = 15_000, 1_000 => DAY_MS, "silence on an HTTP stream after which the host writes a comment, so that no proxy closes the stream";
    resume_bytes: usize = MIB, 4 * KIB => 64 * MIB, "events of one HTTP session that are kept for a stream that breaks";
    wrapped_workers: usize = 32, 1 => 4096, "servers that one wrapping host runs at the same time, one for each connection";
    call_timeout_ms: u64 = 120_000, 1 => DAY_MS, "time for a call";
    progress_timeout_ms: u64 = 1_800_000, 1 => DAY_MS, "time for a call that reports progress";
    replays: u32 = 3, 0 => 100, "times that a call is sent again after a loss";
    start_timeout_ms: u64 = 30_000, 10 => DAY_MS, "time for a worker to become ready; 600000 for a wrapped server";
    drain_ms: u64 = 30_000, 0 => DAY_MS, "time for calls in flight when the host or a worker stops";
    grace_ms: u64 = 2_000, 0 => 60_000, "time between TERM and KILL";
    progress_per_second: u32 = 4, 1 => 100, "progress notifications per call and second";
    standby: u32 = 0, 0 => 1, "spare workers that each pack keeps ready";
    ping_interval_ms: u64 = 5_000, 0 => DAY_MS, "silence of a worker after which it is pinged; 0 is never";
    ping_timeout_ms: u64 = 5_000, 1 => DAY_MS, "time for a worker to answer a ping";
    stuck_ms: u64 = 2_000, 10 => DAY_MS, "time that the host's own work on one event may take before it is logged as stuck";
    restarts: u32 = 10, 0 => 1_000_000, "restarts of a worker within the period";
    restart_period_ms: u64 = 60_000, 1 => DAY_MS, "period over which restarts are counted";
    backoff_min_ms: u64 = 50, 0 => DAY_MS, "first pause before a restart";
    backoff_max_ms: u64 = 5_000, 0 => DAY_MS, "longest pause before a restart";
    rest_ms: u64 = 30_000, 1 => DAY_MS, "rest after which an exhausted worker may start again";
    porcelain_lines: usize = 200, 10 => 100_000, "lines of an answer's text; a page of a listing holds what fits";
    porcelain_bytes: usize = 24_000, 1024 => 16 * MIB, "bytes of an answer's text";
    violations: usize = 100, 1 => 10_000, "violations that one verdict lists; the others are counted";
    stderr_lines: usize = 100, 0 => 10_000, "last lines of a worker's stderr that are kept";
    diagnostics: usize = 200, 1 => 10_000, "schema mismatches that are kept, of tools and of envelopes each";
    telemetry_file_bytes: usize = 64 * MIB, 4 * KIB => 4096 * MIB,
        "size at which the telemetry file is rotated";
    telemetry_files: usize = 4, 2 => 100, "telemetry files that are kept, the current one included";
    tasks: usize = 1024, 1 => 65_536, "tasks that one host runs at the same time";
    task_ms: u64 = DAY_MS, 1_000 => 30 * DAY_MS, "time for a task, instead of the time for a call";
    task_retention_ms: u64 = 7 * DAY_MS, 60_000 => 365 * DAY_MS, "how long the outcome of a task is kept";
    ledger_bytes: usize = 256 * MIB, MIB => 64 * 1024 * MIB, "size of the file in which tasks are recorded";
    ledger_flush: u32 = 1, 0 => 1,
        "1: the disk has a task before the client gets its id; 0: faster, but a power failure may lose the last tasks";
    approvals: usize = 64, 1 => 4096, "calls that wait for an approval at the same time";
    approval_ms: u64 = 300_000, 100 => DAY_MS, "time for a person to approve a call; without an answer the call is denied";
    audit_file_bytes: usize = 64 * MIB, 64 * KIB => 4096 * MIB, "size at which the audit file is rotated; no file is removed";
    quota_period_ms: u64 = 60_000, 1_000 => 31 * DAY_MS, "period of quotas, which begins with the first call in it";
    quota_calls: u64 = 0, 0 => QUOTA, "tool calls of one caller within the period; 0 is any number";
    quota_bytes_in: u64 = 0, 0 => QUOTA, "bytes of requests for tool calls of one caller within the period; 0 is any number";
    quota_bytes_out: u64 = 0, 0 => QUOTA, "bytes of results of one caller within the period; 0 is any number";
    quota_tool_ms: u64 = 0, 0 => QUOTA, "time of tools that one caller uses within the period; 0 is any";
    repeated_failures: u32 = 100, 0 => 1_000_000,
        "times that the same call fails with the same error before the host rejects it; 0 is never";
    repeated_failures_ms: u64 = 60_000, 1_000 => DAY_MS,
        "window of those failures, and pause before such a call runs again";
    outbox_bytes: usize = MIB, 4 * KIB => 64 * MIB,
        "unsent bytes of a client before the host stops reading its input";
}

impl Limits {
    /// The size of an answer's text.
    pub const fn text(&self) -> Bounds {
        Bounds {
            lines: self.porcelain_lines,
            bytes: self.porcelain_bytes,
        }
    }
}

/// The table of limits in `docs/configuration.md`.
pub fn markdown() -> String {
    let mut table = String::from("| key | default | range | meaning |\n|---|---|---|---|\n");
    for limit in Limits::KEYS {
        let LimitKey {
            key,
            default,
            min,
            max,
            meaning,
        } = limit;
        let _ = writeln!(
            table,
            "| `{key}` | {default} | {min} to {max} | {meaning} |"
        );
    }
    table
}

/// One limit, as documented.
#[derive(Clone, Copy, Debug)]
pub struct LimitKey {
    pub key: &'static str,
    pub default: u64,
    pub min: u64,
    pub max: u64,
    pub meaning: &'static str,
}

/// A limit set outside its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("limits.{key} is {value}; it must be between {min} and {max}")]
pub struct OutOfRange {
    pub key: &'static str,
    pub value: u64,
    pub min: u64,
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_own_ranges() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        let limits = Limits {
            queue: 0,
            json_depth: 1,
            ..Limits::default()
        };
        let wrong = limits.check().unwrap_err();
        let keys: Vec<_> = wrong.iter().map(|mistake| mistake.key).collect();
        assert_eq!(keys, ["json_depth", "queue"]);
        assert_eq!(
            wrong[1].to_string(),
            "limits.queue is 0; it must be between 1 and 4096"
        );
    }

    #[test]
    fn unknown_keys_are_refused() {
        let error = serde_json::from_str::<Limits>(r#"{"queu": 3}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `queu`"));
    }
}
