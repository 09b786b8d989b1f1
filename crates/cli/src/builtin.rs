//! The packs that are part of this binary, and how they run as workers of it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use mainstay_contract::json::Json;
use mainstay_contract::tool::Catalog;
use mainstay_host::config::{Command, Expected, Pack, Shim, TreeKill};
use mainstay_pack_asset as asset;
use mainstay_pack_code as code;
use rustix::fs::Mode;

use crate::VERSION;
use crate::environment::withheld;
use crate::exit::Failure;

/// Names of the built-in packs, in the order in which they are served.
pub(crate) const NAMES: [&str; 2] = ["asset", "code"];

/// What a built-in pack offers.
pub(crate) fn catalog(name: &str) -> Option<Catalog> {
    match name {
        "asset" => Some(asset::catalog(VERSION)),
        "code" => Some(code::catalog(VERSION)),
        _ => None,
    }
}

/// Runs a built-in pack as a worker of the host that started us.
pub(crate) fn run_worker(name: &str) -> Result<ExitCode, Failure> {
    // The process was started through a descriptor and would be called by its number.
    let _ = rustix::thread::set_name(c"mainstay-worker");
    // Indexes hold the text of private files: what a worker writes is for its user alone.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    match name {
        "asset" => Ok(mainstay_worker::run(VERSION, |settings| {
            let mut own: asset::AssetSettings = settings.parse()?;
            own.max_violations = settings.violations();
            asset::pack(&own, VERSION)
        })),
        "code" => Ok(mainstay_worker::run(VERSION, |settings| {
            code::pack(&settings.parse()?, VERSION)
        })),
        _ => Err(unknown(name)),
    }
}

/// A pack that this binary does not have.
pub(crate) fn unknown(name: &str) -> Failure {
    let known = NAMES.join(", ");
    Failure::input(anyhow!("there is no built-in pack {name:?}"))
        .hint(format!("built in: {known}; any other pack is NAME=COMMAND"))
}

/// Our own executable, opened once: a file that is replaced on disk never mixes builds.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    file: Arc<OwnedFd>,
    build: String,
}

impl Executable {
    /// Opens the running executable.
    pub(crate) fn open() -> Result<Self, Failure> {
        let file = File::open("/proc/self/exe")
            .context("cannot open the running executable")
            .map_err(Failure::fault)?;
        let build = mainstay_worker::build_id(VERSION);
        Ok(Self {
            file: Arc::new(file.into()),
            build,
        })
    }

    /// The shims that run from it.
    pub(crate) fn shim(&self, tree_kill: TreeKill) -> Shim {
        Shim {
            program: PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())),
            holds: Arc::clone(&self.file),
            tree_kill,
            lease: None,
        }
    }

    /// A built-in pack that runs from it.
    pub(crate) fn pack(&self, name: &str, settings: Json) -> Result<Pack, Failure> {
        let catalog = catalog(name).ok_or_else(|| unknown(name))?;
        Ok(Pack {
            name: name.to_owned(),
            command: Command {
                // Its shim runs from our descriptor, so this is the same file.
                program: PathBuf::from("/proc/self/exe"),
                called: Some("mainstay-worker".to_owned()),
                arguments: [crate::WORKER, "--pack", name].map(OsString::from).to_vec(),
                without_env: withheld(),
                env: Vec::new(),
                secrets: Vec::new(),
                cwd: None,
                sandbox: None,
            },
            settings,
            expected: Some(Expected {
                catalog,
                build: self.build.clone(),
            }),
            follows_roots: None,
        })
    }
}
