//! Every bound has a name and a sentence (invariant 5 of the architecture).
//!
//! A constant that is a number or a time must have a comment that says what it bounds; constants right below each
//! other share one. A wait must not be a bare number in the middle of the code. Tests are spared.

use super::finding::Finding;
use super::rust_text;

const COVERED: [&str; 4] = [
    "crates/cli/src/",
    "crates/host/src/",
    "crates/kernel/src/",
    "crates/worker/src/",
];
/// Parts of paths of tests and of what tests are made with.
const SPARED: [&str; 3] = ["/tests", "/testing/", "/sim/"];
/// Types of bounds.
const TYPES: [&str; 7] = [
    "usize",
    "u64",
    "u32",
    "u16",
    "u8",
    "Duration",
    "std::time::Duration",
];
/// Functions that wait for as long as they are told to.
const WAITS: [&str; 3] = ["sleep(", "timeout(", "interval("];
const TESTS: &str = "#[cfg(test)]";

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let is_covered = COVERED.iter().any(|folder| path.starts_with(folder));
    if !is_covered || SPARED.iter().any(|part| path.contains(part)) {
        return Vec::new();
    }
    let code = rust_text::split(text).code;
    let (lines, code): (Vec<_>, Vec<_>) = (text.lines().collect(), code.lines().collect());
    let mut findings = Vec::new();
    for (at, line) in code.iter().enumerate() {
        if line.starts_with(TESTS) {
            break;
        }
        if is_bound(line) && !is_explained(&lines, at) {
            let said = "a bound without a sentence; write above it what it bounds, and for whom";
            findings.push(Finding::fault(path, at + 1, said));
        }
        if waits_for_a_number(line) {
            let said =
                "a wait without a name; make it a constant with a sentence, or a key of limits.rs";
            findings.push(Finding::fault(path, at + 1, said));
        }
    }
    findings
}

/// True for the line of a constant that is a number or a time.
fn is_bound(line: &str) -> bool {
    let Some((head, rest)) = line.split_once("const ") else {
        return false;
    };
    let is_item = head.trim().is_empty() || head.trim_start().starts_with("pub");
    let kind = rest
        .split_once(':')
        .and_then(|(_, rest)| rest.split_once('='));
    is_item && kind.is_some_and(|(kind, _)| TYPES.contains(&kind.trim()))
}

/// True if a comment is above the constant, or above the constants that it follows.
fn is_explained(lines: &[&str], at: usize) -> bool {
    for line in lines.iter().take(at).rev() {
        let line = line.trim();
        if line.starts_with("//") {
            return true;
        }
        if !line.starts_with("#[") && !line.contains("const ") {
            return false;
        }
    }
    false
}

/// True for `sleep(Duration::from_millis(10))` and its like.
fn waits_for_a_number(line: &str) -> bool {
    let Some((before, after)) = line.split_once("Duration::from_") else {
        return false;
    };
    let argument = after.split_once('(').map_or("", |(_, argument)| argument);
    let is_number = argument.starts_with(|first: char| first.is_ascii_digit());
    is_number && WAITS.iter().any(|wait| before.contains(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let findings = check("crates/host/src/a.rs", text);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn bounds_with_a_sentence_pass_and_others_do_not() {
        let explained = "/// Most.\nconst A: usize = 1;\nconst B: Duration = B;\n";
        assert_eq!(lines(explained), [0_usize; 0]);
        assert_eq!(lines("use x;\n\nconst A: usize = 1;\n"), [3]);
        assert_eq!(lines("/// Most.\n\npub(crate) const A: u64 = 1;\n"), [3]);
        assert_eq!(
            lines("const NAME: &str = \"a\";\nlet a: u64 = 1;\n"),
            [0_usize; 0]
        );
        assert_eq!(lines("#[cfg(test)]\nconst A: u64 = 1;\n"), [0_usize; 0]);
        assert_eq!(check("crates/schema/src/a.rs", "const A: u64 = 1;\n"), []);
    }

    #[test]
    fn waits_are_named() {
        assert_eq!(
            lines("fn a() {\n    sleep(Duration::from_millis(10));\n}\n"),
            [2]
        );
        assert_eq!(
            lines("let a = tokio::time::timeout(Duration::from_secs(1), b);\n"),
            [1]
        );
        assert_eq!(
            lines("sleep(PAUSE);\nsleep(Duration::from_millis(wait));\n"),
            [0_usize; 0]
        );
        assert_eq!(lines("// sleep(Duration::from_millis(10))\n"), [0_usize; 0]);
    }
}
