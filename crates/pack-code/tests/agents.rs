//! Queries as coding agents type them, where earlier versions gave an answer that misled.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use mainstay_pack_code::{CodeSettings, RootSetting, pack};
use mainstay_worker::{ErrorKind, Pack};
use serde_json::json;

use support::{Place, call, paths, refused, search};

/// Two repositories with files of the same paths.
fn two_repositories() -> (Place, Place, Pack) {
    let one = Place::with(&[
        ("src/egret.rs", "fn egret() {}\n"),
        ("tests/a.rs", "fn egret() {}\n"),
    ]);
    let two = Place::with(&[
        ("src/egret.rs", "fn egret() {}\n"),
        ("two/b.rs", "fn egret() {}\n"),
    ]);
    let root = |place: &Place, alias: &str| RootSetting {
        alias: Some(alias.to_owned()),
        ..RootSetting::at(place.root())
    };
    let settings = CodeSettings {
        roots: vec![root(&one, "one"), root(&two, "two")],
        ..one.settings()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    for repo in ["one", "two"] {
        let job = call(&pack, "index_build", &json!({"repo": repo}));
        assert_eq!(job["state"], "done", "{job}");
    }
    (one, two, pack)
}

#[test]
fn a_sentence_that_is_nowhere_is_not_taken_for_its_last_word() {
    let place = Place::with(&[("src/a.rs", "fn all() {}\nfn heron() { all(); }\n")]);
    // Some file is not searched, so a name might be in there.
    place.write("src/large.h", "#define HERON 1\n".repeat(300_000));
    let pack = place.built();
    for query in [
        "\"this text is nowhere at all\"",
        "`no such words as herom`",
    ] {
        let answer = search(&pack, &json!({"query": query}));
        let said = answer["notes"][0].as_str().unwrap();
        assert!(said.starts_with("nothing matches"), "{query}: {said}");
        assert!(answer["hits"].as_array().unwrap().len() <= 5, "{answer}");
    }
    // A piece of code is about the name that it declares or calls.
    let call = search(&pack, &json!({"query": "herom(1, 2)"}));
    let said = call["notes"][0].as_str().unwrap();
    assert!(said.ends_with("the nearest name is heron"), "{said}");
}

#[test]
fn a_message_with_values_finds_the_text_that_it_was_made_of() {
    let place = Place::with(&[
        (
            "src/link.rs",
            "fn other() {}\nfn open(at: usize) -> String {\n    format!(\"cannot connect to broker at {at}: connection refused\")\n}\nfn connect(broker: u8) { open(3) }\n",
        ),
        (
            "src/config.py",
            "def load(path):\n    raise ValueError(\"config file '%s' is not readable\" % path)\n",
        ),
    ]);
    let pack = place.built();
    for (query, path, line) in [
        (
            "cannot connect to broker at 7: connection refused",
            "src/link.rs",
            3,
        ),
        (
            "ValueError: config file '/etc/a.toml' is not readable",
            "src/config.py",
            2,
        ),
    ] {
        let answer = search(&pack, &json!({"query": query}));
        assert_eq!(answer["hits"][0]["path"], path, "{answer}");
        assert_eq!(answer["hits"][0]["match_lines"], json!([line]), "{answer}");
        assert_eq!(answer["confidence"], "near", "{answer}");
    }
    // Words that are nowhere in this order are related at best.
    let answer = search(
        &pack,
        &json!({"query": "refused connection 7: broker at connect cannot"}),
    );
    assert_eq!(answer["kind"], "ranked", "{answer}");
}

#[test]
fn addresses_frames_and_tests_lead_to_their_definition() {
    let place = Place::with(&[
        ("src/heron.rs", "fn one() {}\nfn two() {}\nfn three() {}\n"),
        (
            "server.go",
            "package server\n\nfunc (s *Server) Serve(n int) error {\n\treturn nil\n}\n",
        ),
        (
            "tests/test_egret.py",
            "def test_wade():\n    pass\n\nclass TestFly:\n    def test_far(self):\n        pass\n",
        ),
        ("tests/test_other.py", "def test_wade():\n    pass\n"),
    ]);
    let pack = place.built();
    for (query, path, line) in [
        (
            "https://host/a/b/blob/main/src/heron.rs#L2",
            "src/heron.rs",
            2,
        ),
        (
            "thread 'main' panicked at 'no, x', src/heron.rs:3:1",
            "src/heron.rs",
            3,
        ),
        ("heron.rs line 2", "src/heron.rs", 2),
        ("(*Server).Serve", "server.go", 3),
        ("server.(*Server).Serve(0xc0, 0x1)", "server.go", 3),
        ("tests/test_egret.py::test_wade", "tests/test_egret.py", 1),
        (
            "tests/test_egret.py::TestFly::test_far[a-1]",
            "tests/test_egret.py",
            5,
        ),
    ] {
        let answer = search(&pack, &json!({"query": query}));
        let first = &answer["hits"][0];
        assert_eq!(first["path"], path, "{query}: {answer}");
        let shown = first["match_lines"].as_array().unwrap();
        assert!(shown.contains(&json!(line)), "{query}: {answer}");
        assert_eq!(answer["confidence"], "exact", "{query}: {answer}");
    }
}

#[test]
fn the_nearest_name_is_spelled_as_the_wanted_one() {
    let place = Place::with(&[
        (
            "src/log.rb",
            "def unpermitted_parameters(event)\n  event\nend\n",
        ),
        (
            "src/errors.rb",
            "class UnpermittedParameters < IndexError\nend\n",
        ),
        (
            "src/old.rb",
            "def UNPERMITTEDPARAMETERS(event)\n  event\nend\n",
        ),
    ]);
    let pack = place.built();
    for (query, nearest) in [
        ("UnpermittedParamters", "UnpermittedParameters"),
        ("unpermitted_paramters", "unpermitted_parameters"),
    ] {
        let answer = search(&pack, &json!({"query": query}));
        assert_eq!(answer["confidence"], "near", "{answer}");
        assert_eq!(answer["hits"][0]["symbol"], nearest, "{answer}");
    }
}

#[test]
fn a_name_that_ends_in_a_sign_finds_its_definition() {
    let place = Place::with(&[
        (
            "app/a.rb",
            "def run(record)\n  record.save!\n  record.empty?\nend\n",
        ),
        (
            "lib/record.rb",
            "class Record\n  def save!\n    1\n  end\n\n  def empty?\n    true\n  end\nend\n",
        ),
        ("src/m.rs", "fn f() { vec![1]; }\n"),
    ]);
    let pack = place.built();
    for (query, line) in [("save!", 2), ("empty?", 6)] {
        let answer = search(&pack, &json!({"query": query}));
        let first = &answer["hits"][0];
        assert_eq!(
            (&first["path"], &first["start_line"]),
            (&json!("lib/record.rb"), &json!(line)),
            "{answer}"
        );
    }
    // A macro of a library is defined nowhere: its uses answer.
    let used = search(&pack, &json!({"query": "vec!"}));
    assert_eq!(
        (&used["kind"], &used["total"]["value"]),
        (&json!("literal"), &json!(1))
    );
}

#[test]
fn words_that_many_files_have_as_written_are_shown_where_they_are() {
    let filler = "fn find_all_records() {\n    could(find, all);\n}\n\n".repeat(30);
    let place = Place::new();
    for number in 0..6 {
        let text = format!(
            "{filler}fn fail_{number}() {{\n    raise(\"Couldn't find all\");\n}}\n{filler}"
        );
        place.write(&format!("src/f{number}.rs"), text);
    }
    let pack = place.built();
    let answer = search(&pack, &json!({"query": "Couldn't find all"}));
    assert_eq!(answer["kind"], "ranked", "{answer}");
    for hit in answer["hits"].as_array().unwrap() {
        let shown = hit["snippet"].as_str().unwrap();
        assert!(shown.contains("Couldn't find all"), "{hit}");
    }
}

#[test]
fn filters_that_leave_nothing_are_not_taken_for_absence() {
    let place = Place::with(&[("src/a.rs", "fn heron() {}\n"), ("docs/a.md", "text\n")]);
    let pack = place.built();
    for query in ["fn heron", "heron", "Heron::heron"] {
        let answer = search(&pack, &json!({"query": query, "path": ["docs"]}));
        let said = answer["notes"][0].as_str().unwrap();
        assert!(
            said.contains("the files that the filters leave"),
            "{query}: {said}"
        );
        assert!(!said.contains("nowhere"), "{query}: {said}");
    }
    let (kind, said) = refused(
        &pack,
        "search",
        &json!({"query": "heron", "path": ["!docs/**"]}),
    );
    assert_eq!(kind, ErrorKind::InvalidArguments);
    assert!(said.contains("exclude names what is left out"), "{said}");
}

#[test]
fn a_glob_may_begin_with_the_repository_as_paths_of_answers_do() {
    let (one, _two, pack) = two_repositories();
    let found = |path: serde_json::Value, exclude: serde_json::Value| {
        let query = json!({"query": "egret", "kind": "literal", "path": path, "exclude": exclude});
        let answer = search(&pack, &query);
        let hits = answer["hits"].as_array().unwrap().iter();
        let name = |hit: &serde_json::Value| {
            let text = |key: &str| hit[key].as_str().unwrap().to_owned();
            format!("{}/{}", text("repo"), text("path"))
        };
        hits.map(name).collect::<Vec<String>>()
    };
    let none = || json!([]);
    assert_eq!(found(json!(["one/src/**"]), none()), ["one/src/egret.rs"]);
    assert_eq!(
        found(json!(["two"]), none()),
        ["two/src/egret.rs", "two/two/b.rs"]
    );
    assert_eq!(
        found(json!(["one"]), json!(["one/tests"])),
        ["one/src/egret.rs"]
    );
    let absolute = format!("{}/src/*.rs", one.root().display());
    assert_eq!(found(json!([absolute]), none()), ["one/src/egret.rs"]);
    assert_eq!(found(json!(["src"]), none()).len(), 2);
}

#[test]
fn the_name_of_a_repository_alone_shows_its_map() {
    let (_one, _two, pack) = two_repositories();
    for path in ["two", "two/"] {
        let shown = call(&pack, "show_file", &json!({"path": path}));
        assert_eq!(shown["map"]["files"], 2, "{shown}");
    }
}

#[test]
fn references_of_a_qualified_name_begin_with_its_own_definition() {
    let place = Place::with(&[
        (
            "src/a.rs",
            "struct Aa;\nimpl Aa {\n    fn drain(&self) {}\n}\n",
        ),
        (
            "src/b.rs",
            "struct Heron;\nimpl Heron {\n    fn drain(&self) {}\n}\n",
        ),
    ]);
    let pack = place.built();
    let answer = search(
        &pack,
        &json!({"query": "Heron::drain", "kind": "references"}),
    );
    let owners: Vec<&str> = answer["definitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["owner"].as_str().unwrap())
        .collect();
    assert_eq!(owners, ["Heron", "Aa"], "{answer}");
    assert_eq!(paths(&answer), Vec::<String>::new());
}

#[test]
fn a_text_with_a_nul_is_refused_by_history_in_its_own_words() {
    let place = Place::with(&[("a.txt", "heron\n")]);
    let pack = place.open();
    let (kind, said) = refused(
        &pack,
        "search",
        &json!({"query": "a\u{0}b", "kind": "history"}),
    );
    assert_eq!(kind, ErrorKind::InvalidArguments);
    assert!(said.contains("NUL"), "{said}");
}
