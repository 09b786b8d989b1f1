//! Foreign text made short enough to show.

use std::io;

use serde_json::Value;

/// Characters of a value, a name or a pattern that a message shows.
pub(crate) const SHOWN: usize = 64;

const CUT: char = '…';

/// `text` as a JSON string of at most [`SHOWN`] characters between the quotes.
pub(crate) fn quoted(text: &str) -> String {
    let head: String = text.chars().take(SHOWN).collect();
    let whole = head.len() == text.len();
    let mut shown = escaped(&head);
    // Escapes can only lengthen the text, so it may have to be cut again.
    if !whole || shown.chars().count() > SHOWN {
        shown = shown.chars().take(SHOWN - 1).collect();
        shown.push(CUT);
    }
    format!("\"{shown}\"")
}

/// `value` as JSON of at most [`SHOWN`] characters, strings in whole quotes.
pub(crate) fn json(value: &Value) -> String {
    if let Value::String(text) = value {
        return quoted(text);
    }
    let mut head = Head(Vec::new());
    let whole = serde_json::to_writer(&mut head, value).is_ok();
    let text = String::from_utf8_lossy(&head.0);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if !whole || shown.len() < text.len() {
        shown = shown.chars().take(SHOWN - 1).collect();
        shown.push(CUT);
    }
    shown
}

fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(&quoted)
        .to_owned()
}

/// Takes as many bytes as can matter, then fails, so that a large value is not
/// written out only to be cut.
struct Head(Vec<u8>);

impl io::Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (SHOWN * 4).saturating_sub(self.0.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(room);
        self.0.extend(bytes.iter().take(taken));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_text_is_shown_whole() {
        assert_eq!(quoted("a\"b\n"), r#""a\"b\n""#);
        assert_eq!(json(&json!({"a": [1, "b"]})), r#"{"a":[1,"b"]}"#);
        assert_eq!(quoted(&"é".repeat(SHOWN)).chars().count(), SHOWN + 2);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(
            quoted(&"é".repeat(1000)),
            format!("\"{}…\"", "é".repeat(63))
        );
        assert_eq!(quoted(&"\u{1}".repeat(64)).chars().count(), SHOWN + 2);
        let shown = json(&json!(["é".repeat(1000)]));
        assert_eq!(shown.chars().count(), SHOWN);
        assert!(shown.ends_with("é…"));
        assert_eq!(json(&json!(vec![1; 100_000])).chars().count(), SHOWN);
    }
}
