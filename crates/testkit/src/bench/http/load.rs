//! The load: so many connections, a request in flight on each, all in one thread.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::contender::Contender;
use crate::bench::Samples;
use crate::peer::PATIENCE;

pub(super) struct Load {
    lines: Vec<Line>,
}

/// One connection and the request that is sent on it, again and again.
struct Line {
    stream: TcpStream,
    request: Vec<u8>,
    read: Vec<u8>,
    begun: Instant,
}

impl Load {
    pub(super) fn new(contender: &Contender, connections: usize) -> anyhow::Result<Self> {
        let lines = (0..connections)
            .map(|id| {
                let stream = TcpStream::connect(contender.address).context("connecting")?;
                stream.set_nodelay(true).context("no delay")?;
                stream.set_nonblocking(true).context("no waiting")?;
                Ok(Line {
                    stream,
                    request: contender.call(id + 1),
                    read: Vec::new(),
                    begun: Instant::now(),
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { lines })
    }

    /// So many calls, at most one on each connection at a time.
    pub(super) fn trips(&mut self, count: usize, samples: &mut Samples) -> anyhow::Result<()> {
        self.drive(|sent| sent < count, Some(samples))?;
        Ok(())
    }

    /// As many calls as are answered in this time, and the time it really took.
    pub(super) fn pump(&mut self, time: Duration) -> anyhow::Result<(u64, Duration)> {
        let begin = Instant::now();
        let calls = self.drive(|_| begin.elapsed() < time, None)?;
        Ok((calls, begin.elapsed()))
    }

    /// Sends while `more` says so, given how many were sent, and waits for the rest.
    fn drive(
        &mut self,
        mut more: impl FnMut(usize) -> bool,
        mut samples: Option<&mut Samples>,
    ) -> anyhow::Result<u64> {
        let (mut sent, mut answered, mut open) = (0_usize, 0_u64, 0_usize);
        let mut busy = vec![false; self.lines.len()];
        for (line, busy) in self.lines.iter_mut().zip(&mut busy) {
            if more(sent) {
                line.send()?;
                (sent, open, *busy) = (sent + 1, open + 1, true);
            }
        }
        while open > 0 {
            for at in self.ready(&busy)? {
                let (Some(line), Some(busy)) = (self.lines.get_mut(at), busy.get_mut(at)) else {
                    continue;
                };
                if !line.receive()? {
                    continue;
                }
                answered += 1;
                if let Some(samples) = &mut samples {
                    samples.add(line.begun.elapsed());
                }
                if more(sent) {
                    line.send()?;
                    sent += 1;
                } else {
                    (open, *busy) = (open - 1, false);
                }
            }
        }
        Ok(answered)
    }

    /// The lines with something to read.
    fn ready(&self, busy: &[bool]) -> anyhow::Result<Vec<usize>> {
        let waiting: Vec<usize> = (0..self.lines.len())
            .filter(|at| busy.get(*at) == Some(&true))
            .collect();
        let mut places: Vec<PollFd<'_>> = waiting
            .iter()
            .filter_map(|at| self.lines.get(*at))
            .map(|line| PollFd::new(&line.stream, PollFlags::IN))
            .collect();
        let patience = Timespec::try_from(PATIENCE).context("a time")?;
        let count = poll(&mut places, Some(&patience)).context("waiting")?;
        ensure!(count > 0, "no answer within {PATIENCE:?}");
        let ready = waiting.iter().zip(&places);
        Ok(ready
            .filter(|(_, place)| !place.revents().is_empty())
            .map(|(at, _)| *at)
            .collect())
    }
}

impl Line {
    /// A request is far smaller than a socket's buffer, which is empty.
    fn send(&mut self) -> anyhow::Result<()> {
        self.read.clear();
        self.begun = Instant::now();
        self.stream.write_all(&self.request).context("sending")
    }

    /// Reads what is there. True if the answer is whole.
    fn receive(&mut self) -> anyhow::Result<bool> {
        let mut bytes = [0; 8192];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => bail!("closed: {}", String::from_utf8_lossy(&self.read)),
                Ok(count) => {
                    self.read.extend(bytes.iter().take(count));
                    if count < bytes.len() {
                        return self.is_whole();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.is_whole(),
                Err(error) => return Err(error).context("reading"),
            }
        }
    }

    fn is_whole(&self) -> anyhow::Result<bool> {
        let Some(end) = memchr::memmem::find(&self.read, b"\r\n\r\n") else {
            return Ok(false);
        };
        let (head, body) = self.read.split_at(end + 4);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let whole = match head.split("content-length:").nth(1) {
            Some(rest) => {
                let length = rest.split("\r\n").next().unwrap_or_default().trim();
                body.len() >= length.parse().context("a length")?
            }
            None => body.ends_with(b"\r\n0\r\n\r\n") || body == b"0\r\n\r\n",
        };
        if whole {
            ensure!(
                head.starts_with("http/1.1 200")
                    && memchr::memmem::find(body, b"\"result\"").is_some(),
                "a call failed: {}",
                String::from_utf8_lossy(&self.read)
            );
        }
        Ok(whole)
    }
}
