//! The sandbox of a server: settings of the command line and of files, as one policy.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use mainstay_host::config::Sandbox;
use mainstay_sandbox::{Net, Policy, Resources, runtime_of};
use serde::Deserialize;
use serde_json::Value;

use crate::exit::Failure;

/// How strictly a sandbox is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// The server starts only if the kernel offers every restriction
    #[default]
    Strict,
    /// The server starts with the restrictions that there are
    BestEffort,
}

/// `sandbox` in a file: `true`, a mode, or a table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// One of `none`, `loopback` and `all`, or endpoints.
    pub(crate) net: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) resources: Resources,
}

impl Settings {
    /// Reads the value of `sandbox`; `None` for `false`.
    pub(crate) fn from_value(value: Value) -> anyhow::Result<Option<Self>> {
        match value {
            Value::Bool(false) => Ok(None),
            Value::Bool(true) => Ok(Some(Self::default())),
            mode @ Value::String(_) => Ok(Some(Self {
                mode: serde_json::from_value(mode)?,
                ..Self::default()
            })),
            Value::Object(mut table) => {
                if let Some(net @ Value::String(_)) = table.get_mut("net") {
                    *net = Value::Array(vec![net.take()]);
                }
                let settings: Self = serde_json::from_value(Value::Object(table))?;
                Net::parse(&settings.net).map_err(|error| anyhow!("net: {error}"))?;
                Ok(Some(settings))
            }
            _ => Err(anyhow!(
                "it must be true, false, strict, best-effort or a table"
            )),
        }
    }

    /// The sandbox of a program. Paths are relative to the directory in which it runs.
    pub(crate) fn sandbox(
        &self,
        program: &Path,
        arguments: &[OsString],
        cwd: Option<&Path>,
    ) -> Result<Box<Sandbox>, Failure> {
        let mut read = runtime_of(program, arguments, cwd);
        read.retain(|path| path.exists());
        read.extend(absolute(&self.read, cwd)?);
        let policy = Policy {
            read,
            write: absolute(&self.write, cwd)?,
            net: Net::parse(&self.net)
                .map_err(|error| Failure::input(anyhow!("--net: {error}")))?,
            resources: self.resources.clone(),
            best_effort: self.mode == Mode::BestEffort,
        };
        Ok(Box::new(Sandbox {
            policy,
            env: self.env.clone(),
        }))
    }
}

/// Whole paths of files and directories that exist.
fn absolute(paths: &[PathBuf], cwd: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let whole = paths.iter().map(|path| {
        let path = cwd.map_or_else(|| path.clone(), |cwd| cwd.join(path));
        let found = path.canonicalize().map_err(|error| {
            Failure::input(anyhow!(
                "the sandbox cannot allow {}: {error}",
                path.display()
            ))
            .hint("name a file or a directory that exists")
        })?;
        match found.to_str() {
            Some(_) => Ok(found),
            None => Err(Failure::input(anyhow!(
                "{}: the path is not UTF-8",
                path.display()
            ))),
        }
    });
    whole.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_may_say_it_in_one_word_or_in_a_table() {
        let read = |value| Settings::from_value(value).unwrap();
        assert_eq!(read(json!(false)), None);
        assert_eq!(read(json!(true)), Some(Settings::default()));
        assert_eq!(read(json!("best-effort")).unwrap().mode, Mode::BestEffort);
        let table = read(
            json!({"net": "loopback", "read": ["."], "env": ["KEY"], "resources": {"processes": 5}}),
        );
        let table = table.unwrap();
        assert_eq!(table.net, ["loopback"]);
        assert_eq!(table.resources.processes, 5);
        assert_eq!(
            table.resources.descriptors,
            Resources::default().descriptors
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (value, said) in [
            (json!(5), "must be true"),
            (json!("weak"), "weak"),
            (json!({"reads": []}), "reads"),
            (json!({"net": "internet"}), "HOST:PORT"),
        ] {
            let error = Settings::from_value(value).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let absent = Settings {
            write: vec!["/absent/for/sure".into()],
            ..Settings::default()
        };
        let failure = absent
            .sandbox(Path::new("/bin/true"), &[], None)
            .unwrap_err();
        assert!(failure.error.to_string().contains("/absent/for/sure"));
    }
}
