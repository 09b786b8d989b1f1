//! The sentence for each way to break a schema.
//!
//! The table is a promise: clients and tests see these texts. They are written here
//! because those of `jsonschema` change with it and repeat the value. No sentence
//! repeats the value; names of members and values of the schema are shortened.

use jsonschema::{
    JsonType, JsonTypeSet,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::{Map, Value};

use crate::{patterns, shorten, suggest};

/// The message when nothing more is known.
pub(crate) const NO_MATCH: &str = "does not match the schema";
/// For a value that fits several branches of `oneOf`.
pub(crate) const SEVERAL_FORMS: &str = "matches more than one of the allowed forms";

/// For a place where no value is allowed.
const NOTHING: &str = "not allowed here";
/// For a text that a pattern with look-around or back-references was not tried on.
pub(crate) const UNDECIDED: &str = "was not checked: it is too long or too complex for its pattern";
/// Shows a name.
pub(crate) const LONG_NAME: &str =
    "was not checked: it has a member name that is too long for its pattern";

/// For a value with more texts than its patterns may be tried on.
pub(crate) const NOT_CHECKED: &str =
    "was not checked: it has too many texts for patterns with look-around or back-references";

/// For a value in which only the first violation is looked for.
pub(crate) const ONLY_FIRST: &str =
    "the value is too large to look for more than its first violation";

/// Characters of a list of allowed values.
const LIST: usize = 160;

/// The sentences for one error: one, or one for each of the first `limit` unknown
/// members. `holder` is the schema object that holds the keyword.
pub(crate) fn describe(
    kind: &Kind,
    holder: Option<&Map<String, Value>>,
    limit: usize,
) -> Vec<String> {
    let sentence = match kind {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            return unknown_members(unexpected, holder, limit);
        }
        Kind::AdditionalItems { limit } => {
            at_most(u64::try_from(*limit).unwrap_or(u64::MAX), "item")
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => no_form(context.len()),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            UNDECIDED.to_owned()
        }
        Kind::Constant { expected_value } => format!("must be {}", shorten::json(expected_value)),
        Kind::Contains => contains(holder),
        Kind::ContentEncoding { content_encoding } => {
            format!("must be encoded as {}", shorten::quoted(content_encoding))
        }
        Kind::ContentMediaType { content_media_type } => {
            format!("must hold {}", shorten::quoted(content_media_type))
        }
        Kind::Custom { keyword, message } if keyword == "pattern" => {
            patterns::broken(message).map_or_else(|| UNDECIDED.to_owned(), pattern)
        }
        Kind::Custom { .. } => NO_MATCH.to_owned(),
        Kind::Enum { options } => one_of(options.as_array().into_iter().flatten()),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {}", shorten::json(limit)),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {}", shorten::json(limit)),
        Kind::FalseSchema => NOTHING.to_owned(),
        Kind::Format { format } => format!("must have the format {}", shorten::quoted(format)),
        Kind::FromUtf8 { .. } => "must decode to UTF-8 text".to_owned(),
        Kind::MaxItems { limit } => at_most(*limit, "item"),
        Kind::Maximum { limit } => format!("must be at most {}", shorten::json(limit)),
        Kind::MaxLength { limit } => at_most(*limit, "character"),
        Kind::MaxProperties { limit } => at_most(*limit, "member"),
        Kind::MinItems { limit } => at_least(*limit, "item"),
        Kind::Minimum { limit } => format!("must be at least {}", shorten::json(limit)),
        Kind::MinLength { limit } => at_least(*limit, "character"),
        Kind::MinProperties { limit } => at_least(*limit, "member"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::Not { .. } => "matches a form that is not allowed".to_owned(),
        Kind::OneOfMultipleValid { .. } => SEVERAL_FORMS.to_owned(),
        Kind::Pattern { pattern: text } => pattern(text),
        Kind::PropertyNames { error } => member_name(error),
        Kind::Required { property } => {
            format!("missing required member {}", shorten::json(property))
        }
        Kind::Type { kind } => expected(types(kind)),
        Kind::UnevaluatedItems { .. } => "has items that are not allowed".to_owned(),
        Kind::UniqueItems => "items must be unique".to_owned(),
        Kind::Referencing(_) => "refers to a schema that is not available".to_owned(),
    };
    vec![sentence]
}

/// For a value that fits none of `count` branches.
pub(crate) fn no_form(count: usize) -> String {
    format!("matches none of the {count} allowed forms")
}

/// For a value of another type.
pub(crate) fn expected(types: JsonTypeSet) -> String {
    // Every integer is a number; saying both would only confuse.
    let types = if types.contains(JsonType::Number) {
        types.remove(JsonType::Integer)
    } else {
        types
    };
    let mut names: Vec<_> = types.iter().map(JsonType::as_str).collect();
    names.sort_unstable_by_key(|name| (*name == "null", *name));
    match names.as_slice() {
        [] => NO_MATCH.to_owned(),
        [first @ .., last] if !first.is_empty() => {
            format!("expected {} or {last}", first.join(", "))
        }
        names => format!("expected {}", names.concat()),
    }
}

/// For a value outside a list.
pub(crate) fn one_of<'a>(allowed: impl Iterator<Item = &'a Value>) -> String {
    let mut values: Vec<String> = Vec::new();
    let (mut length, mut hidden) = (0, 0usize);
    for value in allowed {
        let shown = shorten::json(value);
        length += shown.chars().count() + 2;
        if hidden > 0 || (length > LIST && !values.is_empty()) {
            hidden += 1;
        } else if !values.contains(&shown) {
            values.push(shown);
        }
    }
    match (values.as_slice(), hidden) {
        ([], _) => NOTHING.to_owned(),
        ([only], 0) => format!("must be {only}"),
        (values, 0) => format!("must be one of {}", values.join(", ")),
        (values, hidden) => format!("must be one of {} or {hidden} more", values.join(", ")),
    }
}

/// The types an error of kind `type` asks for.
pub(crate) fn types(kind: &TypeKind) -> JsonTypeSet {
    match kind {
        TypeKind::Single(one) => JsonTypeSet::from(*one),
        TypeKind::Multiple(several) => *several,
    }
}

fn unknown_members(
    names: &[String],
    holder: Option<&Map<String, Value>>,
    limit: usize,
) -> Vec<String> {
    let known = || {
        let members = holder.and_then(|holder| holder.get("properties"));
        let members = members.and_then(Value::as_object).into_iter().flatten();
        members.map(|(name, _)| name.as_str())
    };
    let mut names: Vec<_> = names.iter().collect();
    names.sort_unstable();
    names
        .into_iter()
        .take(limit)
        .map(|name| {
            let unknown = shorten::quoted(name);
            match suggest::nearest(name, known()) {
                Some(near) => format!(
                    "unknown member {unknown} (did you mean {}?)",
                    shorten::quoted(near)
                ),
                None => format!("unknown member {unknown}"),
            }
        })
        .collect()
}

fn member_name(error: &jsonschema::ValidationError<'_>) -> String {
    let name = error.instance();
    let reason = match error.kind() {
        // An alternative of names is a stop here, which says nothing by itself.
        Kind::Custom { keyword, .. } if keyword != "pattern" => None,
        Kind::FalseSchema => None,
        kind => describe(kind, None, 1).into_iter().next(),
    };
    match reason {
        Some(reason) => format!("member name {} {reason}", shorten::json(name)),
        None => format!("member name {} is not allowed", shorten::json(name)),
    }
}

fn contains(holder: Option<&Map<String, Value>>) -> String {
    let bound = |keyword| {
        holder
            .and_then(|holder| holder.get(keyword))
            .and_then(Value::as_u64)
    };
    let at_least = bound("minContains").unwrap_or(1);
    let number = match bound("maxContains") {
        Some(most) if at_least == most => format!("exactly {}", counted(most, "item")),
        Some(most) => format!("{at_least} to {}", counted(most, "item")),
        None => format!("at least {}", counted(at_least, "item")),
    };
    format!("must have {number} of the required form")
}

fn pattern(text: &str) -> String {
    format!("must match the pattern {}", shorten::quoted(text))
}

fn at_most(limit: u64, unit: &str) -> String {
    format!("must have at most {}", counted(limit, unit))
}

fn at_least(limit: u64, unit: &str) -> String {
    format!("must have at least {}", counted(limit, unit))
}

fn counted(count: u64, unit: &str) -> String {
    if count == 1 {
        format!("1 {unit}")
    } else {
        format!("{count} {unit}s")
    }
}
