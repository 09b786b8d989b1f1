//! The messages between the host and a checker.
//!
//! Each message is a line of JSON, its head, followed by raw JSON texts whose lengths the head
//! gives. So a payload of any size goes through the pipe without being parsed or copied in the host.

use mainstay_schema::check::{Owner, Subject, Verdict};
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
        /// The value, with its text left out of the head.
        subject: Subject,
        bytes: usize,
    },
    /// Compile a definition and check nothing.
    Compile { definition: usize },
}

/// From the checker, one for each `Check` or `Compile`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Prepared arguments are left out of the head.
    pub(super) verdict: Verdict,
    /// How many bytes of prepared arguments follow. `None`: they are the ones that were given.
    pub(super) bytes: Option<usize>,
    /// The most memory that was ever resident, in bytes; `None` if unknown.
    pub(super) peak: Option<u64>,
}
