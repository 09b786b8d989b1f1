//! Wall-clock time for clients: the core counts from its start, and knows when that was.

use crate::time::Time;

/// An instant of the core in ISO-8601 UTC with milliseconds.
pub(crate) fn iso(epoch_ms: u64, now: Time) -> String {
    let ms = epoch_ms.saturating_add(now.as_micros() / 1000);
    mainstay_contract::wall::iso(ms)
}
