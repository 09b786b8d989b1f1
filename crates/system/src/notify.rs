//! System calls that wait for a decision of another process (`SECCOMP_RET_USER_NOTIF`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// A system call that waits.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    id: u64,
    /// The thread that made the call.
    pub thread: u32,
    pub call: i64,
    pub arguments: [u64; 6],
}

/// The descriptor from which the waiting calls of a filter are read.
#[derive(Debug)]
pub struct Notifications(OwnedFd);

impl Notifications {
    /// Installs a filter like [`filter_system_calls`](crate::filter_system_calls), whose notifications come from the
    /// new descriptor. This thread must not make such a call before another process reads them.
    pub fn install(program: &[libc::sock_filter]) -> io::Result<Self> {
        let len = u16::try_from(program.len()).map_err(io::Error::other)?;
        let program = libc::sock_fprog {
            len,
            filter: program.as_ptr().cast_mut(),
        };
        // Signals other than fatal ones do not interrupt a call that is being looked at, so none is reported twice.
        let flags =
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        #[expect(unsafe_code, reason = "neither std nor rustix has seccomp")]
        // SAFETY: the pointer and the length describe a slice that outlives the call; the kernel copies and checks it.
        // A descriptor that was just opened has no other owner.
        unsafe {
            let result = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            );
            match libc::c_int::try_from(result) {
                Ok(descriptor) if descriptor >= 0 => Ok(Self(OwnedFd::from_raw_fd(descriptor))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Takes the descriptor of a filter that another process installed.
    #[must_use]
    pub fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Waits for the next call. `None` if its thread ended meanwhile.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        // The kernel expects zeroes.
        let mut received = MaybeUninit::<libc::seccomp_notif>::zeroed();
        #[expect(unsafe_code, reason = "neither std nor rustix has this request")]
        // SAFETY: the request writes a `seccomp_notif`, all of whose fields are numbers.
        let (result, received) = unsafe {
            let result = libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                received.as_mut_ptr(),
            );
            (result, received.assume_init())
        };
        if result == 0 {
            return Ok(Some(Notification {
                id: received.id,
                thread: received.pid,
                call: received.data.nr.into(),
                arguments: received.data.args,
            }));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            error => Err(error),
        }
    }

    /// True if the call still waits. Its thread's number belongs to it until then.
    #[must_use]
    pub fn is_waiting(&self, one: &Notification) -> bool {
        #[expect(unsafe_code, reason = "neither std nor rustix has this request")]
        // SAFETY: the request reads one number.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const one.id,
            )
        };
        result == 0
    }

    /// Lets the kernel carry out the call, or fail it with an error number.
    pub fn answer(&self, one: &Notification, error: Option<i32>) -> io::Result<()> {
        let proceed = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or_default();
        let response = libc::seccomp_notif_resp {
            id: one.id,
            val: 0,
            error: error.map_or(0, |error| -error),
            flags: if error.is_some() { 0 } else { proceed },
        };
        #[expect(unsafe_code, reason = "neither std nor rustix has this request")]
        // SAFETY: the request reads a `seccomp_notif_resp`.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const response,
            )
        };
        match result {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // Its thread was killed.
                error if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                error => Err(error),
            },
        }
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
