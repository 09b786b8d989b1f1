//! File names that say nothing about what is inside.

use super::finding::Finding;

const EMPTY_NAMES: [&str; 7] = [
    "util", "utils", "common", "helper", "helpers", "misc", "stuff",
];

pub(crate) fn check(path: &str) -> Option<Finding> {
    let empty = path
        .split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part))
        .find(|part| EMPTY_NAMES.contains(part))?;
    let message = format!("`{empty}` names no idea; name the file after what it holds");
    Some(Finding::fault(path, 1, message))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_name_with_a_meaning_passes() {
        assert_eq!(check("crates/x/src/utility_bill.rs"), None);
    }

    #[test]
    fn a_drawer_for_everything_fails() {
        assert!(check("crates/x/src/utils.rs").is_some());
        assert!(check("crates/x/tests/common/mod.rs").is_some());
    }
}
