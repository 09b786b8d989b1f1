//! Presets of the sandbox: what `npx`, `uvx` and virtual environments of Python need beside the server itself.
//!
//! `npx` and `uvx` get caches of their own per server. The user's caches hold programs that other commands execute without a
//! sandbox, so a server that may write to them gets out. Hosts of packages come from the configuration of the client; a
//! preset names none.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow};
use mainstay_sandbox::{environment_below, runtime_of_environment};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::{Environment, variable};
use crate::exit::Failure;

/// Bytes of a client's configuration.
const CONFIGURATION: u64 = 1 << 20;
/// The configuration of npm in a project.
const NPMRC: &str = ".npmrc";
/// Letters of a server's name in the name of its cache.
const NAME: usize = 48;

/// A way to start servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Preset {
    /// `npx` and `npm exec`
    Npx,
    /// `uvx` and `uv run`
    Uvx,
    /// A virtual environment of Python: in VIRTUAL_ENV, or `.venv` where the server runs
    Venv,
}

/// A server that is about to be sandboxed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [OsString],
    pub(crate) cwd: Option<&'a Path>,
}

/// The needs of a preset.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) runtime: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// `HOST:PORT` of registries.
    pub(crate) net: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
}

impl Preset {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Npx => "npx",
            Self::Uvx => "uvx",
            Self::Venv => "venv",
        }
    }

    /// The needs of a server that is started this way and may change the files below `write`.
    pub(crate) fn needs(self, server: Subject<'_>, write: &[PathBuf]) -> Result<Needs, Failure> {
        match self {
            Self::Npx => {
                let cache = cache_of(server, self)?;
                let registries = npm_registries(server, write).map_err(|error| {
                    Failure::input(error.context("preset npx: the registry is not known"))
                        .hint("is npm installed beside npx?")
                })?;
                let set = |name: &str, value: &Path| (name.to_owned(), value.display().to_string());
                let mut variables = vec![
                    set("npm_config_cache", &cache),
                    // The user's own file may hold tokens.
                    set("npm_config_userconfig", &cache.join("npmrc")),
                ];
                if let Some(registry) = registries.first() {
                    variables.push((
                        "npm_config_registry".to_owned(),
                        without_credentials(registry),
                    ));
                }
                variables.push(("npm_config_update_notifier".to_owned(), "false".to_owned()));
                Ok(Needs {
                    net: endpoints(&registries),
                    write: vec![cache],
                    variables,
                    ..Needs::default()
                })
            }
            Self::Uvx => {
                let cache = cache_of(server, self)?;
                let indexes = uv_indexes();
                let set = |name: &str, below: &str| {
                    (name.to_owned(), cache.join(below).display().to_string())
                };
                let mut variables = vec![
                    set("UV_CACHE_DIR", "cache"),
                    set("UV_TOOL_DIR", "tools"),
                    ("UV_NO_CONFIG".to_owned(), "1".to_owned()),
                ];
                if let Some((first, others)) = indexes.split_first() {
                    variables.push(("UV_DEFAULT_INDEX".to_owned(), without_credentials(first)));
                    if !others.is_empty() {
                        let others: Vec<String> =
                            others.iter().map(|url| without_credentials(url)).collect();
                        variables.push(("UV_INDEX".to_owned(), others.join(" ")));
                    }
                }
                let pythons = data_home().map(|data| data.join("uv/python"));
                Ok(Needs {
                    runtime: pythons.into_iter().filter(|path| path.is_dir()).collect(),
                    net: endpoints(&indexes),
                    write: vec![cache],
                    variables,
                })
            }
            Self::Venv => {
                let named = variable("VIRTUAL_ENV").map(PathBuf::from);
                let here = server
                    .cwd
                    .map_or_else(|| PathBuf::from(".venv"), |cwd| cwd.join(".venv"));
                let of_program = environment_below(server.program);
                let found: Vec<PathBuf> = [of_program, named, Some(here)]
                    .into_iter()
                    .flatten()
                    .filter(|folder| folder.join("pyvenv.cfg").is_file())
                    .collect();
                let Some(environment) = found.first() else {
                    let said = anyhow!("preset venv: there is no virtual environment");
                    return Err(Failure::input(said)
                        .hint("set VIRTUAL_ENV, or start the python of the environment"));
                };
                Ok(Needs {
                    runtime: runtime_of_environment(environment),
                    variables: vec![("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned())],
                    ..Needs::default()
                })
            }
        }
    }
}

/// A cache for this server alone.
fn cache_of(server: Subject<'_>, preset: Preset) -> Result<PathBuf, Failure> {
    let Some(caches) = Environment::read_for_operator()?.cache_dir else {
        let said = anyhow!("preset {}: there is no place for its cache", preset.name());
        return Err(Failure::input(said).hint("set MAINSTAY_CACHE_DIR or HOME"));
    };
    let mut command = DefaultHasher::new();
    (server.program, server.arguments, server.cwd).hash(&mut command);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name = server.name.chars().map(|c| if fits(c) { c } else { '_' });
    let name: String = name.take(NAME).collect();
    let folder = format!("{name}-{:016x}", command.finish());
    let cache = caches.join("sandbox").join(preset.name()).join(folder);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&cache);
    made.and_then(|()| cache.canonicalize()).map_err(|error| {
        Failure::input(anyhow!(
            "preset {}: {}: {error}",
            preset.name(),
            cache.display()
        ))
    })
}

/// The registries that npm is configured for, the default one first. npm itself knows all the places of its configuration.
/// The file of the project does not count if the server may change it: it would choose the hosts that its next start opens.
fn npm_registries(server: Subject<'_>, write: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let npm = server.program.with_file_name("npm");
    let mut command = Command::new(if npm.is_file() { npm } else { "npm".into() });
    command
        .args(["config", "list", "--json"])
        .stdin(Stdio::null());
    let here = server.cwd.unwrap_or(Path::new("."));
    let here = here.canonicalize().context("npm config list --json")?;
    let mut files = here.ancestors().map(|folder| folder.join(NPMRC));
    let is_its = files.any(|file| write.iter().any(|path| file.starts_with(path)));
    command.current_dir(if is_its { Path::new("/") } else { &here });
    let output = command.output().context("npm config list --json")?;
    let values: Value = serde_json::from_slice(&output.stdout).context("npm config list --json")?;
    registries_in(&values)
}

fn registries_in(values: &Value) -> anyhow::Result<Vec<String>> {
    let default = values.get("registry").and_then(Value::as_str);
    let default = default.context("npm has no registry")?.to_owned();
    let scoped = values.as_object().into_iter().flatten();
    let scoped = scoped.filter(|(key, _)| key.ends_with(":registry"));
    let scoped: BTreeSet<String> = scoped
        .filter_map(|(_, value)| value.as_str().map(str::to_owned))
        .collect();
    Ok([default].into_iter().chain(scoped).collect())
}

/// The package indexes that uv is configured for, the default one first. Without any uv uses the public one, whose hosts it
/// does not tell; `--net` or a learned profile names them.
fn uv_indexes() -> Vec<String> {
    let user = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let user = user.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")));
    let files = [
        user.map(|user| user.join("uv/uv.toml")),
        Some("/etc/uv/uv.toml".into()),
    ];
    let texts = files.into_iter().flatten().filter_map(|path| {
        let mut text = String::new();
        let file = fs::File::open(path).ok()?;
        file.take(CONFIGURATION).read_to_string(&mut text).ok()?;
        Some(text)
    });
    indexes_in(&variable, texts)
}

fn indexes_in(
    variable: &impl Fn(&str) -> Option<String>,
    texts: impl Iterator<Item = String>,
) -> Vec<String> {
    let words = |name: &str| {
        let value = variable(name).unwrap_or_default();
        let urls = value
            .split_whitespace()
            .map(|word| match word.split_once('=') {
                // An index may have a name.
                Some((name, url)) if !name.contains(':') => url.to_owned(),
                _ => word.to_owned(),
            });
        urls.collect::<Vec<_>>()
    };
    let mut defaults = [words("UV_DEFAULT_INDEX"), words("UV_INDEX_URL")].concat();
    let mut others = [words("UV_INDEX"), words("UV_EXTRA_INDEX_URL")].concat();
    for text in texts {
        let Ok(file) = toml::from_str::<Value>(&text) else {
            continue;
        };
        defaults.extend(
            file.get("index-url")
                .and_then(Value::as_str)
                .map(str::to_owned),
        );
        let extra = file.get("extra-index-url").and_then(Value::as_array);
        others.extend(
            extra
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned),
        );
        for index in file
            .get("index")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(url) = index.get("url").and_then(Value::as_str) else {
                continue;
            };
            match index.get("default") == Some(&Value::Bool(true)) {
                true => defaults.push(url.to_owned()),
                false => others.push(url.to_owned()),
            }
        }
    }
    defaults.truncate(1);
    let mut all = [defaults, others].concat();
    let mut known = BTreeSet::new();
    all.retain(|url| known.insert(url.clone()));
    all
}

/// `HOST:PORT` of URLs.
fn endpoints(urls: &[String]) -> Vec<String> {
    let found: BTreeSet<String> = urls.iter().filter_map(|url| endpoint(url)).collect();
    found.into_iter().collect()
}

fn endpoint(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit('@').next()?;
    let port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let has_port = place
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if has_port {
        place.to_owned()
    } else {
        format!("{place}:{port}")
    })
}

/// A URL for the server's environment. Who must log in names the variable or the file with the credentials.
fn without_credentials(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let place = authority.rsplit('@').next().unwrap_or(authority);
            format!("{scheme}://{place}{path}")
        }
        None => url.to_owned(),
    }
}

fn data_home() -> Option<PathBuf> {
    let named = variable("XDG_DATA_HOME").map(PathBuf::from);
    named.or_else(|| Some(Path::new(&variable("HOME")?).join(".local/share")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn registries_become_endpoints_without_credentials() {
        let urls = [
            "https://user:pass@npm.example.com/path/",
            "http://10.0.0.1:4873",
            "https://[2001:db8::1]/x",
            "file:///x",
        ]
        .map(str::to_owned);
        let expected = ["10.0.0.1:4873", "[2001:db8::1]:443", "npm.example.com:443"];
        assert_eq!(endpoints(&urls), expected);
        let [first, ..] = &urls;
        assert_eq!(without_credentials(first), "https://npm.example.com/path/");
    }

    #[test]
    fn npm_names_its_registries() {
        let values = json!({"cache": "/x", "registry": "https://a/", "@b:registry": "https://b/"});
        assert_eq!(
            registries_in(&values).unwrap(),
            ["https://a/", "https://b/"]
        );
        assert!(registries_in(&json!({})).is_err());
    }

    #[test]
    fn a_project_that_the_server_may_change_names_no_registry() {
        let folder = std::env::temp_dir().join(format!("mainstay-npmrc-{}", std::process::id()));
        let project = folder.join("project");
        fs::create_dir_all(project.join("data")).unwrap();
        fs::write(project.join(NPMRC), "").unwrap();
        let npm = "#!/bin/sh\nif [ -f .npmrc ]; then echo '{\"registry\":\"http://127.0.0.1:5432\"}'; \
            else echo '{\"registry\":\"https://a\"}'; fi\n";
        fs::write(folder.join("npm"), npm).unwrap();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.join("npm"), everyone).unwrap();
        let server = Subject {
            name: "server",
            program: &folder.join("npx"),
            arguments: &[],
            cwd: Some(&project),
        };
        let named = |write: &[PathBuf]| npm_registries(server, write).unwrap();
        let project = project.canonicalize().unwrap();
        assert_eq!(named(&[project.join("data")]), ["http://127.0.0.1:5432"]);
        for write in [
            &project,
            &project.join(NPMRC),
            &folder.canonicalize().unwrap(),
        ] {
            assert_eq!(named(std::slice::from_ref(write)), ["https://a"]);
        }
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn uv_names_its_indexes() {
        let set = |name: &str| match name {
            "UV_INDEX" => Some("mine=https://b/simple https://c/simple".to_owned()),
            _ => None,
        };
        let file =
            "extra-index-url = [\"https://d\"]\n[[index]]\nurl = \"https://a\"\ndefault = true\n";
        let found = indexes_in(&set, [file.to_owned(), "broken =".to_owned()].into_iter());
        assert_eq!(
            found,
            [
                "https://a",
                "https://b/simple",
                "https://c/simple",
                "https://d"
            ]
        );
    }
}
