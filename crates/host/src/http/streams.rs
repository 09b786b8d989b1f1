//! Messages on their way to HTTP clients, stream by stream.
//!
//! A stream carries the messages of one request, or those of none. Producers
//! [`push`](Streams::push) them; the body of an HTTP response reads them with [`Streams::poll_next`].
//! The two meet only here, under one lock, and neither waits for the other while holding it.
//!
//! In a resumable set an event stays for a reader that comes back with the number of the last one
//! it saw, as long as the bytes of the set allow; in a live set it goes as it is read.
//!
//! Deliberately absent: what the messages say, and HTTP.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use mainstay_kernel::defect::{Defect, is_planted};
use serde::{Deserialize, Serialize};

/// Streams of one set that have ended and are kept for resuming.
const ENDED: usize = 256;

/// A stream of one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct StreamId(pub(super) u64);

/// One who reads a stream; a later reader takes it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReaderId(u64);

/// One message of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Event {
    /// Counted from 1 in each stream.
    pub(super) number: u64,
    #[serde(with = "text")]
    pub(super) line: Bytes,
    /// Nothing follows.
    pub(super) is_last: bool,
}

/// Treatment of an event that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Keep {
    ForResuming,
    Nothing,
}

/// A set of streams.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Streams {
    keep: Keep,
    /// Bytes that are held before old events go.
    budget: usize,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u64,
    next_reader: u64,
    held: usize,
    #[serde(skip)]
    door: Door,
    /// Wakers of producers that wait until readers have caught up.
    #[serde(skip)]
    room: Option<Waker>,
}

/// The way in for readers.
#[derive(Debug, Default)]
struct Door {
    /// New readers wait outside: the host drains for an upgrade.
    is_closed: bool,
    /// It was closed since the last look.
    was_closed: bool,
    /// The readers have left because the host is handed over.
    is_empty: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stream {
    log: VecDeque<Event>,
    /// Events ever pushed.
    pushed: u64,
    /// The last event that any reader took.
    taken: u64,
    ended: bool,
    /// The last event of a reader that had to leave because the host is upgraded. It comes back for the next ones, which
    /// are kept.
    #[serde(default)]
    left_at: Option<u64>,
    #[serde(skip)]
    reader: Option<Reader>,
}

/// Lines, which are text.
mod text {
    use bytes::Bytes;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(line: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(line))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        String::deserialize(deserializer).map(Bytes::from)
    }
}

#[derive(Debug)]
struct Reader {
    id: ReaderId,
    /// The last event that it has.
    at: u64,
    waker: Option<Waker>,
}

impl Stream {
    fn wake(&mut self) {
        if let Some(waker) = self.reader.as_mut().and_then(|reader| reader.waker.take()) {
            waker.wake();
        }
    }

    /// The last event of the reader that is there, or that comes back.
    fn read_to(&self) -> Option<u64> {
        let at = self.reader.as_ref().map(|reader| reader.at);
        at.or(self.left_at)
    }

    /// The oldest event may go: no reader still needs it.
    fn can_spare(&self) -> bool {
        let oldest = self.log.front().map(|event| event.number);
        match (self.read_to(), oldest) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(at), Some(oldest)) => oldest <= at,
        }
    }

    /// Nothing more comes, and no reader is there or comes back.
    const fn is_over(&self) -> bool {
        self.ended && self.reader.is_none() && self.left_at.is_none()
    }
}

impl Streams {
    pub(super) const fn new(keep: Keep, budget: usize) -> Self {
        Self {
            keep,
            budget,
            streams: BTreeMap::new(),
            next_stream: 0,
            next_reader: 0,
            held: 0,
            door: Door {
                is_closed: false,
                was_closed: false,
                is_empty: false,
            },
            room: None,
        }
    }

    /// A new stream with its first reader.
    pub(super) fn open(&mut self) -> (StreamId, ReaderId) {
        let id = self.open_unread();
        let reader = self.next_reader();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.reader = Some(Reader {
                id: reader,
                at: 0,
                waker: None,
            });
        }
        (id, reader)
    }

    /// Opens a stream that has no reader yet.
    pub(super) fn open_unread(&mut self) -> StreamId {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(id, Stream::default());
        id
    }

    fn next_reader(&mut self) -> ReaderId {
        self.next_reader += 1;
        ReaderId(self.next_reader)
    }

    /// Reads a stream from behind an event on; with `None`, from the first event that no reader got. A
    /// reader that was there is taken over. `None` if there is no such stream, or the events have
    /// gone.
    pub(super) fn attach(&mut self, id: StreamId, after: Option<u64>) -> Option<ReaderId> {
        let number = self.next_reader();
        let stream = self.streams.get_mut(&id)?;
        let at = match after {
            Some(after) if is_planted(Defect::ResumeSkips) => (after + 1).min(stream.pushed),
            Some(after) => after,
            None => stream.taken,
        };
        let first = stream
            .log
            .front()
            .map_or(stream.pushed + 1, |event| event.number);
        if at > stream.pushed || at + 1 < first {
            return None;
        }
        stream.wake();
        stream.left_at = None;
        stream.reader = Some(Reader {
            id: number,
            at,
            waker: None,
        });
        Some(number)
    }

    /// True if a stream has a reader.
    pub(super) fn is_read(&self, id: StreamId) -> bool {
        self.streams
            .get(&id)
            .is_some_and(|stream| stream.reader.is_some())
    }

    /// True if any stream has a reader.
    pub(super) fn any_read(&self) -> bool {
        self.streams.values().any(|stream| stream.reader.is_some())
    }

    /// A reader has gone; the stream stays if it may be resumed.
    pub(super) fn detach(&mut self, id: StreamId, reader: ReaderId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream
            .reader
            .as_ref()
            .is_some_and(|there| there.id == reader)
        {
            stream.reader = None;
            if self.keep == Keep::Nothing {
                self.remove(id);
            }
            self.make_room();
        }
    }

    /// Keeps new readers outside, or lets them in.
    pub(super) fn set_closed(&mut self, is_closed: bool) {
        self.door.is_closed = is_closed;
        self.door.was_closed |= is_closed;
        self.door.is_empty &= is_closed;
    }

    /// True if new readers had to wait since the last look: those that are not back could not come.
    pub(super) const fn take_closed(&mut self) -> bool {
        std::mem::replace(&mut self.door.was_closed, self.door.is_closed)
    }

    /// Ends the connections of all readers. The streams stay, so that clients can resume them, and so do the events that
    /// no reader has, until [`Self::give_up`]. Pushing waits for no reader until the door is opened: what it holds
    /// back would keep the host from being handed over.
    pub(super) fn release(&mut self) {
        self.door.is_empty = true;
        for stream in self.streams.values_mut() {
            stream.wake();
            stream.left_at = stream.read_to();
            stream.reader = None;
        }
        self.wake_room();
    }

    /// Readers that left because of an upgrade and have not come back are not waited for any longer.
    pub(super) fn give_up(&mut self) {
        for stream in self.streams.values_mut() {
            stream.left_at = None;
        }
        self.make_room();
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, id: StreamId) {
        if let Some(mut stream) = self.streams.remove(&id) {
            self.held -= stream
                .log
                .iter()
                .map(|event| event.line.len())
                .sum::<usize>();
            stream.wake();
            // Its reader may be the one that pushing waits for.
            self.wake_room();
        }
    }

    /// Adds a message. False if its reader is too far behind, and was given up.
    pub(super) fn push(&mut self, id: StreamId, line: Bytes, is_last: bool) -> bool {
        let budget = self.budget;
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        if stream.ended {
            return true;
        }
        let waiting: usize = stream.log.iter().map(|event| event.line.len()).sum();
        if self.keep == Keep::Nothing && waiting > budget {
            self.remove(id);
            return false;
        }
        stream.pushed += 1;
        stream.ended = is_last;
        self.held += line.len();
        stream.log.push_back(Event {
            number: stream.pushed,
            line,
            is_last,
        });
        if !is_planted(Defect::StreamAsleep) {
            stream.wake();
        }
        self.make_room();
        true
    }

    /// Nothing more comes in this stream.
    pub(super) fn end(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ended = true;
            stream.wake();
        }
    }

    /// Nothing more comes in any stream.
    pub(super) fn end_all(&mut self) {
        for stream in self.streams.values_mut() {
            stream.ended = true;
            stream.wake();
        }
    }

    /// The next event for a reader; `None` at the end, or if it was taken over.
    pub(super) fn poll_next(
        &mut self,
        id: StreamId,
        reader: ReaderId,
        context: &Context<'_>,
    ) -> Poll<Option<Event>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(None);
        };
        let Some(here) = stream.reader.as_mut().filter(|here| here.id == reader) else {
            return Poll::Ready(None);
        };
        let first = stream.log.front().map_or(0, |event| event.number);
        let at = usize::try_from((here.at + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let Some(event) = stream.log.get(at).cloned() else {
            if stream.ended {
                return Poll::Ready(None);
            }
            here.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        here.at = event.number;
        stream.taken = stream.taken.max(event.number);
        if self.keep == Keep::Nothing
            && let Some(taken) = stream.log.pop_front()
        {
            self.held -= taken.line.len();
        }
        self.wake_room();
        Poll::Ready(Some(event))
    }

    /// Ready when readers have caught up enough for more to be pushed.
    pub(super) fn poll_room(&mut self, context: &Context<'_>) -> Poll<()> {
        let owed: usize = if self.held <= self.budget || self.door.is_empty {
            0
        } else {
            let owed = |stream: &Stream| {
                let log = stream.log.iter();
                stream.read_to().map_or(0, |at| {
                    log.filter(|event| event.number > at)
                        .map(|event| event.line.len())
                        .sum()
                })
            };
            self.streams.values().map(owed).sum()
        };
        if owed <= self.budget {
            return Poll::Ready(());
        }
        self.room = Some(context.waker().clone());
        Poll::Pending
    }

    /// Drops the oldest events that no connected reader still needs.
    fn make_room(&mut self) {
        while self.held > self.budget {
            let spare = self.streams.iter_mut().find(|(_, stream)| {
                // The newest event of a stream whose reader is on its way back is the last to go.
                stream.can_spare()
            });
            let Some((id, stream)) = spare else { break };
            let id = *id;
            if let Some(event) = stream.log.pop_front() {
                self.held -= event.line.len();
            }
            if stream.log.is_empty() && stream.is_over() {
                self.streams.remove(&id);
            }
        }
        while self
            .streams
            .values()
            .filter(|stream| stream.is_over())
            .count()
            > ENDED
        {
            let oldest = self.streams.iter().find(|(_, stream)| stream.is_over());
            let Some(id) = oldest.map(|(id, _)| *id) else {
                break;
            };
            self.remove(id);
        }
        self.wake_room();
    }

    /// Wakes the task that waits in [`Self::poll_room`].
    fn wake_room(&mut self) {
        if let Some(room) = self.room.take()
            && !is_planted(Defect::RoomUnreported)
        {
            room.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn next(streams: &mut Streams, id: StreamId, reader: ReaderId) -> Poll<Option<String>> {
        let context = Context::from_waker(Waker::noop());
        let event = streams.poll_next(id, reader, &context);
        event.map(|event| event.map(|event| String::from_utf8(event.line.to_vec()).unwrap()))
    }

    fn all(streams: &mut Streams, id: StreamId, reader: ReaderId) -> Vec<String> {
        let mut seen = Vec::new();
        while let Poll::Ready(Some(line)) = next(streams, id, reader) {
            seen.push(line);
        }
        seen
    }

    #[test]
    fn a_stream_gives_its_events_in_order_and_ends_with_the_last() {
        for keep in [Keep::ForResuming, Keep::Nothing] {
            let mut streams = Streams::new(keep, 100);
            let (id, reader) = streams.open();
            assert_eq!(next(&mut streams, id, reader), Poll::Pending);
            streams.push(id, line("a"), false);
            streams.push(id, line("b"), true);
            streams.push(id, line("c"), false);
            assert_eq!(all(&mut streams, id, reader), ["a", "b"]);
            assert_eq!(next(&mut streams, id, reader), Poll::Ready(None));
        }
    }

    #[test]
    fn events_are_kept_for_a_reader_that_left_because_of_an_upgrade() {
        let mut streams = Streams::new(Keep::ForResuming, 10);
        let (id, reader) = streams.open();
        streams.push(id, line("seen"), false);
        assert_eq!(all(&mut streams, id, reader), ["seen"]);
        streams.release();
        streams.push(id, line("more bytes than the budget"), true);
        let saved = serde_json::to_string(&streams).unwrap();
        let mut streams: Streams = serde_json::from_str(&saved).unwrap();
        let context = Context::from_waker(Waker::noop());
        assert!(
            streams.poll_room(&context).is_pending(),
            "nothing more fits"
        );
        let reader = streams.attach(id, Some(1)).unwrap();
        assert_eq!(
            all(&mut streams, id, reader),
            ["more bytes than the budget"]
        );
        assert!(streams.poll_room(&context).is_ready());
        // One that does not come back does not hold up the session for ever.
        let (other, reader) = streams.open();
        streams.release();
        streams.push(other, line("more bytes than the budget"), true);
        streams.detach(other, reader);
        // The hand-over failed, and the host goes on.
        streams.set_closed(false);
        assert!(streams.poll_room(&context).is_pending());
        streams.give_up();
        assert!(streams.poll_room(&context).is_ready());
        assert!(streams.attach(other, Some(0)).is_none(), "it was dropped");
    }

    #[test]
    fn a_reader_that_comes_back_gets_what_it_has_not_seen() {
        let mut streams = Streams::new(Keep::ForResuming, 100);
        let (id, reader) = streams.open();
        streams.push(id, line("a"), false);
        streams.push(id, line("b"), false);
        assert_eq!(all(&mut streams, id, reader), ["a", "b"]);
        streams.detach(id, reader);
        streams.push(id, line("c"), true);
        let again = streams.attach(id, Some(1)).unwrap();
        assert_eq!(all(&mut streams, id, again), ["b", "c"]);
        assert_eq!(streams.attach(id, Some(4)), None, "it was never sent");
        let fresh = streams.attach(id, None).unwrap();
        assert_eq!(all(&mut streams, id, fresh), [] as [&str; 0], "nothing new");
    }

    #[test]
    fn a_second_reader_takes_a_stream_over() {
        let mut streams = Streams::new(Keep::ForResuming, 100);
        let (id, first) = streams.open();
        let second = streams.attach(id, Some(0)).unwrap();
        streams.push(id, line("a"), false);
        assert_eq!(next(&mut streams, id, first), Poll::Ready(None));
        assert_eq!(all(&mut streams, id, second), ["a"]);
        streams.detach(id, first);
        assert!(streams.is_read(id), "the old reader takes nobody with it");
    }

    #[test]
    fn old_events_go_when_the_budget_is_spent_and_are_then_refused() {
        let mut streams = Streams::new(Keep::ForResuming, 10);
        let (id, reader) = streams.open();
        for text in ["aaaa", "bbbb", "cccc"] {
            streams.push(id, line(text), false);
        }
        assert_eq!(streams.held, 12, "a reader that is there loses nothing");
        assert_eq!(all(&mut streams, id, reader).len(), 3);
        streams.push(id, line("dddd"), false);
        assert!(streams.held <= 10);
        streams.detach(id, reader);
        assert_eq!(streams.attach(id, Some(0)), None);
        assert!(streams.attach(id, Some(3)).is_some());
    }

    #[test]
    fn pushing_waits_for_readers_that_are_there_and_for_no_others() {
        let context = Context::from_waker(Waker::noop());
        let mut streams = Streams::new(Keep::ForResuming, 4);
        let (id, reader) = streams.open();
        streams.push(id, line("aaaaaaaa"), false);
        assert_eq!(streams.poll_room(&context), Poll::Pending);
        streams.detach(id, reader);
        assert_eq!(streams.poll_room(&context), Poll::Ready(()));
        assert_eq!(streams.held, 0);
    }

    #[test]
    fn forgetting_a_stream_wakes_the_task_that_waits_for_its_reader() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let woken = std::sync::Arc::new(Woken(false.into()));
        let waker = std::sync::Arc::clone(&woken).into();
        let context = Context::from_waker(&waker);
        let mut streams = Streams::new(Keep::ForResuming, 4);
        let (id, _) = streams.open();
        streams.push(id, line("aaaaaaaa"), false);
        assert_eq!(streams.poll_room(&context), Poll::Pending);
        streams.remove(id);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert_eq!(streams.poll_room(&context), Poll::Ready(()));
    }

    #[test]
    fn pushing_waits_for_no_reader_while_the_host_is_handed_over() {
        let context = Context::from_waker(Waker::noop());
        let mut streams = Streams::new(Keep::ForResuming, 4);
        let (id, _) = streams.open();
        streams.push(id, line("aaaaaaaa"), false);
        streams.set_closed(true);
        assert_eq!(streams.poll_room(&context), Poll::Pending, "it is read");
        streams.release();
        assert_eq!(streams.poll_room(&context), Poll::Ready(()));
        streams.push(id, line("b"), true);
        // The host was not handed over, or another one goes on.
        let saved = serde_json::to_string(&streams).unwrap();
        streams.set_closed(false);
        for mut streams in [streams, serde_json::from_str(&saved).unwrap()] {
            assert_eq!(streams.poll_room(&context), Poll::Pending);
            let reader = streams.attach(id, Some(0)).unwrap();
            assert_eq!(all(&mut streams, id, reader), ["aaaaaaaa", "b"]);
            assert_eq!(streams.poll_room(&context), Poll::Ready(()));
        }
    }

    #[test]
    fn a_live_reader_far_behind_is_given_up() {
        let mut streams = Streams::new(Keep::Nothing, 4);
        let (id, reader) = streams.open();
        assert!(
            streams.push(id, line("aaaaaaaa"), false),
            "one is always taken"
        );
        assert!(!streams.push(id, line("b"), false));
        assert_eq!(next(&mut streams, id, reader), Poll::Ready(None));
        assert_eq!(streams.held, 0);
    }

    #[test]
    fn a_live_stream_goes_with_its_reader() {
        let mut streams = Streams::new(Keep::Nothing, 100);
        let (id, reader) = streams.open();
        streams.push(id, line("a"), false);
        streams.detach(id, reader);
        assert_eq!(streams.held, 0);
        assert!(!streams.any_read());
        assert!(streams.streams.is_empty());
    }

    #[test]
    fn ended_streams_that_nobody_reads_are_bounded() {
        let mut streams = Streams::new(Keep::ForResuming, 1 << 20);
        for _ in 0..ENDED + 50 {
            let (id, reader) = streams.open();
            streams.push(id, line("a"), true);
            streams.detach(id, reader);
        }
        assert_eq!(streams.streams.len(), ENDED);
    }
}
