//! What the operating system says about a process (Linux: `/proc`).

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident now (`VmRSS`).
    pub resident: u64,
    /// The most that ever was resident (`VmHWM`).
    pub peak: u64,
}

/// Reads the memory of a process.
pub fn usage(pid: u32) -> anyhow::Result<Usage> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let kib = |key: &str| -> anyhow::Result<u64> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .with_context(|| format!("{path} has no {key}"))?;
        let number = line.split_whitespace().next().unwrap_or_default();
        number
            .parse()
            .with_context(|| format!("{path}: {key}{line}"))
    };
    Ok(Usage {
        resident: kib("VmRSS:")?,
        peak: kib("VmHWM:")?,
    })
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> anyhow::Result<usize> {
    let path = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&path).with_context(|| format!("reading {path}"))?;
    Ok(entries.count())
}

/// Processor time that the living threads of a process have used, to the nanosecond.
pub fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("reading {tasks}"))? {
        let path = task.with_context(|| format!("reading {tasks}"))?.path();
        // A thread that ended in between takes its time along.
        let Ok(stat) = fs::read_to_string(path.join("schedstat")) else {
            continue;
        };
        let spent = stat.split_whitespace().next().unwrap_or_default();
        nanos += spent
            .parse::<u64>()
            .with_context(|| format!("{}: {stat}", path.display()))?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Processor time that a process has used, threads that have ended included, to a hundredth of a
/// second.
pub fn cpu_time_of_all_threads(pid: u32) -> anyhow::Result<Duration> {
    /// What Linux counts in, towards user space, on every architecture we run on.
    const TICK_MS: u64 = 10;
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The program's name, in brackets, may have spaces.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * TICK_MS))
}

/// The processes that carry `name=value` in their environment, as they were started.
pub fn marked(name: &str, value: &str) -> Vec<u32> {
    marked_among(name, value, |_| true)
}

/// Of the processes that carry `name=value` in their environment, those that run `program`.
pub fn marked_running(name: &str, value: &str, program: &str) -> Vec<u32> {
    // The kernel keeps 15 bytes of a program's name.
    let short = program.get(..15).unwrap_or(program);
    marked_among(name, value, |pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == short)
    })
}

fn marked_among(name: &str, value: &str, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
    let needle = format!("{name}={value}");
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| wanted(*pid))
        .filter(|pid| {
            // Of a process that has just gone, or of another user, there is nothing to read; a
            // zombie has no environment either.
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|variable| variable == needle.as_bytes())
            })
        })
        .collect();
    pids.sort_unstable();
    pids
}

/// An error if processes with this marker are still there when `patience` ends.
pub fn leftovers(name: &str, value: &str, patience: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + patience;
    loop {
        let pids = marked(name, value);
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let shown: Vec<String> = pids.iter().map(|pid| describe(*pid)).collect();
            bail!("processes were left over: {}", shown.join("; "));
        }
        pause();
    }
}

/// Between two looks at something that cannot be waited for.
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

fn describe(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    format!("{pid} {}", words.join(" ").trim_end())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn child_with_a_marker_is_found_until_it_is_gone() {
        let name = "TESTKIT_SELF_TEST";
        let value = super::super::temp::unique("m");
        let mut child = Command::new("cat")
            .env(name, &value)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Between fork and exec the child still has our environment.
        let until = Instant::now() + Duration::from_secs(60);
        while marked(name, &value) != [child.id()] {
            assert!(Instant::now() < until);
            pause();
        }
        assert!(leftovers(name, &value, Duration::ZERO).is_err());
        assert!(usage(child.id()).unwrap().peak > 0);
        assert!(descriptors(child.id()).unwrap() >= 2);
        drop(child.stdin.take());
        child.wait().unwrap();
        leftovers(name, &value, Duration::from_secs(60)).unwrap();
        assert!(usage(child.id()).is_err());
    }

    #[test]
    fn own_processor_time_grows() {
        let before = cpu_time(std::process::id()).unwrap();
        let mut n: u64 = 1;
        while cpu_time(std::process::id()).unwrap() <= before {
            n = std::hint::black_box(n.wrapping_mul(3));
        }
    }
}
