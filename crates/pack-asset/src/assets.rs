//! Everything that the tools work on.

use mainstay_worker::{Json, Unable};
use serde_json::json;

use crate::backend::Backend;
use crate::examples::Examples;
use crate::roots::Root;
use crate::schemas::Schemas;
use crate::settings::AssetSettings;

/// The roots as they were at start, and the rules of the settings.
#[derive(Debug, Default)]
pub(crate) struct Assets {
    pub(crate) schemas: Schemas,
    pub(crate) examples: Examples,
    pub(crate) max_batch: usize,
    pub(crate) backend: Option<Backend>,
    pub(crate) allow_unvalidated: bool,
}

impl Assets {
    /// Reads the roots and checks the settings.
    pub(crate) fn load(settings: &AssetSettings) -> Result<Self, Unable> {
        settings.check()?;
        let schemas = load_schemas(settings)?;
        let examples = match &settings.examples_dir {
            Some(dir) => Examples::load(&Root {
                what: "examples",
                variable: "SYN_EXAMPLES_DIR",
                dir,
            })?,
            None => Examples::default(),
        };
        let backend = match &settings.backend_url {
            Some(base) => {
                let authorities = settings.backend_ca_file.as_deref();
                let path = &settings.backend_assets_path;
                Some(Backend::new(base, path, authorities)?)
            }
            None => None,
        };
        Ok(Self {
            schemas,
            examples,
            max_batch: settings.max_batch,
            backend,
            allow_unvalidated: settings.allow_unvalidated,
        })
    }

    /// Facts for operators.
    pub(crate) fn facts(&self, settings: &AssetSettings) -> Json {
        Json::from(json!({
            // The host compares these with what the worker before has read.
            "roots": {
                "schemas": {
                    "dir": settings.schemas_dir,
                    "files": self.schemas.list().len(),
                    "fingerprint": self.schemas.fingerprint(),
                },
                "examples": {
                    "dir": settings.examples_dir,
                    "files": self.examples.list().len(),
                    "fingerprint": self.examples.fingerprint(),
                },
            },
            "max_batch": self.max_batch,
            "backend_url": self.backend.as_ref().map(Backend::base),
            "allow_unvalidated": self.allow_unvalidated,
        }))
    }
}

/// Reads the schemas alone.
pub(crate) fn load_schemas(settings: &AssetSettings) -> Result<Schemas, Unable> {
    match &settings.schemas_dir {
        Some(dir) => {
            let root = Root {
                what: "schemas",
                variable: "SYN_SCHEMAS_DIR",
                dir,
            };
            Schemas::load(&root, settings.max_violations)
        }
        None => Ok(Schemas::default()),
    }
}
