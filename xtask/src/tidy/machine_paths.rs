//! Paths that exist on one machine only.

use super::finding::Finding;

/// First folders of such paths. Written without their slashes, which keeps
/// this file clear of its own check.
const FOLDERS: [&str; 3] = ["home", "root", "work"];

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for folder in FOLDERS {
            let needle = format!("/{folder}/");
            let absolute = line.match_indices(&needle).any(|(at, _)| {
                line.get(..at)
                    .is_some_and(|before| !continues_a_path(before))
            });
            if absolute {
                findings.push(Finding::fault(
                    path,
                    index + 1,
                    format!("`{needle}...` is a path of one machine; use a temporary folder, or `/srv/...` in an example"),
                ));
            }
        }
    }
    findings
}

/// `a/home/`, `{dir}/home/` and `../home/` are relative to something.
fn continues_a_path(before: &str) -> bool {
    before
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || "_-.*~$})>]".contains(c))
}

#[cfg(test)]
mod tests {
    use super::check;

    fn line_of(parts: [&str; 3]) -> String {
        parts.join("/")
    }

    #[test]
    fn a_relative_or_neutral_path_passes() {
        assert!(check("a.md", &line_of(["see docs", "home", "index.md"])).is_empty());
        assert!(check("a.md", &line_of(["{dir}", "work", "x"])).is_empty());
        assert!(check("a.md", "/srv/assets and /homework/").is_empty());
    }

    #[test]
    fn a_path_of_one_machine_fails_on_its_line() {
        for folder in ["home", "root", "work"] {
            let text = format!("a\n{}", line_of(["see `", folder, "x`"]));
            let findings = check("a.md", &text);
            assert_eq!(findings.len(), 1, "{text}");
            assert_eq!(findings[0].line, 2);
        }
        assert_eq!(check("a.md", &line_of(["file://", "home", "x"])).len(), 1);
    }
}
