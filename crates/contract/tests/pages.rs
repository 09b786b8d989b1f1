//! The reference pages are generated or hold examples; both must be what the types say.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::collections::BTreeSet;

use mainstay_contract::health::Health;
use mainstay_contract::telemetry::{Event, Telemetry};
use mainstay_contract::{error, limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[test]
fn the_error_page_is_the_error_table() {
    let page = include_str!("../../../docs/errors.md");
    assert_eq!(
        page,
        error::markdown(),
        "regenerate: mainstay errors --markdown > docs/errors.md"
    );
}

#[test]
fn the_configuration_page_has_every_limit() {
    let page = include_str!("../../../docs/configuration.md");
    let table = limits::markdown();
    assert!(
        page.contains(&table),
        "the table of limits must be:\n{table}"
    );
}

/// The fenced JSON examples of `docs/telemetry.md` below a heading, up to the next one.
fn examples(heading: &str) -> Vec<&'static str> {
    let page = include_str!("../../../docs/telemetry.md");
    let (_, section) = page.split_once(heading).expect("the heading is there");
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let fences = section.split("```").skip(1).step_by(2);
    fences
        .filter_map(|fence| fence.strip_prefix("json\n"))
        .collect()
}

/// Read and written again, an example is what it was: no field is missing, unknown or misspelt.
fn assert_faithful<T: Serialize + DeserializeOwned>(example: &str) {
    let value: Value = serde_json::from_str(example).expect(example);
    let typed: T = serde_json::from_str(example).expect(example);
    assert_eq!(serde_json::to_value(&typed).expect(example), value);
}

#[test]
fn the_payloads_of_the_telemetry_page_are_true() {
    for example in examples("\n## `system_health`") {
        assert_faithful::<Health>(example);
    }
    for example in examples("\n## `system_telemetry`") {
        assert_faithful::<Telemetry>(example);
    }
}

#[test]
fn the_event_lines_of_the_telemetry_page_are_true_and_complete() {
    let mut kinds = BTreeSet::new();
    for line in examples("\n## Event lines")
        .iter()
        .flat_map(|text| text.lines())
    {
        assert_faithful::<Event>(line);
        let value: Value = serde_json::from_str(line).expect(line);
        kinds.insert(value["event"].as_str().expect(line).to_owned());
    }
    let all = [
        "dropped",
        "hot_tools",
        "invocation",
        "request",
        "worker_lost",
        "worker_ready",
        "worker_reaped",
        "worker_started",
    ];
    assert!(kinds.iter().eq(all), "{kinds:?}");
}
