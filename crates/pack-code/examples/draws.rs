//! Measures `auto` on queries that were drawn by a seed instead of chosen: pasted texts, messages
//! with values in place of what stands for them in the source, qualified names, names that do not exist, and names with a mistake; and how many bytes an answer takes
//! until its first relevant line.
//!
//! ```text
//! draws CACHE SEED ROOT...     shares of each sort, over all roots together
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for developers that fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mainstay_pack_code::{CodeSettings, RootSetting, pack};
use mainstay_worker::Pack;
use mainstay_worker::testing::run_tool;
use serde_json::{Value, json};

/// Queries of each sort and root.
const EACH: usize = 50;
const ENDINGS: [&str; 12] = [
    "rs", "py", "js", "ts", "go", "java", "c", "h", "cpp", "cs", "rb", "php",
];

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    fn draw<T: Clone>(&mut self, from: &[T], most: usize) -> Vec<T> {
        let mut left = from.to_vec();
        let mut drawn = Vec::new();
        while drawn.len() < most && !left.is_empty() {
            drawn.push(left.swap_remove(self.below(left.len())));
        }
        drawn
    }
}

struct Tree {
    pack: Pack,
    files: BTreeMap<String, String>,
}

/// A definition: owner, name, path, line.
type Definition = (String, String, String, u64);

impl Tree {
    fn open(root: &str, cache: &str) -> Self {
        let settings = CodeSettings {
            roots: vec![RootSetting::at(root)],
            cache_dir: Some(PathBuf::from(cache)),
            ..CodeSettings::default()
        };
        let pack = pack(&settings, "0.0.0").unwrap();
        let _ = run_tool(&pack, "index_build", &json!({})).unwrap();
        let mut files = BTreeMap::new();
        let mut folders = vec![PathBuf::from(root)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if name.starts_with('.') || path.is_symlink() {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(text) = std::fs::read_to_string(&path) {
                    let relative = path.strip_prefix(root).unwrap().to_string_lossy();
                    files.insert(relative.into_owned(), text);
                }
            }
        }
        Self { pack, files }
    }

    fn code(&self) -> impl Iterator<Item = (&String, &String)> {
        let is_code = |path: &str| {
            let ending = Path::new(path)
                .extension()
                .and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| ENDINGS.contains(&ending))
        };
        self.files.iter().filter(move |(path, _)| is_code(path))
    }

    fn occurs(&self, text: &str) -> usize {
        let lower = text.to_lowercase();
        let having = |content: &&String| content.to_lowercase().contains(&lower);
        self.files.values().filter(having).count()
    }

    fn ask(&self, query: &str) -> (Value, String) {
        let reply = run_tool(&self.pack, "search", &json!({"query": query})).unwrap();
        (
            reply.json.to_value().unwrap(),
            reply.text.unwrap_or_default(),
        )
    }

    /// Texts in quotes with several words, each with its path.
    fn quoted(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (path, text) in self.code() {
            for line in text.lines() {
                for part in line.split('"').skip(1).step_by(2) {
                    let words = part.split_whitespace().count();
                    let plain = !part.contains(['\\', '`']) && part.trim() == part;
                    if (3..=14).contains(&words) && part.len() >= 14 && plain {
                        found.push((part.to_owned(), path.clone()));
                    }
                }
            }
        }
        found
    }

    fn definitions(&self) -> Vec<Definition> {
        let mut found = Vec::new();
        for (path, _) in self.code() {
            let arguments = json!({"path": path, "outline": true, "max_bytes": 2_000_000});
            let Ok(reply) = run_tool(&self.pack, "show_file", &arguments) else {
                continue;
            };
            for entry in reply.json.to_value().unwrap()["outline"]
                .as_array()
                .unwrap()
            {
                let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                let line = entry["start_line"].as_u64().unwrap();
                found.push((text("owner"), text("name"), path.clone(), line));
            }
        }
        found
    }
}

/// Whether the first hit shows a line.
fn shows(answer: &Value, path: &str, line: u64) -> bool {
    let first = &answer["hits"][0];
    let shown = first["start_line"].as_u64().unwrap_or(0)..=first["end_line"].as_u64().unwrap_or(0);
    first["path"] == path && shown.contains(&line)
}

#[derive(Default)]
struct Share {
    held: usize,
    all: usize,
    missed: Vec<String>,
}

impl Share {
    fn count(&mut self, held: bool, query: &str) {
        self.all += 1;
        self.held += usize::from(held);
        if !held {
            self.missed.push(query.to_owned());
        }
    }
}

fn mistake(name: &str, dice: &mut Dice) -> String {
    let mut letters: Vec<char> = name.chars().collect();
    let at = 1 + dice.below(letters.len() - 2);
    match dice.below(4) {
        0 => letters.swap(at, at + 1),
        1 => drop(letters.remove(at)),
        2 => letters.insert(at, 'e'),
        _ => letters[at] = if letters[at] == 'o' { 'a' } else { 'o' },
    }
    letters.into_iter().collect()
}

/// A text with values where it has `{}`, `{name}`, `%s` or the like; nothing if it has none.
fn filled(text: &str, dice: &mut Dice) -> Option<String> {
    let (mut out, mut rest, mut any) = (String::new(), text, false);
    while let Some(at) = rest.find(['{', '%']) {
        out.push_str(&rest[..at]);
        let (sign, behind) = rest[at..].split_at(1);
        let end = match sign {
            "{" => behind.find('}')? + 1,
            _ => behind.find(|c: char| c.is_ascii_alphabetic())? + 1,
        };
        out.push_str(["7", "/srv/x.toml", "'egret'", "0x1f"][dice.below(4)]);
        rest = &behind[end..];
        any = true;
    }
    out.push_str(rest);
    any.then_some(out)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cache, seed, roots @ ..] = arguments.as_slice() else {
        println!("see the head of examples/draws.rs");
        return;
    };
    let mut dice = Dice(seed.parse::<u64>().unwrap() * 2 + 1);
    let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
    let (mut until, mut answers) = (Vec::new(), Vec::new());
    for root in roots {
        let tree = Tree::open(root, cache);
        let quoted: Vec<_> = tree.quoted();
        let mut tried = 0;
        for (text, path) in dice.draw(&quoted, quoted.len()) {
            if tried == EACH {
                break;
            }
            if tree.occurs(&text) != 1 {
                continue;
            }
            tried += 1;
            let (answer, said) = tree.ask(&text);
            // A text may be on several lines of its file: any of them will do.
            let lines = (1..).zip(tree.files[&path].lines());
            let mut having = lines.filter(|(_, own)| own.contains(&text));
            let held = having.any(|(line, _)| shows(&answer, &path, line));
            shares
                .entry("pasted text, line shown first")
                .or_default()
                .count(held, &text);
            if let (true, Some(at)) = (held, said.find(&text)) {
                until.push(at + text.len());
            }
            answers.push(said.len());
        }
        // Its own dice, so that the others are drawn as before.
        let mut values = Dice(seed.parse::<u64>().unwrap() * 2 + 1);
        let mut tried = 0;
        for (text, path) in values.draw(&quoted, quoted.len()) {
            let Some(message) = filled(&text, &mut values) else {
                continue;
            };
            if tried == EACH {
                break;
            }
            if text.split_whitespace().count() < 5 || tree.occurs(&text) != 1 {
                continue;
            }
            tried += 1;
            let (answer, _) = tree.ask(&message);
            let lines = (1..).zip(tree.files[&path].lines());
            let mut having = lines.filter(|(_, own)| own.contains(&text));
            let held = having.any(|(line, _)| shows(&answer, &path, line));
            shares
                .entry("message with values, line shown first")
                .or_default()
                .count(held, &message);
        }
        let definitions = tree.definitions();
        let owned: Vec<Definition> = definitions
            .iter()
            .filter(|found| found.0.len() > 2 && found.1.len() > 2)
            .cloned()
            .collect();
        for (owner, name, path, _) in dice.draw(&owned, EACH) {
            let sign = if path.ends_with(".rs") || path.ends_with(".cpp") {
                "::"
            } else {
                "."
            };
            let query = format!("{owner}{sign}{name}");
            let (answer, _) = tree.ask(&query);
            let same = |found: &&Definition| found.0 == owner && found.1 == name;
            let held = owned
                .iter()
                .filter(same)
                .any(|found| shows(&answer, &found.2, found.3));
            shares
                .entry("qualified name, definition first")
                .or_default()
                .count(held, &query);
        }
        let names: Vec<String> = definitions
            .iter()
            .map(|found| found.1.clone())
            .filter(|name| name.len() >= 6 && name.is_ascii() && !name.starts_with('_'))
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect();
        for name in dice.draw(&names, EACH) {
            let wrong = mistake(&name, &mut dice);
            if tree.occurs(&wrong) > 0 {
                continue;
            }
            let (answer, _) = tree.ask(&wrong);
            let hits = answer["hits"].as_array().unwrap();
            let held = hits.iter().any(|hit| hit["symbol"] == name.as_str());
            shares
                .entry("name with a mistake, found")
                .or_default()
                .count(held, &format!("{wrong} ({name})"));
        }
        for _ in 0..EACH / 2 {
            let mut word = || {
                let name = &names[dice.below(names.len())];
                let part: String = name.split('_').next().unwrap().chars().take(7).collect();
                let mut letters = part.chars();
                let first = letters.next().unwrap().to_uppercase().to_string();
                first + letters.as_str()
            };
            let made = format!("{}{}{}", word(), word(), word());
            if tree.occurs(&made) > 0 {
                continue;
            }
            for query in [made.clone(), format!("{made}::new"), format!("fn {made}")] {
                let (answer, said) = tree.ask(&query);
                let first = said.lines().next().unwrap_or_default();
                let honest = [
                    "nothing matches",
                    "occurs nowhere",
                    "is not defined",
                    "is not in the files that are searched",
                ];
                let few = answer["hits"].as_array().unwrap().len() <= 5;
                let held = few && honest.iter().any(|words| first.contains(words));
                shares
                    .entry("absent name, said to be absent")
                    .or_default()
                    .count(held, &query);
            }
        }
    }
    for (sort, share) in &shares {
        println!(
            "{sort}: {} of {} ({:.1} %)",
            share.held,
            share.all,
            100.0 * share.held as f64 / share.all as f64
        );
        for query in share.missed.iter().take(12) {
            println!("    {query}");
        }
    }
    until.sort_unstable();
    answers.sort_unstable();
    println!(
        "pasted texts: bytes of the answer until the line, median {}; of the whole answer, median {}",
        until[until.len() / 2],
        answers[answers.len() / 2]
    );
}
