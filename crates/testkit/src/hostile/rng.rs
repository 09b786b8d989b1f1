//! A small generator of random numbers, the same on every machine.

/// `SplitMix64`: tests want variety and repeatability, nothing more.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator; the same seed gives the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` up to and with `high`.
    pub const fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    /// One of several. There must be at least one.
    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.between(0, of.len() - 1)]
    }

    /// A byte.
    pub const fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}
