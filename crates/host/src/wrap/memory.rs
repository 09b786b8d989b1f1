//! How much memory a server's whole tree takes.

use rustix::process::Pid;

use crate::process::descendants;

/// Resident bytes of a server and of everything it started, found below its shim, where also what
/// lost its parent is.
pub(super) fn of_tree(server: u32) -> u64 {
    let shim = i32::try_from(server)
        .ok()
        .and_then(Pid::from_raw)
        .and_then(descendants::parent);
    let page = rustix::param::page_size() as u64;
    let resident = |pid: Pid| {
        let statm =
            std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
        let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(pages * page)
    };
    shim.map(descendants::below)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|seen| resident(seen.pid))
        .sum()
}
