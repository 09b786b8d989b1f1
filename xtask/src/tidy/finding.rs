//! The finding of a check: a place, the mistake, the next step.

use std::fmt;

/// Ordered by place, so that output never depends on the order of checks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) level: Level,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Fails the task.
    Fault,
    /// Worth knowing, fails nothing.
    Note,
}

impl Finding {
    pub(crate) fn fault(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            level: Level::Fault,
            message: message.into(),
        }
    }

    pub(crate) fn note(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            level: Level::Note,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = match self.level {
            Level::Fault => "",
            Level::Note => "note: ",
        };
        write!(f, "{}:{}: {note}{}", self.path, self.line, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::Finding;

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        let fault = Finding::fault("a.rs", 3, "a tab; use spaces");
        assert_eq!(fault.to_string(), "a.rs:3: a tab; use spaces");
        assert_eq!(
            Finding::note("a.rs", 1, "long").to_string(),
            "a.rs:1: note: long"
        );
    }
}
