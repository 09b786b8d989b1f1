//! The schemas of a root, read once, and what validates by them.
//!
//! Lists the `*.schema.json` files of the root itself. Every other JSON file below it
//! is there for references to lead to, and for nothing else.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use mainstay_schema::{SchemaRegistry, Validator, Verdict, Violation, Violations};
use mainstay_worker::{Json, Unable, render, warn};
use serde_json::Value;

use crate::documents::{self, Read};
use crate::exact::Exact;
use crate::naming;
use crate::roots::{self, Root};
use crate::tree;

/// Ending of schema files.
const SUFFIX: &str = ".schema.json";

/// One schema.
#[derive(Debug)]
pub(crate) struct Schema {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// `version` or `x-schema-version` of the document, else empty.
    pub(crate) version: String,
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The name of the document among all documents.
    uri: String,
    /// Its validator, or the reason why none can be made; made when it is first needed.
    validator: OnceLock<Result<Validator, String>>,
}

impl Schema {
    /// The document as one line, otherwise byte for byte.
    pub(crate) fn document(&self) -> Json {
        Json::from_scanned(self.text.trim())
    }

    /// The name, with the version where there is one.
    pub(crate) fn title(&self) -> String {
        match self.version.as_str() {
            "" => self.name.clone(),
            version => format!("{} {version}", self.name),
        }
    }
}

/// All schemas, sorted by name, version and path.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    list: Vec<Schema>,
    /// Files that hold no schema, by name, and why.
    broken: BTreeMap<String, String>,
    registry: SchemaRegistry,
    fingerprint: String,
}

impl Schemas {
    /// Reads every schema. A file that holds none is warned about and keeps no other from being
    /// served.
    pub(crate) fn load(root: &Root<'_>, max_violations: usize) -> Result<Self, Unable> {
        let files = root.read()?;
        let fingerprint = roots::fingerprint(&files);
        let home = documents::home(root.dir);
        let mut list = Vec::new();
        let mut broken = BTreeMap::new();
        let mut documents = Vec::with_capacity(files.len());
        for file in files {
            let path = file.path;
            let name = name_of(&path).map(str::to_owned);
            let read = file.text.and_then(|text| {
                let document = documents::parse(&text)?;
                Ok((text, document))
            });
            let (text, schema) = match (read, &name) {
                (Ok(read), _) => read,
                (Err(why), Some(name)) => {
                    warn("broken_schema", &format!("path={path} {why}"));
                    broken.insert(name.clone(), why);
                    continue;
                }
                // Whatever refers to it will say so.
                (Err(_), None) => continue,
            };
            let uri = documents::uri(&home, &path);
            if let Some(name) = &name {
                list.push(Schema {
                    name: name.clone(),
                    version: version(&schema),
                    path: path.clone(),
                    text,
                    uri: uri.clone(),
                    validator: OnceLock::new(),
                });
            }
            documents.push(Read {
                path,
                uri,
                schema,
                is_listed: name.is_some(),
            });
        }
        list.sort_by(|a, b| (&a.name, &a.version, &a.path).cmp(&(&b.name, &b.version, &b.path)));
        Ok(Self {
            list,
            broken,
            registry: documents::registry(documents, max_violations)?,
            fingerprint,
        })
    }

    /// Compiles every schema, and warns about each that cannot be used.
    pub(crate) fn compile(&self) {
        for schema in &self.list {
            if let Err(why) = self.validator(schema) {
                warn("broken_schema", &format!("path={} {why}", schema.path));
            }
        }
    }

    pub(crate) fn list(&self) -> &[Schema] {
        &self.list
    }

    /// The fingerprint of the root: empty where there is none.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A schema by its name, or by the path under which it is listed.
    pub(crate) fn find(&self, name_or_path: &str) -> Option<&Schema> {
        let named = self.list.iter().find(|schema| schema.name == name_or_path);
        named.or_else(|| self.list.iter().find(|schema| schema.path == name_or_path))
    }

    /// The reason why a file with this name is not a schema, if it exists.
    pub(crate) fn why_broken(&self, name: &str) -> Option<&str> {
        self.broken.get(name).map(String::as_str)
    }

    /// The schema that validates under this name.
    pub(crate) fn usable(&self, name: &str) -> Result<Usable<'_>, Unusable> {
        // A file with the alias's own name counts only where there is none with the canonical one.
        for name in [naming::canonical(name), name] {
            if let Some(schema) = self.find(name) {
                return match self.validator(schema) {
                    Ok(validator) => Ok(Usable { schema, validator }),
                    Err(why) => Err(Unusable::broken(&schema.name, why)),
                };
            }
            if let Some(why) = self.why_broken(name) {
                return Err(Unusable::broken(name, why));
            }
        }
        Err(Unusable::NotFound {
            name: render::shorten(name, 80),
        })
    }

    fn validator<'a>(&self, schema: &'a Schema) -> Result<&'a Validator, &'a str> {
        let compiled = schema.validator.get_or_init(|| {
            let compiled = self.registry.compile_document(&schema.uri);
            compiled.map_err(|error| error.to_string())
        });
        compiled.as_ref().map_err(String::as_str)
    }
}

/// A schema that can be validated by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usable<'a> {
    schema: &'a Schema,
    validator: &'a Validator,
}

impl Usable<'_> {
    /// The name under which it is listed.
    pub(crate) fn name(&self) -> &str {
        &self.schema.name
    }

    pub(crate) fn title(&self) -> String {
        self.schema.title()
    }

    /// The verdict about an asset.
    pub(crate) fn check(&self, asset: &Json) -> Verdict {
        if let Some(value) = tree::read(asset.as_str()) {
            return self.check_tree(value);
        }
        match Exact::parse(asset.as_str()) {
            Ok(asset) => self.check_exact(&asset),
            Err(wrong) => Verdict::Invalid(Violations::one(wrong)),
        }
    }

    /// Validates an asset that was read already.
    pub(crate) fn check_exact(&self, asset: &Exact<'_>) -> Verdict {
        match asset.to_value() {
            Ok(value) => self.check_tree(value),
            Err(wrong) => Verdict::Invalid(Violations::one(wrong)),
        }
    }

    fn check_tree(&self, mut asset: Value) -> Verdict {
        if let Some(members) = asset.as_object_mut() {
            members.shift_remove(naming::SCHEMA_REF);
        }
        self.validator.verdict(&asset)
    }
}

/// Why nothing can be validated by a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    NotFound {
        name: String,
    },
    Broken {
        name: String,
        why: String,
    },
    /// An asset that names none.
    Unnamed,
}

impl Unusable {
    fn broken(name: &str, why: &str) -> Self {
        Self::Broken {
            name: name.to_owned(),
            why: why.to_owned(),
        }
    }

    /// A sentence for people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NotFound { name } => format!("there is no schema {name}"),
            Self::Broken { name, why } => format!("schema {name} cannot be used: {why}"),
            Self::Unnamed => "the asset names no schema in schema or $schemaRef".to_owned(),
        }
    }

    /// The error as a finding.
    pub(crate) fn violation(&self) -> Violation {
        Violation {
            path: "/schema".to_owned(),
            message: match self {
                Self::NotFound { .. } | Self::Unnamed => "schema_not_found".to_owned(),
                Self::Broken { .. } => self.message(),
            },
        }
    }
}

/// The name of the schema in a file that is listed.
fn name_of(path: &str) -> Option<&str> {
    let name = path.strip_suffix(SUFFIX)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

fn version(document: &Value) -> String {
    let member = |key: &str| document.get(key).and_then(Value::as_str);
    let version = member("version").or_else(|| member("x-schema-version"));
    version.unwrap_or_default().to_owned()
}
