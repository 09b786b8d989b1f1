//! Words that must not occur in the code of a crate, or in any code at all.
//!
//! The compiler enforces what a crate may link; this check enforces what it may
//! do with the standard library. Comments and literals do not count, and a
//! crate's own bans spare its tests: the invariant is about what ships.

use super::finding::Finding;
use super::rust_text::{self, is_word_char};

struct Ban {
    /// Folder below `crates/`.
    crate_folder: &'static str,
    words: &'static [&'static str],
    instead: &'static str,
    /// A use may be excused by `MARKER` on its line or the one above.
    excusable: bool,
}

const MARKER: &str = "tidy: order-free";

const BANS: &[Ban] = &[
    Ban {
        crate_folder: "kernel",
        words: &["Instant::now", "SystemTime"],
        instead: "time is handed in with the event",
        excusable: false,
    },
    Ban {
        crate_folder: "kernel",
        words: &[
            "tokio",
            "std::fs",
            "std::net",
            "std::env",
            "std::thread",
            "std::process",
        ],
        instead: "the kernel decides, the host acts: return an action",
        excusable: false,
    },
    Ban {
        crate_folder: "kernel",
        words: &["HashMap", "HashSet"],
        instead: "its order is random; use BTreeMap or BTreeSet",
        excusable: false,
    },
    Ban {
        crate_folder: "kernel",
        words: &["println!", "eprintln!"],
        instead: "the kernel does not log; return an action",
        excusable: false,
    },
    Ban {
        crate_folder: "contract",
        words: &["std::fs", "std::env", "std::net"],
        instead: "the contract touches nothing outside; hand the value in",
        excusable: false,
    },
    Ban {
        crate_folder: "contract",
        words: &["Instant::now", "SystemTime::now"],
        instead: "the contract has no clock; hand the time in",
        excusable: false,
    },
    Ban {
        crate_folder: "contract",
        words: &["HashMap", "HashSet"],
        instead: "its order is random; use BTreeMap, or mark the line `// tidy: order-free`",
        excusable: true,
    },
    Ban {
        crate_folder: "schema",
        words: &["std::fs", "std::net"],
        instead: "documents are handed in; nothing is read or fetched here",
        excusable: false,
    },
    Ban {
        crate_folder: "worker",
        words: &["tokio", "std::net"],
        instead: "a worker has threads and pipes, no runtime and no network",
        excusable: false,
    },
    Ban {
        crate_folder: "host",
        words: &["mainstay_pack", "mainstay_pack_asset", "mainstay_pack_code"],
        instead: "the host links no pack; go through a driver",
        excusable: false,
    },
];

const NOWHERE_IN_CODE: &[(&str, &str)] = &[
    ("todo!", "write it, or leave the path out"),
    ("unimplemented!", "write it, or leave the path out"),
    (
        "#[ignore",
        "a test runs or does not exist; fix it or delete it",
    ),
];

const NOWHERE_IN_COMMENTS: &[(&str, &str)] = &[
    ("FIXME", "fix it, or say why it is so"),
    ("// TODO", "do it, or file it outside the source"),
];

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let split = rust_text::split(text);
    let mut findings = Vec::new();
    let mut found = |line: usize, word: &str, instead: &str| {
        findings.push(Finding::fault(
            path,
            line,
            format!("`{word}` does not belong here; {instead}"),
        ));
    };
    for &(word, instead) in NOWHERE_IN_CODE {
        lines_with(&split.code, word).for_each(|line| found(line, word, instead));
    }
    for &(word, instead) in NOWHERE_IN_COMMENTS {
        lines_with(&split.comments, word).for_each(|line| found(line, word, instead));
    }
    let shipped = without_tests(&split.code);
    for ban in BANS.iter().filter(|ban| ships_in(path, ban.crate_folder)) {
        for word in ban.words {
            let grouped = lines_with_grouped(&shipped, word);
            for line in lines_with(&shipped, word).chain(grouped) {
                if !(ban.excusable && is_excused(&split.comments, line)) {
                    found(line, word, ban.instead);
                }
            }
        }
    }
    findings
}

fn ships_in(path: &str, crate_folder: &str) -> bool {
    path.strip_prefix("crates/")
        .and_then(|path| path.strip_prefix(crate_folder))
        .and_then(|path| path.strip_prefix("/src/"))
        .is_some_and(|path| {
            !path
                .split('/')
                .any(|part| part == "tests" || part == "tests.rs")
        })
}

fn is_excused(comments: &str, line: usize) -> bool {
    let above = line.saturating_sub(2);
    comments
        .lines()
        .skip(above)
        .take(line - above)
        .any(|comment| comment.contains(MARKER))
}

/// Line numbers on which `word` stands, not as part of a longer name.
fn lines_with<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.lines()
        .enumerate()
        .filter(|(_, line)| has_word(line, word))
        .map(|(index, _)| index + 1)
}

fn has_word(line: &str, word: &str) -> bool {
    let continues = |end: Option<char>, beyond: Option<char>| {
        end.is_some_and(is_word_char) && beyond.is_some_and(is_word_char)
    };
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line
            .get(at + word.len()..)
            .and_then(|text| text.chars().next());
        !continues(word.chars().next(), before) && !continues(word.chars().next_back(), after)
    })
}

/// `use std::{fs, io}` uses `std::fs` too: the lines where such a group opens.
fn lines_with_grouped(text: &str, word: &str) -> Vec<usize> {
    let Some((module, item)) = word.split_once("::") else {
        return Vec::new();
    };
    let opening = format!("{module}::{{");
    text.match_indices(&opening)
        .filter(|(at, _)| group(text, at + opening.len()).any(|entry| first_name(entry) == item))
        .map(|(at, _)| text.get(..at).unwrap_or("").matches('\n').count() + 1)
        .collect()
}

/// The entries of the group that starts at `from`, nested groups left whole.
fn group(text: &str, from: usize) -> impl Iterator<Item = &str> {
    let body = text.get(from..).unwrap_or("");
    let mut depth = 0i32;
    let end = body.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0
    });
    let mut depth = 0i32;
    body.get(..end.unwrap_or(body.len()))
        .unwrap_or("")
        .split(move |c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        })
}

fn first_name(entry: &str) -> &str {
    entry
        .trim()
        .split(|c| !is_word_char(c))
        .next()
        .unwrap_or("")
}

/// The code with every test module blanked. Formatting puts the end of a
/// module at the start of a line.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut in_tests = false;
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let opens = line.trim_end() == "#[cfg(test)]"
            && lines
                .peek()
                .is_some_and(|next| next.starts_with("mod ") && next.contains('{'));
        in_tests |= opens;
        if !in_tests {
            kept.push_str(line);
        }
        kept.push('\n');
        in_tests &= !line.starts_with('}');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::check;

    const KERNEL: &str = "crates/kernel/src/session.rs";
    const CONTRACT: &str = "crates/contract/src/ids.rs";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, text)
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn a_banned_word_fails_in_its_crate_only() {
        let text = "fn a() {\n    let now = Instant::now();\n}\n";
        assert_eq!(lines(KERNEL, text), [2]);
        assert_eq!(lines("crates/host/src/clock.rs", text), [0usize; 0]);
        assert_eq!(lines("crates/kernel/tests/speed.rs", text), [0usize; 0]);
        assert_eq!(
            lines("crates/host/src/a.rs", "use mainstay_pack_asset::Pack;\n"),
            [1]
        );
    }

    #[test]
    fn comments_literals_and_longer_names_pass() {
        let text = "// no tokio here\nlet a = \"tokio\";\nlet tokio_like = 1;\n";
        assert_eq!(lines(KERNEL, text), [0usize; 0]);
    }

    #[test]
    fn a_grouped_import_is_seen() {
        assert_eq!(
            lines(KERNEL, "\nuse std::{\n    fmt,\n    fs::File,\n};\n"),
            [2]
        );
        assert_eq!(
            lines(KERNEL, "use std::{fmt, sync::{env, Arc}};\n"),
            [0usize; 0]
        );
    }

    #[test]
    fn tests_of_a_crate_are_spared_its_bans() {
        let text = "use std::fmt;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::net;\n";
        assert_eq!(lines(KERNEL, text), [6]);
    }

    #[test]
    fn a_marker_excuses_only_where_order_cannot_matter() {
        let marked = "// tidy: order-free\ntype A = HashMap<u8, u8>;\n";
        assert_eq!(lines(CONTRACT, marked), [0usize; 0]);
        assert_eq!(lines(KERNEL, marked), [2]);
        assert_eq!(lines(CONTRACT, "type A = HashMap<u8, u8>;\n"), [1]);
        assert_eq!(
            lines(CONTRACT, "type A = HashMap<u8, u8>; // tidy: order-free\n"),
            [0usize; 0]
        );
    }

    #[test]
    fn unfinished_work_fails_anywhere() {
        assert_eq!(
            lines("crates/cli/src/a.rs", "fn a() {\n    todo!()\n}\n"),
            [2]
        );
        assert_eq!(
            lines("xtask/src/a.rs", "#[ignore = \"slow\"]\nfn a() {}\n"),
            [1]
        );
        assert_eq!(
            lines("examples/a.rs", "// TODO: later\n/* FIXME */\n"),
            [2, 1]
        );
        assert_eq!(
            lines(
                "crates/cli/src/a.rs",
                "let todo = \"todo!\"; // the todo list\n"
            ),
            [0usize; 0]
        );
    }
}
