//! The two pipes to the host, taken away from everything else in the process.

use std::fs::File;
use std::io;

/// Where a worker reads and writes its protocol.
#[derive(Debug)]
pub struct Pipes {
    pub input: File,
    pub output: File,
}

#[cfg(unix)]
impl Pipes {
    /// Moves standard input and output to private descriptors that no subprocess inherits. What
    /// the rest of the process prints goes to standard error from then on, and what it reads is
    /// empty.
    pub fn take_stdio() -> io::Result<Self> {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        use rustix::io::fcntl_dupfd_cloexec;
        use rustix::stdio::{dup2_stdin, dup2_stdout};

        const ABOVE_STDERR: i32 = 3;
        let input = fcntl_dupfd_cloexec(io::stdin(), ABOVE_STDERR)?;
        let output = fcntl_dupfd_cloexec(io::stdout(), ABOVE_STDERR)?;
        // The maker of the pipes may have used them without blocking.
        for fd in [&input, &output] {
            fcntl_setfl(fd, fcntl_getfl(fd)?.difference(OFlags::NONBLOCK))?;
        }
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(io::stderr())?;
        Ok(Self {
            input: input.into(),
            output: output.into(),
        })
    }
}

#[cfg(not(unix))]
impl Pipes {
    /// Not on this platform yet.
    pub fn take_stdio() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
