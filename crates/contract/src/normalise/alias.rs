//! Other names of arguments.

use serde_json::{Map, Value};

use super::error::NormaliseError;

/// Names that models write, and the arguments of our tools that they mean.
const COMMON: [(&str, &str); 10] = [
    ("file_path", "path"),
    ("filepath", "path"),
    ("filename", "path"),
    ("file", "path"),
    ("uri", "path"),
    ("q", "query"),
    ("max_results", "limit"),
    ("repository", "repo"),
    ("schema_name", "schema"),
    ("schema_name", "name"),
];

/// The aliases that every tool of a pack has: common names of arguments that its schema declares, and
/// the camel-case spelling of each.
pub fn usual_aliases(schema: &Value) -> Vec<(String, String)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(properties) = properties else {
        return Vec::new();
    };
    let is_new =
        |alias: &str, name: &str| properties.contains_key(name) && !properties.contains_key(alias);
    let common = COMMON
        .iter()
        .filter(|(alias, name)| is_new(alias, name))
        .map(|(alias, name)| ((*alias).to_owned(), (*name).to_owned()));
    let humps = properties.keys().filter_map(|name| {
        let humped = camel_case(name);
        is_new(&humped, name).then(|| (humped, name.clone()))
    });
    common.chain(humps).collect()
}

/// `start_line` as `startLine`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut chars = word.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    out
}

/// Renames aliases, in the order of their declaration. True if there were any.
///
/// An alias that the schema declares as an argument of its own is accepted as it stands and
/// stays. Any other undeclared name would be refused, whatever the schema says about
/// additional properties, so renaming it changes nothing that is valid.
pub(super) fn apply(
    aliases: &[(&str, &str)],
    arguments: &mut Value,
    declared: impl Fn(&str) -> bool,
) -> Result<bool, NormaliseError> {
    let Value::Object(arguments) = arguments else {
        return Ok(false);
    };
    let mut renamed = false;
    for &(alias, _) in aliases {
        if arguments.contains_key(alias)
            && let Some(canonical) = canonical(aliases, alias, &declared)
        {
            rename(arguments, alias, canonical)?;
            renamed = true;
        }
    }
    Ok(renamed)
}

/// Follows chains of aliases to their end; a cycle has none.
fn canonical<'a>(
    aliases: &[(&str, &'a str)],
    alias: &str,
    declared: &impl Fn(&str) -> bool,
) -> Option<&'a str> {
    let next = |name: &str| {
        let mut pairs = aliases.iter();
        let pair = pairs.find(|(alias, _)| *alias == name && !declared(name));
        pair.map(|&(_, canonical)| canonical)
    };
    let mut name = next(alias)?;
    for _ in aliases {
        match next(name) {
            Some(further) => name = further,
            None => return Some(name),
        }
    }
    None
}

fn rename(
    arguments: &mut Map<String, Value>,
    alias: &str,
    canonical: &str,
) -> Result<(), NormaliseError> {
    let Some(value) = arguments.remove(alias) else {
        return Ok(());
    };
    match arguments.get(canonical) {
        Some(present) if *present == value => {}
        Some(_) => {
            arguments.insert(alias.to_owned(), value);
            let (alias, canonical) = (alias.to_owned(), canonical.to_owned());
            return Err(NormaliseError::AliasConflict { alias, canonical });
        }
        None => {
            arguments.insert(canonical.to_owned(), value);
        }
    }
    Ok(())
}
