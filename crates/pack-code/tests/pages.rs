//! Pages: cursors lead to the end, each hit comes once, and totals are true.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use mainstay_worker::{ErrorKind, Pack};
use serde_json::{Value, json};

use support::{Place, call, paths, refused, search, wait_until};

/// One hit, by what makes it that one.
type Identity = (String, String, Vec<u64>, Option<String>);

fn identities(answer: &Value) -> Vec<Identity> {
    let hits = answer["hits"].as_array().unwrap();
    let one = |hit: &Value| {
        (
            hit["repo"].as_str().unwrap().to_owned(),
            hit["path"].as_str().unwrap().to_owned(),
            hit["match_lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_u64().unwrap())
                .collect(),
            hit["symbol"].as_str().map(str::to_owned),
        )
    };
    hits.iter().map(one).collect()
}

/// All hits of a query, page by page, and every answer.
fn follow(pack: &Pack, arguments: &Value) -> (Vec<Identity>, Vec<Value>) {
    let mut arguments = arguments.clone();
    let (mut hits, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        let answer = search(pack, &arguments);
        hits.extend(identities(&answer));
        let cursor = answer["cursor"].as_str().map(str::to_owned);
        answers.push(answer);
        match cursor {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => return (hits, answers),
        }
    }
    panic!("the cursor does not end: {arguments}");
}

fn with(arguments: &Value, more: &Value) -> Value {
    let mut joined = arguments.clone();
    joined
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    joined
}

/// Sixty files in two languages and three folders; every other one is from 2001.
fn mixed() -> Place {
    let place = Place::new();
    for number in 0..60 {
        let folder = ["src", "tests", "docs"][number % 3];
        let (end, text) = match number % 4 {
            0 => (
                "rs",
                format!("fn spawn() {{}}\n\n// spawn {number}\nfn spawn_{number}() {{}}\n"),
            ),
            1 => (
                "py",
                format!("def spawn():\n    pass\n\nspawn()  # {number}\n"),
            ),
            2 => ("h", format!("int respawn(int {});\n", "x".repeat(number))),
            _ => ("txt", "to Spawn is to spawn\n".repeat(1 + number % 5)),
        };
        let path = format!("{folder}/spawn{number:02}.{end}");
        place.write(&path, text);
        if number % 2 == 0 {
            let file = fs::File::options()
                .write(true)
                .open(place.root().join(&path))
                .unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000))
                .unwrap();
        }
    }
    place
}

fn with_symbols(place: &Place) -> Pack {
    let pack = place.built();
    wait_until("symbols are there", || {
        call(&pack, "index_status", &json!({}))["layers"]["symbols"] == 1.0
    });
    pack
}

#[test]
fn every_kind_gives_each_hit_once_and_a_true_total_with_every_filter_and_limit() {
    let place = mixed();
    let pack = with_symbols(&place);
    let filters = [
        json!({}),
        json!({"path": ["src/**"]}),
        json!({"exclude": ["*.py"]}),
        json!({"lang": ["rust"]}),
        json!({"modified_since": "2020-01-01"}),
        json!({"modified_since": "2020-01-01", "path": ["tests"], "lang": ["python", "rust"]}),
        json!({"modified_since": "2099-01-01"}),
        json!({"case": "sensitive"}),
        json!({"case": "insensitive", "context": 2}),
    ];
    for kind in ["literal", "regex", "ranked", "symbol", "path"] {
        for filter in &filters {
            let query = with(&json!({"query": "spawn", "kind": kind}), filter);
            let (all, answers) = follow(&pack, &with(&query, &json!({"limit": 200})));
            let total = &answers[0]["total"];
            assert_eq!(total["relation"], "exact", "{query}");
            let counted = match kind {
                "literal" | "regex" => all.iter().map(|hit| hit.2.len()).sum(),
                _ => all.len(),
            };
            assert_eq!(total["value"], counted, "{query}");
            let unique: BTreeSet<&Identity> = all.iter().collect();
            assert_eq!(unique.len(), all.len(), "{query}");
            for more in [
                json!({"limit": 1}),
                json!({"limit": 7}),
                json!({"limit": 31}),
                json!({"max_bytes": 100}),
            ] {
                let query = with(&query, &more);
                let (hits, answers) = follow(&pack, &query);
                assert_eq!(hits, all, "{query}");
                for answer in &answers {
                    assert_eq!(answer["kind"], kind);
                    let value = answer["total"]["value"].as_u64().unwrap();
                    match answer["total"]["relation"].as_str().unwrap() {
                        "exact" => assert_eq!(value, counted as u64, "{query}"),
                        _ => assert!(value <= counted as u64, "{query}"),
                    }
                }
            }
        }
    }
}

#[test]
fn looser_names_count_whatever_the_limit() {
    let place = Place::new();
    for number in 0..30 {
        place.write(
            &format!("f{number:02}.rs"),
            format!("fn spawn() {{}}\nstruct N{number};\n"),
        );
    }
    for number in 0..5 {
        place.write(
            &format!("g{number}.rs"),
            format!("fn spawn_{number}() {{}}\nfn respawn_{number}() {{}}\n"),
        );
    }
    let check = |pack: &Pack| {
        for limit in [5, 7, 10, 30, 31, 50] {
            let query = json!({"query": "spawn", "kind": "symbol", "limit": limit});
            let (hits, answers) = follow(pack, &query);
            assert_eq!(hits.len(), 40, "{limit}");
            let names: Vec<&str> = hits.iter().filter_map(|hit| hit.3.as_deref()).collect();
            assert!(names[..30].iter().all(|name| *name == "spawn"));
            assert!(names[30..35].iter().all(|name| name.starts_with("spawn_")));
            for answer in answers {
                assert_eq!(answer["total"], json!({"value": 40, "relation": "exact"}));
            }
        }
    };
    let pack = with_symbols(&place);
    check(&pack);
    // The same from files that the symbol layer does not know yet.
    for number in 0..5 {
        place.write(
            &format!("g{number}.rs"),
            format!("\nfn spawn_{number}() {{}}\nfn respawn_{number}() {{}}\n"),
        );
    }
    check(&pack);
}

#[test]
fn the_next_page_of_a_fallback_is_of_the_kind_that_answered() {
    let place = Place::new();
    for number in 0..9 {
        place.write(
            &format!("f{number}.txt"),
            "undef f\nserde is of use\nC++ and $x\n",
        );
    }
    let pack = place.built();
    for (query, kind, total) in [
        ("def f", "literal", 9),
        ("C++", "literal", 9),
        ("$x", "literal", 9),
    ] {
        let (hits, answers) = follow(&pack, &json!({"query": query, "limit": 2}));
        assert_eq!(hits.len(), 9, "{query}");
        for answer in &answers {
            assert_eq!(answer["kind"], kind, "{query}");
            assert_eq!(answer["total"]["value"], total, "{query}");
        }
        let cursor = answers[0]["cursor"].clone();
        for other in [
            json!({"query": query, "kind": kind, "cursor": cursor}),
            json!({"query": query, "path": ["*.txt"], "cursor": cursor}),
            json!({"query": format!("{query} "), "cursor": cursor}),
        ] {
            let said = refused(&pack, "search", &other);
            assert_eq!(said.0, ErrorKind::InvalidArguments);
            assert!(said.1.contains("another query"), "{said:?}");
        }
    }
    // Guesses are few and have no further page.
    let guesses = search(&pack, &json!({"query": "use serde;"}));
    assert_eq!(guesses["confidence"], "guess");
    assert_eq!(guesses["hits"].as_array().unwrap().len(), 5);
    assert!(guesses.get("cursor").is_none(), "{guesses}");
    let nothing = search(&pack, &json!({"query": "fn nowhere_at_all"}));
    assert_eq!(nothing["confidence"], "none", "{nothing}");
    assert_eq!(nothing["total"]["value"], 0);
}

#[test]
fn a_listing_of_files_or_names_goes_on_after_changes_and_says_what_it_passed() {
    let place = Place::new();
    for number in 0..20 {
        place.write(
            &format!("item{number:02}.rs"),
            format!("fn item() {{}}\n// {number}\n"),
        );
    }
    let pack = with_symbols(&place);
    for kind in ["path", "symbol", "literal"] {
        let query = json!({"query": "item", "kind": kind, "limit": 5});
        let first = search(&pack, &query);
        assert_eq!(paths(&first).len(), 5);
        let rest = with(&query, &json!({"cursor": first["cursor"], "limit": 200}));
        let expected = paths(&search(&pack, &rest));
        assert_eq!(expected.len(), 15);
        // One that was given moves out of the way: nobody after it is lost.
        let root = place.root();
        let aside = place.dir.path().join("aside");
        fs::rename(root.join("item02.rs"), &aside).unwrap();
        assert_eq!(paths(&search(&pack, &rest)), expected, "{kind}");
        fs::rename(&aside, root.join("item02.rs")).unwrap();
        let again = search(&pack, &rest);
        assert_eq!(paths(&again), expected, "{kind}");
        assert!(again.get("notes").is_none(), "{again}");
        // One comes up before the place: it is not given, and the answer says so.
        place.write("item0-.rs", "fn item() {}\n");
        let after = search(&pack, &rest);
        if kind != "literal" {
            let note = after["notes"][0].as_str().unwrap_or_default();
            assert!(note.contains("1 hit has"), "{kind}: {after}");
            assert_eq!(after["total"]["value"], 21);
        }
        assert_eq!(paths(&after), expected, "{kind}");
        fs::remove_file(root.join("item0-.rs")).unwrap();
        call(&pack, "index_build", &json!({"mode": "full"}));
        assert_eq!(paths(&search(&pack, &rest)), expected, "{kind}, rebuilt");
    }
}

#[test]
fn a_ranked_listing_goes_on_while_its_first_hits_are_the_same_and_is_refused_otherwise() {
    let place = Place::new();
    for number in 0..40 {
        place.write(
            &format!("f{number:02}.txt"),
            "heron\n".repeat(1 + number) + &"filler words here\n".repeat(40 - number),
        );
    }
    let pack = place.built();
    let query = json!({"query": "heron", "kind": "ranked", "limit": 10});
    let first = search(&pack, &query);
    let rest = with(&query, &json!({"cursor": first["cursor"], "limit": 200}));
    let expected = paths(&search(&pack, &rest));
    assert_eq!(expected.len(), 30);
    call(&pack, "index_build", &json!({"mode": "full"}));
    assert_eq!(paths(&search(&pack, &rest)), expected);
    let given = paths(&first);
    fs::remove_file(place.root().join(&given[3])).unwrap();
    let said = refused(&pack, "search", &rest);
    assert_eq!(said.0, ErrorKind::InvalidArguments);
    assert!(said.1.contains("begin again"), "{said:?}");
}

#[test]
fn far_pages_of_a_ranked_listing_join_the_near_ones() {
    let place = Place::new();
    // More headers than are looked at for a near page, all of which their paths set back behind
    // files that have a little more beside the word.
    for number in 0..750 {
        let (end, filler) = match number {
            0..30 => ("c", 1),
            30..450 => ("h", 2),
            _ => ("c", 4),
        };
        place.write(
            &format!("f{number:03}.{end}"),
            format!("heron\n{}", "filler words\n".repeat(filler)),
        );
    }
    let pack = place.built();
    let query = json!({"query": "heron", "kind": "ranked"});
    let (all, _) = follow(&pack, &with(&query, &json!({"limit": 200})));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 750);
    for limit in [9, 50, 100] {
        let (hits, _) = follow(&pack, &with(&query, &json!({"limit": limit})));
        assert!(hits == all, "pages of {limit} are another listing");
    }
}

#[test]
fn a_scanned_answer_calls_lines_lines_and_its_next_page_may_come_from_an_index() {
    let place = Place::new();
    for number in 0..12 {
        place.write(
            &format!("f{number:02}.c"),
            "/* struct heron is told of here */\nstruct heron { int x; };\n",
        );
    }
    drop(place.built());
    fs::remove_file(place.index().join("manifest")).unwrap();
    // As long as somebody else writes there is no index.
    let lock = place.hold_writing();
    let pack = place.open();
    let query = json!({"query": "struct heron", "limit": 5});
    let first = search(&pack, &query);
    assert_eq!(
        (first["kind"].as_str(), first["scanned"].as_bool()),
        (Some("literal"), Some(true)),
        "{first}"
    );
    assert!(first["notes"].to_string().contains("symbol answer"));
    assert_eq!(first["total"], json!({"value": 24, "relation": "exact"}));
    let by_name = with(&query, &json!({"symbol_kind": ["struct"]}));
    assert_eq!(refused(&pack, "search", &by_name).0, ErrorKind::NoIndex);
    drop(lock);
    wait_until("there is an index", || {
        search(&pack, &query)["kind"] == "symbol"
    });
    let (rest, answers) = follow(&pack, &with(&query, &json!({"cursor": first["cursor"]})));
    assert_eq!(answers[0]["kind"], "literal");
    assert_eq!(answers[0]["scanned"], false);
    let mut all = identities(&first);
    all.extend(rest);
    let lines: BTreeSet<(String, u64)> = all
        .iter()
        .flat_map(|hit| hit.2.iter().map(|line| (hit.1.clone(), *line)))
        .collect();
    assert_eq!(lines.len(), 24);
    assert_eq!(all.iter().map(|hit| hit.2.len()).sum::<usize>(), 24);
    // The other way round: a page of an index is not followed by lines of a scan.
    let symbols = search(&pack, &query);
    drop(pack);
    fs::remove_file(place.index().join("manifest")).unwrap();
    let _lock = place.hold_writing();
    let pack = place.open();
    let next = with(&query, &json!({"cursor": symbols["cursor"]}));
    assert_eq!(refused(&pack, "search", &next).0, ErrorKind::NoIndex);
}
