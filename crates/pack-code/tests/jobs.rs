//! Builds that are asked for while one runs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use mainstay_worker::ErrorKind;
use serde_json::{Value, json};

use support::{FILES, Place, call, refused, wait_until};

#[test]
fn other_work_than_that_of_the_running_job_is_done_after_it() {
    let place = Place::with(FILES);
    let pack = place.built();
    let ask = |mut arguments: Value| {
        arguments["wait_ms"] = json!(0);
        call(&pack, "index_build", &arguments)["job_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // As long as another process writes, a job of this one does not end.
    let lock = place.hold_writing();
    let running = ask(json!({}));
    assert_eq!(ask(json!({})), running);
    assert_eq!(ask(json!({"paths": ["src/**"]})), running, "it does these");
    let full = ask(json!({"mode": "full"}));
    assert_ne!(full, running);
    assert_eq!(ask(json!({"mode": "full"})), full);
    assert_eq!(ask(json!({"mode": "full", "paths": ["docs"]})), full);
    assert_eq!(ask(json!({})), running);
    for id in [&running, &full] {
        let status = call(&pack, "index_status", &json!({"job_id": id}));
        assert_eq!(status["job"]["job_id"], id.as_str());
        assert_eq!(status["job"]["state"], "running");
    }
    drop(lock);
    // It is the last one, so it is known to the end.
    let job = || call(&pack, "index_status", &json!({"job_id": full}))["job"].clone();
    wait_until("the job ends", || job()["state"] == "done");
    assert_eq!(job()["files_done"], 4, "all of them once more");
}

#[test]
fn a_job_that_is_limited_to_paths_serves_only_the_same_paths_and_the_queue_ends() {
    let place = Place::with(FILES);
    let pack = place.built();
    let ask = |paths: &[&str], full: bool| {
        let mode = if full { "full" } else { "incremental" };
        json!({"paths": paths, "mode": mode, "wait_ms": 0})
    };
    let id = |arguments: &Value| call(&pack, "index_build", arguments)["job_id"].clone();
    let lock = place.hold_writing();
    let docs = id(&ask(&["docs/**", "*.md"], false));
    assert_eq!(id(&ask(&["*.md", "docs/**"], false)), docs);
    assert_ne!(id(&ask(&["*.md", "docs/**"], true)), docs);
    assert_ne!(id(&ask(&["docs/**"], false)), docs);
    let mut waiting = 2;
    let said = loop {
        let next = ask(&[format!("f{waiting}").as_str()], false);
        match support::try_call(&pack, "index_build", &next) {
            Ok(_) => waiting += 1,
            Err(problem) => break problem,
        }
        assert!(waiting < 100, "the queue does not end");
    };
    assert_eq!(said.kind, ErrorKind::Overloaded);
    assert!(said.message.contains("too many builds"), "{said:?}");
    let whole = refused(&pack, "index_build", &json!({"wait_ms": 0}));
    assert_eq!(whole.0, ErrorKind::Overloaded);
    drop(lock);
    wait_until("there is room again", || {
        support::try_call(&pack, "index_build", &json!({})).is_ok_and(|job| job["state"] == "done")
    });
}
