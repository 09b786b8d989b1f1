//! RFC 6901 pointers, grown and shrunk along a walk.

use std::fmt::Write as _;

use crate::json::push_pointer_part;

/// The place a walk has reached.
#[derive(Debug, Default)]
pub(super) struct Pointer(String);

impl Pointer {
    /// The pointer to a field of the arguments themselves.
    pub(super) fn to_field(name: &str) -> String {
        let mut pointer = Self::default();
        pointer.enter_field(name);
        pointer.0
    }

    /// Descends into a field; the result is what [`Pointer::leave`] needs to come back.
    pub(super) fn enter_field(&mut self, name: &str) -> usize {
        let mark = self.0.len();
        push_pointer_part(&mut self.0, name);
        mark
    }

    /// Descends into an element of an array.
    pub(super) fn enter_index(&mut self, index: usize) -> usize {
        let mark = self.0.len();
        // Writing to a String cannot fail.
        let _ = write!(self.0, "/{index}");
        mark
    }

    pub(super) fn leave(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_escaped_and_leave_no_trace() {
        let mut pointer = Pointer::default();
        pointer.enter_field("a/b~c");
        let mark = pointer.enter_index(3);
        assert_eq!(pointer.as_str(), "/a~1b~0c/3");
        pointer.leave(mark);
        assert_eq!(pointer.as_str(), "/a~1b~0c");
    }
}
