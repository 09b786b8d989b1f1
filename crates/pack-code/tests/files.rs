//! Showing files, damaged indexes, and the cache.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use std::fs;

use mainstay_pack_code::{CodeSettings, RootSetting, cache, pack};
use mainstay_worker::ErrorKind;
use mainstay_worker::testing::run_tool;
use serde_json::{Value, json};

use support::{FILES, Place, call, refused, search, small_place as place, wait_until};

// covers: show_file.path, show_file.start_line, show_file.end_line, show_file.max_bytes
#[test]
fn a_file_is_shown_whole_or_in_part() {
    let (place, pack) = place();
    let show = |arguments: Value| call(&pack, "show_file", &arguments);
    let whole = show(json!({"path": "src/router.rs"}));
    assert_eq!(
        whole["text"].as_str().unwrap().trim_end(),
        FILES[0].1.trim_end()
    );
    assert_eq!(
        (whole["total_lines"].as_u64(), whole["truncated"].as_bool()),
        (Some(11), Some(false))
    );
    let part = show(json!({"path": "./src/router.rs", "start_line": 3, "end_line": 5}));
    assert_eq!(
        part["text"],
        "pub struct Router {\n    routes: Vec<Route>,\n}"
    );
    assert_eq!(
        (part["start_line"].as_u64(), part["end_line"].as_u64()),
        (Some(3), Some(5))
    );
    let cut = show(json!({"path": "src/router.rs", "max_bytes": 40}));
    assert_eq!(
        (cut["truncated"].as_bool(), cut["end_line"].as_u64()),
        (Some(true), Some(2))
    );
    assert!(cut["text"].as_str().unwrap().len() <= 40);
    place.write("blank.txt", "# Mainstay\n\nA host\n");
    for max_bytes in 1..20 {
        let cut = show(json!({"path": "blank.txt", "max_bytes": max_bytes}));
        let bytes = cut["text"].as_str().unwrap().len();
        assert!(bytes <= max_bytes, "{bytes} of {max_bytes}");
    }
    place.write("utf16.txt", [0xff, 0xfe, b'h', 0, b'i', 0]);
    assert_eq!(show(json!({"path": "utf16.txt"}))["encoding"], "utf-16le");
    place.write("latin1.txt", b"caf\xe9");
    assert_eq!(
        show(json!({"path": "latin1.txt"}))["encoding"],
        "unknown-8bit"
    );
    place.write("binary", b"a\0b");
    for (arguments, kind) in [
        (json!({"path": "../secret"}), ErrorKind::InvalidArguments),
        (json!({"path": "/etc/passwd"}), ErrorKind::InvalidArguments),
        (json!({"path": "absent.rs"}), ErrorKind::NotFound),
        (json!({"path": "src/.."}), ErrorKind::InvalidArguments),
        (json!({"path": "binary"}), ErrorKind::InvalidArguments),
        (
            json!({"path": "src/router.rs", "start_line": 99}),
            ErrorKind::InvalidArguments,
        ),
        (
            json!({"path": "src/router.rs", "start_line": 5, "end_line": 2}),
            ErrorKind::InvalidArguments,
        ),
    ] {
        let (found, said) = refused(&pack, "show_file", &arguments);
        assert_eq!(found, kind, "{arguments}: {said}");
    }
}

// covers: show_file.symbol, show_file.outline, show_file.expect_sha
#[test]
fn a_definition_an_outline_and_a_checked_version_are_shown() {
    let (_place, pack) = place();
    let show = |arguments: Value| call(&pack, "show_file", &arguments);
    let symbol = show(json!({"path": "src/router.rs", "symbol": "add_route"}));
    assert_eq!(
        (symbol["start_line"].as_u64(), symbol["end_line"].as_u64()),
        (Some(8), Some(10))
    );
    let said = refused(
        &pack,
        "show_file",
        &json!({"path": "src/router.rs", "symbol": "nothing"}),
    );
    assert!(said.1.contains("it defines: Router"), "{said:?}");
    let outline = show(json!({"path": "src/router.rs", "outline": true}));
    let names: Vec<&str> = outline["outline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Router", "add_route"]);
    assert_eq!(
        outline["outline"][1],
        json!({"name": "add_route", "owner": "Router", "kind": "method", "start_line": 8, "end_line": 10,
            "signature": "pub fn add_route(&mut self, route: Route)"})
    );
    // Lines and a symbol narrow an outline.
    let part = show(json!({"path": "src/router.rs", "outline": true, "start_line": 4}));
    assert_eq!(part["outline"].as_array().unwrap().len(), 1, "{part}");
    let inside = show(json!({"path": "src/main.py", "outline": true, "symbol": "Router"}));
    let inside: Vec<&Value> = inside["outline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["name"])
        .collect();
    assert_eq!(inside, ["Router", "add_route"]);
    let owned = show(json!({"path": "src/main.py", "symbol": "Router.add_route"}));
    assert_eq!(owned["start_line"], 2);
    assert!(outline.get("text").is_none());
    let sha = outline["sha"].as_str().unwrap().to_owned();
    assert_eq!(sha.len(), 64);
    show(json!({"path": "src/router.rs", "expect_sha": sha.to_uppercase()}));
    let (kind, said) = refused(
        &pack,
        "show_file",
        &json!({"path": "src/router.rs", "expect_sha": "0".repeat(64)}),
    );
    assert_eq!(kind, ErrorKind::InvalidArguments);
    assert!(said.contains(&sha), "{said}");
    let both = refused(
        &pack,
        "show_file",
        &json!({"path": "src/router.rs", "symbol": "x", "start_line": 1}),
    );
    assert!(both.1.contains("exclude"), "{both:?}");
}

#[test]
fn a_folder_is_shown_as_a_map_within_its_bytes() {
    let (_place, pack) = place();
    let show = |arguments: Value| call(&pack, "show_file", &arguments);
    let root = show(json!({"path": "."}));
    assert_eq!(root["map"]["files"], 4);
    let entries = root["map"]["entries"].as_array().unwrap();
    let src = entries
        .iter()
        .find(|entry| entry["path"] == "src/")
        .unwrap();
    assert_eq!(src["files"], 2);
    let defined = &root["map"]["definitions"][0];
    assert_eq!(
        (&defined["name"], &defined["mentions"]),
        (&json!("Router"), &json!(4))
    );
    let src = show(json!({"path": "src/"}));
    assert_eq!(src["map"]["entries"][0]["path"], "src/main.py");
    let small = show(json!({"path": "src", "max_bytes": 200}));
    assert_eq!(small["truncated"], true);
    assert!(small["map"]["definitions"].to_string().len() <= 200);
    // Pages of any size have each row once.
    let rows = |answer: &Value| {
        let of = |key: &str| answer["map"][key].as_array().unwrap().clone();
        [of("entries"), of("definitions")].concat()
    };
    let whole = rows(&root);
    assert_eq!(
        (root["total_lines"].as_u64(), &root["truncated"]),
        (Some(whole.len() as u64), &json!(false))
    );
    for max in [1, 150, 400] {
        let (mut joined, mut first) = (Vec::new(), json!(1));
        loop {
            let page = show(json!({"path": ".", "max_bytes": max, "start_line": first}));
            assert_eq!(page["start_line"], first);
            joined.extend(rows(&page));
            if page["truncated"] == false {
                break;
            }
            first = json!(page["end_line"].as_u64().unwrap() + 1);
        }
        assert_eq!(joined, whole, "{max}");
    }
    let past = refused(&pack, "show_file", &json!({"path": ".", "start_line": 999}));
    assert!(past.1.contains("past its end"), "{past:?}");
}

#[test]
fn the_path_that_a_search_of_several_repositories_prints_is_shown() {
    let one = Place::with(FILES);
    let two = Place::with(&[("only.go", "package only\n")]);
    let root = |place: &Place, alias: &str| RootSetting {
        alias: Some(alias.to_owned()),
        ..RootSetting::at(place.root())
    };
    let settings = CodeSettings {
        roots: vec![root(&one, "one"), root(&two, "two")],
        ..one.settings()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    for path in ["two/only.go", "only.go"] {
        let shown = call(&pack, "show_file", &json!({"path": path}));
        assert_eq!(
            (&shown["path"], &shown["text"]),
            (&json!("only.go"), &json!("package only"))
        );
    }
    let said = refused(&pack, "show_file", &json!({"path": "nowhere.go"}));
    assert!(said.1.contains("one, two"), "{said:?}");
    let found = run_tool(&pack, "search", &json!({"query": "package only"})).unwrap();
    let text = found.text.unwrap();
    assert!(text.contains("show_file two/only.go reads on"), "{text}");
}

#[test]
fn references_are_told_apart_by_their_roles() {
    let place = Place::with(&[
        (
            "lib.py",
            "class Store:\n    def save(self):\n        pass\n\ndef helper():\n    # save it\n    Store().save()\n",
        ),
        (
            "app.py",
            "from lib import Store, helper\n\nclass Own(Store):\n    def run(self):\n        save = 1\n        self.save()\n        helper()\n",
        ),
    ]);
    let pack = place.built();
    let roles = |name: &str| {
        let answer = search(&pack, &json!({"query": name, "kind": "references"}));
        let of = |hits: &Value| -> Vec<String> {
            let hits = hits.as_array().cloned().unwrap_or_default();
            hits.iter()
                .map(|hit| {
                    format!(
                        "{}:{} {}",
                        hit["path"].as_str().unwrap(),
                        hit["match_lines"][0],
                        hit["kind"].as_str().unwrap()
                    )
                })
                .collect()
        };
        (of(&answer["definitions"]), of(&answer["hits"]))
    };
    assert_eq!(
        roles("Store"),
        (
            vec!["lib.py:1 definition".to_owned()],
            ["app.py:1 import", "app.py:3 inherit", "lib.py:7 call"]
                .map(str::to_owned)
                .to_vec()
        )
    );
    // A method is never meant by a bare name in Python.
    assert_eq!(
        roles("Store.save").1,
        [
            "app.py:5 mention",
            "app.py:6 call",
            "lib.py:6 mention",
            "lib.py:7 call"
        ]
    );
    let called = search(&pack, &json!({"query": "helper", "kind": "references"}));
    assert_eq!(called["hits"][1]["symbol"], "run");
    assert_eq!(called["hits"][1]["owner"], "Own");
    let nothing = search(&pack, &json!({"query": "nowhere", "kind": "references"}));
    assert_eq!(nothing["confidence"], "none");
}

#[test]
fn the_caller_on_a_line_of_its_own_is_named() {
    let place = Place::with(&[
        (
            "a.rs",
            "fn target() {}\nfn one() { target(); }\nimpl Foo {\n    fn two(&self) { target() }\n}\n",
        ),
        (
            "b.ts",
            "class Q { three() { return target(); } four() { return target(); } }\n",
        ),
        ("c.py", "class P:\n    def five(self): return target()\n"),
        ("d.py", "kept = target()\n"),
    ]);
    let pack = place.built();
    let answer = search(&pack, &json!({"query": "target", "kind": "references"}));
    let callers: Vec<String> = answer["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| {
            let text = |key: &str| hit[key].as_str().unwrap_or("-").to_owned();
            format!("{} {}.{}", text("path"), text("owner"), text("symbol"))
        })
        .collect();
    assert_eq!(
        callers,
        [
            "a.rs -.one",
            "a.rs Foo.two",
            "b.ts Q.three",
            "c.py P.five",
            "d.py -.-"
        ]
    );
}

#[test]
fn a_place_is_found_as_compilers_and_stack_traces_write_it() {
    let text = "fn first() {}\nfn second() {}\nfn third() {}\n";
    let place = Place::with(&[
        ("src/deep/main.rs", text),
        ("src/app.js", "one();\ntwo();\nthree();\n"),
        ("lib/tool.py", "a = 1\nb = 2\nc = 3\n"),
        ("src/Store.java", "class Store {}\n\n\n"),
    ]);
    let pack = place.built();
    let root = place.root().canonicalize().unwrap();
    let absolute = format!("{}/src/deep/main.rs:2", root.display());
    for (query, path) in [
        ("  --> src/deep/main.rs:2:9", "src/deep/main.rs"),
        ("src/deep/main.rs:2:9: error: no", "src/deep/main.rs"),
        (
            "thread 'x' panicked at src/deep/main.rs:2:9:",
            "src/deep/main.rs",
        ),
        (absolute.as_str(), "src/deep/main.rs"),
        ("project/src/deep/main.rs:2", "src/deep/main.rs"),
        (r"src\deep\main.rs:2", "src/deep/main.rs"),
        (r"C:\work\src\deep\main.rs:2", "src/deep/main.rs"),
        ("at src/app.js:2:3", "src/app.js"),
        ("at run (/srv/x/src/app.js:2:3)", "src/app.js"),
        ("at com.x.Store.get(Store.java:2)", "src/Store.java"),
        ("File \"lib/tool.py\", line 2, in run", "lib/tool.py"),
        ("File \"tool.py\", line 2", "lib/tool.py"),
    ] {
        let answer = search(&pack, &json!({"query": query}));
        assert_eq!(answer["kind"], "path", "{query}: {answer}");
        assert_eq!(answer["confidence"], "exact", "{query}: {answer}");
        assert_eq!(answer["hits"][0]["path"], path, "{query}");
        assert_eq!(answer["hits"][0]["match_lines"], json!([2]), "{query}");
    }
    // The same names in another folder may be another file.
    let other = search(&pack, &json!({"query": "/elsewhere/lost/deep/main.rs:2"}));
    assert_eq!(other["hits"][0]["path"], "src/deep/main.rs");
    assert_eq!(other["confidence"], "near", "{other}");
    let strange = search(&pack, &json!({"query": "/elsewhere/lost/main.rs:2"}));
    assert_ne!(strange["confidence"], "exact", "{strange}");
    for kind in ["auto", "path"] {
        let beyond = search(&pack, &json!({"query": "src/app.js:99", "kind": kind}));
        assert_eq!(beyond["confidence"], "near", "{beyond}");
        assert_eq!(
            beyond["notes"][0],
            "src/app.js has 3 lines; line 99 is beyond its end"
        );
    }
}

#[test]
fn guesses_are_few_and_have_no_further_page() {
    let place = Place::new();
    for number in 0..30 {
        let text = format!("/// Maps paths to handlers.\nfn map_path_{number}() {{}}\n");
        place.write(&format!("src/m{number}.rs"), text);
    }
    let pack = place.built();
    for kind in ["auto", "ranked"] {
        let query = json!({"query": "how does HttpRouterLimiter map paths", "kind": kind});
        let answer = search(&pack, &query);
        assert_eq!(answer["confidence"], "guess", "{answer}");
        assert_eq!(answer["notes"][0], "HttpRouterLimiter occurs nowhere");
        assert_eq!(answer["hits"].as_array().unwrap().len(), 5, "{answer}");
        assert_eq!(answer.get("cursor"), None, "{answer}");
    }
}

#[test]
fn a_method_is_called_one_by_every_kind_of_search_and_is_a_function_too() {
    let place = Place::with(&[
        (
            "a.py",
            "class Heap:\n    def sift_down(self):\n        def swap_nodes():\n            pass\n        swap_nodes()\n",
        ),
        (
            "b.cpp",
            "struct Heap { void sift_up(); };\nvoid Heap::sift_up() {\n}\n",
        ),
    ]);
    let pack = place.built();
    for (name, kind, owner) in [
        ("sift_down", "method", json!("Heap")),
        ("swap_nodes", "function", json!("sift_down")),
        ("sift_up", "method", json!("Heap")),
    ] {
        for by in ["symbol", "ranked"] {
            let answer = search(&pack, &json!({"query": name, "kind": by}));
            let first = &answer["hits"][0];
            assert_eq!(first["symbol"], name, "{by}: {answer}");
            assert_eq!(
                (&first["kind"], &first["owner"]),
                (&json!(kind), &owner),
                "{by} {name}"
            );
        }
        let only = |kind: &str| {
            let query = json!({"query": name, "symbol_kind": [kind]});
            search(&pack, &query)["total"]["value"].as_u64().unwrap()
        };
        assert_eq!(only("function"), 1, "{name}");
        assert_eq!(only("method"), u64::from(kind == "method"), "{name}");
    }
}

#[test]
fn history_finds_commits_and_starts_no_program_of_the_repository() {
    let place = Place::new();
    let root = place.root();
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args([
                "-c",
                "user.name=A B",
                "-c",
                "user.email=a@b.c",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(arguments)
            .current_dir(&root)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    if !git(&["init", "-q"]) {
        println!("skipped: git is not installed");
        return;
    }
    for (number, text) in ["one\n", "one\ntwo\n", "one\ntwo changed\n"]
        .iter()
        .enumerate()
    {
        place.write("a.txt", text);
        assert!(
            git(&["add", "a.txt"])
                && git(&["commit", "-q", "-m", &format!("Change number {number}")])
        );
    }
    // Everything by which a repository could start a program leaves a trace if it does.
    let trace = place.dir.path().join("trace");
    let program = place.dir.path().join("program");
    fs::write(
        &program,
        format!("#!/bin/sh\necho \"$0\" >> {}\ncat\n", trace.display()),
    )
    .unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let run = program.display();
    let mut config = fs::read_to_string(root.join(".git/config")).unwrap();
    config.push_str(&format!(
        "[core]\n\tfsmonitor = {run}\n\tpager = {run}\n\thooksPath = {hooks}\n[pager]\n\tlog = {run}\n[diff]\n\texternal = {run}\n[diff \"evil\"]\n\ttextconv = {run}\n\tcommand = {run}\n[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {run}\n[diff]\n\torderFile = /dev/zero\n[i18n]\n\tlogOutputEncoding = UTF-16\n",
        hooks = place.dir.path().display()
    ));
    fs::write(root.join(".git/config"), config).unwrap();
    place.write(".gitattributes", "*.txt diff=evil\n");
    let pack = place.open();
    let found = |query: &str| {
        let answer = search(&pack, &json!({"query": query, "kind": "history"}));
        let commits = answer["commits"].as_array().unwrap().clone();
        commits
            .iter()
            .map(|commit| {
                format!(
                    "{} {}",
                    commit["subject"].as_str().unwrap(),
                    commit["matched"].as_str().unwrap()
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(found("number 1"), ["Change number 1 message"]);
    assert_eq!(found("two changed"), ["Change number 2 changes"]);
    assert_eq!(
        found("a.txt:2"),
        ["Change number 2 lines", "Change number 1 lines"]
    );
    assert!(found("never written").is_empty());
    let (mut pages, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut query = json!({"query": "number", "kind": "history", "limit": 1});
        if cursor.is_string() {
            query["cursor"] = cursor;
        }
        let answer = search(&pack, &query);
        pages.push(answer["commits"][0]["subject"].as_str().unwrap().to_owned());
        cursor = answer["cursor"].clone();
        if cursor.is_null() {
            assert_eq!(answer["total"], json!({"value": 3, "relation": "exact"}));
            break;
        }
        assert_eq!(answer["truncated"], true);
    }
    assert_eq!(
        pages,
        ["Change number 2", "Change number 1", "Change number 0"]
    );
    assert!(
        !trace.exists(),
        "{}",
        fs::read_to_string(&trace).unwrap_or_default()
    );
    let outside = Place::with(FILES);
    let said = refused(
        &outside.open(),
        "search",
        &json!({"query": "x", "kind": "history"}),
    );
    assert!(said.1.contains("git repository"), "{said:?}");
}

#[test]
fn a_damaged_index_is_noticed_answered_around_and_repaired() {
    let (place, pack) = place();
    assert_eq!(
        search(&pack, &json!({"query": "add_route", "kind": "literal"}))["total"]["value"],
        3
    );
    drop(pack);
    let folder = fs::read_dir(place.cache().join("code"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for ending in ["tri", "term", "docs"] {
        let file = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|found| found == ending))
            .unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let length = bytes.len();
        for byte in &mut bytes[..length / 2] {
            *byte ^= 0x55;
        }
        fs::write(&file, &bytes).unwrap();
        let pack = place.open();
        let answer = search(&pack, &json!({"query": "add_route", "kind": "literal"}));
        assert_eq!(answer["total"]["value"], 3, "{ending}: {answer}");
        wait_until("it is repaired", || {
            call(&pack, "index_build", &json!({}));
            let answer = search(&pack, &json!({"query": "router maps", "kind": "ranked"}));
            answer["fresh"] == true && !answer["hits"].as_array().unwrap().is_empty()
        });
        assert_eq!(
            search(&pack, &json!({"query": "add_route", "kind": "literal"}))["scanned"],
            false
        );
    }
    // A missing file is damage, too.
    for ending in ["tri", "term", "docs", "sym"] {
        drop(place.built());
        let file = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|found| found == ending))
            .unwrap();
        fs::remove_file(&file).unwrap();
        let pack = place.open();
        let answer = search(&pack, &json!({"query": "add_route", "kind": "literal"}));
        assert_eq!(answer["total"]["value"], 3, "{ending}: {answer}");
        let built = call(&pack, "index_build", &json!({}));
        assert_eq!(built["state"], "done", "{ending}: {built}");
        let answer = search(&pack, &json!({"query": "add_route", "kind": "symbol"}));
        assert_eq!(answer["hits"][0]["symbol"], "add_route", "{ending}");
    }
    fs::write(folder.join("manifest"), "nonsense").unwrap();
    let pack = place.open();
    assert_eq!(
        search(&pack, &json!({"query": "add_route", "kind": "literal"}))["total"]["value"],
        3
    );
}

#[test]
fn the_cache_lists_its_indexes_and_forgets_them() {
    let (place, pack) = place();
    drop(pack);
    let indexes = cache::list(&place.cache()).unwrap();
    assert_eq!(indexes.len(), 1);
    assert_eq!(
        indexes[0].root,
        place.root().canonicalize().unwrap().to_string_lossy()
    );
    assert!(indexes[0].bytes > 0 && indexes[0].generation > 0);
    wait_until("the keeper has let go", || {
        cache::clear(&indexes[0]).unwrap()
    });
    assert!(cache::list(&place.cache()).unwrap().is_empty());
    assert!(
        cache::list(&place.cache().join("absent"))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn indexes_past_the_size_of_the_cache_go_oldest_first() {
    let one = Place::with(FILES);
    drop(one.built());
    let two = Place::with(FILES);
    let settings = CodeSettings {
        cache_dir: Some(one.cache()),
        cache_bytes: Some(1),
        ..two.settings()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    // The keeper of the first pack may still hold its lock for a moment.
    wait_until("only the newer one is left", || {
        call(&pack, "index_build", &json!({"mode": "full"}));
        cache::list(&one.cache()).unwrap().len() == 1
    });
    let left = cache::list(&one.cache()).unwrap();
    assert_eq!(
        left[0].root,
        two.root().canonicalize().unwrap().to_string_lossy()
    );
    assert_eq!(
        search(&pack, &json!({"query": "add_route", "kind": "literal"}))["total"]["value"],
        3
    );
}
