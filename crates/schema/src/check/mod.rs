//! Checks of what passes a tool: arguments before a call, the reply after it.
//!
//! A [`Definition`] holds everything that a check needs to know of one tool, as text. It is a value:
//! it serialises, compares by [`Definition::digest`] and can be sent to another process.
//! [`Compiled::compile`] turns it into validators, [`Compiled::run`] checks one [`Subject`] and
//! returns a [`Verdict`]. Both are pure.
//!
//! A peer chooses schemas and payloads, so both can be expensive. [`Definition::is_cheap_to_compile`]
//! and [`Compiled::is_cheap`] answer true only where `cost` proves a bound. Run everything else where
//! it can be stopped; [`GaveUp`] names the reasons for which a caller stops it.
//!
//! Left out: rules of a client's dialect, the wording of errors, and bounds on text.

mod compiled;
mod cost;
mod free;
mod pattern;
mod shape;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use mainstay_contract::json::Json;
use mainstay_contract::normalise::usual_aliases;
use mainstay_contract::render::RenderMode;
use mainstay_contract::tool::ToolSpec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::compiled::Compiled;
use self::cost::Profile;
use crate::{Fingerprint, Violation};

/// One tool, as far as its checks depend on it. Clones share it; its fields never change.
#[derive(Clone, Debug)]
pub struct Definition(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parts: Parts,
    digest: OnceLock<Fingerprint>,
    /// Bounds of both schemas; `None` inside where no bound is proven.
    profiles: OnceLock<Option<Profiles>>,
}

/// The fields of a [`Definition`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    pub name: String,
    /// Schema of the arguments; `None` skips their check.
    pub input: Option<Json>,
    /// Schema of the structured reply; `None` skips its check.
    pub output: Option<Json>,
    /// Argument aliases: the alias and the name in the schema.
    pub aliases: Vec<(String, String)>,
    pub side: Owner,
}

/// The author of a tool, which decides the rules of its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A pack or the host itself: arguments are normalised, and both schemas must compile.
    Pack,
    /// A wrapped server: arguments pass unchanged, and a schema that does not compile is skipped.
    Server,
}

/// The value to check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Arguments(Json),
    /// A pack's reply, or the `structuredContent` of a server's result.
    Reply(Json),
    /// A server's result without `structuredContent`.
    NoReply,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The reply or the server's arguments fit, or their check is switched off.
    Passed,
    /// A pack's arguments fit.
    Prepared {
        /// Normalised and without `render`. Members that normalisation did not touch keep every byte.
        arguments: Json,
        /// The value of `render`, where the call has one.
        render: Option<RenderMode>,
    },
    /// The value does not fit. At least one violation, the one to report first.
    Rejected { violations: Vec<Violation> },
    /// The server's schema does not compile, so the value was not checked.
    Unchecked { reason: String },
    /// The check did not finish.
    GaveUp { reason: GaveUp },
}

/// Why a check did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// Its deadline passed.
    Deadline,
    /// It needed more memory than a check may use.
    Memory,
    /// The process that ran it ended.
    Crashed,
    /// Too many checks were waiting.
    Budget,
}

#[derive(Debug)]
struct Profiles {
    input: Option<Profile>,
    output: Option<Profile>,
}

impl Definition {
    /// The definition with these fields.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Shared {
            parts,
            digest: OnceLock::new(),
            profiles: OnceLock::new(),
        }))
    }

    /// The definition of a pack's tool.
    pub fn of_pack(spec: &ToolSpec) -> Self {
        Self::new(Parts {
            name: spec.name.clone(),
            input: Some(Json::from_serialize(&spec.full_input_schema())),
            output: spec.output_schema.as_ref().map(Json::from_serialize),
            aliases: {
                let usual = usual_aliases(&spec.input_schema);
                spec.argument_aliases.iter().cloned().chain(usual).collect()
            },
            side: Owner::Pack,
        })
    }

    /// The definition of a server's tool, from its entry in `tools/list`.
    pub fn of_server(
        name: &str,
        definition: &Value,
        check_input: bool,
        check_output: bool,
    ) -> Self {
        let schema = |key: &str, wanted: bool| {
            let schema = definition.get(key).filter(|_| wanted)?;
            Some(Json::from_serialize(schema))
        };
        Self::new(Parts {
            name: name.to_owned(),
            input: schema("inputSchema", check_input),
            output: schema("outputSchema", check_output),
            aliases: Vec::new(),
            side: Owner::Server,
        })
    }

    /// SHA-256 over every field, computed once.
    pub fn digest(&self) -> Fingerprint {
        *self.0.digest.get_or_init(|| self.0.parts.digest())
    }

    /// Bytes of both schemas.
    pub fn schema_bytes(&self) -> usize {
        let schemas = self.input.iter().chain(&self.output);
        schemas.map(Json::len).fold(0, usize::saturating_add)
    }

    /// True if the check of this value depends on anything. If not, it passes at any size.
    pub fn reads(&self, subject: &Subject) -> bool {
        match (self.side, subject) {
            (Owner::Pack, _) => true,
            (Owner::Server, Subject::Arguments(_)) => self.input.is_some(),
            (Owner::Server, Subject::Reply(_) | Subject::NoReply) => self.output.is_some(),
        }
    }

    /// True if compiling it is proven to be quick: `cost` lists the conditions.
    pub fn is_cheap_to_compile(&self) -> bool {
        self.profiles().is_some()
    }

    /// The bounds of both schemas, if both have some.
    fn profiles(&self) -> Option<&Profiles> {
        let measure = || {
            let profile = |schema: Option<&Json>| match schema {
                Some(schema) => cost::profile(schema).map(Some),
                None => Some(None),
            };
            Some(Profiles {
                input: profile(self.input.as_ref())?,
                output: profile(self.output.as_ref())?,
            })
        };
        self.0.profiles.get_or_init(measure).as_ref()
    }
}

impl Deref for Definition {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.parts == other.0.parts
    }
}

impl Eq for Definition {}

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.parts.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Parts::deserialize(deserializer).map(Self::new)
    }
}

impl Parts {
    fn digest(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        // Each length goes before its text, so that no two lists of fields give the same bytes.
        let mut text = |text: &str| {
            hash.update(text.len().to_le_bytes());
            hash.update(text.as_bytes());
        };
        text(&self.name);
        for schema in [&self.input, &self.output] {
            // JSON text is never empty.
            text(schema.as_ref().map_or("", Json::as_str));
        }
        for (alias, name) in &self.aliases {
            text(alias);
            text(name);
        }
        text(match self.side {
            Owner::Pack => "pack",
            Owner::Server => "server",
        });
        Fingerprint(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts() -> Parts {
        Parts {
            name: "t".to_owned(),
            input: Some(Json::empty_object()),
            output: None,
            aliases: vec![("a".to_owned(), "b".to_owned())],
            side: Owner::Server,
        }
    }

    #[test]
    fn every_field_changes_the_digest() {
        let original = Definition::new(parts()).digest();
        let changed = |change: fn(&mut Parts)| {
            let mut parts = parts();
            change(&mut parts);
            Definition::new(parts).digest()
        };
        assert_eq!(original, changed(|_| ()));
        for other in [
            changed(|parts| parts.name = "u".to_owned()),
            changed(|parts| parts.input = None),
            changed(|parts| parts.output = parts.input.take()),
            changed(|parts| parts.aliases.clear()),
            changed(|parts| parts.aliases[0] = ("ab".to_owned(), String::new())),
            changed(|parts| parts.side = Owner::Pack),
        ] {
            assert_ne!(original, other);
        }
    }

    #[test]
    fn definitions_and_verdicts_survive_their_text() {
        let definition = Definition::new(parts());
        let text = serde_json::to_string(&definition).unwrap();
        let read: Definition = serde_json::from_str(&text).unwrap();
        assert_eq!(read, definition);
        assert_eq!(read.digest(), definition.digest());
        for verdict in [
            Verdict::Passed,
            Verdict::Prepared {
                arguments: Json::parse(r#"{"n":1.0}"#).unwrap(),
                render: Some(RenderMode::Json),
            },
            Verdict::Rejected {
                violations: vec![Violation {
                    path: "/a".to_owned(),
                    message: "expected number".to_owned(),
                }],
            },
            Verdict::Unchecked {
                reason: "x".to_owned(),
            },
            Verdict::GaveUp {
                reason: GaveUp::Memory,
            },
        ] {
            let text = serde_json::to_string(&verdict).unwrap();
            assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
        }
    }

    #[test]
    fn a_servers_definition_keeps_only_the_schemas_to_check() {
        let listed = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {}});
        let of = |input, output| Definition::of_server("t", &listed, input, output);
        assert_eq!(
            of(true, true).input.as_ref().unwrap().as_str(),
            r#"{"type":"object"}"#
        );
        assert!(of(false, true).input.is_none());
        assert!(of(false, true).output.is_some());
        assert!(of(true, false).output.is_none());
    }
}
