//! JSON with comments, trailing commas and a byte order mark, as clients such as VS Code keep it. All three become spaces, so
//! that a reader of plain JSON names the right line and column in its errors.

/// The text as plain JSON. Other mistakes in it stay.
pub(crate) fn remove(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    // The place of a comma behind a value that nothing followed yet.
    let mut comma = None;
    let mut last = b'[';
    while let Some(byte) = rest.first().copied() {
        let length = match byte {
            b'"' => string_length(rest),
            b'/' if rest.starts_with(b"//") => line_length(rest),
            b'/' if rest.starts_with(b"/*") => block_length(rest),
            0xEF if plain.is_empty() && rest.starts_with(BOM) => BOM.len(),
            _ => 1,
        };
        let (part, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        let is_left_out = length > 1 && matches!(byte, b'/' | 0xEF);
        if is_left_out {
            let blank = |byte: &u8| {
                if byte.is_ascii_whitespace() {
                    *byte
                } else {
                    b' '
                }
            };
            plain.extend(part.iter().map(blank));
            continue;
        }
        match (byte, comma) {
            (b',', _) => comma = (!matches!(last, b'[' | b'{' | b',')).then_some(plain.len()),
            (b']' | b'}', Some(at)) => {
                if let Some(byte) = plain.get_mut(at) {
                    *byte = b' ';
                }
                comma = None;
            }
            _ if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
        plain.extend_from_slice(part);
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_owned())
}

/// The byte order mark.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// The bytes of a string with its quotes, or all if it does not end.
fn string_length(text: &[u8]) -> usize {
    let mut bytes = text.iter().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn line_length(text: &[u8]) -> usize {
    let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    end.unwrap_or(text.len())
}

/// The bytes of a comment with its end. Of a comment that does not end the slash counts alone: it stays, and the reader
/// rejects it.
fn block_length(text: &[u8]) -> usize {
    let inside = text.get(2..).unwrap_or_default();
    let end = inside.windows(2).position(|pair| pair == b"*/");
    end.map_or(1, |end| end + 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_removed_and_strings_are_kept() {
        let text = "\u{feff}// first\n{ /* a \"quote\" */ \"url\": \"https://x//y/*z*/\", // \"b\": 1,\n\
            \"list\": [1, 2, /* , */ ], \"said\": \"a \\\" // b\", } // end";
        let read: Value = serde_json::from_str(&remove(text)).unwrap();
        let wanted = json!({ "url": "https://x//y/*z*/", "list": [1, 2], "said": "a \" // b" });
        assert_eq!(read, wanted);
        for wrong in ["[,]", "{,}", "/* {}", "{} /", "[1,,]"] {
            let read = serde_json::from_str::<Value>(&remove(wrong));
            assert!(read.is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_place_in_the_file() {
        let text = "{ // one\n  \"a\": 1, /* two\n */ \"b\": oops }";
        let error = serde_json::from_str::<Value>(&remove(text)).unwrap_err();
        assert_eq!((error.line(), error.column()), (3, 10), "{error}");
    }

    proptest! {
        #[test]
        fn plain_json_stays_as_it_is(text in "[\\[\\]{},:\"\\\\/* \na1\u{e9}]{0,40}") {
            let plain = remove(&text);
            prop_assert_eq!(plain.len(), text.len());
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert_eq!(plain, text);
            }
        }
    }
}
