//! Aligned columns.

use super::shorten;

/// How wide a cell may be.
pub const CELL_MAX_CHARS: usize = 80;

/// Content of an empty cell, so that readers can tell columns apart.
const EMPTY: &str = "-";
const GAP: usize = 2;

/// Lays out `headers` and `rows` in columns, two spaces apart, without trailing spaces.
///
/// Short rows are filled up; a table without rows has no lines at all.
pub(super) fn lines<R, C>(headers: &[&str], rows: R) -> Vec<String>
where
    R: IntoIterator<Item = C>,
    C: IntoIterator<Item: AsRef<str>>,
{
    let header = headers.iter().map(|text| cell(text)).collect::<Vec<_>>();
    let mut grid = vec![header];
    for row in rows {
        grid.push(row.into_iter().map(|text| cell(text.as_ref())).collect());
    }
    if grid.len() == 1 {
        return Vec::new();
    }
    let columns = grid.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in &mut grid {
        row.resize_with(columns, || EMPTY.to_owned());
        for (width, text) in widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }
    grid.iter().map(|row| aligned(row, &widths)).collect()
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    let mut gap = 0;
    for (text, width) in row.iter().zip(widths) {
        line.extend(std::iter::repeat_n(' ', gap));
        line.push_str(text);
        gap = width.saturating_sub(text.chars().count()) + GAP;
    }
    line
}

fn cell(text: &str) -> String {
    match shorten(text.trim(), CELL_MAX_CHARS) {
        text if text.is_empty() => EMPTY.to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_without_trailing_spaces() {
        let rows = [vec!["a", "1", ""], vec!["longer", "22", "x"], vec!["é"]];
        assert_eq!(
            lines(&["name", "n", "why"], rows),
            [
                "name    n   why",
                "a       1   -",
                "longer  22  x",
                "é       -   -"
            ],
        );
    }

    #[test]
    fn table_without_rows_is_empty() {
        assert!(lines(&["name"], Vec::<Vec<&str>>::new()).is_empty());
    }

    #[test]
    fn cells_stay_on_their_line() {
        let rows = [["a\nb".to_owned(), "y".repeat(500)]];
        let table = lines(&["k", "v"], rows);
        assert_eq!(table.len(), 2);
        assert!(table[1].starts_with("a\\nb  yyy"));
        assert!(table[1].chars().count() < 100);
    }
}
