//! Absolute paths inside a pack's roots, which clients write and tools do not expect.
//!
//! The host turns `file://` URIs into paths and tidies them; only the pack knows its roots. So
//! [`Roots::relative`] rewrites every argument that its schema marks as a path, before the tool reads
//! it. A path outside all roots stays as it is, for the tool to reject.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use mainstay_contract::json::Json;
use mainstay_contract::normalise::{PATH_FORMAT, PATH_MARKER};
use serde_json::{Map, Value};

/// The directories of a pack, each with the prefix of its relative paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots(Vec<(PathBuf, String)>);

impl Roots {
    /// Adds a directory, by its own path and by the one behind its links.
    pub(crate) fn add(&mut self, dir: &Path, prefix: &str) {
        self.0.push((dir.to_owned(), prefix.to_owned()));
        if let Ok(real) = dir.canonicalize()
            && real != dir
        {
            self.0.push((real, prefix.to_owned()));
        }
    }

    /// The arguments with paths relative to their root.
    pub(crate) fn relative<'a>(&self, schema: &Value, arguments: &'a Json) -> Cow<'a, Json> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let Some(properties) = properties.filter(|_| !self.0.is_empty()) else {
            return Cow::Borrowed(arguments);
        };
        // Reading the arguments costs more than most tools do.
        if !arguments.as_str().contains("\"/") || !properties.values().any(names_paths) {
            return Cow::Borrowed(arguments);
        }
        let Ok(Value::Object(mut members)) = arguments.to_value() else {
            return Cow::Borrowed(arguments);
        };
        match self.rewrite(properties, &mut members) {
            true => Cow::Owned(Json::from(Value::Object(members))),
            false => Cow::Borrowed(arguments),
        }
    }

    fn rewrite(&self, properties: &Map<String, Value>, members: &mut Map<String, Value>) -> bool {
        let mut changed = false;
        for (name, member) in members {
            if !properties.get(name).is_some_and(names_paths) {
                continue;
            }
            let texts = match member {
                Value::Array(items) => items.iter_mut().collect(),
                other => vec![other],
            };
            for text in texts {
                if let Some(path) = text.as_str().and_then(|path| self.inside(path)) {
                    *text = Value::String(path);
                    changed = true;
                }
            }
        }
        changed
    }

    /// An absolute path inside a root, relative to it; the innermost root counts.
    fn inside(&self, path: &str) -> Option<String> {
        let found = self.0.iter().filter_map(|(root, prefix)| {
            let rest = path.strip_prefix(root.to_str()?.trim_end_matches('/'))?;
            let rest = rest.strip_prefix('/').filter(|rest| !rest.is_empty())?;
            Some((rest.len(), format!("{prefix}{rest}")))
        });
        found.min().map(|(_, relative)| relative)
    }
}

/// True for the schema of a path, or of a list of paths.
fn names_paths(schema: &Value) -> bool {
    let is_path = |schema: &Value| {
        schema
            .get("format")
            .is_some_and(|format| format == PATH_FORMAT)
            || schema.get(PATH_MARKER) == Some(&Value::Bool(true))
    };
    is_path(schema) || schema.get("items").is_some_and(is_path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absolute_paths_inside_a_root_become_relative_and_others_stay() {
        let mut roots = Roots::default();
        roots.add(Path::new("/srv/one"), "");
        roots.add(Path::new("/srv/one/two"), "two/");
        let schema = json!({"properties": {
            "path": {"type": "string", "format": "path"},
            "globs": {"type": "array", "items": {"type": "string", PATH_MARKER: true}},
            "text": {"type": "string"},
        }});
        let relative = |arguments: Value| {
            let arguments = Json::from(arguments);
            let relative = roots.relative(&schema, &arguments);
            relative.to_value().unwrap()
        };
        assert_eq!(
            relative(json!({"path": "/srv/one/a/b"})),
            json!({"path": "a/b"})
        );
        assert_eq!(
            relative(
                json!({"globs": ["/srv/one/*.rs", "b", "/srv/one/two/c"], "text": "/srv/one/a"})
            ),
            json!({"globs": ["*.rs", "b", "two/c"], "text": "/srv/one/a"})
        );
        for outside in [
            "/srv/one",
            "/srv/one/",
            "/srv/once/a",
            "/etc/passwd",
            "a",
            "/",
        ] {
            assert_eq!(relative(json!({"path": outside})), json!({"path": outside}));
        }
    }
}
