//! Items of Rust that stand in the braces of a macro (`cfg_rt! { pub struct ... }`). The grammar sees
//! tokens there, so the macro's own lines are blanked before a text is parsed.

use std::borrow::Cow;

/// Words that an item begins with.
const ITEMS: [&str; 14] = [
    "pub", "fn", "struct", "enum", "union", "impl", "trait", "mod", "use", "type", "static",
    "const", "async", "unsafe",
];

/// The text with the first and the last line of each macro around items as blanks.
pub(super) fn opened(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Cow::Borrowed(text);
    let mut open: Vec<&[u8]> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(length);
        let start = text.len() - rest.len();
        let indent = line.get(..line.len() - line.trim_ascii_start().len());
        let indent = indent.unwrap_or_default();
        let closes = line.trim_ascii() == b"}" && open.last() == Some(&indent);
        if closes {
            open.pop();
        }
        let opens = opens(line.trim_ascii()) && has_items(after);
        if opens {
            open.push(indent);
        }
        if opens || closes {
            let line = out
                .to_mut()
                .get_mut(start..start + line.trim_ascii_end().len());
            line.into_iter().flatten().for_each(|byte| *byte = b' ');
        }
        rest = after;
    }
    out
}

/// Whether a line is the beginning of a macro with braces and nothing else. What `quote!` has in its
/// braces are not items of this file.
fn opens(line: &[u8]) -> bool {
    let Some(head) = line.strip_suffix(b"{").map(<[u8]>::trim_ascii_end) else {
        return false;
    };
    let Some(name) = head.strip_suffix(b"!") else {
        return false;
    };
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    let quotes = name.windows(5).any(|part| part == b"quote");
    !name.is_empty() && name.iter().all(word) && !quotes
}

/// Whether the first line that is neither empty, a comment nor an attribute begins an item.
fn has_items(text: &[u8]) -> bool {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines
        .filter(|line| !line.is_empty() && !line.starts_with(b"//") && !line.starts_with(b"#"));
    let Some(first) = lines.next() else {
        return false;
    };
    if opens(first) {
        // A macro in a macro is decided by its own items.
        return lines.next().is_some_and(begins_item);
    }
    begins_item(first)
}

fn begins_item(line: &[u8]) -> bool {
    let word = line
        .split(|byte| !byte.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    ITEMS.iter().any(|item| item.as_bytes() == word)
}

#[cfg(test)]
mod tests {
    use super::super::extract;

    #[test]
    fn items_within_macros_are_found_and_arms_are_left_alone() {
        let text = "cfg_rt! {\n    /// A handle.\n    #[derive(Debug)]\n    pub struct Handle<T> {\n        raw: T,\n    }\n\n    impl<T> Handle<T> {\n        pub fn abort(&self) {\n            select! {\n                a = b() => {}\n            }\n        }\n    }\n}\n\nfn after() {\n    let x = quote! {\n        fn generated() {}\n    };\n    quote! {\n        fn generated() {}\n    }\n}\n";
        let found: Vec<(u64, u64, String, String)> = extract("a.rs", text.as_bytes())
            .into_iter()
            .map(|symbol| {
                (
                    symbol.start_line,
                    symbol.end_line,
                    symbol.name,
                    symbol.owner,
                )
            })
            .collect();
        let named = |name: &str| found.iter().find(|symbol| symbol.2 == name);
        assert_eq!(named("Handle").map(|symbol| symbol.1), Some(6), "{found:?}");
        let abort = named("abort").map(|symbol| (symbol.0, symbol.1, symbol.3.as_str()));
        assert_eq!(abort, Some((9, 13, "Handle")), "{found:?}");
        assert_eq!(named("after").map(|symbol| symbol.1), Some(24), "{found:?}");
        assert!(named("generated").is_none(), "{found:?}");
        assert!(super::opened(b"fn a() {\n}\n") == b"fn a() {\n}\n".as_slice());
    }
}
