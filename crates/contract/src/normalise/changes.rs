//! What was changed, so that a caller can say it.

use std::fmt;

use crate::render::{shorten, visible};

/// How many changes are listed; the others are only counted.
pub const CHANGES_MAX_LISTED: usize = 64;

/// How much of an argument's own text a change quotes.
const QUOTED_MAX_CHARS: usize = 80;

/// The changes of one call, in the order they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    listed: Vec<Change>,
    total: usize,
}

impl Changes {
    /// The first [`CHANGES_MAX_LISTED`] changes.
    #[must_use]
    pub fn listed(&self) -> &[Change] {
        &self.listed
    }

    /// How many changes there were.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// Whether the arguments are as they came.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    pub(super) fn push(&mut self, pointer: &str, what: What) {
        self.total += 1;
        if self.listed.len() < CHANGES_MAX_LISTED {
            self.listed.push(Change {
                pointer: pointer.to_owned(),
                what,
            });
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// RFC 6901 pointer to the argument, under its canonical name.
    pub pointer: String,
    /// What was done to it.
    pub what: What,
}

/// The kinds of change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The argument came under an alias.
    Renamed {
        /// The alias.
        from: String,
    },
    /// The argument came under both names with the same value.
    AliasDropped {
        /// The alias.
        alias: String,
    },
    /// A string was read as a number.
    Number {
        /// The string.
        from: String,
    },
    /// A `file://` URI became a path.
    FileUri {
        /// The URI, shortened.
        from: String,
    },
    /// A path lost `.` segments or superfluous separators.
    PathStyle {
        /// The path, shortened.
        from: String,
    },
}

impl What {
    pub(super) fn file_uri(from: &str) -> Self {
        Self::FileUri {
            from: shorten(from, QUOTED_MAX_CHARS),
        }
    }

    pub(super) fn path_style(from: &str) -> Self {
        Self::PathStyle {
            from: shorten(from, QUOTED_MAX_CHARS),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", visible(&self.pointer))?;
        match &self.what {
            What::Renamed { from } => write!(f, "renamed from `{}`", visible(from)),
            What::AliasDropped { alias } => write!(f, "dropped its alias `{}`", visible(alias)),
            What::Number { from } => write!(f, "read \"{from}\" as a number"),
            What::FileUri { from } => write!(f, "read `{from}` as a path"),
            What::PathStyle { from } => write!(f, "tidied the path `{from}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_is_bounded_and_counting_is_not() {
        let mut changes = Changes::default();
        for _ in 0..100 {
            changes.push(
                "/a",
                What::Number {
                    from: "1".to_owned(),
                },
            );
        }
        assert_eq!(
            (changes.listed().len(), changes.total()),
            (CHANGES_MAX_LISTED, 100)
        );
        assert_eq!(
            changes.listed()[0].to_string(),
            "/a: read \"1\" as a number"
        );
    }
}
