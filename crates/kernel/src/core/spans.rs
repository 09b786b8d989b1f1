//! Ids of traces and spans: never the same twice within a host, and nothing more.

use mainstay_contract::trace::{Span, TraceContext};
use serde::{Deserialize, Serialize};

/// A source of spans; without a collector requests keep the spans of their clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spans {
    next: Option<u64>,
}

impl Spans {
    /// Spans that begin at a random number, or none of the host's own.
    pub(crate) const fn seeded(seed: Option<u64>) -> Self {
        Self { next: seed }
    }

    /// The span of a request whose client sent `parent`.
    pub(crate) fn of(&mut self, parent: Option<TraceContext>) -> Option<Span> {
        let Some(next) = &mut self.next else {
            return parent.map(|context| Span {
                context,
                parent: None,
            });
        };
        let mut id = || {
            // Zero is not an id.
            crate::supervisor::splitmix(next).max(1).to_be_bytes()
        };
        let context = match parent {
            Some(parent) => parent.with_span(id()),
            None => {
                let mut trace = [0; 16];
                let (first, second) = trace.split_at_mut(8);
                first.copy_from_slice(&id());
                second.copy_from_slice(&id());
                TraceContext::root(trace, id())
            }
        };
        Some(Span { context, parent })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_span_comes_twice() {
        let mut spans = Spans::seeded(Some(7));
        let seen: BTreeSet<[u8; 8]> = (0..10_000)
            .map(|_| spans.of(None).unwrap().context.span)
            .collect();
        assert_eq!(seen.len(), 10_000);
        let parent = TraceContext::root([1; 16], [2; 8]);
        let child = spans.of(Some(parent)).unwrap();
        assert_eq!(child.parent, Some(parent));
        assert_ne!(child.context.span, parent.span);
        assert_eq!(Spans::seeded(None).of(None), None);
    }
}
