//! Messages between an operator's commands and a running host on the control socket: one
//! line with a request, one line with its reply.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::health::Health;
use crate::id::{Generation, RequestId};
use crate::metrics::HostMetrics;
use crate::telemetry::Counts;

/// A command of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    Status {},
    Metrics {},
    /// Finish what is in flight, then end.
    Stop {},
    /// Replace the workers of one pack, or of all.
    Rollout {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pack: Option<String>,
        /// Reasons for changes of tools, each as `TOOL[.ARGUMENT]: TEXT`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<String>,
    },
    /// Replace the host's executable in place.
    Upgrade {
        /// An absolute path; without it, the path that the host was started from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        binary: Option<String>,
        /// End answers that are still open at the drain limit with an error.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
    /// The calls that wait for an approval.
    Approvals {},
    /// Answer one of them.
    Approve {
        id: String,
        grant: bool,
    },
    /// The tool calls in flight.
    Calls {},
    /// End one of them.
    CancelCall {
        call: u64,
    },
    /// Serve a client: the lines of its MCP session follow on this connection after the reply.
    Share(Box<SharedClient>),
}

/// A client that wants to share a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedClient {
    pub server: SharedServer,
    /// Ids of requests that the client sends again: a lost host may have sent them to the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsettled: Vec<RequestId>,
}

/// The server that a client wants to share with other clients of the same user. Equal servers are one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedServer {
    /// Its name in logs and health.
    pub name: String,
    /// An absolute path, or one relative to `directory`.
    pub program: String,
    pub arguments: Vec<String>,
    /// Its working directory.
    pub directory: String,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// The settings of its entry in a configuration file; servers with different settings are different servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SharedSettings>,
}

/// The settings of a shared server. The host reads them as those of its own configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedSettings {
    pub rules: Value,
    pub limits: Value,
    /// Its sandbox; without one it may do everything that its user may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Value>,
    /// It runs in a PID namespace of its own.
    #[serde(default)]
    pub isolate: bool,
    /// The values in its environment that logs must not show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// The host's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    Status(Box<HostStatus>),
    Metrics(Box<HostMetrics>),
    /// It is stopping.
    Stopping {},
    RolledOut(Vec<RolledOut>),
    /// The new executable serves.
    Upgraded {
        from: String,
        to: String,
    },
    /// The calls that wait for an approval, the oldest first.
    Approvals(Vec<PendingApproval>),
    /// The tool calls in flight, the oldest first.
    Calls(Vec<CallInFlight>),
    /// The answer to a call was recorded, or the call is cancelled.
    Answered {},
    /// The session of a client is open.
    Shared {},
    /// The request cannot be carried out.
    Refused {
        reason: String,
    },
    /// The host cannot read requests now.
    Unable {
        reason: String,
    },
}

/// A host, as `mainstay status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    pub pid: u32,
    pub name: String,
    pub version: String,
    /// Version and fingerprint of the executable.
    #[serde(default)]
    pub build: String,
    /// `stdio` or `socket`.
    pub mode: String,
    /// ISO-8601 UTC.
    pub started: String,
    pub health: Health,
    pub totals: Counts,
}

/// A tool call in flight. Its arguments are left out: they may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInFlight {
    /// Its number in this host.
    pub call: u64,
    /// `None` while its name is not known yet.
    pub tool: Option<String>,
    /// The pack or the server that answers it.
    pub server: Option<String>,
    pub stage: CallStage,
    pub age_ms: u64,
    /// Times that it was sent.
    pub attempt: u32,
    /// The process that last had it.
    pub generation: Option<Generation>,
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallStage {
    /// In line behind others of its session.
    Waiting,
    /// The host checks it, or asks a person about it.
    Serving,
    Queued,
    Running,
}

/// A call that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    pub id: String,
    /// The caller: `user`, `uid:N`, or the digest of a credential.
    pub who: String,
    /// The server or the pack.
    pub server: String,
    pub tool: String,
    /// Canonical JSON, perhaps cut; characters that are not plain are escaped.
    pub arguments: String,
    /// SHA-256 of the canonical JSON of all arguments.
    pub digest: String,
    /// The rule that asks.
    pub rule: String,
    /// ISO-8601 UTC.
    pub asked: String,
    pub expires: String,
    /// A person has granted it, and the client has not repeated the call yet.
    pub granted: bool,
}

/// How the rollout of one pack ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledOut {
    pub pack: String,
    pub result: Result<Generation, Fault>,
    /// The differences between the two catalogs: all of them if the successor serves, else those for
    /// which it was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_tagged_by_their_only_key_and_unknown_ones_are_refused() {
        let line = serde_json::to_string(&ControlRequest::Rollout {
            pack: None,
            reasons: Vec::new(),
        })
        .unwrap();
        assert_eq!(line, r#"{"rollout":{}}"#);
        assert!(serde_json::from_str::<ControlRequest>(r#"{"reboot":{}}"#).is_err());
        assert!(serde_json::from_str::<ControlRequest>(r#"{"stop":{"now":true}}"#).is_err());
    }
}
