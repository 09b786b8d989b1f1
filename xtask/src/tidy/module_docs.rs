//! Every Rust file of ours opens by saying what it is.

use super::finding::Finding;

const COVERED: [&str; 3] = ["crates/", "examples/", "xtask/"];

pub(crate) fn check(path: &str, text: &str) -> Option<Finding> {
    let is_covered = COVERED.iter().any(|folder| path.starts_with(folder));
    let opening = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("");
    let says_something = opening
        .strip_prefix("//!")
        .is_some_and(|doc| !doc.trim().is_empty());
    (is_covered && !says_something).then(|| {
        Finding::fault(
            path,
            1,
            "no module documentation; open the file with `//!` and its purpose",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_documented_file_passes() {
        assert_eq!(
            check("crates/x/src/lib.rs", "//! What it is.\n\nfn a() {}\n"),
            None
        );
        assert_eq!(check("elsewhere/a.rs", "fn a() {}\n"), None);
    }

    #[test]
    fn a_file_without_purpose_fails() {
        assert!(check("crates/x/src/lib.rs", "fn a() {}\n").is_some());
        assert!(check("xtask/src/a.rs", "//!\n").is_some());
        assert!(check("examples/x/src/main.rs", "").is_some());
    }
}
