//! The names nearest to one that occurs nowhere: what was probably meant by a misspelt one.

use crate::query::ranked::{Failed, Source};
use crate::query::symbol::plain;
use crate::store::table::Scanned;
use crate::symbols::names::blocks_with;

/// Letters of a name that is looked for in this way, at least.
const SHORTEST: usize = 4;
/// Letters from which on two mistakes are forgiven instead of one.
const LONG: usize = 7;
/// Names that are compared.
const MOST_NAMES: usize = 8_000_000;

/// The name of a definition with the fewest mistakes against `wanted`, as it is written. Where several
/// have as few, the one whose capitals and underscores are most like those of `wanted`.
pub(crate) fn nearest(sources: &[Source<'_>], wanted: &str) -> Result<Option<String>, Failed> {
    let plain = plain(wanted);
    let target: Vec<char> = plain.chars().collect();
    if target.len() < SHORTEST {
        return Ok(None);
    }
    let most = if target.len() < LONG { 1 } else { 2 };
    let written: Vec<char> = wanted.chars().collect();
    // Mistakes without regard to spelling, mistakes as written, the name.
    let mut best: Option<(usize, usize, String)> = None;
    let mut left = MOST_NAMES;
    let mut lower: Vec<char> = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        for segment in &source.view.generation.segments {
            for table in &segment.symbols {
                let each = |key: &[u8], _: Scanned<'_>| {
                    left = left.saturating_sub(1);
                    let mut parts = key.splitn(2, |byte| *byte == 0);
                    let folded = parts.next().unwrap_or_default();
                    let bound = best.as_ref().map_or(most, |(mistakes, ..)| *mistakes);
                    // Underscores do not count, so a name may have a few more bytes.
                    if folded.len() + bound >= target.len() && folded.len() <= 2 * target.len() {
                        lower.clear();
                        let text = String::from_utf8_lossy(folded);
                        lower.extend(text.chars().filter(|c| !matches!(c, '_' | '-')));
                        if let Some(mistakes) = mistakes(&lower, &target, bound) {
                            let name = parts.next().unwrap_or_default();
                            let name = String::from_utf8_lossy(name).into_owned();
                            let letters: Vec<char> = name.chars().collect();
                            let all = letters.len().max(written.len());
                            let spelled = self::mistakes(&letters, &written, all).unwrap_or(all);
                            let known = best.as_ref().map(|(few, spelled, _)| (*few, *spelled));
                            if known.is_none_or(|known| (mistakes, spelled) < known) {
                                best = Some((mistakes, spelled, name));
                            }
                        }
                    }
                    left > 0
                };
                // One mistake spoils at most three trigrams.
                let mut go_on = true;
                let mut each = each;
                for block in blocks_with(table, plain.as_bytes(), 3 * most) {
                    table
                        .scan_block(block, |key, found| {
                            go_on = each(key, found);
                            go_on
                        })
                        .map_err(|error| Failed::Store(number, error))?;
                    if !go_on {
                        break;
                    }
                }
            }
        }
    }
    Ok(best.map(|(.., name)| name))
}

/// Letters to insert, drop, replace or swap with their neighbour to make one text the other, if
/// these are at most `most`.
fn mistakes(a: &[char], b: &[char], most: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let width = b.len() + 1;
    let mut before = vec![0_usize; width];
    let mut last: Vec<usize> = (0..width).collect();
    let mut row = vec![0_usize; width];
    let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
    for (i, x) in a.iter().enumerate() {
        row.clear();
        row.push(i + 1);
        let mut least = i + 1;
        for (j, y) in b.iter().enumerate() {
            let mut cost = (at(&last, j + 1) + 1)
                .min(at(&row, j) + 1)
                .min(at(&last, j) + usize::from(x != y));
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                cost = cost.min(at(&before, j - 1) + 1);
            }
            least = least.min(cost);
            row.push(cost);
        }
        if least > most {
            return None;
        }
        std::mem::swap(&mut before, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    Some(at(&last, b.len())).filter(|found| *found <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_counted_as_people_make_them() {
        let count = |a: &str, b: &str, most| {
            let letters = |text: &str| text.chars().collect::<Vec<char>>();
            mistakes(&letters(a), &letters(b), most)
        };
        assert_eq!(count("router", "router", 2), Some(0));
        assert_eq!(count("router", "ruoter", 1), Some(1), "neighbours swapped");
        assert_eq!(count("router", "rotr", 2), Some(2));
        assert_eq!(count("router", "rowter", 1), Some(1));
        assert_eq!(count("router", "outer", 1), Some(1));
        assert_eq!(count("router", "writer", 1), None);
    }
}
