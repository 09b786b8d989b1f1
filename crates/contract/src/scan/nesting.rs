//! Which containers are open: one bit each.

/// A kind of container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Container {
    Array,
    Object,
}

/// A stack of containers at one bit a level.
///
/// The first 128 levels need no allocation. Deeper ones do, since a line that is too deep is still
/// read to its end, but it takes a byte of input to open a level: the stack is at most an eighth
/// of the line.
#[derive(Clone, Default, Debug)]
pub(crate) struct Nesting {
    depth: usize,
    /// The innermost levels, the last of them in the lowest bit.
    top: u128,
    /// Full words of the levels outside of `top`.
    outer: Vec<u128>,
}

const WORD: usize = u128::BITS as usize;

impl Nesting {
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn open(&mut self, container: Container) {
        if self.depth > 0 && self.depth.is_multiple_of(WORD) {
            self.outer.push(self.top);
        }
        self.top = (self.top << 1) | u128::from(container == Container::Object);
        self.depth += 1;
    }

    /// The innermost open container; to be asked only where there is one.
    pub(crate) fn innermost(&self) -> Container {
        if self.top & 1 == 1 {
            Container::Object
        } else {
            Container::Array
        }
    }

    pub(crate) fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.top >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(WORD) {
            self.top = self.outer.pop().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_close_in_reverse_order_across_words() {
        let kind = |level: usize| {
            if level.is_multiple_of(3) {
                Container::Object
            } else {
                Container::Array
            }
        };
        for depth in [1, 2, 127, 128, 129, 255, 256, 257, 1000] {
            let mut nesting = Nesting::default();
            for level in 0..depth {
                nesting.open(kind(level));
            }
            for level in (0..depth).rev() {
                assert_eq!(nesting.depth(), level + 1);
                assert_eq!(nesting.innermost(), kind(level), "level {level} of {depth}");
                nesting.close();
                // Opening and closing at a word's edge must not lose the word.
                nesting.open(Container::Object);
                nesting.close();
            }
            assert_eq!(nesting.depth(), 0);
        }
    }
}
