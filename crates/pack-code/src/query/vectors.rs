//! Static vectors of sub-tokens: a table in the executable, looked up and added, nothing else.
//!
//! `model/train.py` makes the table and says what it is: directions of 4-bit numbers, and for each
//! token a weight in a question and one in code, as logarithms. Where the table cannot be read the
//! words themselves are compared instead.

use std::sync::OnceLock;

use crate::store::codec::{take_array, take_bytes};

/// The table.
const TABLE: &[u8] = include_bytes!("../../model/vectors.bin");
const MAGIC: [u8; 8] = *b"mstvec01";
/// Numbers of a vector.
pub(crate) const DIMENSIONS: usize = 128;
/// Bytes of the table that the executable may carry.
#[cfg(test)]
const MOST_BYTES: usize = 2_000_000;

/// A vector.
pub(crate) type Vector = [f32; DIMENSIONS];

/// The table, taken apart.
#[derive(Debug)]
pub(crate) struct Vectors {
    /// Tokens in ascending order.
    tokens: Vec<&'static [u8]>,
    asked: &'static [u8],
    code: &'static [u8],
    rows: &'static [u8],
}

/// What the table says about a token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// Of length 1.
    pub(crate) direction: Box<Vector>,
    /// What it weighs in a question and in code.
    pub(crate) asked: f32,
    pub(crate) code: f32,
}

/// The table of this executable.
pub(crate) fn vectors() -> Option<&'static Vectors> {
    static VECTORS: OnceLock<Option<Vectors>> = OnceLock::new();
    VECTORS.get_or_init(|| Vectors::parse(TABLE)).as_ref()
}

impl Vectors {
    fn parse(table: &'static [u8]) -> Option<Self> {
        let mut rest = table;
        if take_array(&mut rest)? != MAGIC {
            return None;
        }
        let mut number = || take_array(&mut rest).map(u32::from_le_bytes);
        let (count, dimensions, bytes) = (number()? as usize, number()? as usize, number()?);
        let names = take_bytes(&mut rest, bytes as usize)?;
        let tokens: Vec<&[u8]> = names.split(|byte| *byte == b'\n').collect();
        let vectors = Self {
            asked: take_bytes(&mut rest, count)?,
            code: take_bytes(&mut rest, count)?,
            rows: take_bytes(&mut rest, count * DIMENSIONS / 2)?,
            tokens,
        };
        let sound = dimensions == DIMENSIONS && vectors.tokens.len() == count && rest.is_empty();
        (sound && vectors.tokens.is_sorted()).then_some(vectors)
    }

    /// Looks a token up, which is in lower case.
    pub(crate) fn get(&self, token: &[u8]) -> Option<Token> {
        let at = self.tokens.binary_search(&token).ok()?;
        let row = self
            .rows
            .get(at * DIMENSIONS / 2..(at + 1) * DIMENSIONS / 2)?;
        let mut direction = Box::new([0.0; DIMENSIONS]);
        let (pairs, _) = direction.as_chunks_mut::<2>();
        for (byte, [low, high]) in row.iter().zip(pairs) {
            *low = f32::from(byte & 15) - 8.0;
            *high = f32::from(byte >> 4) - 8.0;
        }
        normalise(&mut direction);
        let weight = |weights: &[u8]| {
            let log = f32::from(*weights.get(at)?) - 128.0;
            Some((log / 16.0).exp2())
        };
        Some(Token {
            direction,
            asked: weight(self.asked)?,
            code: weight(self.code)?,
        })
    }
}

/// Adds a direction times a weight.
pub(crate) fn add(sum: &mut Vector, direction: &Vector, weight: f32) {
    for (sum, own) in sum.iter_mut().zip(direction) {
        *sum += weight * own;
    }
}

/// Makes a vector of length 1, unless it is nothing.
pub(crate) fn normalise(vector: &mut Vector) {
    let length = dot(vector, vector).sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

pub(crate) fn dot(a: &Vector, b: &Vector) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound_small_and_knows_what_is_alike() {
        assert!(TABLE.len() <= MOST_BYTES, "{}", TABLE.len());
        let vectors = vectors().unwrap();
        let alike = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|token| vectors.get(token.as_bytes()).unwrap());
            dot(&a.direction, &b.direction)
        };
        for (word, near, far) in [
            ("delete", "remove", "parse"),
            ("auth", "token", "matrix"),
            ("error", "exception", "colour"),
        ] {
            assert!(alike(word, near) > alike(word, far), "{word}");
        }
        assert!(vectors.get(b"no such token").is_none());
        let how = vectors.get(b"how").unwrap();
        let socket = vectors.get(b"socket").unwrap();
        assert!(how.asked < socket.asked, "words of questions weigh little");
    }
}
