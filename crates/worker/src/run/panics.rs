//! One line on standard error per panic.

use std::panic::{PanicHookInfo, set_hook};

use crate::warning::warn;

/// Replaces the default report, which has several lines and, with a variable set, a backtrace.
pub(super) fn report_in_one_line() {
    set_hook(Box::new(|info| warn("panic", &line(info))));
}

fn line(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("(no message)");
    match info.location() {
        Some(at) => format!("{}:{}:{}: {message}", at.file(), at.line(), at.column()),
        None => message.to_owned(),
    }
}
