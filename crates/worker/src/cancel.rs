//! The token through which a call learns that it was cancelled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;

use crate::sync::lock;

/// Shared by a call and by its cancellers. Once cancelled, it stays so.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cancelled: AtomicBool,
    /// Held while cancelling, so that a waiter is either before its check or inside its wait.
    gate: Mutex<()>,
    changed: Condvar,
}

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels; waiters wake at once.
    pub fn cancel(&self) {
        let _gate = lock(&self.0.gate);
        self.0.cancelled.store(true, Ordering::Release);
        self.0.changed.notify_all();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Ends a cancelled call: `context.check()?` between two pieces of work.
    pub fn check(&self) -> Result<(), Problem> {
        if self.is_cancelled() {
            Err(Problem::of(ErrorKind::Cancelled))
        } else {
            Ok(())
        }
    }

    /// Waits until the token is cancelled or `timeout` has passed; says whether it is cancelled.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let gate = lock(&self.0.gate);
        let waited = self
            .0
            .changed
            .wait_timeout_while(gate, timeout, |()| !self.is_cancelled());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_waiter_wakes_when_it_is_cancelled() {
        let token = CancelToken::new();
        let other = token.clone();
        let waiter = std::thread::spawn(move || {
            let start = Instant::now();
            (
                other.wait_timeout(Duration::from_secs(600)),
                start.elapsed(),
            )
        });
        std::thread::sleep(Duration::from_millis(20));
        token.cancel();
        let (cancelled, waited) = waiter.join().unwrap();
        assert!(cancelled);
        assert!(waited < Duration::from_secs(120), "{waited:?}");
        assert_eq!(token.check().unwrap_err().kind, ErrorKind::Cancelled);
    }

    #[test]
    fn a_wait_ends_at_its_timeout() {
        let token = CancelToken::new();
        assert!(!token.wait_timeout(Duration::from_millis(5)));
        assert!(token.check().is_ok());
    }
}
