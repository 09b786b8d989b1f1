//! Finds the schema of an asset that does not name it.

use crate::exact::{Exact, Kind};

/// The member with which an asset points at its schema. It is never resolved, and no schema has to
/// allow it: whatever is validated is validated without it.
pub(crate) const SCHEMA_REF: &str = "$schemaRef";

/// A name that is validated against another schema.
const ALIAS: (&str, &str) = ("nested-synesthetic-asset", "synesthetic-asset");

/// Prefix of files of nested assets.
const NESTED_FILES: &str = "SynestheticAsset";

/// The end of an example's name that is not part of its schema's.
const EXAMPLE: &str = "_example";

/// The name under which a schema is validated.
pub(crate) fn canonical(name: &str) -> &str {
    if name == ALIAS.0 { ALIAS.1 } else { name }
}

/// The schema that an asset names itself: its `schema`, else its `$schemaRef`.
pub(crate) fn own_name(asset: &Exact<'_>) -> Option<String> {
    let Kind::Object(members) = &asset.kind else {
        return None;
    };
    let named = |member: &str| match &members.get(member)?.kind {
        Kind::Text(text) => Some(base_name(text).to_owned()).filter(|name| !name.is_empty()),
        _ => None,
    };
    named("schema").or_else(|| named(SCHEMA_REF))
}

/// A file's name up to its first dot.
pub(crate) fn component(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

/// The schema that the component of a file says.
pub(crate) fn name_of_file(component: &str) -> String {
    if component.starts_with(NESTED_FILES) {
        return ALIAS.0.to_owned();
    }
    let lower = component.to_lowercase();
    // Several examples of a schema are numbered.
    let unnumbered = lower.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = unnumbered.strip_suffix(EXAMPLE);
    stem.map_or_else(|| lower.replace(EXAMPLE, ""), str::to_owned)
}

/// `lamp` of `https://x/y/lamp.schema.json#/z`.
fn base_name(reference: &str) -> &str {
    let path = reference.split(['#', '?']).next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let stem = file.strip_suffix(".json").unwrap_or(file);
    stem.strip_suffix(".schema").unwrap_or(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(asset: &str) -> Option<String> {
        own_name(&Exact::parse(asset).unwrap())
    }

    #[test]
    fn an_assets_own_word_comes_in_order() {
        let both = r#"{"$schemaRef":"jsonschema/tone.schema.json","schema":"lamp"}"#;
        assert_eq!(own(both).as_deref(), Some("lamp"));
        for reference in [
            "jsonschema/tone.schema.json",
            "tone.schema.json",
            "tone",
            "https://x/0.7.3/tone.schema.json#/$defs/x",
            "../tone.json?x",
        ] {
            let asset = serde_json::json!({"$schemaRef": reference, "schema": ""}).to_string();
            assert_eq!(own(&asset).as_deref(), Some("tone"), "{reference}");
        }
        for asset in [
            "{}",
            "[]",
            r#"{"schema":{}}"#,
            r#"{"$schemaRef":"/"}"#,
            r#"{"schema":7}"#,
        ] {
            assert_eq!(own(asset), None, "{asset}");
        }
    }

    #[test]
    fn a_files_name_says_the_rest() {
        for (component, schema) in [
            ("SynestheticAsset_Example7", "nested-synesthetic-asset"),
            ("Control-Bundle_Example", "control-bundle"),
            ("Lamp_Example12", "lamp"),
            ("lamp", "lamp"),
            ("lamp2", "lamp2"),
            ("Lamp_Example_old", "lamp_old"),
        ] {
            assert_eq!(name_of_file(component), schema);
        }
        assert_eq!(canonical("nested-synesthetic-asset"), "synesthetic-asset");
        assert_eq!(canonical("lamp"), "lamp");
    }
}
