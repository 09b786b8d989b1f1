//! Measures the code pack in process: builds, latencies, quality. `cargo xtask bench code` measures
//! it as a whole, beside other programs.
//!
//! ```text
//! measure build ROOT CACHE                  one full build: time, size, memory
//! measure latency ROOT CACHE                literal, identifier and regex queries, p50 and p99
//! measure quality REPOS QUERIES CACHE       NDCG@10 of `auto` by category
//! measure random ROOT CACHE SEED [symbols]  300 literals, identifiers and expressions drawn from the tree: p50 and p99;
//!                                           with symbols also 300 names by kind symbol, with meanwhile
//!                                           as soon as the text is indexed, with worst the slowest of each
//! measure cost REPOS QUERIES CACHE RG       bytes until the first line of a relevant file, beside those of RG (ripgrep) and
//!                                           of reading what it finds; with texts the texts, one line of JSON per query
//! measure features REPOS QUERIES CACHE      what ranking knows of each candidate, one line of JSON per query
//! measure repeat ROOT CACHE KIND QUERY SECONDS   one search again and again, for a profile
//! measure search ROOT CACHE QUERY [KIND]    one search, as porcelain
//! ```
//!
//! REPOS holds a folder per repository of `repos.json`, which lies beside QUERIES.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for developers that fails by panicking"
)]

#[path = "../../testkit/src/bench/code/queries.rs"]
#[allow(dead_code, reason = "the whole benchmark has more to ask")]
mod queries;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mainstay_pack_code::{CodeSettings, RootSetting, pack};
use mainstay_worker::Pack;
use mainstay_worker::testing::run_tool;
use serde_json::{Value, json};

use self::queries::Group;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["build", root, cache] => build(root, cache),
        ["latency", root, cache] => latency(root, cache),
        ["repeat", root, cache, kind, query, seconds] => repeat(root, cache, kind, query, seconds),
        ["quality", repos, queries, cache, rest @ ..] => quality(repos, queries, cache, rest),
        ["random", root, cache, seed, rest @ ..] => random(root, cache, seed, rest),
        ["cost", repos, queries, cache, rg, rest @ ..] => cost(repos, queries, cache, rg, rest),
        ["features", repos, queries, cache, rest @ ..] => features(repos, queries, cache, rest),
        ["search", root, cache, query, rest @ ..] => {
            let kind = rest.first().copied().unwrap_or("auto");
            let pack = open(root, cache, false);
            let reply = run_tool(
                &pack,
                "search",
                &json!({"query": query, "kind": kind, "explain": true}),
            )
            .unwrap();
            println!("{}", reply.text.unwrap_or_default());
            println!("{}", reply.json);
        }
        _ => println!("see the head of examples/measure.rs"),
    }
}

fn open(root: &str, cache: &str, symbols: bool) -> Pack {
    let settings = CodeSettings {
        roots: vec![RootSetting::at(root)],
        cache_dir: Some(PathBuf::from(cache)),
        no_symbols: !symbols,
        no_vectors: std::env::args().any(|argument| argument == "words"),
        ..CodeSettings::default()
    };
    pack(&settings, "0.0.0").unwrap()
}

fn call(pack: &Pack, tool: &str, arguments: &Value) -> Value {
    match run_tool(pack, tool, arguments) {
        Ok(reply) => reply.json.to_value().unwrap(),
        Err(problem) => panic!("{tool} {arguments}: {problem:?}"),
    }
}

/// Builds the index and waits for all of it: one call ends before its time is over.
fn build_all(pack: &Pack, symbols: bool) {
    let mut before = Value::Null;
    loop {
        let job = call(pack, "index_build", &json!({}));
        let layers = call(pack, "index_status", &json!({}))["layers"].take();
        // Files that change meanwhile, and are passed by, keep it below all.
        let is_covered = !symbols || layers["symbols"] == 1.0 || layers == before;
        if job["state"] != "running" && is_covered {
            return;
        }
        before = layers;
    }
}

/// Processor time of this process: on a busy machine the only honest clock.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time of this thread: symbols are extracted beside it.
fn own_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("RssAnon") || line.starts_with("VmHWM"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}

fn build(root: &str, cache: &str) {
    let pack = open(root, cache, false);
    let peak = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = std::sync::Arc::clone(&peak);
    std::thread::spawn(move || {
        loop {
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let anon = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"))
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or(0);
            seen.fetch_max(anon, std::sync::atomic::Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let started = Instant::now();
    let job = call(&pack, "index_build", &json!({"mode": "full"}));
    let seconds = started.elapsed().as_secs_f64();
    println!("{job}");
    let bytes = job["bytes_done"].as_f64().unwrap();
    let status = call(&pack, "index_status", &json!({}));
    let index = status["index_bytes"].as_f64().unwrap();
    println!(
        "{:.1} MB in {seconds:.2} s = {:.1} MB/s; index/text {:.3}; peak anonymous {} MB; {}",
        bytes / 1e6,
        bytes / 1e6 / seconds,
        index / bytes,
        peak.load(std::sync::atomic::Ordering::Relaxed) / 1024,
        memory()
    );
}

fn latency(root: &str, cache: &str) {
    let started = Instant::now();
    let pack = open(root, cache, false);
    call(
        &pack,
        "search",
        &json!({"query": "spinlock", "kind": "literal", "limit": 50}),
    );
    println!(
        "cold open to first answer {:.1} ms",
        started.elapsed().as_secs_f64() * 1e3
    );
    while call(
        &pack,
        "search",
        &json!({"query": "spinlock", "kind": "literal"}),
    )["fresh"]
        != true
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    println!(
        "fresh after {:.1} ms",
        started.elapsed().as_secs_f64() * 1e3
    );
    for group in Group::ALL {
        let name = group.name();
        let mut times = Vec::new();
        let mut spent = Vec::new();
        let mut worst = (0.0, "");
        let mut by_query: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for round in 0..12 {
            for query in group.queries() {
                let arguments = group.arguments(query);
                let started = Instant::now();
                let before = cpu();
                let _ = run_tool(&pack, "search", &arguments).unwrap();
                let time = started.elapsed().as_secs_f64() * 1e3;
                if round > 0 {
                    times.push(time);
                    let cost = (cpu() - before) * 1e3;
                    spent.push(cost);
                    by_query.entry(query).or_default().push(cost);
                    if time > worst.0 {
                        worst = (time, query);
                    }
                }
            }
        }
        for (query, costs) in &mut by_query {
            costs.sort_by(f64::total_cmp);
            println!("    {:8.2} ms  {query}", costs[costs.len() / 2]);
        }
        times.sort_by(f64::total_cmp);
        spent.sort_by(f64::total_cmp);
        println!(
            "{name:16} processor time p50 {:.2} ms  p90 {:.2}  p99 {:.2}",
            spent[spent.len() / 2],
            spent[spent.len() * 9 / 10],
            spent[spent.len() * 99 / 100]
        );
        println!(
            "{name:16} p50 {:.2} ms  p90 {:.2}  p99 {:.2}  worst {:.2} ({})",
            times[times.len() / 2],
            times[times.len() * 9 / 10],
            times[times.len() * 99 / 100],
            worst.0,
            worst.1
        );
    }
    println!("{}", memory());
}

/// Lines of files that were drawn by a seed, trimmed.
fn drawn_lines(root: &str, seed: &str, most: usize) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || path.is_symlink() {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    let mut state = seed.parse::<u64>().unwrap() * 2 + 1;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit.max(1) as u64).unwrap()
    };
    let mut lines = Vec::new();
    while lines.len() < most {
        let Ok(text) = std::fs::read_to_string(&files[below(files.len())]) else {
            continue;
        };
        let all: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| line.len() >= 12)
            .collect();
        if !all.is_empty() {
            lines.push(all[below(all.len())].chars().take(80).collect());
        }
    }
    lines
}

fn random(root: &str, cache: &str, seed: &str, rest: &[&str]) {
    let symbols = rest.contains(&"symbols");
    let pack = open(root, cache, symbols);
    let began = Instant::now();
    if rest.contains(&"meanwhile") {
        // The text has to be there; only the symbols are still to come.
        let query = json!({"query": "spinlock", "kind": "literal", "limit": 1});
        while call(&pack, "search", &query)["fresh"] != true {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    } else {
        build_all(&pack, symbols);
    }
    let status = call(&pack, "index_status", &json!({}));
    println!(
        "index after {:.1} s: {}",
        began.elapsed().as_secs_f64(),
        status["layers"]
    );
    println!(
        "index bytes {} of text {}; {}",
        status["index_bytes"],
        status["bytes"],
        memory()
    );
    let word = |line: &String| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words
            .filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()))
            .max_by_key(|word| word.len())
            .unwrap_or_default()
            .to_owned()
    };
    let lines = drawn_lines(root, seed, 300);
    let words: Vec<String> = lines
        .iter()
        .map(word)
        .filter(|word| word.len() > 3)
        .collect();
    let expressions: Vec<String> = words
        .iter()
        .map(|word| {
            let (head, tail) = word.split_at(word.ceil_char_boundary(word.len() / 2));
            format!(r"{head}\w*{}\b", tail.chars().last().unwrap())
        })
        .collect();
    let mut groups = vec![
        ("literal", lines),
        ("literal", words.clone()),
        ("regex", expressions),
    ];
    if symbols {
        groups.push(("symbol", words));
    }
    for (kind, queries) in groups {
        let mut times: Vec<(f64, &str)> = Vec::new();
        for query in &queries {
            let arguments = json!({"query": query, "kind": kind, "limit": 50});
            let _ = run_tool(&pack, "search", &arguments);
            let before = own_cpu();
            let _ = run_tool(&pack, "search", &arguments);
            times.push(((own_cpu() - before) * 1e3, query));
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].0;
        println!(
            "{kind:8} {} queries, processor time: p50 {:.2} ms, p90 {:.2}, p99 {:.2}, worst {:?}",
            times.len(),
            at(50),
            at(90),
            at(99),
            times.last().unwrap()
        );
        if rest.contains(&"worst") {
            for (time, query) in times.iter().rev().take(15) {
                println!("    {time:8.2} ms  {query}");
            }
        }
    }
    let status = call(&pack, "index_status", &json!({}));
    println!("at the end: {}; {}", status["layers"], memory());
}

fn repeat(root: &str, cache: &str, kind: &str, query: &str, seconds: &str) {
    let pack = open(root, cache, false);
    let arguments = json!({"query": query, "kind": kind, "limit": 50});
    while call(&pack, "search", &arguments)["fresh"] != true {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let until = Instant::now() + std::time::Duration::from_secs(seconds.parse().unwrap());
    let before = cpu();
    let mut calls = 0;
    while Instant::now() < until {
        let _ = run_tool(&pack, "search", &arguments).unwrap();
        calls += 1;
    }
    println!(
        "{calls} calls, {:.3} ms of processor time each",
        (cpu() - before) * 1e3 / f64::from(calls)
    );
}

/// A discount by rank, as NDCG has it.
fn gain(rank: usize) -> f64 {
    1.0 / ((rank + 2) as f64).log2()
}

/// One query of the benchmark with its repository opened.
struct Asked {
    name: String,
    root: PathBuf,
    /// The folder of the benchmark within the repository, unless the whole of it is searched.
    sub: String,
    query: String,
    category: String,
    relevant: Vec<String>,
}

/// Calls `each` with every query of the benchmark, repository by repository.
fn each_query(
    repos: &str,
    queries: &str,
    cache: &str,
    whole: bool,
    mut each: impl FnMut(&Pack, &Asked),
) {
    let list: Value =
        serde_json::from_slice(&std::fs::read(Path::new(queries).join("../repos.json")).unwrap())
            .unwrap();
    for entry in list.as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let sub = entry["benchmark_root"].as_str().unwrap_or("");
        let root = Path::new(repos).join(name);
        let root = if whole { root } else { root.join(sub) };
        let pack = open(root.to_str().unwrap(), cache, false);
        call(&pack, "index_build", &json!({}));
        let text = std::fs::read(Path::new(queries).join(format!("{name}.json"))).unwrap();
        let items: Value = serde_json::from_slice(&text).unwrap();
        for item in items.as_array().unwrap() {
            let path_of = |value: &Value| {
                let path = value.as_str().or_else(|| value["path"].as_str());
                path.unwrap().to_owned()
            };
            let all = ["relevant", "secondary"].map(|key| item[key].as_array().unwrap());
            let asked = Asked {
                name: name.to_owned(),
                root: root.clone(),
                sub: if whole { String::new() } else { sub.to_owned() },
                query: item["query"].as_str().unwrap().to_owned(),
                category: item["category"].as_str().unwrap().to_owned(),
                relevant: all.into_iter().flatten().map(path_of).collect(),
            };
            each(&pack, &asked);
        }
    }
}

impl Asked {
    /// The place of a path among the relevant ones.
    fn relevant_at(&self, path: &str) -> Option<usize> {
        let path = match self.sub.as_str() {
            "" => path.to_owned(),
            sub => format!("{sub}/{path}"),
        };
        let fits = |wanted: &String| path == *wanted || path.ends_with(&format!("/{wanted}"));
        self.relevant.iter().position(fits)
    }
}

/// What an agent reads until it sees a line of a relevant file.
fn cost(repos: &str, queries: &str, cache: &str, rg: &str, rest: &[&str]) {
    let mut ways: [Vec<f64>; 3] = Default::default();
    each_query(repos, queries, cache, false, |pack, asked| {
        let reply = run_tool(pack, "search", &json!({"query": asked.query})).unwrap();
        let text = reply.text.unwrap_or_default();
        let answer = reply.json.to_value().unwrap();
        let hits = answer["hits"].as_array().unwrap().iter();
        let mut paths = hits.map(|hit| hit["path"].as_str().unwrap());
        let until = paths
            .find(|path| asked.relevant_at(path).is_some())
            .map(|path| {
                let header = text.find(&format!("\n{path}")).map_or(0, |at| at + 1);
                // The line with the path, and the first one below it.
                let lines = text[header..].split_inclusive('\n').take(2);
                header + lines.map(str::len).sum::<usize>()
            });
        ways[0].push(until.map_or(f64::INFINITY, |bytes| bytes as f64));
        if rest.contains(&"texts") {
            let seen = &text[..until.unwrap_or(text.len())];
            println!(
                "{}",
                json!({"query": asked.query, "found": until.is_some(), "text": seen, "whole": text})
            );
        }
        let words = asked
            .query
            .split(|c: char| !c.is_alphanumeric() && c != '_');
        let word = words.max_by_key(|word| word.len()).unwrap();
        let run = |flag: &str| {
            let output = std::process::Command::new(rg)
                .args([flag, "-i", "--sort", "path", "-F", "-e", word, "."])
                .current_dir(&asked.root)
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let path_of = |line: &str| {
            line.split(':')
                .next()
                .unwrap()
                .trim_start_matches("./")
                .to_owned()
        };
        // Lines until one is of a relevant file.
        let (mut bytes, mut lines) = (0, f64::INFINITY);
        for line in run("-n").split_inclusive('\n') {
            bytes += line.len();
            if asked.relevant_at(&path_of(line)).is_some() {
                lines = bytes as f64;
                break;
            }
        }
        ways[1].push(lines);
        // Files with the most matching lines first, each whole, until the word in a relevant one.
        let counts = run("-c");
        let mut files: Vec<(usize, String)> = counts
            .lines()
            .map(|line| {
                (
                    line.rsplit(':').next().unwrap().parse().unwrap(),
                    path_of(line),
                )
            })
            .collect();
        files.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
        let (mut bytes, mut read) = (counts.len(), f64::INFINITY);
        for (_, path) in files {
            let text = std::fs::read(asked.root.join(&path)).unwrap();
            let text = String::from_utf8_lossy(&text).to_lowercase();
            if asked.relevant_at(&path).is_some() {
                read = (bytes + text.find(&word.to_lowercase()).unwrap_or(0)) as f64;
                break;
            }
            bytes += text.len();
        }
        ways[2].push(read);
    });
    for (name, bytes) in ["search", "lines of rg", "rg and reading"]
        .iter()
        .zip(&mut ways)
    {
        bytes.sort_by(f64::total_cmp);
        let found = bytes.iter().filter(|bytes| bytes.is_finite()).count();
        let at = |share: usize| bytes[bytes.len() * share / 100];
        println!(
            "{name:16} found {found} of {}; bytes p25 {}, p50 {}, p75 {}, p90 {}",
            bytes.len(),
            at(25),
            at(50),
            at(75),
            at(90)
        );
    }
}

fn features(repos: &str, queries: &str, cache: &str, rest: &[&str]) {
    each_query(
        repos,
        queries,
        cache,
        rest.contains(&"whole"),
        |pack, asked| {
            let arguments = json!({"query": asked.query, "kind": "ranked", "limit": 60, "explain": true, "max_bytes": 1_000_000, "render": "json"});
            let answer = call(pack, "search", &arguments);
            let hits: Vec<Value> = answer["hits"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| {
                    json!({"path": hit["path"], "score": hit["score"], "why": hit["why"],
                    "relevant": asked.relevant_at(hit["path"].as_str().unwrap())})
                })
                .collect();
            println!(
                "{}",
                json!({"repo": asked.name, "root": asked.root, "query": asked.query, "category": asked.category,
                "relevant": asked.relevant.len(), "hits": hits})
            );
        },
    );
}

fn quality(repos: &str, queries: &str, cache: &str, rest: &[&str]) {
    let list: Value =
        serde_json::from_slice(&std::fs::read(Path::new(queries).join("../repos.json")).unwrap())
            .unwrap();
    let whole = rest.contains(&"whole");
    let verbose = rest.contains(&"verbose");
    let mut categories: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut by_repo: Vec<(String, f64, usize)> = Vec::new();
    for entry in list.as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let sub = entry["benchmark_root"].as_str().unwrap_or("");
        let root = Path::new(repos).join(name);
        let root = if whole { root } else { root.join(sub) };
        let pack = open(root.to_str().unwrap(), cache, false);
        call(&pack, "index_build", &json!({}));
        let text = std::fs::read(Path::new(queries).join(format!("{name}.json"))).unwrap();
        let items: Value = serde_json::from_slice(&text).unwrap();
        let mut sum = 0.0;
        let count = items.as_array().unwrap().len();
        for item in items.as_array().unwrap() {
            let query = item["query"].as_str().unwrap();
            let path_of = |value: &Value| {
                value
                    .as_str()
                    .or_else(|| value["path"].as_str())
                    .unwrap()
                    .to_owned()
            };
            let relevant: Vec<String> = item["relevant"]
                .as_array()
                .unwrap()
                .iter()
                .chain(item["secondary"].as_array().unwrap())
                .map(path_of)
                .collect();
            let answer = call(&pack, "search", &json!({"query": query, "limit": 10}));
            let found: Vec<String> = answer["hits"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| {
                    let path = hit["path"].as_str().unwrap();
                    if whole || sub.is_empty() {
                        path.to_owned()
                    } else {
                        format!("{sub}/{path}")
                    }
                })
                .collect();
            let mut got = 0.0;
            let mut left = relevant.clone();
            for (rank, path) in found.iter().enumerate() {
                if let Some(at) = left
                    .iter()
                    .position(|wanted| path == wanted || path.ends_with(&format!("/{wanted}")))
                {
                    left.swap_remove(at);
                    got += gain(rank);
                }
            }
            let ideal: f64 = (0..relevant.len().min(10)).map(gain).sum();
            let ndcg = got / ideal;
            if verbose && ndcg < 0.99 {
                println!(
                    "{ndcg:.2} {name} [{}] {query:?} ({}) want {relevant:?} got {:?}",
                    item["category"].as_str().unwrap(),
                    answer["kind"].as_str().unwrap(),
                    &found[..found.len().min(4)]
                );
            }
            sum += ndcg;
            categories
                .entry(item["category"].as_str().unwrap().to_owned())
                .or_default()
                .push(ndcg);
        }
        by_repo.push((name.to_owned(), sum / count as f64, count));
    }
    for (name, mean, count) in &by_repo {
        println!("{name:18} {mean:.3} ({count})");
    }
    let all: Vec<f64> = categories.values().flatten().copied().collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    for (name, values) in &categories {
        println!("{name:14} {:.4} ({})", mean(values), values.len());
    }
    let half = |odd: usize| {
        let part: Vec<f64> = by_repo
            .iter()
            .enumerate()
            .filter(|(at, _)| at % 2 == odd)
            .map(|(_, repo)| repo.1)
            .collect();
        mean(&part)
    };
    println!(
        "all            {:.4} ({}); by repository {:.4}; halves {:.4} {:.4}",
        mean(&all),
        all.len(),
        mean(&by_repo.iter().map(|repo| repo.1).collect::<Vec<_>>()),
        half(0),
        half(1)
    );
}
