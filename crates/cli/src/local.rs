//! From arguments, environment and configuration file to a host's configuration.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::render::RenderMode;
use mainstay_host::config::{Command, Config, FollowsRoots, IdSource, Pack, Transport, Watched};
use mainstay_host::files;
use serde_json::{Map, Value, json};

use crate::VERSION;
use crate::args::Packs;
use crate::builtin::{Executable, NAMES};
use crate::config_file::{ConfigFile, PackSection};
use crate::environment::{Environment, withheld};
use crate::exit::{self, Failure};
use crate::program;
use crate::sandbox::Subject;
use crate::server_file::FRAME_BYTES;
use crate::servers;
use crate::start;

/// What every client is told about this server.
const INSTRUCTIONS: &str = "Tool failures are JSON with a stable code, a hint and whether a retry \
can help. Ask system_health when something seems slow or broken.";

/// The server's name in `serverInfo`, and the host's where it has no other.
const NAME: &str = "mainstay";

/// A host's configuration for these packs.
pub(crate) fn config(
    packs: &Packs,
    environment: &Environment,
    file: ConfigFile,
    transport: Transport,
) -> Result<Config, Failure> {
    let asset = Asset::of(environment, &file);
    let executable = Executable::open()?;
    let code = Code::of(packs, environment, &file, &transport)?;
    let packs = select(packs, &file, &asset, &code, &executable)?;
    let sections = file.packs.values();
    let tasks = sections.flat_map(|section| section.tools.clone()).collect();
    let servers = servers::of_file(&file, &packs)?;
    let mut limits = file.limits;
    // A wrapped server takes longer lines than a pack.
    if !servers.is_empty() && limits.request_frame_bytes == Limits::default().request_frame_bytes {
        limits.request_frame_bytes = FRAME_BYTES;
    }
    Ok(Config {
        server_name: NAME.to_owned(),
        server_version: VERSION.to_owned(),
        instructions: Some(INSTRUCTIONS.to_owned()),
        host_name: file.name.unwrap_or_else(|| NAME.to_owned()),
        control_dir: None,
        limits,
        render: file.render.map(RenderMode::from).unwrap_or_default(),
        packs,
        servers,
        shim: executable.shim(file.tree_kill),
        transport,
        ready_file: None,
        telemetry: environment.telemetry.clone().or(file.telemetry),
        collector: None,
        ready_details: asset.describe(),
        tooling_version: VERSION.to_owned(),
        envelopes: environment.envelopes.or(file.envelopes).unwrap_or_default(),
        envelope_ids: IdSource::Random,
        locked: None,
        read_lock: None,
        reread: None,
        tasks,
        tool_list: file.tool_list,
        quotas: file.quotas,
        state_dir: None,
        cache_dir: None,
        environment: Vec::new(),
        upgrade: None,
        watch: Vec::new(),
        approvals: file.approvals,
        audit: None,
    })
}

/// The files whose changes roll out a pack. The code pack notices changes of its roots itself.
pub(crate) fn watched(pack: &Pack) -> Option<Watched> {
    let paths: Vec<PathBuf> = match (&pack.expected, pack.name.as_str()) {
        (None, _) => vec![pack.command.program.clone()],
        (Some(_), ASSET) => {
            let settings = pack.settings.to_value().unwrap_or_default();
            let root = |key: &str| settings.get(key)?.as_str().map(PathBuf::from);
            let roots = [SCHEMAS_DIR, EXAMPLES_DIR];
            roots.into_iter().filter_map(root).collect()
        }
        (Some(_), _) => Vec::new(),
    };
    (!paths.is_empty()).then(|| Watched {
        pack: Some(pack.name.clone()),
        paths,
    })
}

/// The settings of the asset pack, as a host would hand them over.
pub(crate) fn asset_settings(packs: &Packs, environment: &Environment) -> Result<Json, Failure> {
    let file = ConfigFile::named(packs.config.as_deref())?;
    let asset = Asset::of(environment, &file);
    let mut settings = section_settings(file.packs.get(ASSET));
    if let Value::Object(members) = &mut settings {
        asset.fill(members);
    }
    Ok(settings.into())
}

/// The pack that the environment has names for, and its settings.
const ASSET: &str = "asset";
const SCHEMAS_DIR: &str = "schemas_dir";
const EXAMPLES_DIR: &str = "examples_dir";

/// What the asset pack is set up with: the environment before the file.
struct Asset {
    schemas: Option<PathBuf>,
    examples: Option<PathBuf>,
    /// Settings that only the environment has names for.
    others: Vec<(&'static str, Value)>,
}

impl Asset {
    fn of(environment: &Environment, file: &ConfigFile) -> Self {
        let mut others = Vec::new();
        let mut add = |key, value: Option<Value>| others.extend(value.map(|value| (key, value)));
        add("max_batch", environment.max_batch.map(|max| json!(max)));
        add(
            "backend_url",
            environment.backend_url.as_ref().map(|url| json!(url)),
        );
        let path = environment.backend_assets_path.as_ref();
        add("backend_assets_path", path.map(|path| json!(path)));
        let allow = environment.allow_unvalidated;
        add("allow_unvalidated", allow.map(|allow| json!(allow)));
        let settings = file
            .packs
            .get(ASSET)
            .and_then(|pack| pack.settings.as_ref());
        let root =
            |key: &str, set: &Option<PathBuf>, root: &Option<PathBuf>, last: &Option<PathBuf>| {
                let of_settings = || settings?.get(key)?.as_str().map(PathBuf::from);
                set.clone()
                    .or_else(of_settings)
                    .or_else(|| root.clone())
                    .or_else(|| last.clone())
            };
        let (roots, submodule) = (&file.roots, &environment.submodule);
        Self {
            schemas: root(
                SCHEMAS_DIR,
                &environment.schemas_dir,
                &roots.schemas,
                &submodule.schemas,
            ),
            examples: root(
                EXAMPLES_DIR,
                &environment.examples_dir,
                &roots.examples,
                &submodule.examples,
            ),
            others,
        }
    }

    fn describe(&self) -> String {
        let shown = |path: &Option<PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => "-".to_owned(),
        };
        format!(
            "schemas_dir={} examples_dir={}",
            shown(&self.schemas),
            shown(&self.examples)
        )
    }

    /// Puts them into the pack's settings.
    fn fill(&self, settings: &mut Map<String, Value>) {
        let roots = [(SCHEMAS_DIR, &self.schemas), (EXAMPLES_DIR, &self.examples)];
        let roots = roots
            .into_iter()
            .filter_map(|(key, path)| Some((key, json!(path.as_ref()?))));
        for (key, value) in roots.chain(self.others.iter().cloned()) {
            settings.insert(key.to_owned(), value);
        }
    }
}

/// The packs to serve: those named on the command line, else those of the file and, in a file without servers,
/// all built-in.
fn select(
    packs: &Packs,
    file: &ConfigFile,
    asset: &Asset,
    code: &Code,
    executable: &Executable,
) -> Result<Vec<Pack>, Failure> {
    let wanted: Vec<String> = if packs.packs.is_empty() {
        let of_file = file.packs.keys().map(String::as_str);
        let of_file = of_file.filter(|name| !NAMES.contains(name));
        let is_enabled = |name: &&str| {
            let section = file.packs.get(*name);
            let enabled = section.and_then(|section| section.enabled);
            // Beside servers, built-in packs are served only on request.
            enabled.unwrap_or(file.servers.is_empty() || !NAMES.contains(name))
        };
        let all = NAMES.iter().copied().chain(of_file);
        all.filter(is_enabled).map(str::to_owned).collect()
    } else {
        packs.packs.clone()
    };
    let mut selected = Vec::new();
    for word in wanted {
        let (name, command) = match word.split_once('=') {
            Some((name, command)) => (name.to_owned(), Some(split(&word, command)?)),
            None => (word, None),
        };
        check_name(&name)?;
        let section = file.packs.get(&name);
        let command = command.or_else(|| section.and_then(|section| section.command.clone()));
        let settings = settings_of(&name, section, asset, code);
        let follows_roots = code.follows_roots.clone().filter(|_| name == CODE);
        let mut pack = match command {
            Some(command) => external(name, command, settings)?,
            None => executable.pack(&name, settings)?,
        };
        pack.follows_roots = follows_roots;
        if let Some(settings) = section.and_then(|section| section.sandbox.as_ref()) {
            let command = &mut pack.command;
            let subject = Subject {
                name: &pack.name,
                program: &command.program,
                arguments: &command.arguments,
                cwd: None,
            };
            command.sandbox = Some(settings.sandbox(subject)?);
        }
        selected.push(pack);
    }
    Ok(selected)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        let said = anyhow!("a pack cannot be called {name:?}");
        let hint = match name.contains(',') {
            true => "name each pack by an option of its own: --pack asset --pack code",
            false => "use letters, digits, '-', '_' and '.'",
        };
        return Err(Failure::input(said).hint(hint));
    }
    Ok(())
}

fn split(word: &str, command: &str) -> Result<Vec<String>, Failure> {
    match shlex::split(command) {
        Some(parts) if !parts.is_empty() => Ok(parts),
        Some(_) => Err(
            Failure::input(anyhow!("--pack {word}: the command is empty"))
                .hint("write it as --pack NAME=COMMAND, or only NAME for a built-in pack"),
        ),
        None => Err(
            Failure::input(anyhow!("--pack {word}: a quote is not closed"))
                .hint("close it: the command is split into words as a shell does"),
        ),
    }
}

fn section_settings(section: Option<&PackSection>) -> Value {
    section
        .and_then(|section| section.settings.clone())
        .unwrap_or(json!({}))
}

fn settings_of(name: &str, section: Option<&PackSection>, asset: &Asset, code: &Code) -> Json {
    let mut settings = section_settings(section);
    if let Value::Object(members) = &mut settings {
        match name {
            ASSET => asset.fill(members),
            CODE => code.fill(members),
            _ => {}
        }
    }
    settings.into()
}

/// The pack that searches a workspace.
const CODE: &str = "code";
const ROOTS: &str = "roots";
const CACHE_DIR: &str = "cache_dir";

/// What the code pack is set up with: the command line before the file before the roots of an only
/// client before the working directory.
struct Code {
    roots: Option<Vec<PathBuf>>,
    follows_roots: Option<FollowsRoots>,
    cache_dir: Option<PathBuf>,
}

impl Code {
    fn of(
        packs: &Packs,
        environment: &Environment,
        file: &ConfigFile,
        transport: &Transport,
    ) -> Result<Self, Failure> {
        for root in &packs.roots {
            if !root.is_dir() && !start::is_continuing() {
                let shown = root.display();
                return Err(Failure::input(anyhow!("--root {shown} is not a directory"))
                    .hint("name the directory of a checkout"));
            }
        }
        let whole = |root: &PathBuf| root.canonicalize().unwrap_or_else(|_| root.clone());
        let of_file = file
            .packs
            .get(CODE)
            .and_then(|pack| pack.settings.as_ref()?.get(ROOTS));
        let home = environment.home.as_ref().map(whole);
        // What many clients share is what the operator says it is.
        let is_left_open = packs.roots.is_empty() && of_file.is_none();
        let follows_roots =
            (is_left_open && matches!(transport, Transport::Stdio)).then(|| FollowsRoots {
                setting: ROOTS.to_owned(),
                named_only: home.iter().cloned().collect(),
            });
        let roots = match (packs.roots.as_slice(), of_file) {
            ([], Some(_)) => None,
            // The whole disk or all of a user's files are searched only when they are named.
            ([], None) => {
                let here = std::env::current_dir().ok().map(|here| whole(&here));
                let named_only =
                    |here: &PathBuf| here.parent().is_none() || home.as_ref() == Some(here);
                Some(here.into_iter().filter(|here| !named_only(here)).collect())
            }
            (named, _) => Some(named.iter().map(whole).collect()),
        };
        Ok(Self {
            roots,
            follows_roots,
            cache_dir: environment.cache_dir.clone().filter(|dir| is_trusted(dir)),
        })
    }

    /// Puts it into the pack's settings.
    fn fill(&self, settings: &mut Map<String, Value>) {
        if let Some(roots) = &self.roots {
            let roots: Vec<Value> = roots.iter().map(|path| json!({ "path": path })).collect();
            settings.insert(ROOTS.to_owned(), json!(roots));
        }
        if let (Some(cache_dir), None) = (&self.cache_dir, settings.get(CACHE_DIR)) {
            settings.insert(CACHE_DIR.to_owned(), json!(cache_dir));
        }
    }
}

/// False, with a warning, if the indexes of a cache directory belong to another user.
fn is_trusted(cache_dir: &Path) -> bool {
    let folder = cache_dir.join(mainstay_pack_code::cache::FOLDER);
    if folder.symlink_metadata().is_err() {
        // The worker makes it, for its user alone.
        return true;
    }
    let checked = files::create_own(&folder);
    if let Err(error) = &checked {
        exit::warn_once(format!("no index is used: {error}"));
    }
    checked.is_ok()
}

fn external(name: String, command: Vec<String>, settings: Json) -> Result<Pack, Failure> {
    let mut words = command.into_iter();
    let program = words
        .next()
        .ok_or_else(|| Failure::input(anyhow!("pack {name}: the command is empty")))?;
    // A program that is not there yet may come.
    let program = program::find(program.as_ref()).unwrap_or_else(|_| program.into());
    Ok(Pack {
        name,
        command: Command {
            program,
            called: None,
            arguments: words.map(Into::into).collect(),
            without_env: withheld(),
            env: Vec::new(),
            secrets: Vec::new(),
            cwd: None,
            sandbox: None,
        },
        settings,
        expected: None,
        follows_roots: None,
    })
}
