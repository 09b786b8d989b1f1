//! The lifeline: one socket between the host and each shim, which is the shim's standard input.
//!
//! The host first sends the worker's pipes as descriptors, so that nothing is inherited by number;
//! then one byte per [`Order`]. The shim writes one line per [`Report`]. The end of the lifeline is
//! an order, too: when the host goes, by whatever cause, the kernel closes its end, and the shim
//! kills the tree.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Signal, WaitStatus};

/// The byte that carries the worker's pipes.
const PIPES: u8 = b'P';

/// Orders of the host about the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Terminate,
    Kill,
}

impl Order {
    /// The order as it is sent.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Terminate => b'T',
            Self::Kill => b'K',
        }
    }

    /// The order of a byte; what is not known is the stronger one.
    pub(crate) const fn of(byte: u8) -> Self {
        match byte {
            b'T' => Self::Terminate,
            _ => Self::Kill,
        }
    }

    /// The signal that carries it out.
    pub(crate) const fn signal(self) -> Signal {
        match self {
            Self::Terminate => Signal::TERM,
            Self::Kill => Signal::KILL,
        }
    }
}

/// By what means a tree is held together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// The tree lives in a PID namespace whose first process is the shim's second stage.
    Namespace,
    /// The shim is the subreaper of the tree and sweeps `/proc` for it.
    Subreaper,
}

impl Rung {
    /// The rung as it stands in health.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "pid_namespace",
            Self::Subreaper => "subreaper",
        }
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
}

impl End {
    /// The end in a wait status; `None` for a process that has not ended.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        let code = status.exit_status().map(Self::Code);
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }

    /// The end in the exit status of a child.
    pub(crate) fn of_exit(status: std::process::ExitStatus) -> Option<Self> {
        use std::os::unix::process::ExitStatusExt as _;
        let code = status.code().map(Self::Code);
        code.or_else(|| status.signal().map(Self::Signal))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// Reports of a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The worker runs; its number as the host sees it.
    Up { rung: Rung, pid: u32 },
    /// The worker could not be started.
    NotStarted(String),
    /// The worker ended; others of its tree may be alive.
    Ended(End),
    /// Nothing of the tree is left: the shim's last words.
    Gone,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { rung, pid } => write!(f, "up {} {pid}", rung.as_str()),
            Self::NotStarted(why) => write!(f, "not_started {}", why.replace('\n', " ")),
            Self::Ended(End::Code(code)) => write!(f, "ended code {code}"),
            Self::Ended(End::Signal(signal)) => write!(f, "ended signal {signal}"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl Report {
    /// Reads a line; `None` if it is not one of a shim.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "up" => {
                let (rung, pid) = rest.split_once(' ')?;
                let rung = [Rung::Namespace, Rung::Subreaper]
                    .into_iter()
                    .find(|known| known.as_str() == rung)?;
                let pid = pid.parse().ok()?;
                Some(Self::Up { rung, pid })
            }
            "not_started" => Some(Self::NotStarted(rest.to_owned())),
            "ended" => {
                let (how, number) = rest.split_once(' ')?;
                let number = number.parse().ok()?;
                match how {
                    "code" => Some(Self::Ended(End::Code(number))),
                    "signal" => Some(Self::Ended(End::Signal(number))),
                    _ => None,
                }
            }
            "gone" if rest.is_empty() => Some(Self::Gone),
            _ => None,
        }
    }

    /// Sends it to the host. Without a host it has no receiver.
    pub(crate) fn send(&self, lifeline: BorrowedFd<'_>) {
        let line = format!("{self}\n");
        // A shim says four lines in its life; they always fit.
        let _ = rustix::net::send(
            lifeline,
            line.as_bytes(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
    }
}

/// Sends the worker's ends of its pipes, and its executable if that is held open.
pub(crate) fn send_pipes(
    lifeline: &OwnedFd,
    stdin: &OwnedFd,
    stdout: &OwnedFd,
    program: Option<&OwnedFd>,
) -> io::Result<()> {
    let fds = [Some(stdin), Some(stdout), program];
    let fds: Vec<BorrowedFd<'_>> = fds.into_iter().flatten().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("three descriptors do not fit"));
    }
    let bytes = [IoSlice::new(&[PIPES])];
    rustix::net::sendmsg(lifeline, &bytes, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The pipes that the host sent with [`send_pipes`].
#[derive(Debug)]
pub(crate) struct WorkerFds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) program: Option<OwnedFd>,
}

/// Receives the worker's ends of its pipes.
pub(crate) fn receive_pipes(lifeline: BorrowedFd<'_>) -> io::Result<WorkerFds> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(lifeline, &mut bytes, &mut control, flags)?;
    let mut pipes = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(pipes) => Some(pipes),
        _ => None,
    });
    let missing = || io::Error::other("the host sent no pipes");
    if received.bytes != 1 || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(missing());
    }
    let mut pipes = pipes.next().ok_or_else(missing)?;
    let (stdin, stdout) = pipes.next().zip(pipes.next()).ok_or_else(missing)?;
    let program = pipes.next();
    Ok(WorkerFds {
        stdin,
        stdout,
        program,
    })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn every_report_is_read_as_it_was_written() {
        for report in [
            Report::Up {
                rung: Rung::Namespace,
                pid: 17,
            },
            Report::Up {
                rung: Rung::Subreaper,
                pid: u32::MAX,
            },
            Report::NotStarted("no such file".to_owned()),
            Report::Ended(End::Code(3)),
            Report::Ended(End::Signal(9)),
            Report::Gone,
        ] {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
    }

    #[test]
    fn what_no_shim_says_is_no_report() {
        for line in [
            "",
            "up",
            "up 3",
            "up magic 3",
            "ended",
            "ended well 1",
            "gone away",
            "K",
        ] {
            assert_eq!(Report::parse(line), None, "{line:?}");
        }
        let torn = Report::NotStarted("two\nlines".to_owned()).to_string();
        assert!(!torn.contains('\n'));
    }

    #[test]
    fn an_unknown_order_is_the_stronger_one() {
        for order in [Order::Terminate, Order::Kill] {
            assert_eq!(Order::of(order.byte()), order);
        }
        assert_eq!(Order::of(0), Order::Kill);
    }

    #[test]
    fn pipes_travel_over_the_lifeline() {
        let pair = || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
            socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let (ours, theirs) = pair();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send_pipes(&ours, &reader, &writer, None).unwrap();
        send_pipes(&ours, &reader, &writer, Some(&writer)).unwrap();
        drop((reader, writer));
        let plain = receive_pipes(theirs.as_fd()).unwrap();
        assert!(plain.program.is_none());
        let held = receive_pipes(theirs.as_fd()).unwrap();
        rustix::io::write(&plain.stdout, b"x").unwrap();
        rustix::io::write(held.program.unwrap(), b"y").unwrap();
        let mut bytes = [0; 2];
        assert_eq!(rustix::io::read(&held.stdin, &mut bytes).unwrap(), 2);
        assert_eq!(&bytes, b"xy");
        drop(ours);
        assert!(receive_pipes(theirs.as_fd()).is_err());
    }
}
