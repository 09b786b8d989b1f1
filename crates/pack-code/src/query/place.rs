//! Paths and places in files, as people and programs write them: `a.rs:237`, the frames of stack
//! traces, and the lines with which compilers point at a mistake.

use crate::tree::lang::Lang;

/// A path with a first and a last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// With `/`, as [`normal`] gives it.
    pub(crate) path: String,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Words and signs before the place in messages of compilers and in stack traces.
const LEADERS: [&str; 5] = ["-->", ":::", "at ", "from ", "in "];

/// The place that a text names:
///
/// - `a.rs:237`, `a.rs:237:5`, `a.rs:10-20`, `a.rs#L237`, `a.rs#L10-L20`, `a.cs(12,5)`
/// - `--> src/a.rs:237:9`, `src/a.c:12:3: error: ...`
/// - `at f (src/a.js:12:3)`, `at a.b.C.d(C.java:12)`, `at A.b() in C:\src\a.cs:line 12`
/// - `File "a.py", line 30, in f`, `from a.rb:12:in 'f'`, `/srv/a.go:12 +0x1d`
/// - `panicked at 'x', src/a.rs:2:9`, `a.c, line 12`
pub(crate) fn place(text: &str) -> Option<Place> {
    let mut text = text.trim();
    while let Some(rest) = LEADERS.iter().find_map(|sign| text.strip_prefix(sign)) {
        text = rest.trim_start();
    }
    if let Some(rest) = text.strip_prefix("File \"") {
        let (path, lines) = rest.split_once("\", line ")?;
        return located(path, lines);
    }
    // `a.cs(12,5)`
    let numbered = text
        .split_once('(')
        .and_then(|(path, lines)| located(path, lines));
    if numbered.is_some() {
        return numbered;
    }
    let framed = text
        .strip_suffix(')')
        .and_then(|rest| rest.rsplit_once('('));
    if let Some((_, inner)) = framed {
        return at_sign(inner);
    }
    // `panicked at src/a.rs:2:9`, `at Name.method() in C:\src\a.cs:line 12`
    let behind = [" at ", " in ", ", "].iter().find_map(|word| {
        let (_, rest) = text.rsplit_once(word)?;
        at_sign(rest)
    });
    let in_words = || {
        let (path, lines) = text.split_once(" line ")?;
        located(path.trim_end_matches(','), lines)
    };
    behind.or_else(|| at_sign(text)).or_else(in_words)
}

/// The path of an address in the web that ends in the name of a source file, as that of another
/// machine: a file of a repository is shown at `https://host/owner/name/blob/main/src/a.rs#L2`.
pub(crate) fn of_url(text: &str) -> Option<String> {
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))?;
    let (rest, lines) = match rest.split_once('#') {
        Some((rest, lines)) => (rest, Some(lines)),
        None => (rest, None),
    };
    let path = rest.split('?').next()?;
    let is_file = is_path(path) && is_source(path.rsplit('/').next()?);
    is_file.then(|| match lines.filter(|lines| lines.starts_with('L')) {
        Some(lines) => format!("/{path}#{lines}"),
        None => format!("/{path}"),
    })
}

/// The file, and the names in it, of what runners of tests call a test: `tests/a.py::A::test_b[1]`.
pub(crate) fn of_test(text: &str) -> Option<(&str, &str)> {
    let (path, names) = text.split_once("::")?;
    let names = names.split('[').next().unwrap_or(names);
    let is_file = is_path(path) && is_source(path.rsplit('/').next()?);
    (is_file && !names.is_empty()).then_some((path, names))
}

/// A path, a sign and numbers of lines.
fn at_sign(text: &str) -> Option<Place> {
    let text = text.strip_prefix("file://").unwrap_or(text);
    if let Some((path, lines)) = text.split_once("#L") {
        return located(path, lines);
    }
    // The colon of `C:\` is part of the path.
    let drive = drive(text);
    let (path, lines) = text.get(drive..)?.split_once(':')?;
    let path = text.get(..drive + path.len())?;
    located(path, lines.strip_prefix("line ").unwrap_or(lines))
}

/// Bytes of a drive (`C:`) before a path of Windows.
fn drive(text: &str) -> usize {
    match text.as_bytes() {
        [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic() => 2,
        _ => 0,
    }
}

/// A path whose lines stand first in `lines`.
fn located(path: &str, lines: &str) -> Option<Place> {
    let number = |text: &str| -> Option<(u64, usize)> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        Some((text.get(..digits)?.parse().ok()?, digits))
    };
    let (first, digits) = number(lines)?;
    let rest = lines.get(digits..)?;
    let range = rest.strip_prefix('-');
    let last = match range.map(|rest| rest.trim_start_matches('L')) {
        Some(rest) => number(rest)?.0,
        // A column, a message or an address says nothing about lines.
        None if rest.is_empty() || rest.starts_with([':', ',', ' ', ')']) => first,
        None => return None,
    };
    let path = normal(path.trim());
    let is_file = is_path(&path) || path.contains('.') && is_path(&format!("./{path}"));
    (is_file && first > 0 && last >= first).then_some(Place { path, first, last })
}

/// A path with `/` between its names and without a drive: `C:\src\a.rs` is `/src/a.rs`.
pub(crate) fn normal(path: &str) -> String {
    let rest = path.get(drive(path)..).unwrap_or(path);
    match is_windows(path) {
        true => rest.replace('\\', "/"),
        false => path.to_owned(),
    }
}

/// Whether a text is a path with backslashes that ends in the name of a source file: it cannot be
/// told from an expression otherwise.
pub(crate) fn is_windows(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-.+@ ".contains(c);
    let rest = text.get(drive(text)..).unwrap_or(text);
    let names: Vec<&str> = rest.trim_start_matches('\\').split('\\').collect();
    let named = |name: &&str| !name.is_empty() && name.chars().all(plain);
    names.len() > usize::from(drive(text) == 0)
        && names.iter().all(named)
        && names.last().is_some_and(|name| is_source(name))
}

/// Whether a name is that of a source file, by its ending.
fn is_source(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(stem, _)| !stem.is_empty() && Lang::of_path(name) != Lang::TEXT)
}

/// Whether a text looks like a path or a wildcard.
pub(crate) fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-./*?+@[]{},~".contains(c);
    if text.contains(char::is_whitespace) || !text.chars().all(plain) {
        return false;
    }
    let last = text.rsplit('/').next().unwrap_or(text);
    let slashes = text.contains('/') && !text.contains("//");
    slashes
        || is_source(last) && !text.contains("..")
        || text.starts_with("*.")
        || text.starts_with("**")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_compilers_and_stack_traces_write_them() {
        for (text, expected) in [
            ("src/a.rs:237", Some(("src/a.rs", 237, 237))),
            ("a.rs:237:5", Some(("a.rs", 237, 237))),
            ("a.rs#L10-L20", Some(("a.rs", 10, 20))),
            ("a.rs:10-20", Some(("a.rs", 10, 20))),
            ("a.cs(12)", Some(("a.cs", 12, 12))),
            ("src/a.ts(12,5): error TS2304", Some(("src/a.ts", 12, 12))),
            ("  --> src/a.rs:237:9", Some(("src/a.rs", 237, 237))),
            ("::: src/a.rs:7:9", Some(("src/a.rs", 7, 7))),
            (
                "src/a.c:12:3: error: expected ';'",
                Some(("src/a.c", 12, 12)),
            ),
            ("/srv/x/src/a.rs:12", Some(("/srv/x/src/a.rs", 12, 12))),
            ("at src/a.js:12:3", Some(("src/a.js", 12, 12))),
            (
                "at run (file:///srv/a.js:12:3)",
                Some(("/srv/a.js", 12, 12)),
            ),
            (
                "thread 'main' panicked at src/a.rs:12:5:",
                Some(("src/a.rs", 12, 12)),
            ),
            ("at run (src/a.js:12:3)", Some(("src/a.js", 12, 12))),
            ("at a.b.C.d(C.java:12)", Some(("C.java", 12, 12))),
            (
                r"at A.b() in C:\x\src\a.cs:line 12",
                Some(("/x/src/a.cs", 12, 12)),
            ),
            (r"src\sub\a.rs:12", Some(("src/sub/a.rs", 12, 12))),
            (r"C:\x\a.rs(12,5)", Some(("/x/a.rs", 12, 12))),
            ("File \"a/b.py\", line 30", Some(("a/b.py", 30, 30))),
            ("File \"a/b.py\", line 30, in f", Some(("a/b.py", 30, 30))),
            ("from lib/a.rb:12:in 'f'", Some(("lib/a.rb", 12, 12))),
            ("/srv/a.go:12 +0x1d", Some(("/srv/a.go", 12, 12))),
            (
                "thread 'main' panicked at 'no x, y', src/a.rs:12:5",
                Some(("src/a.rs", 12, 12)),
            ),
            ("a.rs line 12", Some(("a.rs", 12, 12))),
            ("src/a.c, line 12: no such file", Some(("src/a.c", 12, 12))),
            ("which line 12", None),
            ("a::b", None),
            ("std:1", None),
            ("a.rs:0", None),
            ("a.rs:20-10", None),
            ("f(12)", None),
            ("at 12:30", None),
        ] {
            let expected = expected.map(|(path, first, last)| Place {
                path: path.to_owned(),
                first,
                last,
            });
            assert_eq!(place(text), expected, "{text}");
        }
    }

    #[test]
    fn addresses_of_files_and_names_of_tests_are_taken_apart() {
        for (text, expected) in [
            (
                "https://github.com/a/b/blob/main/src/x.rs#L4-L6",
                Some("/github.com/a/b/blob/main/src/x.rs#L4-L6"),
            ),
            ("http://host/a.py?plain=1#top", Some("/host/a.py")),
            ("https://docs.rs/tokio", None),
            ("src/x.rs", None),
        ] {
            assert_eq!(of_url(text).as_deref(), expected, "{text}");
        }
        assert_eq!(
            of_test("tests/a.py::A::test_b[1-x]"),
            Some(("tests/a.py", "A::test_b"))
        );
        assert_eq!(of_test("a::b"), None);
        assert_eq!(of_test("a.py::"), None);
    }

    #[test]
    fn backslashes_are_a_path_only_before_the_name_of_a_source_file() {
        for text in [r"src\sub\a.rs", r"C:\a.py", r"\\share\x\a.c"] {
            assert!(is_windows(text), "{text}");
        }
        for text in [
            r"fn \w+",
            r"a\.rs",
            r"\bfoo\.rs",
            r"foo\(bar",
            r"a\sb",
            "a.rs",
        ] {
            assert!(!is_windows(text), "{text}");
        }
        assert_eq!(normal(r"C:\src\a.rs"), "/src/a.rs");
        assert_eq!(normal(r"a\.rs"), r"a\.rs");
    }
}
