//! Trace context as the W3C writes it: which trace a request belongs to, and which span asked.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// `traceparent`: a trace, a span in it, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub flags: u8,
}

/// Bit of the flags: the one who asks records this trace.
const SAMPLED: u8 = 1;

impl TraceContext {
    /// Reads a `traceparent`. Later versions may say more behind the parts that are known.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version: [u8; 1] = unhex(parts.next()?)?;
        let trace = unhex(parts.next()?)?;
        let span = unhex(parts.next()?)?;
        let [flags] = unhex(parts.next()?)?;
        let ends = parts.next().is_none();
        let good = match version {
            [0] => ends,
            [0xff] => false,
            _ => true,
        };
        (good && trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, flags })
    }

    /// The trace that a client calls by a name of its own: a `traceparent`, the 32 digits of a
    /// trace, or any text, which stands for the same trace whenever it comes.
    pub fn named(name: &str) -> Self {
        if let Some(context) = Self::parse(name) {
            return context;
        }
        let hash: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(hash.first_chunk::<16>().unwrap_or(&[1; 16]));
        span.copy_from_slice(hash.last_chunk::<8>().unwrap_or(&[1; 8]));
        if let Some(written) = unhex(name).filter(|written| *written != [0; 16]) {
            trace = written;
        }
        Self::root(trace, span)
    }

    /// True if it is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The beginning of a trace that is recorded.
    pub const fn root(trace: [u8; 16], span: [u8; 8]) -> Self {
        Self {
            trace,
            span,
            flags: SAMPLED,
        }
    }

    /// Another span of the same trace.
    #[must_use]
    pub const fn with_span(mut self, span: [u8; 8]) -> Self {
        self.span = span;
        self
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags } = self;
        write!(f, "00-{}-{}-{flags:02x}", Hex(trace), Hex(span))
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a traceparent"))
    }
}

/// A request's own span, and the one that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The trace context for processes that work on the request.
    pub context: TraceContext,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TraceContext>,
}

/// Bytes in lower-case hexadecimal.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let mut value = 0;
        for digit in pair {
            value = value << 4
                | match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return None,
                };
        }
        *byte = value;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_the_same() {
        let context = TraceContext::parse(GOOD).unwrap();
        assert_eq!(context.to_string(), GOOD);
        assert!(context.is_sampled());
        let json = serde_json::to_string(&context).unwrap();
        assert_eq!(
            serde_json::from_str::<TraceContext>(&json).unwrap(),
            context
        );
        assert!(TraceContext::parse(&GOOD.replacen("00-", "01-", 1)).is_some());
        assert!(TraceContext::parse(&format!("{}-more", GOOD.replacen("00-", "cc-", 1))).is_some());
    }

    #[test]
    fn a_name_stands_for_the_same_trace_each_time() {
        assert_eq!(TraceContext::named(GOOD).to_string(), GOOD);
        let digits = "4bf92f3577b34da6a3ce929d0e0e4736";
        let context = TraceContext::named(digits);
        assert_eq!(Hex(&context.trace).to_string(), digits);
        let (one, two) = (
            TraceContext::named("trace-9ab2"),
            TraceContext::named("trace-9ab3"),
        );
        assert_eq!(one, TraceContext::named("trace-9ab2"));
        assert_ne!(one.trace, two.trace);
        assert!(one.is_sampled());
    }

    #[test]
    fn what_is_none_is_refused() {
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-0f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
