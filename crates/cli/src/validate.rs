//! `mainstay validate` and `mainstay --validate`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use mainstay_pack_asset::{AssetSettings, FileError, validate_file};

use crate::args::{Packs, Render, Validate};
use crate::environment::Environment;
use crate::exit::{self, Failure, print};
use crate::local;

/// Largest file that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

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
    let path = &arguments.path;
    let text = read(path).map_err(Failure::input)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = validate_file(&settings, &text, &name, arguments.schema.as_deref());
    let verdict = found.map_err(|error| {
        let is_setup = matches!(error, FileError::Setup(_));
        let failure = Failure::input(if is_setup {
            error.into()
        } else {
            anyhow!("{}: {error}", path.display())
        });
        if is_setup {
            failure
        } else {
            failure.hint("a file holds one JSON value")
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

fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let about = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    if !about.is_file() {
        return Err(anyhow!("{shown} is not a file"));
    }
    if about.len() > MAX_BYTES {
        let size = about.len();
        return Err(anyhow!("{shown} has {size} bytes; {MAX_BYTES} are read"));
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{shown} is not UTF-8"))
}
