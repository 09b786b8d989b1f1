//! Invisible bytes: tabs, trailing blanks, carriage returns, the last newline.

use super::finding::Finding;

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let mut found = |message: &str| findings.push(Finding::fault(path, index + 1, message));
        let content = line.strip_suffix('\r').unwrap_or(line);
        if content.len() < line.len() {
            found("a carriage return; save the file with LF line ends");
        }
        if content.contains('\t') {
            found("a tab; use spaces, or \\t inside a literal");
        }
        if content.ends_with([' ', '\t']) {
            found("white space at the end of the line; remove it");
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::fault(
            path,
            text.lines().count(),
            "no newline at the end; add one",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;

    fn first(text: &str) -> Option<String> {
        check("a.md", text).first().map(ToString::to_string)
    }

    #[test]
    fn clean_text_passes() {
        assert_eq!(first("a\n\n  b\n"), None);
        assert_eq!(first(""), None);
    }

    #[test]
    fn what_nobody_sees_is_found_on_its_line() {
        assert!(first("a\nb \n").unwrap().starts_with("a.md:2: white space"));
        assert!(first("a\n\tb\n").unwrap().starts_with("a.md:2: a tab"));
        assert!(
            first("a\r\n")
                .unwrap()
                .starts_with("a.md:1: a carriage return")
        );
        assert!(first("a\nb").unwrap().starts_with("a.md:2: no newline"));
    }
}
