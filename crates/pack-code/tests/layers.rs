//! The layers of an index: every word of the ranked one is found, and the symbols are those of the
//! text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests fail by panicking"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mainstay_pack_code::{CodeSettings, RootSetting, cache};
use mainstay_worker::Pack;
use serde_json::json;

use support::{Place, call, paths, search, wait_until};

#[test]
fn short_words_are_found_in_the_files_that_have_them_and_in_no_others() {
    let place = Place::with(&[
        ("a.py", "go = 1  # see the manual\n"),
        (
            "b.py",
            "import re\n\ndef foo():\n    return re.compile(\"x\")\n",
        ),
    ]);
    let pack = place.built();
    for (word, expected) in [
        ("foo", "b.py"),
        ("re", "b.py"),
        ("go", "a.py"),
        ("see", "a.py"),
    ] {
        let answer = search(&pack, &json!({"query": word, "kind": "ranked"}));
        assert_eq!(paths(&answer), [expected], "{word}: {answer}");
    }
}

/// Waits until every file has its symbols. `index_build` waits for some time only, and a busy machine
/// may need more.
fn wait_for_symbols(pack: &Pack) {
    wait_until("the symbols are complete", || {
        call(pack, "index_build", &json!({}))["symbols"] == 1.0
    });
}

/// Names of all definitions that match, each once, and whether the last answer was exact and fresh.
fn symbols(pack: &Pack, query: &str) -> (BTreeSet<String>, bool) {
    let mut arguments = json!({"query": query, "kind": "symbol", "limit": 200});
    let mut names = BTreeSet::new();
    loop {
        let answer = search(pack, &arguments);
        for hit in answer["hits"].as_array().unwrap() {
            names.insert(hit["symbol"].as_str().unwrap().to_owned());
        }
        match answer["cursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => {
                let exact = answer["total"]["relation"] == "exact" && answer["fresh"] == true;
                return (names, exact);
            }
        }
    }
}

fn symbols_cover_all(pack: &Pack) -> bool {
    call(pack, "index_status", &json!({}))["layers"]["symbols"] == 1.0
}

/// Two hundred functions in ten folders.
fn functions() -> Place {
    let place = Place::new();
    for number in 0..200 {
        place.write(
            &format!("d{}/f{number}.py", number % 10),
            format!("def func_{number}():\n    return 'value_{number}'\n"),
        );
    }
    place
}

fn all_functions_are_there(pack: &Pack, when: &str) {
    let (names, exact) = symbols(pack, "func_");
    let missing: Vec<String> = (0..200)
        .map(|number| format!("func_{number}"))
        .filter(|name| !names.contains(name))
        .collect();
    assert!(missing.is_empty(), "{when}: {missing:?}");
    assert!(exact, "{when}");
}

#[test]
fn a_folder_that_is_moved_away_and_back_while_symbols_run_keeps_its_symbols() {
    // With the text indexed and no symbol yet, the layer meets the folder while it is away.
    let place = functions();
    drop(place.built_without_symbols());
    let root = place.root();
    let away = || fs::rename(root.join("d5"), root.join("moved5")).unwrap();
    let back = || fs::rename(root.join("moved5"), root.join("d5")).unwrap();
    away();
    let pack = place.open();
    wait_until("the other files are covered", || {
        let status = call(&pack, "index_status", &json!({}));
        status["layers"]["symbols"].as_f64().unwrap() >= 0.9 && status["fresh"] == true
    });
    back();
    all_functions_are_there(&pack, "back");
    wait_until("symbols cover all", || symbols_cover_all(&pack));
    all_functions_are_there(&pack, "covered");
    // With everything covered, and the folder away for about as long as a build takes to start.
    for milliseconds in [0, 200, 2_500] {
        away();
        assert_eq!(symbols(&pack, "func_").0.len(), 200);
        std::thread::sleep(Duration::from_millis(milliseconds));
        back();
        all_functions_are_there(&pack, "moved");
        let job = call(&pack, "index_build", &json!({}));
        assert_eq!(job["state"], "done", "{job}");
        let status = call(&pack, "index_status", &json!({}));
        assert_eq!(status["dirty_files"], 0, "{status}");
        assert_eq!(status["layers"]["text"], 1.0, "{status}");
        wait_until("symbols cover all", || symbols_cover_all(&pack));
        all_functions_are_there(&pack, "built");
    }
    // The watch follows: an edit in the folder is seen under its name.
    place.write("d5/f5.py", "def func_edited():\n    pass\n");
    let edited = search(&pack, &json!({"query": "func_edited", "kind": "literal"}));
    assert_eq!(paths(&edited), ["d5/f5.py"], "{edited}");
    place.write("d5/f5.py", "def func_5():\n    return 'value_5'\n");
    drop(pack);
    let pack = place.open();
    wait_until("the next worker is fresh", || {
        search(&pack, &json!({"query": "func_"}))["fresh"] == true
    });
    all_functions_are_there(&pack, "another worker");
}

#[test]
fn a_folder_that_takes_the_place_of_another_is_looked_at_anew() {
    let place = Place::with(&[
        ("one/a.txt", "first\n"),
        ("one/b.txt", "first\n"),
        ("two/a.txt", "second\n"),
    ]);
    let pack = place.built();
    let root = place.root();
    fs::rename(root.join("one"), root.join("three")).unwrap();
    fs::rename(root.join("two"), root.join("one")).unwrap();
    let found = |query: &str| paths(&search(&pack, &json!({"query": query, "kind": "literal"})));
    assert_eq!(found("first"), ["three/a.txt", "three/b.txt"]);
    assert_eq!(found("second"), ["one/a.txt"]);
    place.write("one/a.txt", "third\n");
    assert_eq!(found("third"), ["one/a.txt"]);
}

#[test]
fn an_edit_that_is_taken_back_while_symbols_run_leaves_no_trace() {
    let original = "def original():\n    pass\n";
    let place = Place::with(&[("p.py", original), ("q.py", "def other():\n    pass\n")]);
    drop(place.built_without_symbols());
    place.write("p.py", "\n\n\ndef phantom():\n    pass\n");
    let pack = place.open();
    let names = |query: &str| symbols(&pack, query).0.into_iter().collect::<Vec<String>>();
    wait_until("the other file is covered", || {
        let status = call(&pack, "index_status", &json!({}));
        status["layers"]["symbols"].as_f64().unwrap() >= 0.5 && status["fresh"] == true
    });
    assert_eq!(names("phantom"), ["phantom"]);
    place.write("p.py", original);
    for _ in 0..2 {
        assert_eq!(names("phantom"), [""; 0]);
        let hit = &search(&pack, &json!({"query": "original", "kind": "symbol"}))["hits"][0];
        assert_eq!(hit["start_line"], 1, "{hit}");
        assert_eq!(hit["path"], "p.py");
        wait_until("symbols cover all", || symbols_cover_all(&pack));
    }
}

#[test]
fn a_file_that_cannot_be_read_for_a_while_gets_its_symbols_later() {
    let place = Place::with(&[("p.py", "def later():\n    pass\n"), ("q.py", "x = 1\n")]);
    drop(place.built_without_symbols());
    let (path, aside) = (place.root().join("p.py"), place.dir.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    let pack = place.open();
    wait_until("the other file is covered", || {
        let status = call(&pack, "index_status", &json!({}));
        status["layers"]["symbols"].as_f64().unwrap() >= 0.5 && status["fresh"] == true
    });
    fs::rename(&aside, &path).unwrap();
    assert_eq!(symbols(&pack, "later").0.len(), 1);
    wait_until("symbols cover all", || symbols_cover_all(&pack));
    assert_eq!(symbols(&pack, "later"), (["later".to_owned()].into(), true));
}

#[test]
fn index_build_waits_for_the_symbols_unless_it_is_told_how_long() {
    let place = functions();
    let pack = place.open();
    let job = call(&pack, "index_build", &json!({}));
    assert_eq!(
        (job["state"].as_str(), job["symbols"].as_f64()),
        (Some("done"), Some(1.0)),
        "{job}"
    );
    assert!(symbols_cover_all(&pack));
    all_functions_are_there(&pack, "built");
    let started = Instant::now();
    let job = call(&pack, "index_build", &json!({"mode": "full", "wait_ms": 0}));
    assert!(started.elapsed() < Duration::from_secs(60), "{job}");
    assert!(["running", "done"].contains(&job["state"].as_str().unwrap()));
    let job = call(&pack, "index_build", &json!({}));
    assert_eq!(job["symbols"], 1.0, "{job}");
    // Where there is no symbol layer nobody waits for it.
    let job = call(&place.built_without_symbols(), "index_build", &json!({}));
    assert_eq!(job["state"], "done", "{job}");
    assert!(job.get("symbols").is_none(), "{job}");
}

#[test]
fn symbols_are_kept_long_before_all_are_extracted() {
    let place = Place::new();
    for number in 0..1200 {
        let methods: String = (0..60)
            .map(|at| format!("    def m{at}(self, x):\n        return [x, {{'k': (x, {at})}}]\n"))
            .collect();
        place.write(
            &format!("f{number}.py"),
            format!("class C{number}:\n{methods}"),
        );
    }
    drop(place.built_without_symbols());
    let covered = |pack: &Pack| {
        let status = call(pack, "index_status", &json!({}));
        status["layers"]["symbols"].as_f64().unwrap()
    };
    // Workers that end as soon as they have added something: each gets further, until all is there.
    let mut seen = vec![0.0];
    for _ in 0..3 {
        let pack = place.open();
        let begin = covered(&pack);
        let before = seen.last().copied().unwrap();
        assert!(begin >= before, "{begin} {before}");
        let mut now = begin;
        wait_until("something is added", || {
            now = covered(&pack);
            now > begin || now == 1.0
        });
        seen.push(now);
    }
    assert!(seen[1] > 0.0 && seen[1] < 1.0, "{seen:?}");
}

#[test]
fn definitions_of_a_file_that_is_too_large_to_search_are_found() {
    let place = Place::with(support::FILES);
    let mut text = String::new();
    for number in 0..160_000 {
        text.push_str(&format!(
            "#define REGISTER_NUMBER_{number} 0x{number:08x}\n"
        ));
    }
    assert!(text.len() > 4 * 1024 * 1024);
    place.write("include/registers.h", &text);
    let pack = place.built();
    wait_for_symbols(&pack);
    let answer = search(
        &pack,
        &json!({"query": "REGISTER_NUMBER_159999", "kind": "symbol"}),
    );
    let first = &answer["hits"][0];
    assert_eq!(first["path"], "include/registers.h", "{answer}");
    assert_eq!(first["start_line"], 160_000);
    assert!(
        first["snippet"].as_str().unwrap().contains("0x000270ff"),
        "{first}"
    );
    // Its text is still not searched, and the answer says so.
    let lines = search(
        &pack,
        &json!({"query": "REGISTER_NUMBER_159999", "kind": "literal"}),
    );
    assert_eq!(
        (&lines["total"]["value"], &lines["skipped"]["count"]),
        (&json!(0), &json!(1))
    );
}

#[test]
fn equal_names_are_ordered_by_importance() {
    let place = Place::with(&[
        ("a/mod.rs", "pub use self::core::Heron;\nmod core;\n"),
        ("a/core.rs", "pub struct Heron {\n    pub wings: u32,\n}\n"),
        ("b/heron.py", "def Heron():\n    return None\n"),
        ("mocks/heron.rs", "pub struct Heron;\n"),
        ("a/mock_heron.rs", "pub struct Heron;\n"),
        ("a/MockHeron.java", "public class Heron {}\n"),
        ("tests/heron.rs", "struct Heron;\nfn works() {}\n"),
        ("examples/heron.rs", "struct Heron;\nfn main() {}\n"),
    ]);
    // Names of two modules, one of which is mentioned more often where it is.
    for (folder, mentions) in [("quiet", 1), ("busy", 6)] {
        place.write(&format!("{folder}/egret.rs"), "pub struct Egret;\n");
        for number in 0..mentions {
            let path = format!("{folder}/user{number}.rs");
            place.write(&path, format!("fn user_{number}(egret: Egret) {{}}\n"));
        }
    }
    let pack = place.built();
    for query in [
        json!({"query": "Heron", "kind": "symbol"}),
        json!({"query": "struct Heron"}),
    ] {
        let found = paths(&search(&pack, &query));
        assert_eq!(found[0], "a/core.rs", "{query}: {found:?}");
        let place_of = |wanted: &str| found.iter().position(|path| path == wanted);
        assert!(place_of("a/mod.rs").is_none_or(|at| at > 0), "{found:?}");
        for later in [
            "mocks/heron.rs",
            "a/mock_heron.rs",
            "a/MockHeron.java",
            "tests/heron.rs",
            "examples/heron.rs",
        ] {
            assert!(
                place_of("b/heron.py") < place_of(later),
                "{later}: {found:?}"
            );
        }
    }
    let egrets = paths(&search(&pack, &json!({"query": "Egret", "kind": "symbol"})));
    assert_eq!(egrets[..2], ["busy/egret.rs", "quiet/egret.rs"]);
}

/// Runs git in a folder, without what the machine is set to.
fn git(folder: &Path, arguments: &[&str]) -> bool {
    let settings = ["user.name=A B", "user.email=a@b.c", "commit.gpgsign=false"];
    let output = Command::new("git")
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output();
    output.is_ok_and(|output| output.status.success())
}

/// Bytes that this process has read from files.
fn read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

fn at(place: &Place, root: &Path) -> Pack {
    let settings = CodeSettings {
        roots: vec![RootSetting::at(root)],
        ..place.settings()
    };
    mainstay_pack_code::pack(&settings, "0.0.0").unwrap()
}

const TREE_FILES: usize = 120;
const LINES: usize = 150;

/// A repository whose files are all committed, and older than git's index.
fn repository() -> Option<Place> {
    let place = Place::new();
    if !git(&place.root(), &["init", "-q", "-b", "main"]) {
        println!("skipped: git is not installed");
        return None;
    }
    for number in 0..TREE_FILES {
        let line = |n: usize| format!("fn heron_{number}_{n}() {{ word{n}(); }}\n");
        place.write(
            &format!("d{}/f{number}.rs", number % 7),
            (0..LINES).map(line).collect::<String>(),
        );
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(git(&place.root(), &["add", "."]));
    assert!(git(&place.root(), &["commit", "-q", "-m", "One"]));
    Some(place)
}

#[test]
fn worktrees_share_an_index_and_read_no_file_again() {
    let Some(place) = repository() else { return };
    let pack = place.built();
    wait_for_symbols(&pack);
    let text = call(&pack, "index_status", &json!({}))["bytes"]
        .as_u64()
        .unwrap();
    let bytes = || -> u64 {
        let indexes = cache::list(&place.cache()).unwrap();
        indexes.iter().map(|index| index.bytes).sum()
    };
    let one = bytes();
    let mut others = Vec::new();
    for number in 0..5 {
        let tree = place.dir.path().join(format!("tree{number}"));
        let name = tree.to_str().unwrap();
        assert!(git(
            &place.root(),
            &["worktree", "add", "-q", "--detach", name]
        ));
        // On a busy machine, or a quick one, the files may be as young as git's index of them.
        std::thread::sleep(Duration::from_millis(100));
        assert!(git(&tree, &["update-index", "--force-write-index"]));
        let before = read_bytes();
        let other = at(&place, &tree);
        let job = call(&other, "index_build", &json!({}));
        let read = read_bytes() - before;
        assert_eq!(
            (&job["added"], &job["changed"]),
            (&json!(0), &json!(0)),
            "{job}"
        );
        assert!(read < text / 4, "{read} of {text} bytes were read");
        let status = call(&other, "index_status", &json!({}));
        assert_eq!(status["layers"]["symbols"], 1.0, "{status}");
        assert_eq!(status["fresh"], true, "{status}");
        others.push((tree, other));
    }
    assert!(bytes() < one * 11 / 10, "{one} bytes became {}", bytes());
    // Each is searched as it is, and so is the first one.
    let (tree, other) = &others[0];
    fs::write(tree.join("d1/f1.rs"), "fn egret() {}\n").unwrap();
    fs::remove_file(tree.join("d2/f2.rs")).unwrap();
    for (pack, egrets, herons) in [(other, 1, 0), (&others[1].1, 0, LINES), (&pack, 0, LINES)] {
        for built in [false, true] {
            if built {
                call(pack, "index_build", &json!({"mode": "incremental"}));
            }
            let total = |query: &str| {
                let answer = search(
                    pack,
                    &json!({"query": query, "kind": "literal", "limit": 1}),
                );
                assert_eq!(answer["fresh"], true);
                answer["total"]["value"].as_u64().unwrap()
            };
            assert_eq!(total("fn egret"), egrets);
            assert_eq!(total("heron_1_") > 0, herons > 0);
            assert_eq!(total("heron_2_") > 0, herons > 0);
            assert!(symbols(pack, "heron_3_7").0.contains("heron_3_7"));
        }
    }
    // Building one of them anew leaves the others as they are.
    call(other, "index_build", &json!({"mode": "full"}));
    drop(pack);
    let again = place.open();
    let job = call(&again, "index_build", &json!({}));
    assert_eq!(
        (&job["added"], &job["changed"]),
        (&json!(0), &json!(0)),
        "{job}"
    );
    assert!(symbols(&again, "heron_5_5").0.contains("heron_5_5"));
}

#[test]
fn a_copy_shares_an_index_and_its_differences_are_found() {
    let place = Place::new();
    for number in 0..TREE_FILES {
        place.write(
            &format!("f{number}.rs"),
            format!("fn heron_{number}() {{}}\n"),
        );
    }
    drop(place.built());
    let copy = place.dir.path().join("copies").join("tree");
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(place.root()).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, copy.join(from.file_name().unwrap())).unwrap();
    }
    // As long as the old text.
    fs::write(copy.join("f7.rs"), "fn egret_7() {}\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(copy.file_name(), place.root().file_name());
    let pack = at(&place, &copy);
    let job = call(&pack, "index_build", &json!({}));
    assert_eq!(
        (&job["added"], &job["changed"]),
        (&json!(0), &json!(1)),
        "{job}"
    );
    for (query, count) in [("heron_7()", 0), ("egret_7()", 1), ("heron_70()", 1)] {
        let answer = search(&pack, &json!({"query": query, "kind": "literal"}));
        assert_eq!(answer["total"]["value"], count, "{query}: {answer}");
    }
}

#[test]
fn a_branch_that_was_seen_before_is_not_indexed_again() {
    let Some(place) = repository() else { return };
    let root = place.root();
    let pack = place.built();
    assert!(git(&root, &["checkout", "-q", "-b", "other"]));
    for number in 0..20 {
        let text = (0..LINES).map(|n| format!("fn egret_{number}_{n}() {{}}\n"));
        place.write(
            &format!("d{}/f{number}.rs", number % 7),
            text.collect::<String>(),
        );
    }
    assert!(git(&root, &["commit", "-q", "-a", "-m", "Two"]));
    let job = call(&pack, "index_build", &json!({}));
    assert_eq!(job["changed"], 20, "{job}");
    for (branch, herons, egrets) in [("main", LINES, 0), ("other", 0, LINES), ("main", LINES, 0)] {
        assert!(git(&root, &["checkout", "-q", branch]));
        let job = call(&pack, "index_build", &json!({}));
        assert_eq!(
            (&job["changed"], &job["files_done"]),
            (&json!(20), &json!(0)),
            "{job}"
        );
        for (word, lines) in [("heron_3_", herons), ("egret_3_", egrets)] {
            let answer = search(
                &pack,
                &json!({"query": word, "kind": "literal", "limit": 200}),
            );
            assert_eq!(answer["total"]["value"], lines, "{branch} {word}");
            let names = symbols(&pack, &format!("{word}7")).0;
            assert_eq!(
                names.contains(&format!("{word}7")),
                lines > 0,
                "{branch} {names:?}"
            );
        }
    }
}
