//! One file, validated for a person at a command line.

use mainstay_schema::Violation;
use mainstay_worker::{Bounds, Json, Porcelain, Unable};
use serde_json::json;

use crate::assets::Assets;
use crate::exact::Exact;
use crate::naming;
use crate::settings::AssetSettings;
use crate::tools::verdict::{failed, lines, summary};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub is_valid: bool,
    /// The answer of `validate_asset`.
    pub json: Json,
    /// The same for reading.
    pub text: String,
}

/// Why a file is no asset at all.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Setup(#[from] Unable),
    #[error("not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// Validates a file like `validate_asset` does: by the schema that is named, else by the asset's
/// own word, else by the name of its file.
pub fn validate_file(
    settings: &AssetSettings,
    text: &str,
    file_name: &str,
    schema: Option<&str>,
) -> Result<Verdict, FileError> {
    let asset = Json::parse(text)?;
    let assets = Assets::load(settings)?;
    let name = schema.map_or_else(|| name_of(&asset, file_name), str::to_owned);
    let (violations, title) = match assets.schemas.usable(&name) {
        Ok(schema) => {
            let violations = schema.check(&asset);
            let title = if violations.is_empty() {
                format!("valid: {}", schema.title())
            } else {
                summary(&violations, &schema)
            };
            (violations, title)
        }
        Err(why) => (vec![why.violation()], why.message()),
    };
    Ok(verdict(&violations, title))
}

fn name_of(asset: &Json, file_name: &str) -> String {
    let component = file_name.split('.').next().unwrap_or(file_name);
    // What cannot be read exactly has no word of its own; its violations say why.
    let own = Exact::parse(asset.as_str()).ok();
    own.and_then(|asset| naming::own_name(&asset))
        .unwrap_or_else(|| naming::name_of_file(component))
}

fn verdict(violations: &[Violation], title: String) -> Verdict {
    let is_valid = violations.is_empty();
    let json = if is_valid {
        json!({"ok": true})
    } else {
        failed(violations)
    };
    let text = Porcelain::summary(title).items(lines(violations));
    Verdict {
        is_valid,
        json: Json::from(json),
        text: text.finish(Bounds::PORCELAIN),
    }
}
