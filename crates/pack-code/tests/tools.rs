//! Every tool and every argument: each changes the answer or is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use mainstay_pack_code::{CodeSettings, RootSetting, catalog, pack};
use mainstay_worker::testing::rpc::{Answer, Op, ToWorker};
use mainstay_worker::testing::{Peer, TempDir, run_tool};
use mainstay_worker::{Code, ErrorKind, Json, RenderMode, Replay};
use serde_json::{Value, json};

use support::{
    FILES, Place, all_lines, call, lines, paths, refused, search, small_place as place, try_call,
    wait_until,
};

#[test]
fn the_catalog_has_the_six_tools_and_what_they_promise() {
    let tools = catalog("1.2.3").tools;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "check_status",
            "index_build",
            "index_status",
            "search",
            "show_file",
            "workspace_status"
        ]
    );
    for tool in &tools {
        assert_eq!(tool.replay, Replay::Convergent, "{}", tool.name);
        assert_eq!(
            tool.input_schema["additionalProperties"], false,
            "{}",
            tool.name
        );
        assert_eq!(
            tool.timeout_ms,
            (tool.name == "index_build").then_some(600_000)
        );
        assert_eq!(tool.tooling_version, "1.2.3");
    }
    assert!(tools[3].errors.contains(&Code::NoIndex));
    let place = Place::with(FILES);
    assert_eq!(
        place.open().catalog(),
        catalog("0.0.0"),
        "the catalog does not depend on the settings"
    );
}

#[test]
fn every_answer_has_the_same_bytes_twice_and_a_summary_first() {
    let (_place, pack) = place();
    wait_until("symbols are there", || {
        call(&pack, "index_status", &json!({}))["layers"]["symbols"] == 1.0
    });
    for (tool, arguments) in [
        ("search", json!({"query": "router"})),
        ("search", json!({"query": "Route", "kind": "literal"})),
        ("search", json!({"query": "add_route", "kind": "symbol"})),
        ("show_file", json!({"path": "src/router.rs"})),
        (
            "show_file",
            json!({"path": "src/router.rs", "outline": true}),
        ),
        ("check_status", json!({})),
        ("workspace_status", json!({})),
        ("index_status", json!({})),
    ] {
        let one = run_tool(&pack, tool, &arguments).unwrap();
        let two = run_tool(&pack, tool, &arguments).unwrap();
        let text = one.text.unwrap();
        assert_eq!(Some(&text), two.text.as_ref(), "{tool}");
        assert!(text.lines().count() <= 200 && text.len() <= 24_000);
        assert!(
            !text.lines().next().unwrap().starts_with(['-', ' ', '{']),
            "{text}"
        );
        let plain = |json: &Json| {
            let mut value = json.to_value().unwrap();
            value.as_object_mut().unwrap().remove("elapsed_ms");
            value
        };
        assert_eq!(plain(&one.json), plain(&two.json), "{tool}");
    }
}

// covers: search.query, search.kind
#[test]
fn a_query_is_understood_by_its_look_or_as_told() {
    let (_place, pack) = place();
    for (query, kind, expected) in [
        ("router", None, "ranked"),
        ("fn add_route", None, "symbol"),
        ("self.routes.push", None, "literal"),
        (r"add_\w+\(", None, "regex"),
        ("src/router.rs", None, "path"),
        ("router", Some("literal"), "literal"),
        ("router", Some("regex"), "regex"),
        ("router", Some("symbol"), "symbol"),
        ("router", Some("path"), "path"),
        ("router", Some("ranked"), "ranked"),
    ] {
        let answer = search(
            &pack,
            &json!({"query": query, "kind": kind.unwrap_or("auto")}),
        );
        assert_eq!(answer["kind"], expected, "{query}");
        assert!(
            !answer["hits"].as_array().unwrap().is_empty(),
            "{query}: {answer}"
        );
    }
    for kind in ["auto", "literal", "regex"] {
        let blanks = search(&pack, &json!({"query": "  ", "kind": kind}));
        assert_eq!(blanks["total"]["value"], 8, "{kind}: {blanks}");
    }
    for kind in ["ranked", "symbol", "path"] {
        let said = refused(&pack, "search", &json!({"query": "  ", "kind": kind}));
        assert_eq!(said.0, ErrorKind::InvalidArguments);
        assert!(said.1.contains("blanks"), "{said:?}");
    }
    assert!(
        refused(&pack, "search", &json!({"query": "(", "kind": "regex"}))
            .1
            .contains("unclosed group")
    );
}

#[test]
fn what_does_not_exist_never_looks_found() {
    let (_place, pack) = place();
    for (query, confidence) in [
        ("router::maps() paths", "guess"),
        ("HttpRouterLimiter", "guess"),
        ("\"router maps nothing\"", "guess"),
        ("Router::nothing", "guess"),
        ("src/routes_elsewhere.rs", "guess"),
        ("xyzzy_plugh", "none"),
    ] {
        let reply = run_tool(&pack, "search", &json!({"query": query})).unwrap();
        let answer = reply.json.to_value().unwrap();
        assert_eq!(answer["confidence"], confidence, "{query}: {answer}");
        assert!(answer["hits"].as_array().unwrap().len() <= 5, "{answer}");
        let text = reply.text.unwrap();
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("nothing matches"), "{first}");
        assert_eq!(answer["notes"][0], first);
    }
    // A name that does not exist is said to be absent beside words that do.
    let answer = search(
        &pack,
        &json!({"query": "how does HttpRouterLimiter map paths"}),
    );
    assert_eq!(answer["notes"][0], "HttpRouterLimiter occurs nowhere");
    let part = search(&pack, &json!({"query": "oute", "kind": "symbol"}));
    assert_eq!(part["confidence"], "near");
    assert!(
        part["notes"][0]
            .as_str()
            .unwrap()
            .contains("is not defined"),
        "{part}"
    );
}

#[test]
fn a_misspelt_name_finds_its_neighbour_and_says_so() {
    let (_place, pack) = place();
    for query in ["Ruoter", "ad_route", "addrote", "Router::add_ruote"] {
        let answer = search(&pack, &json!({"query": query}));
        assert_eq!(answer["confidence"], "near", "{query}: {answer}");
        let name = if query == "Ruoter" {
            "Router"
        } else {
            "add_route"
        };
        assert_eq!(answer["hits"][0]["symbol"], name);
        let said = answer["notes"][0].as_str().unwrap();
        assert!(
            said.contains(&format!("the nearest name is {name}")),
            "{said}"
        );
    }
}

#[test]
fn a_name_in_another_convention_is_said_to_be_absent() {
    let (_place, pack) = place();
    for query in ["addRoute", "AddRoute"] {
        let answer = search(&pack, &json!({"query": query}));
        assert_eq!(answer["confidence"], "near", "{query}: {answer}");
        assert_eq!(
            answer["notes"][0],
            format!("{query} occurs nowhere; the nearest name is add_route")
        );
        let ranked = search(&pack, &json!({"query": query, "kind": "ranked"}));
        assert_eq!(ranked["confidence"], "guess", "{query}: {ranked}");
    }
    let there = search(&pack, &json!({"query": "add_route"}));
    assert_eq!(there["confidence"], "ranked", "{there}");
}

#[test]
fn a_name_in_a_file_that_is_too_large_is_found() {
    let place = Place::with(&[("src/use.c", "int a = SMALL;\n")]);
    let mut text = String::new();
    for number in 0..200_000 {
        text.push_str(&format!("#define BIG_MACRO_{number} 0x{number:x}\n"));
    }
    assert!(text.len() > 4 << 20);
    place.write("src/regs.h", &text);
    let pack = place.built();
    for query in ["BIG_MACRO_199999", "#define BIG_MACRO_7", "\"BIG_MACRO_7\""] {
        let answer = search(&pack, &json!({"query": query}));
        assert_eq!(answer["confidence"], "exact", "{query}: {answer}");
        assert_eq!(answer["hits"][0]["path"], "src/regs.h", "{query}");
        assert!(!answer["notes"].to_string().contains("nowhere"), "{answer}");
    }
    let beside = search(&pack, &json!({"query": "where is BIG_MACRO_5 SMALL"}));
    assert!(!beside["notes"].to_string().contains("nowhere"), "{beside}");
    let typo = search(&pack, &json!({"query": "BIG_MACOR_199999"}));
    let said = typo["notes"][0].as_str().unwrap();
    assert!(
        said.contains("not in the files that are searched"),
        "{said}"
    );
}

#[test]
fn auto_understands_what_agents_type() {
    let place = Place::with(&[
        (
            "src/net/context.go",
            "package net\n\n// JSON writes an object.\nfunc (c *Context) JSON(code int) {\n\tc.write(code)\n}\n\nfunc (r *Render) JSON() {}\n",
        ),
        (
            "src/sync/mutex.rs",
            "pub struct Mutex;\n\nimpl Mutex {\n    pub fn lock(&self) -> Vec<u8> {\n        self.inner.take().await?\n    }\n}\n\npub fn spawn() {}\n",
        ),
        (
            "src/other.rs",
            "fn lock() {}\nfn use_it() { sync::mutex::spawn(); Mutex::lock(); }\n",
        ),
        (
            "src/errors.py",
            "RAISED = \"cannot open the second door from here\"\n",
        ),
    ]);
    let pack = place.built();
    for (query, path, line) in [
        ("cannot open the second door from here", "src/errors.py", 1),
        ("second door", "src/errors.py", 1),
        ("Context.JSON", "src/net/context.go", 4),
        ("Render#JSON", "src/net/context.go", 8),
        ("Mutex::lock", "src/sync/mutex.rs", 4),
        ("sync::mutex::spawn", "src/sync/mutex.rs", 9),
        ("func (c *Context) JSON", "src/net/context.go", 4),
        ("func (x *Context) JSON", "src/net/context.go", 4),
        ("src/sync/mutex.rs:4", "src/sync/mutex.rs", 4),
        ("mutex.rs#L4", "src/sync/mutex.rs", 4),
        ("Vec<u8>", "src/sync/mutex.rs", 4),
        ("Vec< u8 >", "src/sync/mutex.rs", 4),
        (".await?", "src/sync/mutex.rs", 5),
        (
            "something else\n   self.inner.take().await?\n",
            "src/sync/mutex.rs",
            5,
        ),
    ] {
        let answer = search(&pack, &json!({"query": query}));
        let first = &answer["hits"][0];
        assert_eq!(first["path"], path, "{query}: {answer}");
        let shown = first["start_line"].as_u64().unwrap()..=first["end_line"].as_u64().unwrap();
        assert!(shown.contains(&line), "{query}: {answer}");
    }
    let wildcard = search(&pack, &json!({"query": "sync/*.rs"}));
    assert_eq!(paths(&wildcard), ["src/sync/mutex.rs"]);
}

// covers: search.path, search.exclude, search.lang
#[test]
fn filters_narrow_every_kind_of_search() {
    let (_place, pack) = place();
    for kind in ["literal", "regex", "ranked", "symbol", "path"] {
        let found = |more: Value| {
            let mut arguments = json!({"query": "router", "kind": kind});
            arguments
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            paths(&search(&pack, &arguments))
        };
        assert!(
            found(json!({"path": ["src"]}))
                .iter()
                .all(|path| path.starts_with("src/")),
            "{kind}"
        );
        assert!(
            found(json!({"exclude": ["*.rs"]}))
                .iter()
                .all(|path| !path.ends_with(".rs")),
            "{kind}"
        );
        assert!(
            found(json!({"lang": ["python"]}))
                .iter()
                .all(|path| path.ends_with(".py")),
            "{kind}"
        );
        assert!(
            !found(json!({"path": ["src/**"], "exclude": ["*.py"]})).is_empty(),
            "{kind}"
        );
    }
    assert!(
        refused(&pack, "search", &json!({"query": "x", "path": ["["]}))
            .1
            .contains("not a glob")
    );
    assert!(
        refused(&pack, "search", &json!({"query": "x", "exclude": ["/etc"]}))
            .1
            .contains("out of the root")
    );
    assert!(
        refused(&pack, "search", &json!({"query": "x", "lang": ["klingon"]}))
            .1
            .contains("known: ")
    );
}

// covers: search.symbol_kind
#[test]
fn symbols_are_found_by_kind_definition_first() {
    let (_place, pack) = place();
    let answer = search(&pack, &json!({"query": "Router", "kind": "symbol"}));
    assert_eq!(answer["hits"][0]["symbol"], "Router");
    assert_eq!(answer["hits"][0]["match_lines"], json!([1]));
    let structs = search(
        &pack,
        &json!({"query": "Router", "symbol_kind": ["struct"]}),
    );
    assert_eq!(structs["kind"], "symbol");
    assert_eq!(paths(&structs), ["src/router.rs"]);
    assert_eq!(structs["hits"][0]["start_line"], 3);
    let said = refused(
        &pack,
        "search",
        &json!({"query": "x", "kind": "literal", "symbol_kind": ["struct"]}),
    );
    assert!(said.1.contains("symbol_kind"), "{said:?}");
    assert!(
        try_call(
            &pack,
            "search",
            &json!({"query": "x", "symbol_kind": ["gizmo"]})
        )
        .is_err()
    );
}

// covers: search.case
#[test]
fn case_is_smart_unless_told() {
    let (_place, pack) = place();
    let count = |query: &str, case: &str| {
        search(
            &pack,
            &json!({"query": query, "kind": "literal", "case": case}),
        )["total"]["value"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(count("ROUTER", "smart"), 0);
    assert_eq!(count("ROUTER", "insensitive"), count("router", "smart"));
    assert!(count("router", "sensitive") < count("router", "smart"));
    let symbol = search(
        &pack,
        &json!({"query": "router", "kind": "symbol", "case": "sensitive"}),
    );
    assert_eq!(symbol["total"]["value"], 0);
}

// covers: search.context
#[test]
fn context_adds_lines_and_joins_neighbours() {
    let (_place, pack) = place();
    let narrow = search(
        &pack,
        &json!({"query": "route", "kind": "literal", "path": ["src/router.rs"], "case": "sensitive"}),
    );
    let wide = search(
        &pack,
        &json!({"query": "route", "kind": "literal", "path": ["src/router.rs"], "case": "sensitive", "context": 3}),
    );
    assert_eq!(lines(&narrow), lines(&wide));
    assert!(wide["hits"].as_array().unwrap().len() < narrow["hits"].as_array().unwrap().len());
    assert_eq!(
        (
            wide["hits"][0]["start_line"].as_u64(),
            wide["hits"][0]["end_line"].as_u64()
        ),
        (Some(1), Some(11))
    );
    assert_eq!(
        wide["hits"][0]["snippet"].as_str().unwrap().lines().count(),
        11
    );
}

// covers: search.limit, search.cursor, search.max_bytes
#[test]
fn limits_hold_and_cursors_lead_to_the_end() {
    let place = Place::new();
    for number in 0..30 {
        place.write(
            &format!("f{number:02}.txt"),
            "needle one\nother\nneedle two\n",
        );
    }
    let pack = place.built();
    for kind in ["literal", "regex"] {
        let first = search(&pack, &json!({"query": "needle", "kind": kind, "limit": 7}));
        assert_eq!(first["hits"].as_array().unwrap().len(), 7);
        assert_eq!(first["truncated"], true);
        for limit in [1, 7, 60, 200] {
            let (found, last) = all_lines(
                &pack,
                &json!({"query": "needle", "kind": kind, "limit": limit}),
            );
            assert_eq!(found.len(), 60);
            assert_eq!(last["total"], json!({"value": 60, "relation": "exact"}));
            let mut sorted = found.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted, found, "in order, and none twice");
        }
        let (found, _) = all_lines(
            &pack,
            &json!({"query": "needle", "kind": kind, "max_bytes": 100}),
        );
        assert_eq!(found.len(), 60);
    }
    let small = search(
        &pack,
        &json!({"query": "needle", "kind": "literal", "max_bytes": 100, "limit": 200}),
    );
    let bytes: usize = small["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["snippet"].as_str().unwrap().len())
        .sum();
    assert!(bytes <= 100 && small["truncated"] == true, "{bytes}");
    for kind in ["ranked", "path"] {
        let mut arguments = json!({"query": if kind == "path" { "txt" } else { "needle" }, "kind": kind, "limit": 11});
        let mut seen = Vec::new();
        loop {
            let answer = search(&pack, &arguments);
            assert_eq!(answer["total"]["value"], 30);
            seen.extend(paths(&answer));
            match answer["cursor"].as_str() {
                Some(cursor) => arguments["cursor"] = json!(cursor),
                None => break,
            }
        }
        assert_eq!(seen.len(), 30, "{kind}");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 30, "{kind}");
    }
    assert!(
        refused(
            &pack,
            "search",
            &json!({"query": "needle", "cursor": "nonsense"})
        )
        .1
        .contains("cursor")
    );
    let cursor = search(
        &pack,
        &json!({"query": "needle", "kind": "literal", "limit": 1}),
    )["cursor"]
        .clone();
    assert!(
        refused(
            &pack,
            "search",
            &json!({"query": "other", "kind": "literal", "cursor": cursor})
        )
        .1
        .contains("another query")
    );
}

// covers: search.modified_since
#[test]
fn old_files_are_left_out_when_asked() {
    let (place, pack) = place();
    let old = fs::File::options()
        .write(true)
        .open(place.root().join("src/main.py"))
        .unwrap();
    old.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .unwrap();
    for kind in ["literal", "ranked", "symbol", "path"] {
        let query = if kind == "path" { "main" } else { "Router" };
        let all = paths(&search(&pack, &json!({"query": query, "kind": kind})));
        assert!(all.contains(&"src/main.py".to_owned()), "{kind}");
        let recent = paths(&search(
            &pack,
            &json!({"query": query, "kind": kind, "modified_since": "2020-01-01"}),
        ));
        assert!(!recent.contains(&"src/main.py".to_owned()), "{kind}");
    }
    assert!(
        refused(
            &pack,
            "search",
            &json!({"query": "x", "modified_since": "last week"})
        )
        .1
        .contains("ISO")
    );
}

// covers: search.explain
#[test]
fn explain_says_why() {
    let (_place, pack) = place();
    for kind in ["literal", "ranked", "symbol", "path"] {
        let plain = search(&pack, &json!({"query": "router", "kind": kind}));
        assert!(plain["hits"][0].get("why").is_none());
        let answer = search(
            &pack,
            &json!({"query": "router", "kind": kind, "explain": true}),
        );
        assert_eq!(paths(&plain), paths(&answer));
        assert!(
            answer["hits"][0]["why"]["class"].is_string(),
            "{kind}: {}",
            answer["hits"][0]
        );
    }
    let ranked = search(
        &pack,
        &json!({"query": "router", "kind": "ranked", "explain": true}),
    );
    let test = ranked["hits"]
        .as_array()
        .unwrap()
        .iter()
        .find(|hit| hit["path"] == "tests/router_test.rs")
        .unwrap();
    assert_eq!(test["why"]["class"], "test");
    assert!(test["why"]["penalty"].as_f64().unwrap() < 1.0);
    assert_eq!(ranked["hits"][0]["why"]["terms"][0]["term"], "rout");
}

// covers: search.repo, index_build.repo, index_status.repo, show_file.repo
#[test]
fn several_repositories_are_searched_together_or_one_by_one_and_a_broken_one_harms_no_other() {
    let dir = TempDir::new().unwrap();
    for name in ["one", "two"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
        fs::write(
            dir.path().join(name).join("a.txt"),
            format!("shared word of {name}\n"),
        )
        .unwrap();
    }
    let settings = CodeSettings {
        roots: vec![
            RootSetting {
                path: dir.path().join("one"),
                alias: Some("first".to_owned()),
            },
            RootSetting::at(dir.path().join("two")),
            RootSetting::at(dir.path().join("absent")),
        ],
        cache_dir: Some(dir.path().join("cache")),
        ..CodeSettings::default()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    assert!(
        refused(&pack, "index_build", &json!({}))
            .1
            .contains("first, two, absent")
    );
    for name in ["first", "two"] {
        assert_eq!(
            call(&pack, "index_build", &json!({"repo": name}))["state"],
            "done"
        );
    }
    let both = search(&pack, &json!({"query": "shared word", "kind": "literal"}));
    let repos: Vec<&str> = both["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["repo"].as_str().unwrap())
        .collect();
    assert_eq!(repos, ["first", "two"]);
    assert_eq!(both["unsearched"][0]["repo"], "absent");
    assert!(
        both["unsearched"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("cannot be opened")
    );
    assert!(both["notes"].to_string().contains("absent"), "{both}");
    assert_eq!(both["total"], json!({"value": 2, "relation": "at_least"}));
    assert_eq!(both["truncated"], true);
    let one = search(
        &pack,
        &json!({"query": "shared word", "kind": "literal", "repo": ["two"]}),
    );
    assert_eq!(one["hits"].as_array().unwrap().len(), 1);
    assert_eq!(one["total"]["relation"], "exact");
    assert!(one.get("unsearched").is_none(), "it was not asked for");
    assert_eq!(
        refused(&pack, "search", &json!({"query": "x", "repo": ["three"]})).0,
        ErrorKind::NotFound
    );
    assert!(
        refused(&pack, "search", &json!({"query": "x", "repo": ["absent"]}))
            .1
            .contains("cannot be used")
    );
    assert_eq!(
        call(&pack, "show_file", &json!({"repo": "two", "path": "a.txt"}))["text"],
        "shared word of two"
    );
    assert_eq!(
        call(&pack, "index_status", &json!({"repo": "first"}))["files"],
        1
    );
    let status = call(&pack, "workspace_status", &json!({}));
    assert_eq!(status["totals"]["files"], 2);
    assert!(
        status["repos"][2]["last_error"]
            .as_str()
            .unwrap()
            .contains("absent")
    );
    let checks = call(&pack, "check_status", &json!({}));
    assert_eq!(checks["ok"], false);
    let broken = checks["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["id"] == "absent.root")
        .unwrap();
    assert!(broken["fix"].is_string());
}

// covers: index_build.mode, index_build.paths, index_build.wait_ms
#[test]
fn builds_do_what_they_are_told_and_say_what_they_did() {
    let place = Place::with(FILES);
    let pack = place.open();
    let first = call(&pack, "index_build", &json!({}));
    assert_eq!(
        (first["added"].as_u64(), first["files_done"].as_u64()),
        (Some(4), Some(4))
    );
    assert!(first["bytes_done"].as_u64().unwrap() > 0 && first["job_id"].is_string());
    assert_eq!(call(&pack, "index_build", &json!({}))["added"], 0);
    let full = call(&pack, "index_build", &json!({"mode": "full"}));
    assert_eq!(
        (full["state"].as_str(), full["files_done"].as_u64()),
        (Some("done"), Some(4))
    );
    place.write("src/new.rs", "fn fresh() {}\n");
    place.write("docs/new.md", "fresh\n");
    let partly = call(&pack, "index_build", &json!({"paths": ["src/**"]}));
    assert_eq!(partly["files_done"], 1, "{partly}");
    assert_eq!(
        search(&pack, &json!({"query": "fresh", "kind": "literal"}))["total"]["value"],
        2,
        "the rest is seen all the same"
    );
    let at_once = call(&pack, "index_build", &json!({"mode": "full", "wait_ms": 0}));
    assert!(["running", "done"].contains(&at_once["state"].as_str().unwrap()));
    wait_until("the job ends", || {
        call(&pack, "index_status", &json!({}))["job"]["state"] == "done"
    });
    assert!(
        refused(&pack, "index_build", &json!({"paths": ["../x"]}))
            .1
            .contains("out of the root")
    );
    assert!(try_call(&pack, "index_build", &json!({"mode": "sideways"})).is_err());
}

// covers: index_status.job_id
#[test]
fn the_last_job_is_known_by_its_id_and_survives_its_worker() {
    let place = Place::with(FILES);
    let pack = place.open();
    let before = call(&pack, "index_status", &json!({}));
    assert_eq!(
        (before["generation"].as_u64(), before["fresh"].as_bool()),
        (Some(0), Some(false))
    );
    assert_eq!(
        refused(&pack, "index_status", &json!({"job_id": "x"})).0,
        ErrorKind::NoIndex
    );
    let id = call(&pack, "index_build", &json!({}))["job_id"].clone();
    drop(pack);
    let pack = place.open();
    let status = call(&pack, "index_status", &json!({"job_id": id}));
    assert_eq!(status["job"]["state"], "done");
    assert_eq!(
        refused(&pack, "index_status", &json!({"job_id": "other"})).0,
        ErrorKind::NoIndex
    );
    wait_until("it is fresh", || {
        call(&pack, "index_status", &json!({}))["fresh"] == true
    });
}

#[test]
fn the_first_search_answers_without_an_index_and_in_time() {
    let place = Place::with(FILES);
    let pack = place.open();
    let started = Instant::now();
    let answer = search(&pack, &json!({"query": "add_route", "kind": "literal"}));
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(answer["total"]["value"], 3, "{answer}");
}

#[test]
fn a_cancelled_build_is_answered_as_such_and_leaves_what_was_there() {
    let place = Place::with(FILES);
    for number in 0..400 {
        place.write(
            &format!("many/f{number}.rs"),
            "fn many() { let words = 1; }\n".repeat(400),
        );
    }
    drop(place.built());
    let (mut peer, _) = Peer::ready(place.open()).unwrap();
    let op = |name: &str, arguments: Value| Op::Tool {
        name: name.to_owned(),
        arguments: Json::from(arguments),
        render: RenderMode::Json,
    };
    let build = peer
        .call(op("index_build", json!({"mode": "full"})))
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    peer.send(&ToWorker::Cancel { call: build }).unwrap();
    let (call, answer) = peer.answer().unwrap();
    assert_eq!(call, build);
    match answer {
        Answer::Failed(problem) => assert_eq!(problem.kind, ErrorKind::Cancelled),
        // It may have been done before the cancel came.
        Answer::Tool(reply) => assert_eq!(reply.json.to_value().unwrap()["state"], "done"),
        other => panic!("{other:?}"),
    }
    peer.call(op(
        "search",
        json!({"query": "add_route", "kind": "literal"}),
    ))
    .unwrap();
    match peer.answer().unwrap().1 {
        Answer::Tool(reply) => assert_eq!(reply.json.to_value().unwrap()["total"]["value"], 3),
        other => panic!("{other:?}"),
    }
    peer.hang_up();
}
