//! A configuration that is read again while the host runs.

use std::fmt;
use std::sync::Arc;

use mainstay_contract::json::Json;
use mainstay_kernel::approvals::Policy;
use mainstay_kernel::locked::Locked;
use mainstay_kernel::server::Rules;

use crate::config::{Server, ServerLaunch};

/// Reads the configuration again. The host does not know its files; the program that starts it does.
#[derive(Clone)]
pub struct Reread(Arc<dyn Fn() -> Result<Found, String> + Send + Sync>);

/// A configuration that was read again.
#[derive(Debug)]
pub struct Found {
    pub changed: Changed,
    /// Other changes, which take effect only after a restart of the host.
    pub later: Vec<&'static str>,
    /// Values that nothing that the host writes down may show.
    pub secrets: Vec<String>,
}

/// The part of a configuration that takes effect at once.
#[derive(Debug)]
pub enum Changed {
    /// The rules of the wrapped server, and how it is started if one of its secrets has another value.
    Wrapped {
        rules: Arc<Rules>,
        launch: Option<Box<ServerLaunch>>,
    },
    /// The settings of packs, each by its name, and the wrapped servers beside them.
    Served {
        settings: Vec<(String, Json)>,
        servers: Vec<Server>,
        /// The rules for calls of all servers and packs.
        approvals: Policy,
    },
}

impl Reread {
    /// From now on the configuration is what `read` finds; its error is for the operator.
    pub fn new(read: impl Fn() -> Result<Found, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Result<Found, String> {
        (self.0)()
    }
}

/// Reads the lock of the packs or of the wrapped server again.
pub struct ReadLock(Box<dyn Fn() -> Result<Locked, String> + Send + Sync>);

impl ReadLock {
    /// From now on the lock is what `read` finds; its error is for the operator.
    pub fn new(read: impl Fn() -> Result<Locked, String> + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }

    pub(crate) fn read(&self) -> Result<Locked, String> {
        (self.0)()
    }
}

impl fmt::Debug for ReadLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadLock")
    }
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reread")
    }
}
