//! Checks with real checker processes, by the executable `mainstay`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use mainstay_contract::json::Json;
use mainstay_contract::render::RenderMode;
use mainstay_kernel::time::Time;
use mainstay_schema::check::{Owner, Parts};
use mainstay_testkit::process;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::config::TreeKill;
use crate::process::descendants::below;

/// For everything that must happen some time.
const PATIENCE: Duration = Duration::from_secs(120);
/// A deadline that no check of these tests reaches unless it is meant to.
const LONG: Duration = Duration::from_secs(600);

struct Setup {
    checkers: Checkers<Checked>,
    results: mpsc::Receiver<Checked>,
}

fn setup(change: impl FnOnce(&mut CheckLimits)) -> Setup {
    let program = process::binary("mainstay").unwrap();
    let shim = Shim {
        holds: Arc::new(File::open(&program).unwrap().into()),
        program,
        tree_kill: TreeKill::Auto,
        lease: None,
    };
    let mut limits = CheckLimits::DEFAULT;
    change(&mut limits);
    let (events, results) = mpsc::channel(16);
    Setup {
        checkers: Checkers::new(&shim, limits, events),
        results,
    }
}

impl Setup {
    fn submit(
        &mut self,
        ticket: u64,
        fair: u64,
        definition: &Definition,
        subject: &Subject,
        within: Duration,
    ) -> Option<Verdict> {
        let request = CheckRequest {
            fair,
            definition: definition.clone(),
            subject: subject.clone(),
            until: Time::default(),
        };
        let deadline = Instant::now() + within;
        self.checkers.submit(ticket, &request, deadline)
    }

    async fn next(&mut self) -> (u64, Verdict) {
        let checked = timeout(PATIENCE, self.results.recv())
            .await
            .unwrap()
            .unwrap();
        (checked.ticket, checked.verdict)
    }

    /// Runs one check and waits for its verdict.
    async fn check(&mut self, definition: &Definition, subject: &Subject) -> Verdict {
        match self.submit(77, 7, definition, subject, LONG) {
            Some(verdict) => panic!("{verdict:?} without a process"),
            None => {
                let (ticket, verdict) = self.next().await;
                assert_eq!(ticket, 77);
                verdict
            }
        }
    }
}

fn server(input: &Value) -> Definition {
    let listed = json!({ "inputSchema": input });
    Definition::of_server("t", &listed, true, true)
}

fn arguments(value: &Value) -> Subject {
    Subject::Arguments(Json::from_serialize(value))
}

/// A schema whose check of [`deep`] doubles its work with every level.
fn doubling() -> Definition {
    let link = |level: usize| {
        let next = json!({"properties": {"a": {"$ref": format!("#/$defs/d{}", level + 1)}}});
        let other = json!({"properties": {"a": {"$ref": format!("#/$defs/d{}", level + 1)}},
            "minProperties": 1});
        (format!("d{level}"), json!({"anyOf": [next, other]}))
    };
    let mut all: serde_json::Map<_, _> = (0..60).map(link).collect();
    all.insert("d60".to_owned(), json!(false));
    server(&json!({"$ref": "#/$defs/d0", "$defs": all}))
}

fn deep() -> Subject {
    arguments(&(0..60).fold(json!({}), |inner, _| json!({ "a": inner })))
}

/// Needs a checker, and passes quickly there.
fn recursive() -> Definition {
    server(&json!({"type": "object", "properties": {"a": {"$ref": "#"}}}))
}

/// The checkers of this process. Each test has a process of its own.
fn pids() -> Vec<Pid> {
    let all = below(rustix::process::getpid());
    let living = all.iter().filter(|seen| !seen.zombie);
    living.map(|seen| seen.pid).collect()
}

async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
}

fn resident_mib() -> u64 {
    process::usage(std::process::id()).unwrap().resident / 1024
}

const fn gave_up_with(reason: GaveUp) -> Verdict {
    Verdict::GaveUp { reason }
}

#[tokio::test]
async fn cheap_checks_need_no_process() {
    let mut setup = setup(|_| ());
    let plain = server(&json!({"type": "object", "required": ["n"]}));
    let fits = setup.submit(1, 1, &plain, &arguments(&json!({"n": 1})), LONG);
    assert_eq!(fits, Some(Verdict::Passed));
    let misses = setup.submit(2, 1, &plain, &arguments(&json!({})), LONG);
    assert!(matches!(misses, Some(Verdict::Rejected { .. })));
    let large = Subject::Reply(Json::from_serialize(&vec![0; 1_000_000]));
    let unread = setup.submit(3, 1, &doubling(), &large, LONG);
    assert_eq!(unread, Some(Verdict::Passed), "there is no schema for it");
    assert!(pids().is_empty());
}

#[tokio::test]
async fn a_hostile_check_ends_at_its_deadline_and_cheap_ones_do_not_wait() {
    let mut setup = setup(|_| ());
    let before = Instant::now();
    let within = Duration::from_secs(10);
    assert_eq!(setup.submit(1, 1, &doubling(), &deep(), within), None);
    until(|| pids().len() == 1).await;
    let plain = server(&json!({"type": "object"}));
    let asked = Instant::now();
    let cheap = setup.submit(2, 1, &plain, &arguments(&json!({})), LONG);
    assert_eq!(cheap, Some(Verdict::Passed));
    assert!(asked < before + within, "the hostile check still runs");
    let other = setup.submit(3, 2, &recursive(), &arguments(&json!({})), LONG);
    assert_eq!(other, None);
    assert_eq!(
        setup.next().await,
        (3, Verdict::Passed),
        "of another session"
    );
    assert_eq!(setup.next().await, (1, gave_up_with(GaveUp::Deadline)));
    assert!(before.elapsed() >= within);
    let again = setup
        .check(&recursive(), &arguments(&json!({"a": {}})))
        .await;
    assert_eq!(again, Verdict::Passed, "the checker is replaced");
}

#[tokio::test]
async fn look_ahead_over_fifteen_megabytes_leaves_the_host_as_it_was() {
    let mut setup = setup(|_| ());
    let patterns: Vec<_> = (0..50)
        .map(|n| json!({"pattern": format!("^(?=.*x{n}y)(?=.*z).*$")}))
        .collect();
    let hostile = server(&json!({"properties": {"a": {"items": {"anyOf": patterns}}}}));
    let text = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    let subject = arguments(&json!({"a": vec![text; 240_000]}));
    let before = resident_mib();
    assert_eq!(
        setup.submit(1, 1, &hostile, &subject, Duration::from_secs(2)),
        None
    );
    let (ticket, verdict) = setup.next().await;
    assert_eq!(ticket, 1);
    assert_ne!(verdict, Verdict::Passed);
    assert!(resident_mib() <= before + 20, "of the host");
    until(|| pids().is_empty()).await;
}

#[tokio::test]
async fn sessions_share_the_checkers() {
    let mut setup = setup(|_| ());
    for ticket in 0..4 {
        let first = setup.submit(ticket, 1, &doubling(), &deep(), Duration::from_secs(15));
        assert_eq!(first, None);
    }
    for ticket in 10..13 {
        let second = setup.submit(ticket, 2, &recursive(), &arguments(&json!({})), LONG);
        assert_eq!(second, None);
    }
    for ticket in 10..13 {
        assert_eq!(setup.next().await, (ticket, Verdict::Passed));
    }
    for _ in 0..4 {
        let (ticket, verdict) = setup.next().await;
        assert!(ticket < 4);
        assert_eq!(verdict, gave_up_with(GaveUp::Deadline), "queued or running");
    }
}

#[tokio::test]
async fn verdicts_of_a_checker_are_those_of_the_host() {
    let mut setup = setup(|_| ());
    let definition = Definition::new(Parts {
        name: "t".to_owned(),
        input: Some(Json::from_serialize(
            &json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "free": {}, "more": {"$ref": "#"},
            "render": {"enum": ["porcelain", "json"]}}}),
        )),
        output: Some(Json::from_serialize(&json!({"required": ["n"]}))),
        aliases: vec![("count".to_owned(), "n".to_owned())],
        side: Owner::Pack,
    });
    let here = Compiled::compile(&definition).unwrap();
    let text = |text: &str| Json::parse(text).unwrap();
    let large = json!({"free": vec![1.5; 400_000], "count": "7", "render": "json"});
    for subject in [
        Subject::Arguments(text(r#"{"free":{"a": 1.00},"n":1}"#)),
        Subject::Arguments(text(
            r#"{"count":"3","free":["\u0061", 1.00],"render":"porcelain"}"#,
        )),
        Subject::Arguments(text(r#"{"n":"x","more":{"n":[]}}"#)),
        arguments(&large),
        Subject::Reply(text(r#"{"n":1}"#)),
        Subject::Reply(text("{}")),
        Subject::Reply(text("[\"line\\nbreak\"]")),
        Subject::NoReply,
    ] {
        let verdict = setup.check(&definition, &subject).await;
        assert_eq!(verdict, here.run(&subject), "{subject:.100?}");
    }
    let Verdict::Prepared { arguments, render } = here.run(&arguments(&large)) else {
        panic!("the arguments fit");
    };
    assert!(arguments.as_str().ends_with(r#","n":7}"#));
    assert_eq!(render, Some(RenderMode::Json));
    let broken = server(&json!({"type": "objekt", "items": {"$ref": "#"}}));
    let verdict = setup.check(&broken, &Subject::Arguments(text("{}"))).await;
    assert!(matches!(verdict, Verdict::Unchecked { .. }), "{verdict:?}");
}

#[tokio::test]
async fn a_check_that_needs_too_much_memory_is_given_up() {
    let mut setup = setup(|limits| limits.memory_bytes = 192 << 20);
    let subject = arguments(&json!({"a": vec![json!([]); 5_000_000]}));
    let verdict = setup.check(&recursive(), &subject).await;
    assert_eq!(verdict, gave_up_with(GaveUp::Memory));
    let verdict = setup.check(&recursive(), &arguments(&json!({}))).await;
    assert_eq!(verdict, Verdict::Passed, "the others go on");
}

#[tokio::test]
async fn memory_comes_back_after_a_large_check() {
    let mut setup = setup(|_| ());
    let subject = arguments(&json!({"b": vec![json!([]); 3_000_000]}));
    let before = resident_mib();
    let verdict = setup.check(&recursive(), &subject).await;
    assert_eq!(verdict, Verdict::Passed);
    assert!(resident_mib() <= before + 20, "of the host");
    until(|| pids().is_empty()).await;
}

#[tokio::test]
async fn a_small_checker_stays_warm_until_it_is_idle_for_long() {
    let mut setup = setup(|limits| limits.idle = Duration::from_secs(10));
    let small = arguments(&json!({"a": {}}));
    assert_eq!(setup.check(&recursive(), &small).await, Verdict::Passed);
    let warm = pids();
    assert_eq!(warm.len(), 1);
    assert_eq!(setup.check(&recursive(), &small).await, Verdict::Passed);
    assert_eq!(pids(), warm, "the same process");
    until(|| pids().is_empty()).await;
}

#[tokio::test]
async fn a_killed_checker_costs_its_own_check_only() {
    let mut setup = setup(|_| ());
    assert_eq!(setup.submit(1, 1, &doubling(), &deep(), LONG), None);
    until(|| pids().len() == 1).await;
    for pid in pids() {
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
    assert_eq!(setup.next().await, (1, gave_up_with(GaveUp::Crashed)));
    let small = arguments(&json!({"a": {}}));
    assert_eq!(setup.check(&recursive(), &small).await, Verdict::Passed);
    for pid in pids() {
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
    until(|| pids().is_empty()).await;
    let verdict = setup.check(&recursive(), &small).await;
    assert_eq!(verdict, Verdict::Passed, "an idle one is replaced");
}

#[tokio::test]
async fn a_forgotten_check_ends_without_a_verdict() {
    let mut setup = setup(|_| ());
    for ticket in [1, 2] {
        assert_eq!(setup.submit(ticket, 1, &doubling(), &deep(), LONG), None);
    }
    until(|| pids().len() == 1).await;
    setup.checkers.forget(2);
    setup.checkers.forget(1);
    until(|| pids().is_empty()).await;
    let small = arguments(&json!({}));
    assert_eq!(setup.check(&recursive(), &small).await, Verdict::Passed);
}

#[tokio::test]
async fn a_full_queue_gives_up_at_once() {
    let mut setup = setup(|limits| limits.queue = 1);
    for ticket in [1, 2] {
        assert_eq!(setup.submit(ticket, 1, &doubling(), &deep(), LONG), None);
    }
    let third = setup.submit(3, 1, &doubling(), &deep(), LONG);
    assert_eq!(third, Some(gave_up_with(GaveUp::Budget)));
    let late = setup.submit(4, 2, &doubling(), &deep(), Duration::ZERO);
    assert_eq!(late, Some(gave_up_with(GaveUp::Deadline)));
    drop(setup);
    until(|| pids().is_empty()).await;
}

#[tokio::test]
async fn a_catalog_passes_as_a_whole_or_names_the_tool() {
    let mut setup = setup(|_| ());
    let pack = |name: &str, input: &Value| {
        Definition::new(Parts {
            name: name.to_owned(),
            input: Some(Json::from_serialize(input)),
            output: None,
            aliases: Vec::new(),
            side: Owner::Pack,
        })
    };
    let plain = pack("plain", &json!({"type": "object"}));
    let broken = pack("broken", &json!({"type": "objekt"}));
    let deep = pack(
        "deep",
        &json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
    );
    let odd = pack(
        "odd",
        &json!({"type": "object", "items": {"$ref": "#"}, "required": 7}),
    );
    let deadline = Instant::now() + LONG;
    let mut vet = |ticket, all: &[&Definition]| {
        let all = all.iter().copied().cloned().collect();
        setup.checkers.vet(ticket, all, deadline)
    };
    assert_eq!(vet(1, &[&plain]), Some(Verdict::Passed));
    let Some(Verdict::Rejected { violations }) = vet(2, &[&plain, &broken]) else {
        panic!("a broken schema passed");
    };
    assert_eq!(violations[0].path, "broken");
    assert_eq!(vet(3, &[&plain, &deep]), None);
    assert_eq!(vet(4, &[&deep, &odd]), None);
    assert_eq!(setup.next().await, (3, Verdict::Passed));
    let rejected = timeout(PATIENCE, setup.results.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rejected.tool.as_deref(), Some("odd"));
    assert!(matches!(rejected.verdict, Verdict::Rejected { .. }));
}

/// Makes the test below its own other half: a host with a busy checker.
const HOLD: &str = "hold-a-busy-checker";

#[tokio::test]
async fn no_checker_outlives_a_killed_host() {
    if std::env::args().any(|word| word == HOLD) {
        let mut setup = setup(|_| ());
        assert_eq!(setup.submit(1, 1, &doubling(), &deep(), LONG), None);
        until(|| pids().len() == 1).await;
        // The check must be running, not only the process.
        tokio::time::sleep(Duration::from_millis(300)).await;
        println!("checker {}", pids()[0].as_raw_nonzero());
        tokio::time::sleep(LONG).await;
        return;
    }
    let test = "check::tests::no_checker_outlives_a_killed_host";
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([test, HOLD, "--exact", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let checker: i32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("checker ")?.1.trim().parse().ok())
        .unwrap();
    let path = PathBuf::from(format!("/proc/{checker}/status"));
    let runs = || {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        status.contains("mainstay-check") && !status.contains("State:\tZ")
    };
    assert!(runs(), "before");
    host.kill().unwrap();
    host.wait().unwrap();
    until(|| !runs()).await;
}
