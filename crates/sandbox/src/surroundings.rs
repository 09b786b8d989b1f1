//! Namespaces around a server: they hide the network, other processes' memory segments, and the shared temporary directory,
//! and make mounts read-only.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use crate::confine::{Lack, SandboxError, failed};
use crate::policy::{Net, Policy};
use crate::relay::{ENDPOINTS, Relay};
use crate::{mounts, network};

/// The surroundings of one server, made by its shim before there are other threads.
#[derive(Debug)]
pub struct Surroundings {
    /// Features that the kernel did not offer; empty unless the policy is best-effort.
    pub lacks: Vec<Lack>,
    /// True if the next child is the first process of a PID namespace.
    pub own_processes: bool,
}

impl Surroundings {
    /// The private temporary directory inside. Every Linux has it, and programs that share memory expect it there.
    pub const TEMPORARY: &str = "/dev/shm";

    /// Enters the namespaces of a policy. The next child is the first process of a new PID namespace, which must mount
    /// its own `/proc`.
    pub fn enter(policy: &Policy) -> Result<Self, SandboxError> {
        match enter(policy) {
            Ok(()) => Ok(Self {
                lacks: Vec::new(),
                own_processes: true,
            }),
            Err(SandboxError::Lacks(lack)) if policy.best_effort => Ok(Self {
                lacks: vec![lack],
                own_processes: false,
            }),
            Err(error) => Err(error),
        }
    }
}

fn enter(policy: &Policy) -> Result<(), SandboxError> {
    gain_rights().map_err(|error| {
        SandboxError::Lacks(Lack {
            restriction: "namespaces",
            reason: format!(
                "an ordinary user needs user namespaces, which are switched off here ({error}); see the sysctls \
                 user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns"
            ),
        })
    })?;
    // The relay's thread stays in the machine's network. It must start first: after the next step no thread can.
    let relay = match &policy.net {
        Net::Hosts(endpoints) if endpoints.len() > ENDPOINTS => {
            let error = io::Error::other(format!("at most {ENDPOINTS} endpoints"));
            return Err(failed("relay the network")(error));
        }
        Net::Hosts(endpoints) => {
            let relay = Relay::start().map_err(failed("start the relay of the network"))?;
            Some((relay, endpoints))
        }
        _ => None,
    };
    let network = match policy.net.is_private() {
        true => UnshareFlags::NEWNET,
        false => UnshareFlags::empty(),
    };
    let flags = UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC | network;
    unshare(flags).map_err(failed("make namespaces"))?;
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", propagation).map_err(failed("separate its mounts"))?;
    mounts::seal(&policy.write)?;
    mount_temporary(policy).map_err(failed("mount its temporary directory"))?;
    if matches!(policy.net, Net::Loopback | Net::Hosts(_)) {
        network::enable_loopback().map_err(failed("enable its loopback interface"))?;
    }
    if let Some((relay, endpoints)) = relay {
        let hosts = relay
            .listen(endpoints)
            .map_err(failed("listen for a named host"))?;
        replace_hosts(&hosts).map_err(failed("replace /etc/hosts"))?;
    }
    Ok(())
}

/// Numbers of processes that the kernel gives out only once, at the start of a PID namespace.
const FIRST_NUMBERS: u64 = 300;
/// Since then each PID namespace has a limit of its own; before, the file below is the machine's.
const OWN_LIMIT: (u32, u32) = (6, 14);

/// Limits the processes in the PID namespace of this process, which has its own `/proc`. The kernel does not apply the limit
/// on processes to root.
pub fn limit_processes(policy: &Policy) -> io::Result<()> {
    if !rustix::process::getuid().is_root() || !has_own_limit() {
        return Ok(());
    }
    let most = policy.resources.processes.saturating_add(FIRST_NUMBERS);
    match fs::write("/proc/sys/kernel/pid_max", most.to_string()) {
        // More than the machine can have.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        written => written,
    }
}

fn has_own_limit() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OWN_LIMIT
}

/// Enters a user namespace of the same user, unless this process may make namespaces already.
fn gain_rights() -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    if held
        .effective
        .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN)
    {
        return Ok(());
    }
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    unshare(UnshareFlags::NEWUSER)?;
    // The map belongs to root while a process is not dumpable. Nothing of the server runs yet.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw())))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw())));
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    mapped?;
    keep_rights()
}

/// Keeps the rights over the new namespaces in the shim's next stage; `confine` drops them.
fn keep_rights() -> io::Result<()> {
    let needed =
        CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP | CapabilitySet::CHECKPOINT_RESTORE;
    let held = rustix::thread::capabilities(None)?;
    let inheritable = CapabilitySets {
        inheritable: needed,
        ..held
    };
    rustix::thread::set_capabilities(None, inheritable)?;
    for capability in needed.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe for the flag FILES, which is never among these"
)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// Bytes of the temporary directory for which there may be one file, and the files that there may be at least.
const BYTES_OF_FILE: u64 = 4096;
const LEAST_FILES: u64 = 1024;

/// Mounts a temporary file system that ends with the last process of the sandbox.
fn mount_temporary(policy: &Policy) -> io::Result<()> {
    let bytes = policy.resources.temporary;
    // A file without content costs memory of the kernel, which the size does not count.
    let files = (bytes / BYTES_OF_FILE).max(LEAST_FILES);
    let options = CString::new(format!("size={bytes},nr_inodes={files},mode=0700"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let target = Surroundings::TEMPORARY;
    Ok(rustix::mount::mount(
        "tmpfs",
        target,
        "tmpfs",
        flags,
        Some(options.as_c_str()),
    )?)
}

/// Binds a file with `hosts` over `/etc/hosts`.
fn replace_hosts(hosts: &str) -> io::Result<()> {
    let path = Path::new(Surroundings::TEMPORARY).join("hosts");
    fs::File::create_new(&path)?.write_all(hosts.as_bytes())?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
    rustix::mount::mount_bind(&path, "/etc/hosts")?;
    fs::remove_file(&path).or(Ok(()))
}
