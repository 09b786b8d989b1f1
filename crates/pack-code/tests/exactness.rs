//! Literal and regex searches find exactly what ripgrep finds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use mainstay_pack_code::{CodeSettings, pack};
use mainstay_worker::Pack;
use serde_json::{Value, json};

use support::{Dice, Place, all_lines, call, ripgrep, search, workspace};

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "target" {
                copy(&entry.path(), &to.join(entry.file_name()));
            }
        }
    } else if from.is_file() {
        std::fs::copy(from, to).unwrap();
    }
}

type Lines = BTreeSet<(String, u64)>;

fn run_ripgrep(rg: &Path, root: &Path, pattern: &str, literal: bool, case: &str) -> Option<Lines> {
    let mut command = Command::new(rg);
    command.current_dir(root).args([
        "--no-config",
        "--null",
        "--line-number",
        "--no-heading",
        "--color=never",
        "--no-messages",
    ]);
    command.arg(match case {
        "smart" => "--smart-case",
        "sensitive" => "--case-sensitive",
        _ => "--ignore-case",
    });
    if literal {
        command.arg("--fixed-strings");
    }
    let output = command.args(["-e", pattern, "./"]).output().unwrap();
    if output.status.code() == Some(2) && output.stdout.is_empty() {
        return None;
    }
    let mut found = Lines::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let (Some(path), Some(rest)) = (parts.next(), parts.next()) else {
            continue;
        };
        let number = rest.split(|byte| *byte == b':').next().unwrap();
        let Ok(number) = std::str::from_utf8(number).unwrap_or("").parse() else {
            continue;
        };
        let path = String::from_utf8_lossy(path)
            .trim_start_matches("./")
            .to_owned();
        found.insert((path, number));
    }
    Some(found)
}

/// Lines past which a pattern is compared in one folder instead of the whole tree, and past which
/// its pages are as large as they can be: hundreds of small pages prove nothing more.
const MANY_LINES: usize = 2_000;
const LARGE_PAGES: usize = 300;

/// Whether everything is compared in the whole tree, with pages of any size.
fn is_full() -> bool {
    std::env::var_os("MAINSTAY_EXACTNESS_FULL").is_some()
}

fn compare(
    pack: &Pack,
    rg: &Path,
    root: &Path,
    pattern: &str,
    literal: bool,
    case: &str,
    limit: usize,
) {
    let Some(mut expected) = run_ripgrep(rg, root, pattern, literal, case) else {
        return;
    };
    let kind = if literal { "literal" } else { "regex" };
    let mut arguments = json!({"query": pattern, "kind": kind, "case": case, "limit": limit, "max_bytes": 1_000_000});
    if expected.len() > LARGE_PAGES && !is_full() {
        arguments["limit"] = json!(200);
    }
    if expected.len() > MANY_LINES && !is_full() {
        let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let mut folders: Vec<String> = expected
            .iter()
            .filter_map(|(path, _)| folder(path))
            .collect();
        folders.dedup();
        let drawn = &folders[expected.len() % folders.len()];
        arguments["path"] = json!([format!("{drawn}/*")]);
        expected.retain(|(path, _)| folder(path).as_ref() == Some(drawn));
        assert!(!expected.is_empty());
    }
    let (found, last) = all_lines(pack, &arguments);
    let skipped: BTreeSet<String> = named_skips(&last);
    let expected: Lines = expected
        .into_iter()
        .filter(|(path, _)| !skipped.contains(path))
        .collect();
    let unique: Lines = found.iter().cloned().collect();
    assert_eq!(unique.len(), found.len(), "lines given twice: {arguments}");
    assert_eq!(unique, expected, "{arguments}");
    assert_eq!(
        last["total"],
        json!({"value": expected.len(), "relation": "exact"}),
        "{arguments}"
    );
}

fn named_skips(answer: &Value) -> BTreeSet<String> {
    let files = answer["skipped"]["files"].as_array();
    files
        .into_iter()
        .flatten()
        .map(|file| file["path"].as_str().unwrap().to_owned())
        .collect()
}

/// Lines of the tree to make patterns of.
fn sample(pack: &Pack, dice: &mut Dice) -> Vec<String> {
    let mut lines = Vec::new();
    for query in ["the", "fn ", "let", "\\w+\\(", "[A-Z]\\w+", "=>", "é|ü|“|→"] {
        let kind = if query.contains('\\') || query.contains('[') || query.contains('|') {
            "regex"
        } else {
            "literal"
        };
        let answer = search(
            pack,
            &json!({"query": query, "kind": kind, "limit": 200, "max_bytes": 200_000}),
        );
        for hit in answer["hits"].as_array().unwrap() {
            lines.extend(hit["snippet"].as_str().unwrap().lines().map(str::to_owned));
        }
    }
    lines.retain(|line| line.trim().len() > 3);
    for at in (1..lines.len()).rev() {
        lines.swap(at, dice.below(at + 1));
    }
    lines
}

fn piece(line: &str, dice: &mut Dice) -> String {
    let chars: Vec<char> = line.chars().collect();
    let length = (2 + dice.below(18)).min(chars.len());
    let start = dice.below(chars.len() - length + 1);
    chars[start..start + length].iter().collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.len() > 1)
        .collect()
}

fn expression(line: &str, other: &str, dice: &mut Dice) -> Option<String> {
    let (own, others) = (words(line), words(other));
    let one = *own.get(dice.below(own.len().max(1)))?;
    let two = *others.get(dice.below(others.len().max(1)))?;
    let half: String = one.chars().take(one.chars().count().div_ceil(2)).collect();
    let pair: String = one.chars().take(2).collect();
    let end = one.chars().next_back()?;
    Some(match dice.below(18) {
        0 => format!("{half}\\w*"),
        1 => format!("\\b{one}\\b"),
        2 => format!("({one}|{two})"),
        3 => format!("{one}.*{two}"),
        4 => format!("^\\s*{one}"),
        5 => format!("{one}\\W*$"),
        6 => format!("{half}[a-z_]+\\("),
        7 => format!("(?i){one}"),
        8 => format!("{half}.?.?{}", &one[half.len()..]),
        9 => format!("({half}){{1,2}}"),
        10 => format!("[^{}]{one}", one.chars().next()?),
        11 => format!("\\p{{Lu}}\\w*{half}"),
        12 => format!("{one}\\s+\\S+\\s*[;,{{]"),
        13 => format!("{half}\\w*{end}\\b"),
        14 => format!("{pair}\\w*{end}\\b"),
        15 => format!("\\b{pair}\\w+{end}"),
        16 => format!("{one}\\b.*\\b{two}\\W"),
        _ => format!("(?:{one}|{two}|{half}x)+[^a]"),
    })
}

#[test]
fn seeded_literals_and_regexes_of_a_real_tree_match_ripgrep() {
    let Some(rg) = ripgrep() else {
        println!("skipped: there is no ripgrep; `cargo xtask test` installs one");
        return;
    };
    // A copy: others may work on the workspace meanwhile.
    let place = Place::new();
    let parts = match is_full() {
        true => &["crates", "docs", "xtask", "README.md", "Cargo.lock"][..],
        false => &["crates/pack-code", "crates/kernel/src", "docs", "README.md"],
    };
    for part in parts {
        let to = place.root().join(part);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy(&workspace().join(part), &to);
    }
    let root = place.root();
    let settings = CodeSettings {
        no_symbols: true,
        ..place.settings()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    let built = call(&pack, "index_build", &json!({}));
    assert_eq!(built["state"], "done", "{built}");
    let mut dice = Dice(0x5eed_1234_5678_9abc);
    let sampled = sample(&pack, &mut dice);
    assert!(sampled.len() > 300);
    let mut tried = 0;
    for round in 0..560_usize {
        let line = &sampled[dice.below(sampled.len())];
        let other = &sampled[dice.below(sampled.len())];
        let case = ["smart", "sensitive", "insensitive"][round % 3];
        let limit = [200, 200, 37, 7][round % 4];
        if round % 2 == 0 {
            let text = piece(line, &mut dice);
            let text = if round % 8 == 0 {
                text.to_uppercase()
            } else {
                text
            };
            // Blanks stand in nearly every line.
            let least = if text.trim().is_empty() { 200 } else { 37 };
            compare(&pack, &rg, &root, &text, true, case, limit.max(least));
        } else if let Some(pattern) = expression(line, other, &mut dice) {
            compare(&pack, &rg, &root, &pattern, false, case, limit.max(37));
        }
        tried += 1;
        if tried % 100 == 0 {
            println!("{tried} patterns compared");
        }
    }
    assert!(tried >= 500);
}

#[test]
fn corners_of_lines_and_encodings_match_ripgrep() {
    let Some(rg) = ripgrep() else {
        println!("skipped: there is no ripgrep; `cargo xtask test` installs one");
        return;
    };
    let place = Place::new();
    place.write("crlf.txt", "alpha\r\nbeta\r\nalpha beta\r\n");
    place.write("bom.txt", "\u{feff}alpha first\nsecond alpha\n");
    place.write("latin1.txt", b"caf\xe9 alpha\nstra\xdfe\n");
    place.write(
        "unicode.txt",
        "Straße STRASSE ſtrasse\nK kelvin \u{212a}\nÄrger ärger\n",
    );
    place.write("noend.txt", "last line alpha");
    place.write(
        "blanks.txt",
        "  \n\t\tindented  twice\n    four   \n \t \n\u{a0}\u{a0}\n",
    );
    place.write("empty.txt", "");
    place.write("blank.txt", "\n\n\nalpha\n\n");
    place.write(
        "long.txt",
        format!("{}\nshort\n{}\n", "ab ".repeat(300), "x\n".repeat(50)),
    );
    place.write(".hidden", "alpha");
    place.write("sub/.ignore", "ignored.txt\n");
    place.write("sub/ignored.txt", "alpha");
    place.write(".gitignore", "notgit.txt\n");
    place.write("notgit.txt", "alpha, for there is no repository here\n");
    let pack = place.built();
    for pattern in [
        "alpha",
        "alpha$",
        "^alpha",
        "beta$",
        r"beta\r$",
        r"alpha\s",
        r"\balpha\b",
        "stra(ss|ß)e",
        "STRASSE",
        "kelvin",
        "k",
        "ärger",
        "caf.",
        r"(?-u)\xe9",
        "^$",
        ".",
        r"\w+",
        r"[^\n]x",
        "",
        "a|b",
        "x",
        r"\S$",
        r"^\S+ \S+$",
        r"\bE\b",
        "ſ",
        r"\p{Greek}",
        "(ab ){200}",
        " ",
        "  ",
        "\t",
        " \t ",
        "   $",
        "(?x) al pha",
        "(?x: al  pha ) beta",
        r"(?x) alpha \  beta",
        "(?x) [a ] lpha",
        "(?x)",
    ] {
        for case in ["smart", "sensitive", "insensitive"] {
            if !pattern.is_empty() {
                compare(&pack, &rg, &place.root(), pattern, false, case, 5);
                compare(&pack, &rg, &place.root(), pattern, true, case, 5);
            }
        }
    }
    // Newer versions of ripgrep refuse a pattern that ends in a comment; older ones do not.
    for (verbose, plain) in [("(?x) al pha # c", "alpha"), ("(?x)alpha$#(", "alpha$")] {
        let lines = |query: &str| all_lines(&pack, &json!({"query": query, "kind": "regex"})).0;
        let expected = run_ripgrep(&rg, &place.root(), plain, false, "smart").unwrap();
        assert_eq!(lines(verbose).into_iter().collect::<Lines>(), expected);
        compare(&pack, &rg, &place.root(), verbose, false, "smart", 5);
    }
}

#[test]
fn large_files_that_are_read_in_part_match_ripgrep() {
    let Some(rg) = ripgrep() else {
        println!("skipped: there is no ripgrep; `cargo xtask test` installs one");
        return;
    };
    let place = Place::new();
    for file in 0..300_usize {
        let mut text = String::new();
        for line in 0..(file % 40) * 60 {
            let word = if line % 97 == file % 97 {
                "gamma"
            } else {
                "delta"
            };
            text.push_str(&format!(
                "alpha{} {word} beta{}\n",
                line * file % 89,
                line % 53
            ));
        }
        text.push_str(if file % 3 == 0 {
            "the end"
        } else {
            "the end\n"
        });
        place.write(&format!("f{file}.txt"), &text);
    }
    place.write("one_line.txt", "alpha5 ".repeat(140) + "gamma beta5");
    // What has just been written is read whole, because its stamp proves nothing.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let pack = place.built();
    for pattern in [
        "alpha7 gamma",
        "alpha88 gamma beta52",
        r"gamma beta(1|2)$",
        r"^alpha3\d gamma",
        r"\Aalpha0 gamma",
        r"\Aalpha0",
        r"end\z",
        r"the end$",
        r"(?m)^the end",
        "gamma beta9",
        "alpha5 gamma beta5",
    ] {
        compare(&pack, &rg, &place.root(), pattern, false, "smart", 200);
    }
    // Changed within its size and without a build: the parts of the index say nothing about it.
    let path = place.root().join("f39.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("alpha0 delta", "zzzz0 needle")).unwrap();
    compare(
        &pack,
        &rg,
        &place.root(),
        "zzzz0 needle",
        true,
        "smart",
        200,
    );
}

#[test]
fn what_is_skipped_in_scope_is_named() {
    let place = Place::new();
    place.write("a.txt", "needle");
    place.write("binary.bin", b"needle\0needle");
    place.write("minified.js", format!("needle{}", "x".repeat(5000)));
    place.write("large.txt", "needle\n".repeat(700_000));
    let pack = place.built();
    let answer = search(&pack, &json!({"query": "needle", "kind": "literal"}));
    assert_eq!(answer["total"]["value"], 1);
    let named: Vec<(String, String)> = answer["skipped"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            (
                file["path"].as_str().unwrap().to_owned(),
                file["reason"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [
        ("large.txt", "too_large"),
        ("minified.js", "minified"),
        ("binary.bin", "binary"),
    ];
    assert_eq!(
        named,
        expected.map(|(path, reason)| (path.to_owned(), reason.to_owned()))
    );
    let narrow = search(
        &pack,
        &json!({"query": "needle", "kind": "literal", "path": ["*.txt"]}),
    );
    assert_eq!(narrow["skipped"]["count"], 1);
}
