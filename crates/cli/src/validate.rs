//! `mainstay validate` and `mainstay --validate`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay_pack_asset::{AssetSettings, FileError, validate_file};

use crate::args::{Packs, Render, Validate};
use crate::environment::Environment;
use crate::exit::{self, Failure, print};
use crate::local;

/// Validates one file: 0 valid, 1 not valid, 2 no asset at all.
pub(crate) fn run(arguments: &Validate) -> Result<ExitCode, Failure> {
    let environment = Environment::read()?;
    let packs = Packs {
        config: arguments.config.clone(),
        ..Packs::default()
    };
    let settings = local::asset_settings(&packs, &environment)?;
    let settings: AssetSettings = serde_json::from_str(settings.as_str())
        .context("the settings of the asset pack")
        .map_err(Failure::input)?;
    let found = validate_file(&settings, &arguments.path, arguments.schema.as_deref());
    let verdict = found.map_err(|error| {
        let hint = match error {
            FileError::Parse { .. } => Some("a file holds one JSON value"),
            FileError::Unable(_) | FileError::Read { .. } => None,
        };
        let failure = Failure::input(error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    match arguments.render {
        Some(Render::Porcelain) => print(&format!("{}\n", verdict.text))?,
        Some(Render::Json) | None => print(&format!("{}\n", verdict.json))?,
    }
    Ok(ExitCode::from(if verdict.is_valid {
        exit::SUCCESS
    } else {
        exit::NO
    }))
}
