//! A folder of published definitions, one file per tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use mainstay_schema::lock::pretty_json;
use serde_json::Value;

use super::store::{replace, text_of};
use crate::exit::Failure;

/// A folder of published definitions.
#[derive(Debug)]
pub(crate) struct Definitions {
    folder: PathBuf,
    /// The tools that have a file.
    names: BTreeSet<String>,
}

/// How a file differs from the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Absent,
    Differs,
    /// There is no such tool any more.
    Stale,
}

impl Difference {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Absent => "there is no file",
            Self::Differs => "the file differs",
            Self::Stale => "there is no such tool",
        }
    }
}

impl Definitions {
    /// Looks which files there are. A folder that is not there is empty.
    pub(crate) fn load(folder: &Path) -> Result<Self, Failure> {
        let mut names = BTreeSet::new();
        if folder.exists() {
            let cannot = || format!("cannot look into {}", folder.display());
            let entries = std::fs::read_dir(folder)
                .with_context(cannot)
                .map_err(Failure::input)?;
            for entry in entries {
                let entry = entry.with_context(cannot).map_err(Failure::input)?;
                let name = entry.file_name();
                let tool = name.to_str().and_then(|name| name.strip_suffix(".json"));
                names.extend(tool.filter(|tool| is_plain(tool)).map(str::to_owned));
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            names,
        })
    }

    /// How the files differ from the tools, by tool.
    pub(crate) fn differences(
        &self,
        tools: &BTreeMap<String, Value>,
    ) -> Result<Vec<(String, Difference)>, Failure> {
        let mut found = Vec::new();
        for (name, definition) in tools {
            let text = text_of(&self.path(name)?)?;
            let difference = match text {
                None => Difference::Absent,
                Some(text) if text != pretty_json(definition) => Difference::Differs,
                Some(_) => continue,
            };
            found.push((name.clone(), difference));
        }
        for name in &self.names {
            if !tools.contains_key(name) && self.is_definition(name)? {
                found.push((name.clone(), Difference::Stale));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// Makes the files equal to the tools, and says what was done.
    pub(crate) fn write(
        &self,
        tools: &BTreeMap<String, Value>,
    ) -> Result<Vec<(String, Difference)>, Failure> {
        let differences = self.differences(tools)?;
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))
            .map_err(Failure::input)?;
        for (name, _) in &differences {
            let path = self.path(name)?;
            match tools.get(name) {
                Some(definition) => {
                    replace(&path, &pretty_json(definition))?;
                }
                None => std::fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))
                    .map_err(Failure::input)?,
            }
        }
        Ok(differences)
    }

    /// Whether a file holds the definition of the tool that it is called after; any other file
    /// is somebody's own.
    fn is_definition(&self, name: &str) -> Result<bool, Failure> {
        let text = text_of(&self.path(name)?)?.unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_named = value.get("name").and_then(Value::as_str) == Some(name);
        Ok(is_named && value.get("inputSchema").is_some())
    }

    fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        if is_plain(name) {
            return Ok(self.folder.join(format!("{name}.json")));
        }
        let said = anyhow!("the tool {name:?} cannot have a file of its name");
        Err(Failure::input(said).hint("do without --schemas, or rename the tool"))
    }
}

/// Whether a tool's name is a file's name and nothing more.
fn is_plain(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(good)
}
