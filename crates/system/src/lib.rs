//! The few settings of a process that `std` and `rustix` do not offer.
//!
//! This is the only crate with unsafe code: calls of libc without pointers. Everything else in the
//! workspace forbids it.

/// From this size on a buffer gets pages of its own, which go back to the system when it is freed.
#[cfg(target_env = "gnu")]
const OWN_PAGES: libc::c_int = 256 * 1024;
/// The free memory at the top of the heap that is kept for the next buffers.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 1024 * 1024;

/// Returns the memory of large buffers to the system as soon as they are freed.
///
/// By default glibc raises both limits with the largest buffer that was freed: after one message of 15 MiB a
/// host would keep up to 60 MiB for ever. Other C libraries have no such rule.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the standard library has no mallopt")]
    // SAFETY: `mallopt` takes two integers and is called before there are other threads.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// Ignores SIGHUP and SIGUSR2 until handlers are set. Without this a signal during the start, or while the process
/// executes another program, would end it.
pub fn ignore_operators() {
    set_action(libc::SIGHUP, libc::SIG_IGN);
    set_action(libc::SIGUSR2, libc::SIG_IGN);
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error. By default a signal ends the process.
pub fn survive_file_size_limit() {
    set_action(libc::SIGXFSZ, libc::SIG_IGN);
}

/// What a wrapped server expects of the limit: the default.
pub fn restore_file_size_limit() {
    set_action(libc::SIGXFSZ, libc::SIG_DFL);
}

fn set_action(signal: libc::c_int, action: libc::sighandler_t) {
    #[expect(unsafe_code, reason = "the standard library has no signals")]
    // SAFETY: no handler is installed, so no code runs in a signal's context.
    unsafe {
        libc::signal(signal, action);
    }
}
