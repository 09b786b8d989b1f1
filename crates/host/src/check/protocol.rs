//! The messages between the host and a checker.
//!
//! Each message is a line of JSON, its head, followed by raw JSON texts whose lengths the head
//! gives. So a payload of any size goes through the pipe without being parsed or copied in the host.

use mainstay_contract::render::RenderMode;
use mainstay_schema::Violation;
use mainstay_schema::check::Owner;
use serde::{Deserialize, Serialize};

/// From the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// A definition. Its number is the count of definitions before it. The texts of `input` and
    /// `output` follow, as many bytes as given.
    Learn {
        name: String,
        aliases: Vec<(String, String)>,
        side: Owner,
        input: Option<usize>,
        output: Option<usize>,
    },
    /// Check a value. Its text follows.
    Check {
        definition: usize,
        kind: SubjectKind,
        bytes: usize,
    },
    /// Compile a definition and check nothing.
    Compile { definition: usize },
}

/// The kind of a value to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SubjectKind {
    Arguments,
    Reply,
    NoReply,
}

/// From the checker, one for each `Check` or `Compile`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The most memory that was ever resident, in bytes; `None` if unknown.
    pub(super) peak: Option<u64>,
}

/// A verdict, with a long text left out of the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Passed,
    /// Prepared arguments; `bytes` of text follow. `None`: they are the ones that were given.
    Prepared {
        bytes: Option<usize>,
        render: Option<RenderMode>,
    },
    Rejected {
        violations: Vec<Violation>,
    },
    Unchecked {
        reason: String,
    },
}
