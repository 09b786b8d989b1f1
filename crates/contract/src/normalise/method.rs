//! Names of tools as clients spell them.

use std::borrow::Cow;

/// Longer names are not looked at.
pub const METHOD_MAX_BYTES: usize = 128;

/// The prefix of a tool id in an invocation envelope.
const TOOL_PREFIX: &str = "mcp.tool:";
/// A name further away than this is no suggestion.
const NEAREST_MAX_DISTANCE: usize = 3;

/// Another name of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodAlias<'a> {
    /// The other name.
    pub name: &'a str,
    /// The tool it means.
    pub canonical: &'a str,
    /// Whether its use deserves a warning.
    pub deprecated: bool,
}

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// It is a tool's name.
    Exact(&'a str),
    /// It is a declared alias.
    Alias {
        /// The tool it means.
        canonical: &'a str,
        /// Whether its use deserves a warning.
        deprecated: bool,
    },
    /// It is a tool's name in another spelling.
    Normalised(&'a str),
    /// It is none of these.
    Unknown {
        /// A tool whose name is close, for the error message.
        nearest: Option<&'a str>,
    },
}

impl<'a> Resolution<'a> {
    /// The tool's name, unless it is unknown.
    #[must_use]
    pub const fn canonical(self) -> Option<&'a str> {
        match self {
            Self::Exact(name)
            | Self::Normalised(name)
            | Self::Alias {
                canonical: name, ..
            } => Some(name),
            Self::Unknown { .. } => None,
        }
    }
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

/// Says which tool `input` means.
///
/// A name in `canonical` is always itself; then come aliases, then other spellings, each first with
/// the prefix `mcp.tool:` and then without. Nothing is guessed: `nearest` is for a message only.
#[must_use]
pub fn resolve_method<'a>(
    input: &str,
    canonical: &[&'a str],
    aliases: &[MethodAlias<'a>],
) -> Resolution<'a> {
    let listed = |name: &str| canonical.iter().copied().find(|known| *known == name);
    let alias = |name: &str| {
        let found = aliases
            .iter()
            .find(|alias| alias.name == name && listed(alias.canonical).is_some());
        found.map(|alias| Resolution::Alias {
            canonical: alias.canonical,
            deprecated: alias.deprecated,
        })
    };
    let bare = input.strip_prefix(TOOL_PREFIX).unwrap_or(input);
    let token = method_token(input);
    listed(input)
        .map(Resolution::Exact)
        .or_else(|| alias(input))
        .or_else(|| listed(bare).map(Resolution::Normalised))
        .or_else(|| alias(bare))
        .or_else(|| listed(&token).map(Resolution::Normalised))
        .or_else(|| alias(&token))
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
    const ALIASES: &[MethodAlias<'_>] = &[
        MethodAlias {
            name: "validate",
            canonical: "validate_asset",
            deprecated: true,
        },
        MethodAlias {
            name: "schema_list",
            canonical: "list_schemas",
            deprecated: false,
        },
        MethodAlias {
            name: "gone",
            canonical: "not_a_tool",
            deprecated: false,
        },
    ];

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
                Resolution::Exact(tool)
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
                Resolution::Normalised("validate_asset"),
            );
        }
        assert_eq!(
            resolve_method("tools.list_schemas", TOOLS, ALIASES).canonical(),
            None
        );
        assert_eq!(resolve_method("get-http", TOOLS, ALIASES).canonical(), None);
    }

    #[test]
    fn aliases_tell_whether_they_are_deprecated() {
        let deprecated = Resolution::Alias {
            canonical: "validate_asset",
            deprecated: true,
        };
        let kept = Resolution::Alias {
            canonical: "list_schemas",
            deprecated: false,
        };
        assert_eq!(resolve_method("validate", TOOLS, ALIASES), deprecated);
        assert_eq!(
            resolve_method("mcp.tool:validate", TOOLS, ALIASES),
            deprecated
        );
        assert_eq!(resolve_method("schemaList", TOOLS, ALIASES), kept);
        assert_eq!(resolve_method("gone", TOOLS, ALIASES).canonical(), None);
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
