//! Bounded framing: one JSON text per line, for client stdio, sockets and worker pipes.
//!
//! [`FrameReader`] owns the buffer. A driver reads into [`FrameReader::spare`], says how much with
//! [`FrameReader::filled`], and takes every [`Frame`] with [`FrameReader::next_frame`] before it
//! reads again; a frame borrows from the buffer. At end of input [`FrameReader::finish`] gives
//! what stands without a newline. [`encode`] writes the other direction.
//!
//! Every byte is searched for a newline once and moved at most once, but for the growth of the
//! buffer. A line over the limit is reported as soon as it passes it, with its first [`HEAD`]
//! bytes; the rest of it is dropped as it arrives. The buffer holds at most the limit, a carriage
//! return and one read, and falls back to [`KEEP`] when the line that needed more has gone. A line for which
//! memory is missing is reported like one over the limit.
//!
//! Deliberately absent: reading and writing, JSON (see [`crate::scan`]), and any opinion on what
//! an oversize line deserves.

use std::ops::Range;

use memchr::memchr;

/// How much of an oversize line is kept, to find its id and dialect.
pub const HEAD: usize = 4096;

/// The largest buffer kept once the line that needed it has gone.
pub const KEEP: usize = 64 * 1024;

/// The first buffer. Idle connections are many, so it is well under [`KEEP`].
const FIRST: usize = 16 * 1024;

/// A buffer of more than this grows only if there is memory for what becomes of its line, too.
const LARGE: usize = 1024 * 1024;

/// Copies of a long line that exist at the same time on its way to a client, about.
const COPIES: usize = 5;

/// Room offered for one read, at least.
const MIN_SPARE: usize = 4 * 1024;

/// One line of input, without its line ending.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A line that is not blank and within the limit.
    Line(&'a [u8]),
    /// A line over the limit; the rest of it is discarded.
    Oversize(Oversize),
}

/// The part of a line over the limit that is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Oversize {
    /// The line's first [`HEAD`] bytes, or as many as the limit, if that is smaller.
    pub head: Vec<u8>,
}

/// Cuts a stream of bytes into lines, within bounds.
#[derive(Debug)]
pub struct FrameReader {
    limit: usize,
    /// Initialised throughout; `start..end` is input, the rest is room.
    buffer: Vec<u8>,
    /// Where the current line starts.
    start: usize,
    /// No newline stands in `start..scanned`.
    scanned: usize,
    end: usize,
    /// The current line was reported as oversize and its end has not been seen.
    discarding: bool,
    /// There was no memory for the current line; only its beginning is there.
    starved: bool,
}

/// The input of a [`FrameReader`] that was not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    pub bytes: Vec<u8>,
    /// The line was reported as oversize and its end was not seen.
    pub discarding: bool,
    /// There was no memory for the line.
    pub starved: bool,
}

/// Places in the buffer, so that the search can go on without borrowing it.
enum Found {
    Line(Range<usize>),
    Oversize(Range<usize>),
}

impl FrameReader {
    /// `limit` is the longest line accepted, without its line ending.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            end: 0,
            discarding: false,
            starved: false,
        }
    }

    /// Room for the next read: at least 4 KiB once [`Self::next_frame`] has returned `None`.
    ///
    /// It is empty only for a driver that reads on and on without taking the frames.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.move_to_front();
        }
        if self.buffer.len().saturating_sub(self.end) < MIN_SPARE {
            self.move_to_front();
            if !self.grow() {
                self.starve();
            }
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Says that the first `count` bytes of [`Self::spare`] have been read into.
    pub fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.buffer.len());
    }

    /// Copies in as much of `bytes` as there is room for, and says how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let room = self.spare();
        let taken = room.len().min(bytes.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..taken), bytes.get(..taken)) {
            room.copy_from_slice(bytes);
        }
        self.filled(taken);
        taken
    }

    /// Everything that was read and not taken, for a process that continues in this one's place.
    pub fn unread(&self) -> Unread {
        Unread {
            bytes: self
                .buffer
                .get(self.start..self.end)
                .unwrap_or_default()
                .to_vec(),
            discarding: self.discarding,
            starved: self.starved,
        }
    }

    /// A reader that continues with what another one had not taken.
    pub fn resume(limit: usize, unread: Unread) -> Self {
        Self {
            limit,
            start: 0,
            scanned: 0,
            end: unread.bytes.len(),
            buffer: unread.bytes,
            discarding: unread.discarding,
            starved: unread.starved,
        }
    }

    /// The next complete line, or the news that the current one is too long.
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        self.advance(false)
    }

    /// At end of input: as [`Self::next_frame`], and at last what stands without a newline. To be
    /// called until it returns `None`.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        self.advance(true)
    }

    fn advance(&mut self, ended: bool) -> Option<Frame<'_>> {
        match self.search(ended) {
            Some(Found::Line(line)) => self.buffer.get(line).map(Frame::Line),
            Some(Found::Oversize(line)) => {
                let head = line.start..line.end.min(line.start + self.limit.min(HEAD));
                let head = self.buffer.get(head).unwrap_or_default().to_vec();
                Some(Frame::Oversize(Oversize { head }))
            }
            None => {
                self.release();
                None
            }
        }
    }

    fn search(&mut self, ended: bool) -> Option<Found> {
        loop {
            let fresh = self.buffer.get(self.scanned..self.end)?;
            let Some(newline) = memchr(b'\n', fresh) else {
                self.scanned = self.end;
                return self.unfinished(ended);
            };
            let line = self.start..self.scanned + newline;
            self.start = line.end + 1;
            self.scanned = self.start;
            let starved = std::mem::take(&mut self.starved);
            if std::mem::take(&mut self.discarding) {
                continue;
            }
            if starved {
                return Some(Found::Oversize(line));
            }
            if let Some(found) = self.classify(line) {
                return Some(found);
            }
        }
    }

    /// Judges a line whose newline has not come.
    fn unfinished(&mut self, ended: bool) -> Option<Found> {
        let line = self.start..self.end;
        if self.discarding {
            self.start = self.end;
            self.discarding = !ended;
            None
        } else if ended && !self.starved {
            self.start = self.end;
            self.classify(line)
        } else if self.starved || self.without_cr(line.clone()).len() > self.limit {
            self.starved = false;
            // Certain already: only the last byte can still turn out to be part of the ending.
            self.start = self.end;
            self.discarding = true;
            Some(Found::Oversize(line))
        } else {
            None
        }
    }

    /// Judges a whole line; a blank one is nothing.
    fn classify(&self, line: Range<usize>) -> Option<Found> {
        let line = self.without_cr(line);
        if line.len() > self.limit {
            return Some(Found::Oversize(line));
        }
        let bytes = self.buffer.get(line.clone())?;
        let blank = bytes
            .iter()
            .all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        (!blank).then_some(Found::Line(line))
    }

    fn without_cr(&self, line: Range<usize>) -> Range<usize> {
        match self.buffer.get(line.clone()) {
            Some([.., b'\r']) => line.start..line.end - 1,
            _ => line,
        }
    }

    fn move_to_front(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.scanned -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Doubles the buffer, up to a line of the limit, its carriage return and one read. False without
    /// memory for it.
    fn grow(&mut self) -> bool {
        let most = self.limit.saturating_add(1 + MIN_SPARE).max(FIRST);
        let wanted = self.buffer.len().saturating_mul(2).clamp(FIRST, most);
        if self.buffer.len().saturating_sub(self.end) < MIN_SPARE && wanted > self.buffer.len() {
            let copies = if wanted > LARGE { COPIES * wanted } else { 0 };
            let has_room = Vec::<u8>::new().try_reserve_exact(copies).is_ok();
            // Exactly, since a vector left to itself may take twice as much.
            let more = wanted - self.buffer.len();
            if !has_room || self.buffer.try_reserve_exact(more).is_err() {
                return false;
            }
            self.buffer.resize(wanted, 0);
        }
        true
    }

    /// Keeps only the beginning of the current line, which is then reported as oversize.
    fn starve(&mut self) {
        self.end = self.end.min(self.start + HEAD);
        self.scanned = self.end;
        self.starved = true;
    }

    /// Gives back a big buffer that holds little.
    fn release(&mut self) {
        if self.buffer.len() > KEEP && self.end - self.start <= KEEP / 4 {
            self.move_to_front();
            self.buffer.truncate(KEEP);
            self.buffer.shrink_to(KEEP);
        }
    }
}

/// Appends one frame: the JSON text and a newline.
///
/// The text must not hold a line break. JSON that came through [`FrameReader`] never does; JSON
/// from elsewhere, such as the body of an HTTP request, may have some between its tokens.
pub fn encode(out: &mut Vec<u8>, json: &str) {
    debug_assert!(
        memchr(b'\n', json.as_bytes()).is_none(),
        "a frame is one line"
    );
    append_line(out, json.as_bytes());
}

/// A line break that got here in spite of [`encode`]'s condition would let its author write
/// frames of his own. In JSON it can only be space between tokens, so a space it becomes.
fn append_line(out: &mut Vec<u8>, mut json: &[u8]) {
    out.reserve(json.len() + 1);
    while let Some((before, after)) =
        memchr(b'\n', json).and_then(|newline| json.split_at_checked(newline))
    {
        out.extend_from_slice(before);
        out.push(b' ');
        json = after.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(json);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 10;

    /// Feeds `input` in pieces of the given sizes, over and over.
    fn frames(reader: &mut FrameReader, mut input: &[u8], sizes: &[usize]) -> Vec<String> {
        let mut out = Vec::new();
        let mut sizes = sizes.iter().cycle();
        while !input.is_empty() {
            let piece = input.len().min(*sizes.next().unwrap());
            let taken = reader.push(&input[..piece]);
            assert!(taken > 0, "no room after a drain");
            input = &input[taken..];
            while let Some(frame) = reader.next_frame() {
                out.push(show(&frame));
            }
        }
        while let Some(frame) = reader.finish() {
            out.push(show(&frame));
        }
        out
    }

    fn show(frame: &Frame<'_>) -> String {
        match frame {
            Frame::Line(line) => String::from_utf8_lossy(line).into_owned(),
            Frame::Oversize(Oversize { head }) => format!("!{}", String::from_utf8_lossy(head)),
        }
    }

    fn split(input: &str) -> Vec<String> {
        frames(
            &mut FrameReader::new(LIMIT),
            input.as_bytes(),
            &[usize::MAX],
        )
    }

    #[test]
    fn lines_come_without_their_endings_and_blank_ones_not_at_all() {
        assert_eq!(split("a\nb\r\n\n \t\r\n\r\r\nc \n"), ["a", "b", "c "]);
    }

    #[test]
    fn line_of_exactly_the_limit_is_accepted() {
        assert_eq!(split("0123456789\n"), ["0123456789"]);
        assert_eq!(split("0123456789\r\n"), ["0123456789"]);
        assert_eq!(split("0123456789"), ["0123456789"]);
        assert_eq!(split("0123456789a\n"), ["!0123456789"]);
        assert_eq!(split("0123456789a"), ["!0123456789"]);
        assert_eq!(split("0123456789\r\r\n"), ["!0123456789"]);
    }

    #[test]
    fn line_without_memory_is_reported_once_and_framing_goes_on() {
        for rest in [&b"rest of it"[..], b"rest\nok\n"] {
            let mut reader = FrameReader::new(100);
            reader.push(b"{\"id\":7,");
            assert_eq!(reader.next_frame(), None);
            reader.starve();
            reader.push(rest);
            let Some(Frame::Oversize(Oversize { head })) = reader.next_frame() else {
                panic!("it is not reported")
            };
            assert!(head.starts_with(b"{\"id\":7,"));
            if !rest.ends_with(b"\n") {
                assert_eq!(reader.next_frame(), None);
                reader.push(b"\nok\n");
            }
            assert_eq!(reader.next_frame(), Some(Frame::Line(b"ok")));
        }
        let mut last = FrameReader::new(100);
        last.push(b"{\"id\":7,");
        last.starve();
        assert!(matches!(last.finish(), Some(Frame::Oversize(_))));
        assert_eq!(last.finish(), None);
    }

    #[test]
    fn oversize_is_told_at_once_and_once_and_framing_goes_on() {
        let mut reader = FrameReader::new(LIMIT);
        reader.push(b"0123456789\r");
        assert_eq!(reader.next_frame(), None);
        reader.push(b"x");
        let head = b"0123456789".to_vec();
        assert_eq!(
            reader.next_frame(),
            Some(Frame::Oversize(Oversize { head }))
        );
        for _ in 0..100 {
            reader.push(&[b'x'; 1000]);
            assert_eq!(reader.next_frame(), None);
        }
        assert_eq!(reader.buffer.len(), FIRST);
        reader.push(b"x\nok\n");
        assert_eq!(reader.next_frame(), Some(Frame::Line(b"ok")));
        assert_eq!(reader.finish(), None);
    }

    #[test]
    fn oversize_keeps_the_first_four_kib() {
        let line: Vec<u8> = (0..20_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
        let mut reader = FrameReader::new(10_000);
        reader.push(&line);
        let Some(Frame::Oversize(Oversize { head })) = reader.next_frame() else {
            panic!("expected an oversize line");
        };
        assert_eq!(head, line[..HEAD]);
    }

    #[test]
    fn end_of_input_ends_an_oversize_line_silently() {
        let mut reader = FrameReader::new(LIMIT);
        reader.push(&[b'x'; 50]);
        assert!(matches!(reader.next_frame(), Some(Frame::Oversize(_))));
        assert_eq!(reader.finish(), None);
    }

    #[test]
    fn finish_gives_lines_not_yet_taken_before_the_rest() {
        let mut reader = FrameReader::new(LIMIT);
        reader.push(b"a\nb\nc");
        assert_eq!(reader.finish(), Some(Frame::Line(b"a")));
        assert_eq!(reader.finish(), Some(Frame::Line(b"b")));
        assert_eq!(reader.finish(), Some(Frame::Line(b"c")));
        assert_eq!(reader.finish(), None);
    }

    #[test]
    fn memory_stays_within_the_limit_and_one_read_and_is_given_back() {
        let limit = 1 << 20;
        let mut reader = FrameReader::new(limit);
        let mut input = vec![b'x'; limit];
        input.extend_from_slice(b"\r\nshort");
        let mut rest = input.as_slice();
        let mut largest = 0;
        while !rest.is_empty() {
            let taken = reader.push(rest);
            rest = &rest[taken..];
            largest = largest.max(reader.buffer.capacity());
            if let Some(frame) = reader.next_frame() {
                assert_eq!(frame, Frame::Line(&input[..limit]));
                assert_eq!(reader.next_frame(), None);
            }
        }
        assert!(largest <= limit + 1 + MIN_SPARE, "{largest}");
        assert!(
            reader.buffer.capacity() <= KEEP,
            "{}",
            reader.buffer.capacity()
        );
        assert_eq!(reader.finish(), Some(Frame::Line(b"short")));
    }

    #[test]
    fn driver_that_never_takes_frames_runs_out_of_room() {
        let mut reader = FrameReader::new(LIMIT);
        let mut total = 0;
        while reader.push(b"line\n") > 0 {
            total += 1;
        }
        assert!(total < FIRST);
        assert_eq!(reader.next_frame(), Some(Frame::Line(b"line")));
    }

    #[test]
    fn more_filled_than_there_was_room_is_ignored() {
        let mut reader = FrameReader::new(LIMIT);
        reader.filled(usize::MAX);
        assert_eq!(reader.next_frame(), None);
    }

    #[test]
    fn encode_writes_what_the_reader_reads() {
        let mut out = Vec::new();
        encode(&mut out, "{}");
        encode(&mut out, "[1]");
        assert_eq!(out, b"{}\n[1]\n");
    }

    #[test]
    fn line_break_never_becomes_a_second_frame() {
        let mut out = Vec::new();
        append_line(&mut out, b"{\n}\n");
        assert_eq!(out, b"{ } \n");
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_how_the_bytes_are_split(
            input in "[a-c \t\r\n]{0,80}",
            sizes in prop::collection::vec(1_usize..15, 1..8),
        ) {
            let pieces = frames(&mut FrameReader::new(LIMIT), input.as_bytes(), &sizes);
            prop_assert_eq!(&pieces, &split(&input));
            // An independent reading of the rules.
            let expected: Vec<String> = input
                .split('\n')
                .map(|line| line.strip_suffix('\r').unwrap_or(line))
                .filter(|line| line.len() > LIMIT || !line.trim_matches([' ', '\t', '\r']).is_empty())
                .map(|line| match line.get(..LIMIT) {
                    Some(head) if line.len() > LIMIT => format!("!{head}"),
                    _ => line.to_owned(),
                })
                .collect();
            prop_assert_eq!(pieces, expected);
        }

        #[test]
        fn a_reader_that_takes_over_at_any_byte_gives_the_same_frames(
            input in "[a-c \t\r\n]{0,80}",
            at in 0_usize..80,
        ) {
            let at = at.min(input.len());
            let mut first = FrameReader::new(LIMIT);
            first.push(&input.as_bytes()[..at]);
            let mut pieces = Vec::new();
            if let Some(frame) = first.next_frame() {
                pieces.push(show(&frame));
            }
            let mut second = FrameReader::resume(LIMIT, first.unread());
            pieces.extend(frames(&mut second, &input.as_bytes()[at..], &[usize::MAX]));
            prop_assert_eq!(pieces, split(&input));
        }

        #[test]
        fn big_lines_do_not_depend_on_how_the_bytes_are_split(
            lengths in prop::collection::vec(0_usize..120_000, 1..6),
            sizes in prop::collection::vec(1_usize..50_000, 1..8),
        ) {
            let mut input = Vec::new();
            for (line, length) in (b'a'..).zip(&lengths) {
                input.extend(std::iter::repeat_n(line, *length));
                input.push(b'\n');
            }
            let limit = 100_000;
            let whole = frames(&mut FrameReader::new(limit), &input, &[usize::MAX]);
            let pieces = frames(&mut FrameReader::new(limit), &input, &sizes);
            prop_assert_eq!(whole.len(), lengths.iter().filter(|length| **length > 0).count());
            prop_assert!(whole == pieces);
        }
    }
}
