//! Where idle threads wait for input.
//!
//! On Linux, with a pipe as input, they wait in the kernel on one epoll descriptor, which wakes
//! one of them per edge, the one that came last first. So a thread that runs a call after another
//! does not have to wake a second thread to keep watch, which would cost more than a short call.
//! The price is that input is read without blocking, and that a thread that leaves with messages still
//! buffered must [`Gate::announce`] them, since no edge will.
//!
//! Elsewhere, and when the input is a file or a terminal, the gate does nothing: [`Gate::wait`] returns
//! at once, and the threads queue at the lock of the input, whose holder blocks in its read.

use std::fs::File;

#[cfg(target_os = "linux")]
use self::linux::Epoll;

/// The waiting place.
#[derive(Debug)]
pub(super) enum Gate {
    #[cfg(target_os = "linux")]
    Epoll(Epoll),
    Absent,
}

/// The result of waiting at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Input,
    /// The host has closed its end. This may come in one with its last message, and then no edge
    /// follows for the end itself.
    HangUp,
}

impl Gate {
    /// A gate for `input`, which does not block from then on; absent where there cannot be one.
    pub(super) fn new(input: &File) -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(epoll) = Epoll::new(input) {
            return Self::Epoll(epoll);
        }
        let _ = input;
        Self::Absent
    }

    /// Waits until there may be something to read.
    pub(super) fn wait(&self) -> Seen {
        match self {
            #[cfg(target_os = "linux")]
            Self::Epoll(epoll) => epoll.wait(),
            Self::Absent => Seen::Input,
        }
    }

    /// Lets one thread through: the one that waits, or the next one that comes.
    pub(super) fn announce(&self) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Epoll(epoll) => epoll.announce(),
            Self::Absent => {}
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, epoll, eventfd};
    use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};

    use super::Seen;

    /// Both sources are edge-triggered: an edge wakes one thread, and stays for the next one that
    /// comes if none waits.
    #[derive(Debug)]
    pub(in crate::run) struct Epoll {
        epoll: OwnedFd,
        announced: OwnedFd,
    }

    impl Epoll {
        pub(super) fn new(input: &File) -> io::Result<Self> {
            // Terminals share the flag with their other users; files cannot be waited for.
            if FileType::from_raw_mode(fstat(input)?.st_mode) != FileType::Fifo {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let announced = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, input, epoll::EventData::new_u64(0), edge)?;
            epoll::add(&epoll, &announced, epoll::EventData::new_u64(1), edge)?;
            fcntl_setfl(input, fcntl_getfl(input)? | OFlags::NONBLOCK)?;
            Ok(Self { epoll, announced })
        }

        pub(super) fn wait(&self) -> Seen {
            // One event only, so that a second one wakes a second thread. What an error would let
            // through finds nothing to read and comes back.
            let mut event = [MaybeUninit::<epoll::Event>::uninit()];
            match epoll::wait(&self.epoll, &mut event, None) {
                // Copied out first: the structure is packed.
                Ok(([event, ..], _)) if { event.flags }.contains(epoll::EventFlags::HUP) => {
                    Seen::HangUp
                }
                _ => Seen::Input,
            }
        }

        pub(super) fn announce(&self) {
            // It counts up to 2^64 and so never blocks.
            let _ = rustix::io::write(&self.announced, &1_u64.to_ne_bytes());
        }
    }
}
