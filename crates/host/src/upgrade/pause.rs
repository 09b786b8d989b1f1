//! A pause in which no task moves bytes, so that the state of the shell can be saved.
//!
//! Every task that owns a descriptor waits for [`Pause::begun`] wherever it waits for bytes. There nothing is
//! half done, so the task ends and returns its parts, with which it can be started again.

use std::sync::Arc;

use tokio::sync::watch;

/// The host's side.
#[derive(Clone, Debug)]
pub(crate) struct Pauses(Arc<watch::Sender<bool>>);

impl Default for Pauses {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Pauses {
    /// Begins or ends the pause.
    pub(crate) fn set(&self, paused: bool) {
        self.0.send_replace(paused);
    }

    /// A task's side.
    pub(crate) fn watch(&self) -> Pause {
        Pause(self.0.subscribe())
    }
}

/// A task's side of [`Pauses`].
#[derive(Clone, Debug)]
pub(crate) struct Pause(watch::Receiver<bool>);

impl Pause {
    /// Waits until the host is paused.
    pub(crate) async fn begun(&mut self) {
        self.reaches(true).await;
    }

    /// Waits while the host is paused.
    pub(crate) async fn over(&mut self) {
        self.reaches(false).await;
    }

    async fn reaches(&mut self, wanted: bool) {
        if self.0.wait_for(|paused| *paused == wanted).await.is_err() {
            // The host has ended.
            std::future::pending::<()>().await;
        }
    }
}
