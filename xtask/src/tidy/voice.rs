//! Sentences that readers have to read twice, in comments and on pages.
//!
//! The patterns are the worst ones of the rules for sentences in CONTRIBUTING.md: a subject that hides the actor, a
//! negation in the wrong place, a comment that starts with a clause. Quotations and code do not count.

use super::finding::Finding;
use super::rust_text;

const WORDS: [(&str, &str); 3] = [
    ("nobody", "name the actor, or use the passive"),
    ("somebody", "name the actor: a client, a person, a process"),
    ("whoever", "name the actor: the caller, the reader"),
];

/// How a comment must not begin.
const OPENINGS: [(&str, &str); 3] = [
    ("What ", "say what the thing is: a noun, then its purpose"),
    ("Whether ", "write \"True if\""),
    ("The same ", "name the thing"),
];

/// Forms of "is no" that are plain English.
const PLAIN: [&str; 4] = [
    "there is no ",
    "there are no ",
    "is no longer",
    "are no longer",
];

/// Files that record what was said before, or quote others.
const SPARED: [&str; 1] = ["CHANGELOG.md"];

/// Folders whose sentences are still to be rewritten.
const PENDING: [&str; 4] = [
    "crates/cli/",
    "crates/pack-code/",
    "crates/testkit/",
    "tests/",
];

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    if SPARED.contains(&path) || PENDING.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    if path.ends_with(".rs") {
        let split = rust_text::split(text);
        comments(path, &split.comments)
    } else if path.ends_with(".md") {
        page(path, text)
    } else {
        Vec::new()
    }
}

fn comments(path: &str, comments: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The mark of the comment that the line before belongs to.
    let mut open = None;
    for (index, line) in comments.lines().enumerate() {
        let line = line.trim_start();
        let mark = ["///", "//!"]
            .into_iter()
            .find(|mark| line.starts_with(mark));
        if mark.is_some() && mark != open {
            let start = line.trim_start_matches(['/', '!']).trim_start();
            for (opening, instead) in OPENINGS {
                if start.starts_with(opening) {
                    let said = format!("a comment starts with \"{}\"; {instead}", opening.trim());
                    findings.push(Finding::fault(path, index + 1, said));
                }
            }
        }
        open = mark;
        sentence(path, index + 1, line, &mut findings);
    }
    findings
}

fn page(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            sentence(path, index + 1, line, &mut findings);
        }
    }
    findings
}

/// Checks one line, without its quotations.
fn sentence(path: &str, line: usize, text: &str, findings: &mut Vec<Finding>) {
    let text = without_quotations(text).to_lowercase();
    for (word, instead) in WORDS {
        if words(&text).any(|found| found == word) {
            let said = format!("\"{word}\" hides who acts; {instead}");
            findings.push(Finding::fault(path, line, said));
        }
    }
    let plain = PLAIN
        .iter()
        .fold(text, |text, form| text.replace(form, " "));
    let mut pairs = words(&plain).zip(words(&plain).skip(1));
    if pairs.any(|(first, second)| ["is", "are"].contains(&first) && second == "no") {
        let said = "\"is no X\" is read twice; write \"is not a X\"".to_owned();
        findings.push(Finding::fault(path, line, said));
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'')
        .map(|word| word.trim_end_matches("'s"))
        .filter(|word| !word.is_empty())
}

/// The text outside of quotes and backquotes.
fn without_quotations(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut open = None;
    for c in text.chars() {
        match open {
            Some(mark) if c == mark => open = None,
            Some(_) => {}
            None if c == '"' || c == '`' => open = Some(c),
            None => kept.push(c),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::check;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(path, text).into_iter();
        findings.map(|finding| finding.line).collect()
    }

    #[test]
    fn comments_that_open_with_a_clause_are_found() {
        let text = "/// What it is.\nfn a() {}\n//! The same.\n/// Whether it holds.\nfn b() {}\n";
        assert_eq!(lines("a.rs", text), [1, 4]);
        assert_eq!(lines("a.rs", "/// The same thing.\n"), [1]);
        let inside = "/// Reads a file.\n/// What it holds is kept.\n";
        assert_eq!(lines("a.rs", inside), [0usize; 0]);
    }

    #[test]
    fn hidden_actors_are_found_in_comments_and_on_pages() {
        assert_eq!(
            lines("a.rs", "// Nobody waits.\n// It is nobody's.\n"),
            [1, 2]
        );
        assert_eq!(lines("a.md", "Ask\nsomebody.\n\n    whoever\n"), [2]);
        assert_eq!(
            lines("a.rs", "let a = \"nobody\"; // the user `nobody`\n"),
            [0usize; 0]
        );
        assert_eq!(lines("CHANGELOG.md", "nobody\n"), [0usize; 0]);
    }

    #[test]
    fn negations_belong_to_the_verb() {
        assert_eq!(lines("a.rs", "// A folder is no file.\n"), [1]);
        assert_eq!(
            lines("a.rs", "// There is no file; it is no longer read.\n"),
            [0usize; 0]
        );
    }

    #[test]
    fn code_on_pages_is_spared() {
        assert_eq!(lines("a.md", "```\nnobody\n```\n`nobody`\n"), [0usize; 0]);
    }
}
