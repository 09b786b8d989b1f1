//! Failure shaping: raw words of a backend become something a model can act on.
//!
//! A failure that reaches a client is concise, typed, says whether a retry can help, and never
//! spills a backend's raw output. [`concise`] finds the sentence in the noise, [`tail`] bounds a
//! stream to its last words, and [`Problem`] gains the way in which failures of a subprocess are
//! reported.

use crate::error::ErrorKind;
use crate::outcome::Problem;
use crate::render::shorten;

/// Longest sentence taken from a backend.
const SENTENCE: usize = 200;
/// Most bytes of a stream that travel with a failure.
pub const STREAM_BYTES: usize = 4096;

/// The one line of raw output that says what is wrong: the last line that looks like a message,
/// since programs explain themselves last. Frames of stack traces are passed over.
pub fn concise(raw: &str) -> String {
    let says_something = |line: &&str| {
        let line = line.trim();
        let is_frame = line.starts_with("at ")
            || line.starts_with("File \"")
            || line.starts_with("Traceback")
            || line.starts_with("note: run with")
            || line.starts_with("stack backtrace")
            || line.split_once(':').is_some_and(|(number, _)| {
                !number.is_empty() && number.trim().bytes().all(|byte| byte.is_ascii_digit())
            });
        !is_frame && line.chars().any(char::is_alphabetic)
    };
    let line = raw.lines().rev().find(says_something).unwrap_or_default();
    shorten(line.trim(), SENTENCE)
}

/// The last words of a stream, at most [`STREAM_BYTES`], cut at a character.
pub fn tail(raw: &str) -> String {
    let text = raw.trim_end();
    if text.len() <= STREAM_BYTES {
        return text.to_owned();
    }
    let mut from = text.len() - STREAM_BYTES + '…'.len_utf8();
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("…{}", text.get(from..).unwrap_or_default())
}

impl Problem {
    /// A subprocess or backend failed: its sentence, and the bounded ends of its streams.
    pub fn from_streams(kind: ErrorKind, what: &str, stdout: &str, stderr: &str) -> Self {
        let sentence = match concise(stderr) {
            sentence if sentence.is_empty() => concise(stdout),
            sentence => sentence,
        };
        let message = if sentence.is_empty() {
            what.to_owned()
        } else {
            format!("{what}: {sentence}")
        };
        let mut problem = Self::new(kind, message);
        let words = |raw: &str| Some(tail(raw)).filter(|words| !words.is_empty());
        problem.stderr = words(stderr);
        problem.stdout = words(stdout);
        problem
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sentence_is_found_in_a_stack_trace() {
        let python = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n\
                      ValueError: no such column: nmae\n";
        assert_eq!(concise(python), "ValueError: no such column: nmae");
        let node = "Error: connect ECONNREFUSED\n    at TCPConnectWrap.afterConnect (net.js:1)\n";
        assert_eq!(concise(node), "Error: connect ECONNREFUSED");
        let rust = "thread 'main' panicked at src/x.rs:1:2:\nindex out of bounds\n\
                    note: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(concise(rust), "index out of bounds");
    }

    #[test]
    fn a_failure_carries_its_streams_bounded() {
        let noise = "x".repeat(100_000);
        let problem = Problem::from_streams(
            ErrorKind::BackendError,
            "git failed",
            &noise,
            "fatal: bad ref\n",
        );
        assert_eq!(problem.message, "git failed: fatal: bad ref");
        assert_eq!(problem.stderr.as_deref(), Some("fatal: bad ref"));
        assert!(problem.stdout.unwrap().len() <= STREAM_BYTES);
    }

    proptest! {
        #[test]
        fn raw_output_is_always_bounded(raw in any::<String>()) {
            let raw = raw.repeat(20);
            prop_assert!(concise(&raw).chars().count() <= SENTENCE);
            prop_assert!(tail(&raw).len() <= STREAM_BYTES);
        }
    }
}
