//! Locking that a panic elsewhere cannot turn into a second panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Every critical section of this crate leaves its state consistent at each step,
/// and no tool code runs inside one, so a poisoned lock is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
