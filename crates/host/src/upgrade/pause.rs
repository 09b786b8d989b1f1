//! A pause in which no task moves bytes, so that the state of the shell can be saved.
//!
//! Every task that owns a descriptor waits for [`Pause::begun`] wherever it waits for bytes. There nothing is
//! half done, so the task ends and returns its parts, with which it can be started again.

use std::sync::Arc;

use crate::flag::Flag;

/// The host's side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses(Arc<Flag>);

impl Pauses {
    /// Begins or ends the pause.
    pub(crate) fn set(&self, paused: bool) {
        self.0.set(paused);
    }

    /// A task's side.
    pub(crate) fn watch(&self) -> Pause {
        Pause(Arc::clone(&self.0))
    }
}

/// A task's side of [`Pauses`].
#[derive(Clone, Debug)]
pub(crate) struct Pause(Arc<Flag>);

impl Pause {
    /// Waits until the host is paused.
    pub(crate) async fn begun(&self) {
        self.0.is(true).await;
    }

    /// Waits while the host is paused.
    pub(crate) async fn over(&self) {
        self.0.is(false).await;
    }
}
