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

use mainstay_worker::testing::run_tool_within;
use mainstay_worker::{Bounds, ErrorKind, Pack};
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
    assert!(expected.len() > 10, "{}", expected.len());
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
    // Without a manifest, and while another process holds the lock, there is no index.
    let lock = place.remove_index();
    let pack = place.open();
    let query = json!({"query": "struct heron", "limit": 5});
    let mut first = Value::Null;
    // A scan has little time, which a busy machine may use up.
    wait_until("a scan reads every file", || {
        first = search(&pack, &query);
        first["total"]["relation"] == "exact"
    });
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
    let _lock = place.remove_index();
    let pack = place.open();
    let next = with(&query, &json!({"cursor": symbols["cursor"]}));
    assert_eq!(refused(&pack, "search", &next).0, ErrorKind::NoIndex);
}

/// The text of an answer, and its data.
fn read(pack: &Pack, tool: &str, arguments: &Value, text: Bounds) -> (String, Value) {
    let reply = run_tool_within(pack, tool, arguments, text)
        .unwrap_or_else(|problem| panic!("{tool} {arguments}: {problem:?}"));
    let shown = reply.text.unwrap();
    assert!(text.hold(&shown), "{tool} {arguments}: {shown}");
    (shown, reply.json.to_value().unwrap())
}

/// The rest of the last hint that begins with `words`.
fn hint<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let hints = text.lines().filter_map(|line| line.strip_prefix("hint: "));
    hints
        .filter_map(|hint| hint.strip_prefix(words))
        .next_back()
}

const SIZES: [Bounds; 4] = [
    Bounds {
        lines: 5,
        bytes: 24_000,
    },
    Bounds {
        lines: 30,
        bytes: 24_000,
    },
    Bounds {
        lines: 200,
        bytes: 1_500,
    },
    Bounds {
        lines: 1_000,
        bytes: 24_000,
    },
];

#[test]
fn the_hints_of_search_texts_lead_to_each_hit_once() {
    let place = Place::new();
    for number in 0..120 {
        let text = format!("fn heron_{number}() {{\n    heron();\n}}\n").repeat(1 + number % 3);
        place.write(&format!("f{number:03}.rs"), text);
    }
    let pack = place.built();
    for kind in ["literal", "ranked", "symbol", "path"] {
        let query = match kind {
            "path" => "f0",
            "literal" => "heron()",
            _ => "heron",
        };
        let query = json!({"query": query, "kind": kind, "limit": 50});
        let (whole, _) = follow(&pack, &query);
        for size in SIZES {
            let mut arguments = query.clone();
            let (mut seen, mut places) = (Vec::new(), Vec::new());
            loop {
                let (text, data) = read(&pack, "search", &arguments, size);
                let hits = identities(&data);
                // What the summary says is there: the title of each hit's file, at least.
                assert!(text.contains(&format!("{} hit", hits.len())), "{text}");
                let shown = |path: &str| text.lines().any(|line| line.starts_with(path));
                assert!(hits.iter().all(|hit| shown(&hit.1)), "{text}");
                let lines = text.lines().filter(|line| line.starts_with("  "));
                places.push(lines.count());
                seen.extend(hits);
                match hint(&text, "more with cursor ") {
                    Some(cursor) => {
                        assert_eq!(data["cursor"], cursor);
                        arguments["cursor"] = json!(cursor);
                    }
                    None => break,
                }
            }
            assert!(
                seen == whole,
                "{kind} {size:?}: {} of {}",
                seen.len(),
                whole.len()
            );
            assert!(places.iter().all(|lines| *lines > 0), "{places:?}");
        }
    }
}

#[test]
fn the_hints_of_show_file_lead_through_the_whole_file_once() {
    let place = Place::new();
    let text: String = (1..=2215).map(|line| format!("line {line}\n")).collect();
    place.write("long.txt", &text);
    let pack = place.open();
    for size in SIZES {
        for end in [None, Some(1999)] {
            let mut arguments = json!({"path": "long.txt"});
            if let Some(end) = end {
                arguments["end_line"] = json!(end);
            }
            let (mut shown, mut given) = (Vec::new(), String::new());
            loop {
                let (text, data) = read(&pack, "show_file", &arguments, size);
                let numbered = text.lines().filter_map(|line| line.split_once(": line "));
                shown.extend(numbered.map(|(number, line)| {
                    assert_eq!(number, line);
                    number.parse::<u64>().unwrap()
                }));
                given += data["text"].as_str().unwrap();
                given.push('\n');
                assert_eq!(data["end_line"], json!(shown.last()));
                let Some(next) = hint(&text, "start_line ") else {
                    assert_eq!(data["truncated"], false);
                    break;
                };
                assert_eq!(data["truncated"], true);
                let (next, words) = next.split_once(' ').unwrap();
                assert_eq!(words.contains("end_line 1999"), end.is_some(), "{words}");
                arguments["start_line"] = json!(next.parse::<u64>().unwrap());
            }
            let last = end.unwrap_or(2215);
            assert_eq!(shown, (1..=last).collect::<Vec<_>>(), "{size:?}");
            assert!(text.starts_with(&given), "{size:?}");
        }
    }
}

#[test]
fn the_hints_of_an_outline_lead_to_each_definition_once() {
    let place = Place::new();
    let text: String = (0..300)
        .map(|n| format!("fn f{n}() {{}} fn g{n}() {{}}\n"))
        .collect();
    place.write("many.rs", text);
    let pack = place.open();
    for size in SIZES.into_iter().skip(1) {
        let mut arguments = json!({"path": "many.rs", "outline": true});
        let (mut names, mut shown) = (Vec::new(), 0);
        loop {
            let (text, data) = read(&pack, "show_file", &arguments, size);
            let outline = data["outline"].as_array().unwrap();
            names.extend(outline.iter().map(|entry| entry["name"].to_string()));
            shown += text.lines().filter(|line| line.starts_with("- ")).count();
            let Some(next) = hint(&text, "start_line ") else {
                break;
            };
            let (next, _) = next.split_once(' ').unwrap();
            arguments["start_line"] = json!(next.parse::<u64>().unwrap());
        }
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(
            (names.len(), unique.len(), shown),
            (600, 600, 600),
            "{size:?}"
        );
    }
    let part = json!({"path": "many.rs", "outline": true, "start_line": 7, "end_line": 8});
    let part = call(&pack, "show_file", &part);
    assert_eq!(part["outline"].as_array().unwrap().len(), 4);
    assert_eq!(part["outline"][0]["name"], "f6");
}

#[test]
fn a_line_that_is_cut_says_how_to_get_all_of_it() {
    let place = Place::new();
    place.write("wide.txt", format!("{}\nend\n", "x".repeat(60_000)));
    let pack = place.open();
    let (text, data) = read(
        &pack,
        "show_file",
        &json!({"path": "wide.txt"}),
        Bounds::PORCELAIN,
    );
    let said = "line 1 has 60000 bytes, of which 48000 are given; max_bytes 60000 gives all of it";
    assert!(text.contains(said), "{text}");
    assert_eq!(hint(&text, "start_line "), Some("2 reads on"));
    assert_eq!(data["text"].as_str().unwrap().len(), 48_000);
    let all = call(
        &pack,
        "show_file",
        &json!({"path": "wide.txt", "max_bytes": 60_000}),
    );
    assert_eq!(all["text"].as_str().unwrap().len(), 60_000);
}

#[test]
fn absolute_paths_inside_a_root_are_read_as_relative_ones() {
    let place = Place::with(&[("src/a.txt", "heron\n"), ("b.txt", "heron\n")]);
    let pack = place.built();
    let root = place.root().display().to_string();
    let shown = call(
        &pack,
        "show_file",
        &json!({"path": format!("{root}/src/a.txt")}),
    );
    assert_eq!(shown["path"], "src/a.txt");
    let query = json!({"query": "heron", "kind": "literal", "path": [format!("{root}/src/**")]});
    assert_eq!(paths(&search(&pack, &query)), ["src/a.txt"]);
    let outside = refused(&pack, "show_file", &json!({"path": "/etc/hostname"}));
    assert_eq!(outside.0, ErrorKind::InvalidArguments);
}

#[test]
fn pages_end_between_passages_of_a_file_and_between_references() {
    let place = Place::new();
    let gap = "// filler\n".repeat(60);
    let part =
        |n: u32| format!("fn drain_heron_queue_{n}() {{\n    drain(heron, queue);\n}}\n{gap}");
    place.write("one.rs", (0..6).map(part).collect::<String>());
    place.write("uses.txt", "drain\ndrain\ndrain\n\n\ndrain\n");
    let pack = place.built();
    for query in [
        json!({"query": "drain the heron queue", "kind": "ranked", "path": ["*.rs"]}),
        json!({"query": "drain", "kind": "references", "context": 2}),
    ] {
        let starts = |answer: &Value| -> Vec<(String, u64)> {
            let hits = answer["hits"].as_array().unwrap().iter();
            hits.map(|hit| {
                let path = hit["path"].as_str().unwrap().to_owned();
                (path, hit["start_line"].as_u64().unwrap())
            })
            .collect()
        };
        let whole = starts(&search(&pack, &query));
        assert!(whole.len() > 1, "{query} {whole:?}");
        let one_by_one = follow(&pack, &with(&query, &json!({"limit": 1}))).1;
        let joined: Vec<_> = one_by_one.iter().flat_map(starts).collect();
        assert_eq!(joined, whole, "{query}");
        for size in SIZES {
            let (mut arguments, mut joined) = (query.clone(), Vec::new());
            loop {
                let (text, data) = read(&pack, "search", &arguments, size);
                joined.extend(starts(&data));
                let Some(cursor) = hint(&text, "more with cursor ") else {
                    break;
                };
                assert_eq!(data["cursor"], cursor);
                arguments["cursor"] = json!(cursor);
            }
            assert_eq!(joined, whole, "{query} {size:?}");
        }
    }
}
