//! The sandbox of a server: settings of the command line, of files and of profiles, as one policy.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use mainstay_host::config::Sandbox;
use mainstay_sandbox::{Learn, Net, Policy, Resources, runtime_of};
use serde::Deserialize;
use serde_json::Value;

use crate::config_file;
use crate::environment::{Environment, variable};
use crate::exit::{self, Failure};
pub(crate) use crate::presets::{Preset, Subject};

/// How strictly a sandbox is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// The server starts only if the kernel offers every restriction
    #[default]
    Strict,
    /// The server starts with the restrictions that there are
    BestEffort,
    /// The server may use all files and the network, and a profile is written of what it uses
    Learn,
}

impl Mode {
    const WORDS: [(&'static str, Self); 3] = [
        ("strict", Self::Strict),
        ("best-effort", Self::BestEffort),
        ("learn", Self::Learn),
    ];
}

/// The value of `--sandbox`, or `sandbox` as a word: a mode, or the path of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Mode(Mode),
    Profile(PathBuf),
}

impl Choice {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let known = Mode::WORDS.iter().find(|(name, _)| *name == word);
        match known {
            Some((_, mode)) => Ok(Self::Mode(*mode)),
            None if word.contains(['/', '.']) => Ok(Self::Profile(word.into())),
            None => Err(format!(
                "{word:?} is not a mode; write strict, best-effort, learn, or the path of a profile such as ./server.toml"
            )),
        }
    }

    /// Applies it to the settings of a file.
    pub(crate) fn over(self, settings: &mut Settings) {
        match self {
            Self::Mode(mode) => settings.mode = mode,
            Self::Profile(path) => {
                if settings.mode == Mode::Learn {
                    settings.mode = Mode::Strict;
                }
                settings.profile = Some(path);
            }
        }
    }
}

/// `sandbox` in a file: `true`, a mode, the path of a profile, or a table. A profile is such a table in a file of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// The profile that these settings add to; with [`Mode::Learn`] the one that is written.
    pub(crate) profile: Option<PathBuf>,
    pub(crate) preset: Vec<Preset>,
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
            Value::String(word) => {
                let mut settings = Self::default();
                let choice = Choice::parse(&word).map_err(|error| anyhow!(error))?;
                choice.over(&mut settings);
                Ok(Some(settings))
            }
            Value::Object(mut table) => {
                for key in ["net", "preset"] {
                    if let Some(one @ Value::String(_)) = table.get_mut(key) {
                        *one = Value::Array(vec![one.take()]);
                    }
                }
                let settings: Self = serde_json::from_value(Value::Object(table))?;
                Net::parse(&settings.net).map_err(|error| anyhow!("net: {error}"))?;
                Ok(Some(settings))
            }
            _ => Err(anyhow!(
                "it must be true, false, strict, best-effort, learn, the path of a profile, or a table"
            )),
        }
    }

    /// Reads a profile.
    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let (text, is_json) = config_file::read(path)?;
        let table: Value = match is_json {
            true => serde_json::from_str(&text)?,
            false => toml::from_str(&text)
                .map_err(|error| anyhow!("{}", error.to_string().trim_end()))?,
        };
        anyhow::ensure!(table.is_object(), "a profile is a table");
        let settings = Self::from_value(table)?.context("a profile is a table")?;
        anyhow::ensure!(
            settings.profile.is_none() && settings.mode != Mode::Learn,
            "a profile has no profile of its own, and is not learned by itself"
        );
        Ok(settings)
    }

    /// Adds what a profile allows.
    fn add(&mut self, profile: Self) -> anyhow::Result<()> {
        let words = ["none", "loopback", "all"];
        let is_word = |net: &[String]| net.iter().any(|one| words.contains(&one.as_str()));
        match (is_word(&self.net), is_word(&profile.net)) {
            // Said beside the profile, it counts.
            (true, _) => {}
            (false, true) if !self.net.is_empty() && profile.net != ["all"] => {}
            (false, true) => self.net = profile.net,
            (false, false) => self.net.extend(profile.net),
        }
        self.net.dedup();
        self.preset.extend(profile.preset);
        self.preset.dedup();
        self.read.extend(profile.read);
        self.write.extend(profile.write);
        self.env.extend(profile.env);
        if self.resources == Resources::default() {
            self.resources = profile.resources;
        }
        if self.mode == Mode::Strict {
            self.mode = profile.mode;
        }
        Ok(())
    }

    /// The sandbox of a server. Paths are relative to the directory in which it runs.
    pub(crate) fn sandbox(&self, server: Subject<'_>) -> Result<Box<Sandbox>, Failure> {
        let mut settings = self.clone();
        let profile = settings.profile.take().map(|path| whole(&path, server.cwd));
        let learns = self.mode == Mode::Learn;
        let profile = match (profile, learns) {
            (None, true) => Some(default_profile(server.name)?),
            (profile, _) => profile,
        };
        if let Some(path) = profile.as_ref().filter(|path| !learns || path.exists()) {
            let read = Self::from_file(path);
            read.and_then(|profile| settings.add(profile))
                .map_err(|error| {
                    Failure::input(error.context(format!("the sandbox profile {}", path.display())))
                })?;
        }
        let (mut sandbox, private) = settings.applied(server)?;
        if let Some(path) = profile.as_ref().filter(|_| !learns) {
            reject_own_profile(path, &sandbox.policy)?;
        }
        if let (true, Some(file)) = (learns, profile) {
            let file = std::path::absolute(&file)
                .map_err(|error| Failure::input(anyhow!("{}: {error}", file.display())))?;
            exit::warn_once(format!(
                "{} runs without restrictions of files and network; its profile is written to {}",
                server.name,
                file.display()
            ));
            sandbox.policy.learn = Some(Learn {
                file,
                name: server.name.to_owned(),
                home: variable("HOME")
                    .map(PathBuf::from)
                    .and_then(|home| home.canonicalize().ok()),
                env: settings.env.clone(),
                presets: settings
                    .preset
                    .iter()
                    .map(|one| one.name().to_owned())
                    .collect(),
                private,
            });
        }
        Ok(sandbox)
    }

    /// The sandbox, and what presets let the server write.
    fn applied(&self, server: Subject<'_>) -> Result<(Box<Sandbox>, Vec<PathBuf>), Failure> {
        let (mut runtime, mut variables) = (
            runtime_of(server.program, server.arguments, server.cwd),
            Vec::new(),
        );
        let mut write = absolute(&self.write, server.cwd)?;
        let (mut net, mut private) = (self.net.clone(), Vec::new());
        for preset in &self.preset {
            let needs = preset.needs(server, &write)?;
            runtime.extend(needs.runtime);
            private.extend(needs.write);
            variables.extend(needs.variables);
            if net.iter().all(|one| one.contains(':')) {
                net.extend(needs.net);
            }
        }
        write.extend(private.iter().cloned());
        let policy = Policy {
            runtime,
            read: absolute(&self.read, server.cwd)?,
            write,
            net: Net::parse(&net).map_err(|error| Failure::input(anyhow!("--net: {error}")))?,
            resources: self.resources.clone(),
            best_effort: self.mode == Mode::BestEffort,
            learn: None,
        };
        let sandbox = Sandbox {
            policy,
            env: self.env.clone(),
            variables,
        };
        Ok((Box::new(sandbox), private))
    }
}

/// Rejects a profile that its own server may change: the next start would give the server whatever it wrote.
fn reject_own_profile(profile: &Path, policy: &Policy) -> Result<(), Failure> {
    let Ok(file) = profile.canonicalize() else {
        return Ok(());
    };
    let below = policy.write.iter().find(|path| file.starts_with(path));
    match below {
        None => Ok(()),
        Some(path) => {
            let said = anyhow!(
                "the sandbox profile {} is below {}, which the server may change: it could give itself more",
                profile.display(),
                path.display()
            );
            let hint = "move the profile out of the paths of write, or name a smaller path there";
            Err(Failure::input(said).hint(hint))
        }
    }
}

/// A profile's place where none is named.
fn default_profile(name: &str) -> Result<PathBuf, Failure> {
    let Some(state) = Environment::read_for_operator()?.state_dir else {
        let said = anyhow!("there is no place for the sandbox profile of {name}");
        return Err(Failure::input(said).hint("name a file with --profile"));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    Ok(state.join("sandbox").join(format!("{name}.toml")))
}

/// A path with `~` as the home directory, below the directory of the server.
fn whole(path: &Path, cwd: Option<&Path>) -> PathBuf {
    let below_home = path.strip_prefix("~").ok();
    let home = below_home.and_then(|below| Some(Path::new(&variable("HOME")?).join(below)));
    let path = home.unwrap_or_else(|| path.to_owned());
    cwd.map_or_else(|| path.clone(), |cwd| cwd.join(&path))
}

/// Whole paths of files and directories that exist.
fn absolute(paths: &[PathBuf], cwd: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let whole = paths.iter().map(|path| {
        let path = whole(path, cwd);
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

    fn server() -> Subject<'static> {
        Subject {
            name: "server",
            program: Path::new("/bin/true"),
            arguments: &[],
            cwd: None,
        }
    }

    #[test]
    fn a_profile_adds_to_what_stands_beside_it() {
        let folder = std::env::temp_dir().join(format!("mainstay-profile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let profile = folder.join("profile.toml");
        let text = "read = [\"/usr\"]\nnet = [\"a.example:1\"]\nenv = [\"A\"]\n[resources]\nprocesses = 5\n";
        std::fs::write(&profile, text).unwrap();
        let read = |value| Settings::from_value(value).unwrap().unwrap();
        let named = profile.to_str().unwrap();
        let beside = json!({"profile": named, "net": "b.example:2", "read": ["/etc"]});
        let sandbox = read(beside).sandbox(server()).unwrap();
        assert_eq!(sandbox.policy.read, [Path::new("/etc"), Path::new("/usr")]);
        assert_eq!(sandbox.policy.resources.processes, 5);
        assert_eq!(
            (sandbox.env.as_slice(), sandbox.policy.learn),
            (&["A".to_owned()][..], None)
        );
        let Net::Hosts(hosts) = &sandbox.policy.net else {
            panic!("{:?}", sandbox.policy.net);
        };
        assert_eq!(hosts.len(), 2);
        let none = json!({"profile": named, "net": "none"});
        assert_eq!(read(none).sandbox(server()).unwrap().policy.net, Net::None);
        // In one word, too; and learning adds to the profile.
        assert_eq!(read(json!(named)).profile, Some(profile.clone()));
        let learns = read(json!({"mode": "learn", "profile": named}))
            .sandbox(server())
            .unwrap();
        let learn = learns.policy.learn.unwrap();
        assert_eq!(
            (learn.file, learn.env),
            (profile.clone(), vec!["A".to_owned()])
        );
        for wrong in [
            "reads = []",
            "mode = \"learn\"",
            "profile = \"/x\"",
            "net = [\"x\"]",
            "=",
        ] {
            std::fs::write(&profile, wrong).unwrap();
            let failure = read(json!(named)).sandbox(server()).unwrap_err();
            let said = format!("{:#}", failure.error);
            assert!(said.contains("profile.toml"), "{wrong}: {said}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        let failure = read(json!(named)).sandbox(server()).unwrap_err();
        assert!(format!("{:#}", failure.error).contains("cannot read"));
    }

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
    fn a_profile_that_its_server_may_change_is_refused() {
        let folder =
            std::env::temp_dir().join(format!("mainstay-own-profile-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("notes")).unwrap();
        let profile = folder.join("profile.toml");
        std::fs::write(&profile, "read = [\"/usr\"]\n").unwrap();
        let with = |write: &Path, mode: &str| {
            let named = json!({"profile": profile, "write": [write], "mode": mode});
            let settings = Settings::from_value(named).unwrap().unwrap();
            settings.sandbox(server())
        };
        let failure = with(&folder, "strict").unwrap_err();
        assert!(failure.error.to_string().contains("could give itself more"));
        assert!(with(&folder.join("notes"), "strict").is_ok());
        // A server that is learned from may change everything anyway.
        assert!(with(&folder, "learn").is_ok());
        let _ = std::fs::remove_dir_all(&folder);
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
        let failure = absent.sandbox(server()).unwrap_err();
        assert!(failure.error.to_string().contains("/absent/for/sure"));
    }
}
