//! A fact that tasks wait for.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A fact that is true or false, at first false. A change wakes tasks in the order in which they began to wait: those
/// that wait for a tokio `watch` are woken in another order every time.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    changed: Notify,
}

impl Flag {
    pub(crate) fn set(&self, is_set: bool) {
        self.is_set.store(is_set, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Waits until it is as wanted.
    pub(crate) async fn is(&self, wanted: bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the look, so that no change is missed.
            changed.as_mut().enable();
            if self.is_set.load(Ordering::Acquire) == wanted {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn a_change_wakes_tasks_in_the_order_in_which_they_began_to_wait() {
        let (flag, woken) = (Arc::new(Flag::default()), Arc::new(Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let (flag, woken) = (Arc::clone(&flag), Arc::clone(&woken));
                tokio::spawn(async move {
                    flag.is(true).await;
                    woken.lock().unwrap().push(number);
                    flag.is(false).await;
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        for (is_set, before) in [(true, 0), (false, 40)] {
            tokio::task::yield_now().await;
            while woken.lock().unwrap().len() < before {
                tokio::task::yield_now().await;
            }
            flag.set(is_set);
        }
        for task in tasks {
            task.await.unwrap();
        }
        let woken = woken.lock().unwrap();
        assert!(woken.iter().copied().eq((0..40).chain(0..40)), "{woken:?}");
    }
}
