//! A file is one idea: how long may it get?

use super::finding::Finding;

const MAX_LINES: usize = 800;
const NOTED_LINES: usize = 500;

pub(crate) fn check(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        Some(Finding::fault(
            path,
            MAX_LINES + 1,
            format!("{lines} lines, the most is {MAX_LINES}; split the file by idea"),
        ))
    } else if lines > NOTED_LINES {
        Some(Finding::note(
            path,
            NOTED_LINES + 1,
            format!("{lines} lines; is it still one idea?"),
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::Level;

    #[test]
    fn only_a_file_past_the_limit_fails() {
        let level = |lines: usize| check("a.rs", &"x\n".repeat(lines)).map(|found| found.level);
        assert_eq!(level(500), None);
        assert_eq!(level(501), Some(Level::Note));
        assert_eq!(level(800), Some(Level::Note));
        assert_eq!(level(801), Some(Level::Fault));
    }
}
