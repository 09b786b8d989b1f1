//! Whether a file has a match at all, at the least cost.

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};

use crate::query::feed::Indexed;
use crate::query::matcher::LineMatcher;
use crate::tree::file::{Content, Reader};

/// What the parts of a file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has no match.
    Nothing,
    /// It has to be read.
    Read,
}

/// Says of files whether they have a match at all.
pub(crate) struct Looker<'a> {
    pub(crate) in_parts: bool,
    pub(crate) matcher: &'a LineMatcher,
    pub(crate) searcher: &'a mut Searcher,
}

/// How far a look goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only where that spares reading the rest.
    Parts,
    Whole,
}

impl Looker<'_> {
    /// Gives also the bytes that were read.
    pub(crate) fn look(
        &mut self,
        reader: &Reader<'_>,
        path: &str,
        indexed: Option<&Indexed>,
        depth: Depth,
        buffer: &mut Vec<u8>,
    ) -> (Look, u64) {
        let stamp = indexed.and_then(|indexed| indexed.stamp);
        let ranges = indexed.map_or(&[][..], |indexed| &indexed.ranges);
        let in_parts = self.in_parts && !ranges.is_empty();
        let read = match stamp.filter(|_| in_parts) {
            Some(stamp) => reader.read_ranges(path, stamp, ranges, buffer).is_some(),
            None => {
                depth == Depth::Whole
                    && matches!(reader.read_known(path, stamp, buffer).0, Content::Text)
            }
        };
        if !read {
            return (Look::Read, 0);
        }
        let mut any = false;
        let searched = self
            .searcher
            .search_slice(self.matcher, buffer, Any(&mut any));
        let look = match any || searched.is_err() {
            true => Look::Read,
            false => Look::Nothing,
        };
        (look, buffer.len() as u64)
    }
}

/// Ripgrep's own engine, as a query uses it.
pub(crate) fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::none())
        .build()
}

/// Whether there is a match at all.
struct Any<'a>(&'a mut bool);

impl Sink for Any<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        *self.0 = true;
        Ok(false)
    }
}
