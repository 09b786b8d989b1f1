//! Names of tools as clients spell them.

use std::borrow::Cow;

/// Longer names are not looked at.
pub const METHOD_MAX_BYTES: usize = 128;

/// The prefix of a tool id in an invocation envelope.
const TOOL_PREFIX: &str = "mcp.tool:";
/// Names further away than this are not suggested.
const NEAREST_MAX_DISTANCE: usize = 3;

/// The tool that a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// It is the tool's name, perhaps in another spelling.
    Named(&'a str),
    /// It is another name of the tool, which deserves a warning.
    Alias(&'a str),
    /// It is neither; `nearest` has a name that is close, for the error message.
    Unknown { nearest: Option<&'a str> },
}

/// The snake-case form of a tool name: without the prefix `mcp.tool:`, with `_` for `-`, blanks and
/// camel humps. A name with anything but ASCII letters, digits and these marks keeps its spelling.
///
/// It is a candidate, not a name: whether a tool is called so is for [`resolve_method`] to say.
#[must_use]
pub fn method_token(name: &str) -> Cow<'_, str> {
    let bare = name.strip_prefix(TOOL_PREFIX).unwrap_or(name);
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b' ');
    let snake = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if bare.len() > METHOD_MAX_BYTES || bare.bytes().all(snake) || !bare.bytes().all(plain) {
        return Cow::Borrowed(bare);
    }
    let mut out = String::with_capacity(bare.len() + 8);
    let mut previous = '_';
    let mut chars = bare.chars().peekable();
    while let Some(c) = chars.next() {
        let after_word = previous.is_ascii_lowercase() || previous.is_ascii_digit();
        // The last letter of an acronym begins the next word: HTTPServer.
        let after_acronym =
            previous.is_ascii_uppercase() && chars.peek().is_some_and(char::is_ascii_lowercase);
        let hump = c.is_ascii_uppercase() && (after_word || after_acronym);
        if hump {
            out.push('_');
        }
        out.push(if matches!(c, '-' | ' ') {
            '_'
        } else {
            c.to_ascii_lowercase()
        });
        previous = c;
    }
    Cow::Owned(out)
}

/// Says which tool `input` means. `aliases` are pairs of another name and a tool's own.
///
/// A name in `canonical` is always itself; then come aliases, then other spellings, each first with
/// the prefix `mcp.tool:` and then without. Nothing is guessed: `nearest` is for a message only.
#[must_use]
pub fn resolve_method<'a>(
    input: &str,
    canonical: &[&'a str],
    aliases: &[(&'a str, &'a str)],
) -> Resolution<'a> {
    let listed = |name: &str| canonical.iter().copied().find(|known| *known == name);
    let named = |name: &str| listed(name).map(Resolution::Named);
    let alias = |name: &str| {
        let (_, tool) = aliases.iter().find(|(alias, _)| *alias == name)?;
        listed(tool).map(Resolution::Alias)
    };
    let bare = input.strip_prefix(TOOL_PREFIX).unwrap_or(input);
    let token = method_token(input);
    [input, bare, &token]
        .into_iter()
        .find_map(|name| named(name).or_else(|| alias(name)))
        .unwrap_or_else(|| Resolution::Unknown {
            nearest: nearest(&token, canonical),
        })
}

/// The closest name; of several, the first in the alphabet.
fn nearest<'a>(token: &str, canonical: &[&'a str]) -> Option<&'a str> {
    if token.len() > METHOD_MAX_BYTES {
        return None;
    }
    let limit = NEAREST_MAX_DISTANCE.min(token.len() / 3);
    let near = |name: &'a str| {
        let other = method_token(name);
        let possible = token.len().abs_diff(other.len()) <= limit;
        let distance = possible.then(|| strsim::levenshtein(token, &other))?;
        (distance <= limit).then_some((distance, name))
    };
    canonical
        .iter()
        .filter_map(|name| near(name))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    const TOOLS: &[&str] = &["validate_asset", "list_schemas", "getHTTP", "a-b"];
    const ALIASES: &[(&str, &str)] = &[
        ("validate", "validate_asset"),
        ("schema_list", "list_schemas"),
        ("gone", "not_a_tool"),
    ];
    const UNKNOWN: Resolution<'_> = Resolution::Unknown { nearest: None };

    #[test]
    fn tokens_are_snake_case() {
        for (name, token) in [
            ("validate_asset", "validate_asset"),
            ("mcp.tool:validate_asset", "validate_asset"),
            ("validate-asset", "validate_asset"),
            ("validateAsset", "validate_asset"),
            ("Validate Asset", "validate_asset"),
            ("VALIDATE_ASSET", "validate_asset"),
            ("getHTTPServer2Go", "get_http_server2_go"),
            ("tools.validate", "tools.validate"),
            ("größeAsset", "größeAsset"),
        ] {
            assert_eq!(method_token(name), token);
        }
    }

    #[test]
    fn listed_names_are_themselves_whatever_their_spelling() {
        for &tool in TOOLS {
            assert_eq!(
                resolve_method(tool, TOOLS, ALIASES),
                Resolution::Named(tool)
            );
        }
    }

    #[test]
    fn other_spellings_reach_only_listed_names() {
        for input in [
            "mcp.tool:validate_asset",
            "validateAsset",
            "mcp.tool:Validate-Asset",
        ] {
            assert_eq!(
                resolve_method(input, TOOLS, ALIASES),
                Resolution::Named("validate_asset"),
            );
        }
        for input in ["tools.list_schemas", "get-http"] {
            let resolved = resolve_method(input, TOOLS, ALIASES);
            assert!(matches!(resolved, Resolution::Unknown { .. }), "{input}");
        }
    }

    #[test]
    fn aliases_reach_only_listed_names() {
        let validate = Resolution::Alias("validate_asset");
        assert_eq!(resolve_method("validate", TOOLS, ALIASES), validate);
        let prefixed = resolve_method("mcp.tool:validate", TOOLS, ALIASES);
        assert_eq!(prefixed, validate);
        let list = Resolution::Alias("list_schemas");
        assert_eq!(resolve_method("schemaList", TOOLS, ALIASES), list);
        assert_eq!(resolve_method("gone", TOOLS, ALIASES), UNKNOWN);
    }

    #[test]
    fn unknown_names_get_a_near_one_or_none() {
        for (input, nearest) in [
            ("validat_aset", Some("validate_asset")),
            ("ListSchema", Some("list_schemas")),
            ("delete_everything", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(
                resolve_method(input, TOOLS, &[]),
                Resolution::Unknown { nearest },
                "{input}"
            );
        }
        let unordered = ["abcdex", "abcdea"];
        assert_eq!(
            resolve_method("abcdez", &unordered, &[]),
            Resolution::Unknown {
                nearest: Some("abcdea")
            }
        );
    }

    proptest! {
        #[test]
        fn tokens_are_stable(name in "(mcp.tool:)?[a-cA-C0-1_ é-]{0,12}") {
            let once = method_token(&name).into_owned();
            prop_assert!(method_token(&once) == once);
        }
    }
}
