//! In which dialect a schema is written: a draft, or one derived from a draft by a
//! meta-schema of another author.

use std::sync::{Arc, LazyLock};

use jsonschema::{Draft, uri};
use serde_json::Value;

/// Meta-schemas that are derived from each other, counted from the schema.
const LONGEST_CHAIN: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// The draft whose rules count; for a derived dialect, the one it comes from.
    pub(crate) draft: Draft,
    /// The `$schema` of this dialect, in one spelling.
    pub(crate) uri: String,
    /// True if it is not one of the published drafts.
    pub(crate) derived: bool,
}

/// Gives the meta-schema that a `$schema` names by its URI.
pub(crate) type MetaSchemas<'a> = dyn Fn(&str) -> Option<&'a Value> + 'a;

static LATEST: LazyLock<Arc<Dialect>> = LazyLock::new(|| {
    Arc::new(Dialect {
        draft: Draft::Draft202012,
        uri: "https://json-schema.org/draft/2020-12/schema".to_owned(),
        derived: false,
    })
});

impl Dialect {
    /// The dialect that `schema` names; the latest draft without a name.
    pub(crate) fn of(schema: &Value, meta_schemas: &MetaSchemas<'_>) -> Arc<Self> {
        let Some(named) = schema.get("$schema").and_then(Value::as_str) else {
            return Arc::clone(&LATEST);
        };
        let published = match Draft::from_schema_uri(named) {
            Draft::Draft4 => "http://json-schema.org/draft-04/schema#",
            Draft::Draft6 => "http://json-schema.org/draft-06/schema#",
            Draft::Draft7 => "http://json-schema.org/draft-07/schema#",
            Draft::Draft201909 => "https://json-schema.org/draft/2019-09/schema",
            Draft::Draft202012 => return Arc::clone(&LATEST),
            _ => "",
        };
        let derived = published.is_empty();
        Arc::new(Self {
            draft: draft(named, meta_schemas),
            uri: if derived { named } else { published }.to_owned(),
            derived,
        })
    }
}

fn draft(named: &str, meta_schemas: &MetaSchemas<'_>) -> Draft {
    let mut named = named;
    for _ in 0..LONGEST_CHAIN {
        match Draft::from_schema_uri(named) {
            Draft::Unknown => {}
            draft => return draft,
        }
        let Ok(address) = uri::from_str(named.trim_end_matches('#')) else {
            break;
        };
        let meta_schema = meta_schemas(address.as_str());
        match meta_schema.and_then(|schema| schema.get("$schema")?.as_str()) {
            Some(next) => named = next,
            None => break,
        }
    }
    // Unknown: the compiler will say so.
    Draft::Draft202012
}
