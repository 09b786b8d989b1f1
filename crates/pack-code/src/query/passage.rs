//! Which lines of a file a ranked hit shows: those that answer, beginning with a definition.

use crate::query::close::{Closer, Look};
use crate::query::similar::{
    Alike, CHUNK_LINES, FileTokens, Similar, WINDOW_LINES, WINDOW_STEP, Window, apart,
};
use crate::query::snippet::Lines;
use crate::text::defs::{Kind, definition};
use crate::tree::lang::Lang;

/// Most lines of a passage, and of the comments above a definition that are shown with it.
const SHOWN: u64 = 16;
const COMMENTS: u64 = 4;
/// Lines above a window within which a definition is shown with it.
const ABOVE: u64 = 6;
/// How much of the best passage's score another one must have to be shown beside it.
const BESIDE: f64 = 0.7;

/// Lines of a file, and the definition that begins them: its name, its kind by the look of its line,
/// and that line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) symbol: Option<(String, Kind, u64)>,
}

/// A file whose passages are wanted, and what is known about it.
pub(crate) struct Shown<'a> {
    pub(crate) path: &'a str,
    pub(crate) lines: &'a Lines<'a>,
    pub(crate) look: &'a Look,
    /// The whole file, where it was compared with the query, and how that came out.
    pub(crate) tokens: Option<&'a FileTokens>,
    pub(crate) alike: Option<&'a Alike>,
}

/// The passages of a file that answer, best first. A definition that has the very name of the query
/// goes before everything else.
pub(crate) fn passages(
    similar: &mut Similar,
    closer: &mut Closer<'_>,
    file: &Shown<'_>,
    most: usize,
) -> Vec<Passage> {
    let Shown { path, lines, .. } = *file;
    let lang = Lang::of_path(path);
    let mut found: Vec<Passage> = Vec::new();
    if let Some(line) = file.look.named_line() {
        found.push(from_definition(lines, lang, line));
    }
    if found.len() >= most {
        return found;
    }
    let likely = closer.likely_windows(file.look, lines, lang, most.max(1));
    let windows = match file.tokens {
        Some(tokens) => similar.windows(tokens, &starts(&likely, file), most.max(1)),
        None if likely.is_empty() => vec![Window::default()],
        None => apart(likely, most.max(1)),
    };
    let best = windows.first().map_or(0.0, |window| window.score);
    for window in windows {
        if found.len() >= most || window.score < BESIDE * best {
            break;
        }
        let passage = align(lines, lang, window);
        let apart = |other: &Passage| other.last < passage.first || passage.last < other.first;
        if found.iter().all(apart) {
            found.push(passage);
        }
    }
    found
}

/// Where the windows begin that are compared: those with most words of the query, and those of the
/// passages that are most alike.
fn starts(likely: &[Window], file: &Shown<'_>) -> Vec<usize> {
    let mut starts: Vec<usize> = likely.iter().map(|window| window.first).collect();
    for chunk in file.alike.iter().flat_map(|alike| alike.chunks) {
        let first = chunk.next_multiple_of(WINDOW_STEP);
        starts.extend((first..chunk + CHUNK_LINES).step_by(WINDOW_STEP));
    }
    let last = usize::try_from(file.lines.count()).unwrap_or(usize::MAX);
    starts.retain(|start| *start < last.max(1));
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// A window with the definition that begins it, or that begins shortly above it.
fn align(lines: &Lines<'_>, lang: Lang, window: Window) -> Passage {
    if let Some(line) = window.definition {
        return from_definition(lines, lang, line as u64 + 1);
    }
    let first = window.first as u64 + 1;
    let is_definition =
        |line: &u64| lang.is_code() && definition(lines.line(*line), lang).is_some();
    let above = (first.saturating_sub(ABOVE).max(1)..first)
        .rev()
        .find(is_definition);
    // A definition that ends before the window is not the one around it.
    let around = above.map(|line| from_definition(lines, lang, line));
    match around.filter(|passage| passage.last >= first) {
        Some(passage) => passage,
        None => Passage {
            first,
            last: (first + WINDOW_LINES as u64 - 1).min(lines.count().max(first)),
            symbol: None,
        },
    }
}

/// A definition with the comments above it, up to where its block ends.
fn from_definition(lines: &Lines<'_>, lang: Lang, line: u64) -> Passage {
    let text = lines.line(line);
    let indent = indent(text);
    let is_comment = |line: &u64| {
        let text = lines.line(*line).trim_ascii();
        [&b"//"[..], b"/*", b"*", b"#", b"@", b"--", b"\"\"\""]
            .iter()
            .any(|sign| text.starts_with(sign))
    };
    let first = (line.saturating_sub(COMMENTS).max(1)..line)
        .rev()
        .take_while(is_comment)
        .last()
        .unwrap_or(line);
    let most = (first + SHOWN - 1).min(lines.count().max(line));
    let mut last = line;
    for number in line + 1..=most {
        let text = lines.line(number);
        let trimmed = text.trim_ascii();
        let closes =
            trimmed.starts_with(b"}") || trimmed.starts_with(b"end") || trimmed.starts_with(b")");
        if !trimmed.is_empty() && self::indent(text) <= indent && !closes && number > line + 1 {
            break;
        }
        if !trimmed.is_empty() {
            last = number;
        }
        if closes && self::indent(text) <= indent && !trimmed.starts_with(b")") {
            break;
        }
    }
    let named = definition(text, lang).filter(|_| lang.is_code());
    let symbol = named.and_then(|def| {
        let name = String::from_utf8_lossy(text.get(def.name)?).into_owned();
        Some((name, def.kind, line))
    });
    Passage {
        first,
        last,
        symbol,
    }
}

fn indent(line: &[u8]) -> usize {
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    line.iter().take_while(blank).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::close::Closer;
    use crate::query::words::QueryTerms;

    fn passages_of(query: &str, path: &str, text: &str, most: usize) -> Vec<(u64, u64)> {
        let mut terms = QueryTerms::of(query);
        for term in &mut terms.terms {
            (term.idf, term.found) = (1.0, true);
        }
        let mut closer = Closer::new(&terms);
        let look = closer.look(path, text.as_bytes());
        let mut similar = Similar::new(query, &terms, true);
        let tokens = similar.read(path, text.as_bytes());
        let alike = similar.compare(&tokens);
        // A single word is not compared.
        let compares = terms.words.len() > 1;
        let file = Shown {
            path,
            lines: &Lines::new(text.as_bytes()),
            look: &look,
            tokens: compares.then_some(&tokens),
            alike: compares.then_some(&alike),
        };
        passages(&mut similar, &mut closer, &file, most)
            .into_iter()
            .map(|passage| (passage.first, passage.last))
            .collect()
    }

    #[test]
    fn of_a_long_file_few_windows_are_compared() {
        let body = |number: usize| format!("let pool_{number:x} = open(value_{number:x});\n");
        let long: String = (0..2_000).map(body).collect();
        let text = format!("{long}/// Closes it.\nfn close_pool() {{\n}}\n");
        let query = "where is the pool closed";
        let mut terms = QueryTerms::of(query);
        for term in &mut terms.terms {
            (term.idf, term.found) = (1.0, true);
        }
        let mut closer = Closer::new(&terms);
        let look = closer.look("a.rs", text.as_bytes());
        let mut similar = Similar::new(query, &terms, true);
        let tokens = similar.read("a.rs", text.as_bytes());
        let lines = Lines::new(text.as_bytes());
        let likely = closer.likely_windows(&look, &lines, Lang::of_path("a.rs"), 1);
        let file = Shown {
            path: "a.rs",
            lines: &lines,
            look: &look,
            tokens: Some(&tokens),
            alike: Some(&similar.compare(&tokens)),
        };
        let compared = starts(&likely, &file).len();
        assert!((1..=40).contains(&compared), "{compared} of 500 windows");
        let found = passages(&mut similar, &mut closer, &file, 1);
        assert_eq!(found.first().map(|found| found.first), Some(2_001));
    }

    fn text() -> String {
        let filler = "let unrelated = 1;\n".repeat(30);
        format!(
            "{filler}\n/// Drains the pool.\nfn drain_pool(pool: &Pool) {{\n    pool.drain();\n}}\n\n{filler}\nfn fill_pool(pool: &Pool) {{\n    pool.fill();\n}}\n"
        )
    }

    #[test]
    fn a_passage_is_the_definition_with_its_comment_to_its_end() {
        assert_eq!(
            passages_of("where is the pool drained", "a.rs", &text(), 1),
            [(32, 35)]
        );
        assert_eq!(passages_of("fill_pool", "a.rs", &text(), 1), [(68, 70)]);
    }

    #[test]
    fn several_passages_of_a_file_do_not_overlap() {
        let found = passages_of("pool", "a.rs", &text(), 3);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.contains(&(32, 35)) && found.contains(&(68, 70)),
            "{found:?}"
        );
    }
}
