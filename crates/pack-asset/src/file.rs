//! Validating the asset in a file, for the command line.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use mainstay_schema::Violations;
use mainstay_worker::{Bounds, Json, Unable};
use serde_json::json;
use thiserror::Error;

use crate::assets;
use crate::exact::Exact;
use crate::naming;
use crate::settings::AssetSettings;
use crate::tools::verdict::{NOT_CHECKED_HINT, failed, not_checked_details, page, summary};

/// Largest file that is validated.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The reason for a missing verdict about a file.
#[derive(Debug, Error)]
pub enum FileError {
    /// The schemas cannot be read.
    #[error(transparent)]
    Unable(#[from] Unable),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not JSON: {detail}", path.display())]
    Parse { path: PathBuf, detail: String },
}

/// The findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub is_valid: bool,
    /// The answer of `validate_asset`.
    pub json: Json,
    /// The findings as text for reading.
    pub text: String,
}

/// The verdict about the asset in a file, as `validate_asset` gives it: `{"ok": true}`, or what is
/// wrong. Without a schema's name it is found as for an example: by the asset's own word, else by
/// the file's name.
pub fn validate_file(
    settings: &AssetSettings,
    path: &Path,
    schema: Option<&str>,
) -> Result<Verdict, FileError> {
    let text = read(path)?;
    let json = Json::parse(&text).map_err(|error| FileError::Parse {
        path: path.to_owned(),
        detail: error.to_string(),
    })?;
    let schemas = assets::load_schemas(settings)?;
    let asset = match Exact::parse(json.as_str()) {
        Ok(asset) => asset,
        Err(wrong) => {
            let one = Violations::one(wrong);
            return Ok(invalid(&one, "1 violation".to_owned()));
        }
    };
    let name = match schema {
        Some(name) => name.to_owned(),
        None => naming::own_name(&asset).unwrap_or_else(|| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            naming::name_of_file(naming::component(&file))
        }),
    };
    Ok(match schemas.usable(&name) {
        Ok(schema) => match schema.check_exact(&asset) {
            mainstay_schema::Verdict::Valid => Verdict {
                is_valid: true,
                json: Json::from(json!({"ok": true})),
                text: format!("valid: {}", schema.title()),
            },
            mainstay_schema::Verdict::Invalid(violations) => {
                invalid(&violations, summary(&violations, &schema))
            }
            mainstay_schema::Verdict::NotChecked(why) => {
                let json = Json::from(not_checked_details(&why));
                let title = format!("not checked against {}", schema.title());
                let text = page(title, &Violations::one(why))
                    .hint(NOT_CHECKED_HINT)
                    .finish(ALL);
                Verdict {
                    is_valid: false,
                    json,
                    text,
                }
            }
        },
        Err(why) => invalid(&Violations::one(why.violation()), why.message()),
    })
}

/// A file's verdict is read in a terminal, which has room for all of it.
const ALL: Bounds = Bounds {
    lines: usize::MAX,
    bytes: usize::MAX,
};

fn invalid(violations: &Violations, title: String) -> Verdict {
    Verdict {
        is_valid: false,
        json: Json::from(failed(violations)),
        text: page(title, violations).finish(ALL),
    }
}

fn read(path: &Path) -> Result<String, FileError> {
    let failed = |source: io::Error| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    if read.map_err(failed)? as u64 > MAX_BYTES {
        let said = format!("it has more than {MAX_BYTES} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, said)));
    }
    String::from_utf8(bytes).map_err(|_| FileError::Parse {
        path: path.to_owned(),
        detail: "it is not UTF-8".to_owned(),
    })
}
