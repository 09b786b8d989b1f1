//! Restrictions of the calling process that every child inherits.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::filter;
use crate::policy::Policy;

/// Landlock's rights since Linux 6.12: files with truncation and device ioctls, TCP ports, signals and abstract sockets.
const REQUIRED: ABI = ABI::V6;
/// Since then it also restricts the paths of Unix sockets.
const WITH_UNIX_SOCKETS: ABI = ABI::V9;

/// System directories and files that every program may read and execute.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];

/// Devices that every program may use.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// A file or directory as a place for rules and mounts: nothing of it is read.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A restriction that this kernel does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub restriction: &'static str,
    pub reason: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.restriction, self.reason)
    }
}

/// The reason why a sandbox was not set up. Nothing of the server has run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "this machine cannot sandbox a server ({0}); --sandbox=best-effort starts it with the restrictions that there are"
    )]
    Lacks(Lack),
    #[error("the sandbox cannot {what}: {error}")]
    Failed {
        what: &'static str,
        error: io::Error,
    },
    #[error("the sandbox cannot open {path}: {error}", path = path.display())]
    Path { path: PathBuf, error: io::Error },
}

/// Gives a closure that names a step in its error.
pub(crate) fn failed<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> SandboxError {
    move |error| SandboxError::Failed {
        what,
        error: error.into(),
    }
}

/// Restricts this process, which may write to `temporary`. `private` is true inside
/// [`Surroundings`](crate::Surroundings), where `/proc` shows nothing but the processes of the sandbox; elsewhere only the
/// server itself is readable there.
pub fn confine(
    policy: &Policy,
    temporary: &Path,
    private: bool,
) -> Result<Vec<Lack>, SandboxError> {
    let mut lacks = Vec::new();
    // Opened first: the limit on descriptors comes after, and files outside are out of reach afterwards.
    let files = rules(policy, temporary, private)?;
    restrict_privileges(policy)?;
    let abi = match files {
        Rules::Ready(ruleset, abi) => {
            ruleset
                .restrict_self()
                .map_err(|error| failed("restrict files")(io::Error::other(error)))?;
            abi
        }
        Rules::Lacking(lack) if policy.best_effort => {
            lacks.push(lack);
            ABI::Unsupported
        }
        Rules::Lacking(lack) => return Err(SandboxError::Lacks(lack)),
    };
    let filter = filter::program(abi >= WITH_UNIX_SOCKETS);
    mainstay_system::filter_system_calls(&filter).map_err(failed("filter system calls"))?;
    Ok(lacks)
}

/// Limits resources and gives up privileges.
pub(crate) fn restrict_privileges(policy: &Policy) -> Result<(), SandboxError> {
    limit(policy)?;
    drop_capabilities()?;
    rustix::thread::set_no_new_privs(true).map_err(failed("give up new privileges"))
}

/// The paths that every sandboxed program may read.
pub(crate) fn system_paths() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from)
}

enum Rules {
    Ready(RulesetCreated, ABI),
    Lacking(Lack),
}

fn rules(policy: &Policy, temporary: &Path, private: bool) -> Result<Rules, SandboxError> {
    let opened = Opened::open(policy, temporary, private)?;
    for (abi, level) in [
        (WITH_UNIX_SOCKETS, CompatLevel::HardRequirement),
        (REQUIRED, CompatLevel::HardRequirement),
    ] {
        if let Ok(ruleset) = opened.ruleset(abi, level) {
            return Ok(Rules::Ready(ruleset, abi));
        }
    }
    if policy.best_effort
        && let Ok(ruleset) = opened.ruleset(REQUIRED, CompatLevel::BestEffort)
    {
        return Ok(Rules::Ready(ruleset, ABI::Unsupported));
    }
    Ok(Rules::Lacking(Lack {
        restriction: "Landlock",
        reason: "the kernel needs Landlock ABI 6 (Linux 6.12), and landlock in its list of security modules"
            .to_owned(),
    }))
}

/// The files and directories that rules name.
struct Opened {
    readable: Vec<OwnedFd>,
    writable: Vec<OwnedFd>,
    devices: Vec<OwnedFd>,
}

impl Opened {
    fn open(policy: &Policy, temporary: &Path, private: bool) -> Result<Self, SandboxError> {
        // Without a `/proc` of its own the server sees no process but itself.
        let own_proc = Path::new(if private { "/proc" } else { "/proc/self" });
        let system = SYSTEM.iter().map(Path::new).chain([own_proc]);
        let runtime = policy.runtime.iter().map(PathBuf::as_path);
        // Some of these do not exist on every machine.
        let present = |path: &Path| rustix::fs::open(path, PLACE, Mode::empty()).ok();
        let mut readable: Vec<OwnedFd> = system.chain(runtime).filter_map(present).collect();
        for path in &policy.read {
            readable.push(open_named(path)?);
        }
        let writable = policy.write.iter().map(|path| open_named(path));
        let mut writable: Vec<OwnedFd> = writable.collect::<Result<_, _>>()?;
        // On some machines there are links on the way to it.
        writable.extend(present(temporary));
        Ok(Self {
            readable,
            writable,
            devices: DEVICES.iter().map(Path::new).filter_map(present).collect(),
        })
    }

    fn ruleset(&self, abi: ABI, level: CompatLevel) -> Result<RulesetCreated, RulesetError> {
        let all = AccessFs::from_all(abi);
        let read = AccessFs::from_read(abi);
        let device = AccessFs::ReadFile | AccessFs::WriteFile;
        let on = |places, access| rules_on(places, access, abi);
        Ruleset::default()
            .set_compatibility(level)
            .handle_access(all)?
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rules(on(&self.readable, read))?
            .add_rules(on(&self.devices, device))?
            .add_rules(on(&self.writable, all))
    }
}

/// Rules for these places. Files have fewer rights than directories.
fn rules_on(
    places: &[OwnedFd],
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> Vec<Result<PathBeneath<BorrowedFd<'_>>, RulesetError>> {
    let is_directory = |place: &OwnedFd| {
        let kind = rustix::fs::fstat(place).map(|about| FileType::from_raw_mode(about.st_mode));
        kind == Ok(FileType::Directory)
    };
    let rule = |place| {
        let access = match is_directory(place) {
            true => access,
            false => access & AccessFs::from_file(abi),
        };
        Ok(PathBeneath::new(place.as_fd(), access))
    };
    places.iter().map(rule).collect()
}

/// Opens a file or directory that a policy names. Its path was resolved when the policy was read: a link on the way was
/// put there later, perhaps by the server, and would lead the permission elsewhere.
pub(crate) fn open_named(path: &Path) -> Result<OwnedFd, SandboxError> {
    let flags = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, PLACE, Mode::empty(), flags).map_err(|error| {
        let error = match error {
            Errno::LOOP => io::Error::other("there is a link on the way to it now"),
            error => error.into(),
        };
        SandboxError::Path {
            path: path.to_owned(),
            error,
        }
    })
}

fn limit(policy: &Policy) -> Result<(), SandboxError> {
    let resources = &policy.resources;
    for (resource, most) in [
        (Resource::Nproc, resources.processes),
        (Resource::Nofile, resources.descriptors),
        (Resource::Data, resources.memory),
        (Resource::Core, 0),
    ] {
        let now = rustix::process::getrlimit(resource).maximum;
        let most = Some(now.map_or(most, |now| now.min(most)));
        let limits = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(resource, limits).map_err(failed("limit resources"))?;
    }
    Ok(())
}

/// Gives up every capability, for this process and for every program that it executes.
fn drop_capabilities() -> Result<(), SandboxError> {
    let what = "drop capabilities";
    rustix::thread::clear_ambient_capability_set().map_err(failed(what))?;
    let held = rustix::thread::capabilities(None).map_err(failed(what))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // A kernel that does not know the newest ones.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(failed(what)(error)),
            }
        }
    }
    let empty = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: empty,
        permitted: empty,
        inheritable: empty,
    };
    rustix::thread::set_capabilities(None, none).map_err(failed(what))
}
