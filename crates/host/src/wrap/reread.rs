//! A configuration that is read again while the host runs.

use std::fmt;
use std::sync::Arc;

use super::engine::Engine;
use super::lists::Kind;
use super::rules::Rules;

/// Reads the configuration again. The host knows no files; whoever starts it does.
pub struct Reread(Box<dyn Fn() -> Result<Found, String> + Send + Sync>);

/// A configuration that was read again.
#[derive(Debug)]
pub struct Found {
    pub rules: Arc<Rules>,
    /// What else is different, and counts only after a restart of the host.
    pub later: Vec<&'static str>,
}

impl Reread {
    /// From now on the configuration is what `read` finds; its error is for the operator.
    pub fn new(read: impl Fn() -> Result<Found, String> + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }

    pub(super) fn read(&self) -> Result<Found, String> {
        (self.0)()
    }
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reread")
    }
}

impl Engine {
    /// The operator has changed the rules. Requests that come from now on follow them; what was
    /// admitted before goes on as it was.
    pub(super) fn obey(&mut self, rules: &Arc<Rules>) {
        let before = std::mem::replace(&mut self.common.rules, Arc::clone(rules));
        if before == *rules {
            return;
        }
        let shown = |rules: &Rules| (rules.allow.clone(), rules.deny.clone(), rules.system_tools);
        if shown(&before) != shown(rules) && self.seen.contains_key(&Kind::Tools) {
            self.announce(Kind::Tools);
        }
        let knew = self.tools.any();
        self.tools.obey(Arc::clone(rules));
        if knew && self.serving().is_some() {
            self.want_tools();
        }
    }
}
