//! Processor time and memory of a worker's whole tree.

use mainstay_kernel::server::Activity;
use rustix::process::Pid;

use super::descendants;

/// The processor use of a worker's tree, found below its shim; `None` if it cannot be read.
pub(crate) fn activity(server: u32) -> Option<Activity> {
    let server = i32::try_from(server).ok().and_then(Pid::from_raw)?;
    let shim = descendants::parent(server)?;
    let mut seen = Activity {
        ran: 0,
        stopped: false,
    };
    let tree = descendants::below(shim);
    for process in tree.iter().filter(|process| !process.zombie) {
        seen.stopped |= process.stopped;
        seen.ran = seen.ran.checked_add(ran(process.pid)?)?;
    }
    (!tree.is_empty()).then_some(seen)
}

/// Nanoseconds for which the threads of a process have run.
fn ran(pid: Pid) -> Option<u64> {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let mut ran = None;
    for task in std::fs::read_dir(tasks).ok()?.flatten() {
        // A thread that has just gone has run meanwhile.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let first: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        ran = Some(ran.unwrap_or(0) + first);
    }
    ran
}

/// Resident bytes of a worker and of everything it started, orphans included: all of it is below its shim.
pub(crate) fn memory(server: u32) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_to_run() {
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let before = ran(own).unwrap();
        let mut spin: u64 = 1;
        while ran(own).unwrap() == before {
            spin = std::hint::black_box(spin.wrapping_mul(3));
        }
    }
}
