//! Characters in the definitions of tools that nobody sees: said wherever tools are looked at or
//! approved.

use mainstay_contract::render::{hidden_in, visible, warning};
use serde_json::Value;

use crate::exit::eprint_line;

/// Places of one tool that are named.
const PLACES: usize = 3;

/// Says which definitions have hidden characters, and where.
pub(crate) fn warn<'a>(definitions: impl IntoIterator<Item = &'a Value>) {
    for line in definitions.into_iter().filter_map(said) {
        eprint_line(&format!("mainstay: {line}"));
    }
}

/// What is said of a definition, if there is something to say.
fn said(definition: &Value) -> Option<String> {
    let found = hidden_in(definition);
    if found.is_empty() {
        return None;
    }
    let name = definition.get("name").and_then(Value::as_str);
    let mut places: Vec<String> = found.iter().take(PLACES).map(ToString::to_string).collect();
    if let Some(more) = found.len().checked_sub(PLACES).filter(|more| *more > 0) {
        places.push(format!("and {more} more"));
    }
    Some(warning(&format!(
        "the tool {} has characters that nobody sees: {}",
        visible(name.unwrap_or("without a name")),
        places.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_told_with_its_places_and_without_showing_what_is_hidden() {
        let tool = json!({"name": "t\u{200b}", "title": "a\u{202e}", "description": "b\u{1b}",
            "inputSchema": {"description": "c\u{2066}"}});
        assert_eq!(
            said(&tool).unwrap(),
            "warning: the tool t\\u{200b} has characters that nobody sees: /description U+001B, \
             /inputSchema/description U+2066, /name U+200B, and 1 more"
        );
        assert_eq!(said(&json!({"name": "plain"})), None);
    }
}
