//! The audit file: its records, and the chain that shows that none was changed, removed or moved.
//!
//! One line per record. A line is the canonical JSON of its record with one more member at the end, `hash`: the SHA-256
//! of the hash of the line before it and of the line without that member. With a key it is the HMAC-SHA256 of the same
//! bytes, which only holders of the key can make. [`Head`] extends a chain, [`Verifier`] checks one.

mod chain;

use serde::{Deserialize, Serialize};

pub use self::chain::{ChainError, Head, Key, KeyError, Verifier, stated_head};

words! {
    /// The subject of a record.
    pub enum AuditEvent {
        /// A host began the file.
        Opened = "audit.opened",
        /// A host continues the file, or a file that was rotated.
        Continued = "audit.continued",
        /// The host removed a line that was written in part.
        Repaired = "audit.repaired",
        /// Records could not be written.
        Lost = "audit.lost",
        /// A host ended.
        Closed = "audit.closed",
        /// A call may run, or may not.
        Decision = "call.decision",
        /// A call ended.
        Ended = "call.ended",
        /// A person is asked about a call.
        Asked = "approval.asked",
        Granted = "approval.granted",
        Denied = "approval.denied",
        /// The time for an answer passed, or the policy changed.
        Expired = "approval.expired",
        /// The client gave up the call before an answer.
        Dropped = "approval.dropped",
        /// An answer that was not accepted.
        Refused = "approval.refused",
        /// A tool, prompt, resource or text differs from the lock.
        Withdrawn = "lock.withdrawn",
        /// The sandbox refused to start a server.
        SandboxRefused = "sandbox.refused",
        /// A request without the right to ask.
        AccessRefused = "access.refused",
        /// A command of an operator.
        Operator = "operator.command",
    }
}

words! {
    /// The decision about a call.
    pub enum AuditVerdict {
        Allow = "allow",
        Ask = "ask",
        Deny = "deny",
    }
}

/// One record. The writer adds time, number and hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    pub event: AuditEvent,
    /// The caller or the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// The server or the pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The digest of the arguments; the writer keys it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The call may change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<AuditVerdict>,
    /// The rule behind the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The version of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The id of the approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The one who answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `ok`, `tool_error`, or the name of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// More about it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl AuditRecord {
    /// A record without particulars.
    pub const fn new(event: AuditEvent) -> Self {
        Self {
            event,
            who: None,
            session: None,
            call: None,
            server: None,
            tool: None,
            arguments: None,
            effects: None,
            verdict: None,
            rule: None,
            policy: None,
            approval: None,
            by: None,
            outcome: None,
            detail: None,
        }
    }

    /// A record of an operator's command.
    pub fn operator(command: &str, detail: impl Into<Option<String>>) -> Self {
        Self {
            outcome: Some(command.to_owned()),
            detail: detail.into(),
            ..Self::new(AuditEvent::Operator)
        }
    }
}

/// A record with what the writer adds to it, as it is read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    pub seq: u64,
    /// ISO-8601 UTC.
    pub at: String,
    #[serde(flatten)]
    pub record: AuditRecord,
    /// In the first line of a file: the hash of the line before it, in the file before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_published_schema_has_every_event_and_every_member() {
        let text = include_str!("../../../../schemas/audit.schema.json");
        let schema: Value = serde_json::from_str(text).unwrap();
        let published = &schema["properties"]["event"]["enum"];
        let words: Vec<&str> = AuditEvent::ALL.iter().map(|event| event.as_str()).collect();
        assert_eq!(*published, serde_json::json!(words));
        let text = || Some(String::new());
        let line = AuditLine {
            seq: 1,
            at: String::new(),
            prev: text(),
            record: AuditRecord {
                who: text(),
                session: Some(1),
                call: Some(1),
                server: text(),
                tool: text(),
                arguments: text(),
                effects: Some(true),
                verdict: Some(AuditVerdict::Ask),
                rule: text(),
                policy: text(),
                approval: text(),
                by: text(),
                outcome: text(),
                detail: text(),
                ..AuditRecord::new(AuditEvent::Ended)
            },
        };
        let written = line.to_value();
        let mut written: BTreeSet<&str> = written
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        written.insert("hash");
        let described = schema["properties"].as_object().unwrap().keys();
        assert_eq!(
            described.map(String::as_str).collect::<BTreeSet<_>>(),
            written
        );
    }
}
