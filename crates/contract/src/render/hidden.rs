//! Characters that a person who reads a text does not see.
//!
//! The one place that says which they are. Hidden are the controls but for tab and line end, what
//! Unicode calls default ignorable or a control of direction, separators of lines, and the marks of
//! annotations. Three of them have honest uses and are not hidden there: a variation selector for
//! text or emoji (U+FE0E, U+FE0F) directly after a symbol or in a keycap, the joiner U+200D between
//! two emoji, and U+200C and U+200D after a letter of a script that needs them.

use serde_json::Value;

use crate::json::push_pointer_part;

/// A text of a JSON value with hidden characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenAt {
    /// Where it stands; for the name of a member, where the member does.
    pub pointer: String,
    /// Those characters, each once, in the order of their first places.
    pub characters: Vec<char>,
}

/// The hidden characters of a text.
fn hidden(text: &str) -> impl Iterator<Item = char> + '_ {
    text.char_indices()
        .filter(|(at, c)| is_hidden_at(text, *at, *c) && !is_line_end(text, *at, *c))
        .map(|(_, c)| c)
}

/// Every text of a value that has hidden characters, names of members included.
#[must_use]
pub fn hidden_in(value: &Value) -> Vec<HiddenAt> {
    let mut found = Vec::new();
    walk(value, &mut String::new(), &mut found);
    // The order of members is that of a build's features.
    found.sort_by(|one, other| one.pointer.cmp(&other.pointer));
    found
}

fn walk(value: &Value, pointer: &mut String, found: &mut Vec<HiddenAt>) {
    let length = pointer.len();
    match value {
        Value::String(text) => note(text, pointer, found),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{at}"));
                walk(item, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                push_pointer_part(pointer, name);
                note(name, pointer, found);
                walk(member, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn note(text: &str, pointer: &str, found: &mut Vec<HiddenAt>) {
    let mut characters = Vec::new();
    for c in hidden(text) {
        if !characters.contains(&c) {
            characters.push(c);
        }
    }
    if !characters.is_empty() {
        found.push(HiddenAt {
            pointer: pointer.to_owned(),
            characters,
        });
    }
}

fn is_line_end(text: &str, at: usize, c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\r' => text.as_bytes().get(at + 1) == Some(&b'\n'),
        _ => false,
    }
}

/// True if the character at `at` is not seen where it stands, line ends and tabs among them.
pub(super) fn is_hidden_at(text: &str, at: usize, c: char) -> bool {
    is_ignorable(c) && !has_honest_use(text, at, c)
}

/// Controls, Default_Ignorable_Code_Point and Bidi_Control of Unicode 16, separators of lines and
/// marks of annotations.
const fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1F}' | '\u{7F}'..='\u{9F}' | '\u{AD}' | '\u{34F}' | '\u{61C}'
        | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}'
        | '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}')
}

fn has_honest_use(text: &str, at: usize, c: char) -> bool {
    if !matches!(c, '\u{200C}' | '\u{200D}' | '\u{FE0E}' | '\u{FE0F}') {
        return false;
    }
    let (before, rest) = text.split_at_checked(at).unwrap_or_default();
    let mut before = before.chars().rev();
    let mut after = rest.chars().skip(1);
    let (last, next) = (before.next(), after.next());
    let is_symbol = |c: Option<char>| c.is_some_and(is_symbol);
    match c {
        '\u{FE0E}' | '\u{FE0F}' => {
            let keycap = matches!(last, Some('0'..='9' | '#' | '*')) && next == Some('\u{20E3}');
            is_symbol(last) || keycap
        }
        '\u{200D}' if is_symbol(next) => {
            is_symbol(last) || (last == Some('\u{FE0F}') && is_symbol(before.next()))
        }
        _ => last.is_some_and(needs_joiners),
    }
}

/// Symbols that are or can be shown as emoji.
const fn is_symbol(c: char) -> bool {
    matches!(c,
        '\u{A9}' | '\u{AE}' | '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
        | '\u{2190}'..='\u{21FF}' | '\u{2300}'..='\u{23FF}' | '\u{24C2}'
        | '\u{25A0}'..='\u{27BF}' | '\u{2934}' | '\u{2935}' | '\u{2B00}'..='\u{2BFF}'
        | '\u{3030}' | '\u{303D}' | '\u{3297}' | '\u{3299}' | '\u{1F000}'..='\u{1FAFF}')
}

/// Letters and signs of the scripts in which U+200C and U+200D change what is read: Arabic,
/// Syriac, N'Ko, the scripts of India and Sri Lanka, Tibetan, Myanmar, Khmer and Mongolian.
const fn needs_joiners(c: char) -> bool {
    matches!(c,
        '\u{620}'..='\u{6FF}' | '\u{700}'..='\u{7FF}' | '\u{840}'..='\u{8FF}'
        | '\u{900}'..='\u{DFF}' | '\u{F00}'..='\u{FFF}' | '\u{1000}'..='\u{109F}'
        | '\u{1780}'..='\u{17B3}' | '\u{17B6}'..='\u{17FF}' | '\u{1820}'..='\u{18AF}'
        | '\u{FB50}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn has_hidden(text: &str) -> bool {
        hidden(text).next().is_some()
    }

    #[test]
    fn what_nobody_sees_is_found() {
        for c in [
            0x00, 0x08, 0x1B, 0x7F, 0x85, 0x9F, 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x180B,
            0x180E, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x202A, 0x202E, 0x2060, 0x2064,
            0x2065, 0x2066, 0x2069, 0x206A, 0x3164, 0xFE00, 0xFE0E, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9,
            0x1BCA0, 0x1D173, 0xE0001, 0xE0041, 0xE0100, 0xE0FFF,
        ] {
            let c = char::from_u32(c).unwrap();
            assert!(has_hidden(&format!("a{c}b")), "{}", c.escape_unicode());
            assert!(has_hidden(&c.to_string()), "{}", c.escape_unicode());
        }
        assert!(has_hidden("over\rwritten"));
    }

    #[test]
    fn what_is_seen_or_needed_is_not() {
        for text in [
            "plain\n\ttext\r\n",
            "naïve ✓ …",
            "עברית",
            "a family \u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}",
            "a heart on fire \u{2764}\u{FE0F}\u{200D}\u{1F525}",
            "a warning \u{26A0}\u{FE0F}, a keycap 1\u{FE0F}\u{20E3}",
            "\u{0645}\u{06CC}\u{200C}\u{062E}\u{0648}\u{0627}\u{0647}\u{0645}",
            "\u{0915}\u{094D}\u{200D}\u{0937}",
        ] {
            assert!(!has_hidden(text), "{text:?}");
        }
        for text in [
            "\u{1F468}\u{200D}b",
            "\u{1F468}\u{FE0F}\u{FE0F}",
            "1\u{FE0F}2",
            "\u{0645}\u{200C}\u{200D}\u{200C}",
        ] {
            assert!(has_hidden(text), "{text:?}");
        }
    }

    #[test]
    fn each_text_of_a_value_is_told_with_its_place() {
        let value = json!({"name": "t", "description": "a\u{200B}b\u{1B}\u{200B}",
            "inputSchema": {"properties": {"a/b": {"enum": ["x", "y\u{E0041}"]},
                "c\u{202E}": {}}}});
        let found = hidden_in(&value);
        let places: Vec<_> = found
            .iter()
            .map(|at| (at.pointer.as_str(), at.characters.as_slice()))
            .collect();
        assert_eq!(
            places,
            [
                ("/description", &['\u{200B}', '\u{1B}'][..]),
                ("/inputSchema/properties/a~1b/enum/1", &['\u{E0041}'][..]),
                ("/inputSchema/properties/c\u{202E}", &['\u{202E}'][..]),
            ]
        );
        assert_eq!(hidden_in(&json!({"name": "plain", "n": [1, null]})), []);
    }
}
