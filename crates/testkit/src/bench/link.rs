//! The fastest plain client there is: one thread, blocking pipes, no parsing.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// A connection to be measured.
pub struct Link {
    to: Box<dyn Write + Send>,
    from: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// A connection over two streams.
    pub fn new(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Self {
        Self {
            to: Box::new(to),
            from: BufReader::with_capacity(1 << 16, Box::new(from)),
            line: Vec::new(),
        }
    }

    /// Sends a line and waits for one. The line ends in its newline.
    pub fn round_trip(&mut self, line: &[u8]) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.to.write_all(line).context("writing a request")?;
        self.to.flush().context("writing a request")?;
        self.line.clear();
        let count = self
            .from
            .read_until(b'\n', &mut self.line)
            .context("reading an answer")?;
        ensure!(count > 0, "the peer has gone");
        Ok(start.elapsed())
    }

    /// Sends a line that nobody answers.
    pub fn send(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.to.write_all(line).context("writing a line")?;
        self.to.flush().context("writing a line")
    }

    /// The last answer.
    pub fn last(&self) -> &[u8] {
        &self.line
    }

    /// Keeps `lines` in flight, each sent again when it is answered, for so long; says how many
    /// were answered and in what time. The ids of the lines are their places.
    pub fn pump(&mut self, lines: &[Vec<u8>], time: Duration) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut answered = 0;
        let mut in_flight = lines.len();
        let mut out: Vec<u8> = lines.concat();
        while in_flight > 0 {
            self.to.write_all(&out).context("writing requests")?;
            self.to.flush().context("writing requests")?;
            out.clear();
            let is_over = start.elapsed() >= time;
            // Everything that has already arrived, and at least one answer.
            loop {
                self.line.clear();
                let count = self
                    .from
                    .read_until(b'\n', &mut self.line)
                    .context("reading")?;
                ensure!(count > 0, "the peer has gone");
                answered += 1;
                if is_over {
                    in_flight -= 1;
                } else {
                    let slot = id_of(&self.line).context("an answer without id")?;
                    out.extend_from_slice(lines.get(slot).context("an answer to no request")?);
                }
                if in_flight == 0 || !self.from.buffer().contains(&b'\n') {
                    break;
                }
            }
        }
        Ok((answered, start.elapsed()))
    }
}

/// The number after the first `"id":`, which is where both requests and answers have it.
pub(super) fn id_of(line: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"id\":";
    let at = line.windows(KEY.len()).position(|window| window == KEY)?;
    let digits = line.get(at + KEY.len()..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// A call of `tool` in the legacy dialect, padded to `size` bytes with its newline.
pub fn request(id: usize, tool: &str, size: usize) -> Vec<u8> {
    let head = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":""#
    );
    let tail = "\"}}}\n";
    let room = size.saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", "x".repeat(room)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_size_and_their_id() {
        let line = request(63, "echo", 200);
        assert_eq!((line.len(), line.last()), (200, Some(&b'\n')));
        assert_eq!(id_of(&line), Some(63));
        assert_eq!(
            id_of(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}"),
            Some(7)
        );
        assert_eq!(id_of(b"{}"), None);
    }
}
