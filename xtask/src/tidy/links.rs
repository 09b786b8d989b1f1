//! Relative links in Markdown: the file is there, and so is the heading.
//!
//! Nothing is fetched: links with a scheme are left alone. Code blocks and
//! inline code are not links.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::tree::Tree;

pub(crate) fn check(path: &str, text: &str, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in prose(text) {
        for target in targets(&without_inline_code(content)) {
            if let Some(message) = objection(path, &target, tree) {
                findings.push(Finding::fault(path, line, message));
            }
        }
    }
    findings
}

fn objection(path: &str, target: &str, tree: &Tree) -> Option<String> {
    if has_scheme(target) {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(resolved) = resolve(path, file) else {
        return Some(format!(
            "the link `{target}` leaves the repository; make it relative to this file"
        ));
    };
    if !tree.exists(&resolved) {
        return Some(format!(
            "the link `{target}` points to no file; correct or remove it"
        ));
    }
    // Anchors into anything but Markdown (line numbers, say) are a viewer's affair.
    let document = tree.text(&resolved).filter(|_| resolved.ends_with(".md"))?;
    let known = anchor.is_empty() || anchors(document).iter().any(|known| known == anchor);
    (!known).then(|| format!("the link `{target}` points to no heading; correct the anchor"))
}

/// Numbered lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((index + 1, line)),
            _ => {}
        }
        None
    })
}

fn without_inline_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    // An unpaired backtick opens nothing: its text stays.
    let paired = parts.len() - (parts.len() + 1) % 2;
    parts
        .iter()
        .enumerate()
        .filter(|(index, _)| index % 2 == 0 || *index >= paired)
        .map(|(_, part)| *part)
        .collect::<Vec<_>>()
        .join("code")
}

/// Targets of `[text](target "title")` and of `[label]: target`.
fn targets(line: &str) -> Vec<String> {
    let mut found: Vec<String> = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .map(|target| target.trim_matches(['<', '>']).to_owned())
        .collect();
    if let Some((_, target)) = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("]: "))
    {
        found.extend(
            target
                .split_whitespace()
                .next()
                .map(|t| t.trim_matches(['<', '>']).to_owned()),
        );
    }
    found
}

fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// The path a link means, or nothing when it is absolute or climbs out.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    if link.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that the usual renderers give to headings.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug = slug(title.trim().trim_end_matches('#').trim_end());
        let count = seen.entry(slug.clone()).or_default();
        anchors.push(if *count == 0 {
            slug
        } else {
            format!("{slug}-{count}")
        });
        *count += 1;
    }
    anchors
}

fn slug(title: &str) -> String {
    // Of `[text](target)` only the text is part of the title.
    let mut shown = String::new();
    for (index, part) in title.split("](").enumerate() {
        let part = if index == 0 {
            part
        } else {
            part.split_once(')').map_or("", |(_, rest)| rest)
        };
        shown.push_str(part);
    }
    shown
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{anchors, check};
    use crate::tidy::tree::Tree;

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::of([
            ("README.md", text),
            (
                "docs/errors.md",
                "# Errors\n\n## The `code` table\n\n## The code table\n",
            ),
            ("src/lib.rs", "//! x\n"),
        ]);
        check("README.md", text, &tree)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn links_to_files_folders_and_headings_pass() {
        let text = "# A b\n[a](docs/errors.md#the-code-table-1) [b](docs/) [c](#a-b) \
                    [d](https://example.org/x.md) [e](src/lib.rs#L3 \"title\")\n\n[f]: ./docs/errors.md\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn a_link_to_nothing_fails_on_its_line() {
        assert_eq!(found("\n[a](docs/none.md)\n").len(), 1);
        assert!(found("\n[a](docs/none.md)\n")[0].starts_with("README.md:2: "));
        assert_eq!(found("[a](docs/errors.md#none)\n").len(), 1);
        assert_eq!(found("[a](#none)\n").len(), 1);
        assert_eq!(found("[a]: none.md\n").len(), 1);
        assert_eq!(found("[a](../../x.md) and [b](/docs)\n").len(), 2);
    }

    #[test]
    fn code_is_not_a_link() {
        assert_eq!(
            found("`[a](none.md)` and `x`\n```\n[a](none.md)\n```\n"),
            [""; 0]
        );
        assert_eq!(found("```\n```\n[a](none.md)\n").len(), 1);
        assert_eq!(found("a ` alone [a](none.md)\n").len(), 1);
    }

    #[test]
    fn anchors_are_those_of_the_usual_renderers() {
        let text = "# What, exactly?\n#no heading\n## `a_b` -> [c](d.md)\n```\n# code\n```\n";
        assert_eq!(anchors(text), ["what-exactly", "a_b---c"]);
    }
}
