//! Restricts a process and everything that it starts.
//!
//! A [`Policy`] names the files, the network and the resources of a server. It is applied in two steps, since some
//! restrictions need rights that others take away:
//!
//! 1. [`Surroundings::enter`], in the shim: user, mount, IPC and network namespaces, read-only mounts, a private temporary
//!    directory, and the relay for named hosts;
//! 2. [`confine`], in the process that is about to execute the server: resource limits, capabilities, Landlock and a
//!    filter of system calls. It cannot be undone, and every child inherits it.
//!
//! A policy with [`Learn`] restricts less and writes down what the server uses.
//!
//! Both report what the kernel lacks ([`Lack`]). Unless the policy is best-effort, a lack is an error and the server does
//! not start. `docs/threat-model.md` lists the promises and what each mode cannot block.

mod confine;
mod filter;
mod learn;
mod mounts;
mod network;
mod policy;
mod relay;
mod runtime;
mod surroundings;

pub use self::confine::{Lack, SandboxError, confine};
pub use self::learn::{Learn, Learner, watch_this_process};
pub use self::policy::{Endpoint, Net, Policy, Resources};
pub use self::runtime::{ENVIRONMENT, environment_below, runtime_of, runtime_of_environment};
pub use self::surroundings::{Surroundings, limit_processes};
pub use mainstay_system::{close_others_on_exec, fork};
