//! Tests of quotas and repeated failures, also against models.

use mainstay_contract::rpc::Forward;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PERIOD_MS: u64 = 10_000;

fn limits() -> Limits {
    Limits {
        quota_period_ms: PERIOD_MS,
        repeated_failures: 3,
        repeated_failures_ms: 5_000,
        ..Limits::default()
    }
}

fn op(arguments: &str) -> Op {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
    );
    Op::Forward(Forward {
        line: Json::parse(&line).unwrap(),
        probe: None,
    })
}

fn answer(id: u32, text: &str, is_error: bool) -> Outcome {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":{is_error}}}}}"#
    );
    let line = Json::parse(&line).unwrap();
    Ok(Success::Forwarded(Forwarded { line, is_error }))
}

fn admit(quotas: &mut Quotas, limits: &Limits, at: u64, who: &str) -> Result<Charge, Problem> {
    quotas.admit(Time::from_ms(at), limits, who, "t", (&op("{}"), 100))
}

#[test]
fn each_measure_has_its_limit_for_each_caller_until_the_period_is_over() {
    for (limits, measure) in [
        (
            Limits {
                quota_calls: 2,
                ..limits()
            },
            "calls",
        ),
        (
            Limits {
                quota_bytes_in: 200,
                ..limits()
            },
            "bytes_in",
        ),
        (
            Limits {
                quota_bytes_out: 100,
                ..limits()
            },
            "bytes_out",
        ),
        (
            Limits {
                quota_tool_ms: 500,
                ..limits()
            },
            "tool_ms",
        ),
    ] {
        let mut quotas = Quotas::default();
        for at in [1_000, 2_000] {
            let mut charge = admit(&mut quotas, &limits, at, "a").unwrap();
            charge.sent = Some(Time::from_ms(at));
            let end = Time::from_ms(at + 250);
            quotas.ended(
                end,
                &limits,
                &charge,
                Some(&op("{}")),
                &answer(1, "fine", false),
            );
        }
        let refused = admit(&mut quotas, &limits, 4_000, "a").unwrap_err();
        assert_eq!(refused.kind, ErrorKind::QuotaExceeded, "{measure}");
        assert_eq!(
            refused.retry_after_ms,
            Some(7_000),
            "the period began at 1 s"
        );
        assert!(
            refused.message.contains("begins anew in 7 s"),
            "{}",
            refused.message
        );
        let details = refused.details.unwrap().to_value().unwrap();
        assert_eq!(details["quota"], measure);
        assert_eq!(details["retryAfterMs"], 7_000);
        assert!(
            admit(&mut quotas, &limits, 4_000, "b").is_ok(),
            "another caller"
        );
        assert!(admit(&mut quotas, &limits, 10_999, "a").is_err());
        assert!(admit(&mut quotas, &limits, 11_000, "a").is_ok());
        let all = *quotas.refused();
        let counted = [all.calls, all.bytes_in, all.bytes_out, all.tool_ms];
        assert_eq!(counted.iter().sum::<u64>(), 2);
    }
}

#[test]
fn a_rule_for_a_tool_limits_the_tools_that_fit() {
    let quota = Quota {
        calls: Some(1),
        ..Quota::default()
    };
    let mut quotas = Quotas::new([("write*".to_owned(), quota)].into());
    let limits = limits();
    let mut call = |tool: &str| {
        quotas
            .admit(Time::from_ms(1), &limits, "a", tool, (&op("{}"), 1))
            .is_ok()
    };
    assert!(call("write_file") && call("read") && call("read"));
    assert!(
        !call("write_file") && !call("write_all"),
        "they share one account"
    );
    assert!(!call("WRITE_file"), "another spelling is no way around it");
}

#[test]
fn a_call_that_fails_again_and_again_is_answered_without_running() {
    let limits = limits();
    let mut quotas = Quotas::default();
    let mut call = |at: u64, arguments: &str, outcome: Option<Outcome>| {
        let now = Time::from_ms(at);
        let op = op(arguments);
        let charge = quotas.admit(now, &limits, "a", "t", (&op, 1));
        if let (Ok(charge), Some(outcome)) = (&charge, outcome) {
            quotas.ended(now, &limits, charge, Some(&op), &outcome);
        }
        charge.err()
    };
    let no = |id| Some(answer(id, "no such file", true));
    assert_eq!(call(1, "{}", no(1)), None);
    assert_eq!(call(2, "{}", no(2)), None);
    // What became of it without the tool says nothing.
    assert_eq!(
        call(3, "{}", Some(Err(Problem::of(ErrorKind::Cancelled)))),
        None
    );
    assert_eq!(call(4, "{}", no(3)), None, "ids do not count");
    let refused = call(1_000, "{}", None).unwrap();
    assert_eq!(refused.kind, ErrorKind::RepeatedFailure);
    assert!(refused.message.contains("failed 3 times") && refused.message.contains("no such file"));
    assert_eq!(refused.retry_after_ms, Some(4_004));
    assert_eq!(call(1_000, r#"{"a":1}"#, None), None, "other arguments");
    assert!(call(5_003, "{}", None).is_some());
    assert_eq!(call(5_004, "{}", no(4)), None, "the window has passed");
    assert_eq!(call(5_005, "{}", no(5)), None, "it is counted anew");
    assert_eq!(call(5_006, "{}", Some(answer(6, "fine", false))), None);
    for (at, error) in [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a")] {
        assert_eq!(
            call(6_000 + at, "{}", Some(answer(1, error, true))),
            None,
            "other errors"
        );
    }
}

#[test]
fn a_poller_slower_than_the_limit_goes_on_for_ever() {
    let limits = Limits {
        repeated_failures: 100,
        repeated_failures_ms: 60_000,
        ..limits()
    };
    let mut quotas = Quotas::default();
    for second in 0..1_000 {
        let now = Time::from_ms(second * 1_000);
        let charge = quotas.admit(now, &limits, "a", "t", (&op("{}"), 1));
        let charge = charge.unwrap_or_else(|problem| panic!("{second}: {}", problem.message));
        quotas.ended(
            now,
            &limits,
            &charge,
            Some(&op("{}")),
            &answer(1, "not yet", true),
        );
    }
}

#[test]
fn only_so_many_callers_and_failures_are_kept() {
    let limits = Limits {
        quota_calls: 1,
        ..limits()
    };
    let mut quotas = Quotas::default();
    for number in 0..CALLERS + 10 {
        let who = format!("caller {number}");
        let at = number as u64 % 1_000;
        let charge = admit(&mut quotas, &limits, at, &who).unwrap();
        let end = Time::from_ms(at);
        quotas.ended(
            end,
            &limits,
            &charge,
            Some(&op("{}")),
            &answer(1, "no", true),
        );
    }
    assert_eq!(quotas.accounts.len(), CALLERS);
    assert_eq!(quotas.failures.len(), FAILURES);
    quotas.forget("caller 4100");
    assert!(!quotas.accounts.contains_key("caller 4100"));
}

proptest! {
    /// Against a model that remembers every call.
    #[test]
    fn no_period_has_more_than_the_quota_and_nothing_less_is_refused(
        steps in vec((0_u64..4_000, 0_usize..2, 0_usize..200, 0_usize..80, 0_u64..900), 1..80),
        calls in 0_u64..6, bytes_in in 0_u64..600, bytes_out in 0_u64..400, tool_ms in 0_u64..1_500,
    ) {
        let limits = Limits {
            quota_calls: calls, quota_bytes_in: bytes_in, quota_bytes_out: bytes_out,
            quota_tool_ms: tool_ms, ..limits()
        };
        let mut quotas = Quotas::default();
        // By caller: when the period began, and what every call in it used.
        let mut model: [Option<(u64, Vec<[u64; 3]>)>; 2] = [None, None];
        let mut now = 0;
        for (pause, who, input, output, took) in steps {
            now += pause;
            let expired = model[who].as_ref().is_none_or(|(since, _)| now - since >= PERIOD_MS);
            if expired && (calls, bytes_in, bytes_out, tool_ms) != (0, 0, 0, 0) {
                model[who] = Some((now, Vec::new()));
            }
            let used = model[who].clone().unwrap_or_default().1;
            let sum = |at: usize| used.iter().map(|call| call[at]).sum::<u64>();
            let fits = |limit: u64, used: u64| limit == 0 || used <= limit;
            let expected = fits(calls, used.len() as u64 + 1)
                && fits(bytes_in, sum(0) + input as u64)
                && fits(bytes_out, sum(1) + 1)
                && fits(tool_ms, sum(2) + 1);
            let caller = ["a", "b"][who];
            let at = Time::from_ms(now);
            let admitted = quotas.admit(at, &limits, caller, "t", (&op("{}"), input));
            prop_assert_eq!(admitted.is_ok(), expected);
            if let Ok(mut charge) = admitted {
                charge.sent = Some(at);
                let outcome = answer(1, &"x".repeat(output), false);
                let bytes = bytes_of(&outcome);
                // The call ends within the period in which it began.
                let end = at.plus_ms(took.min(PERIOD_MS - 1 - (now - model[who].as_ref().map_or(now, |model| model.0))));
                quotas.ended(end, &limits, &charge, Some(&op("{}")), &outcome);
                if let Some((_, used)) = &mut model[who] {
                    used.push([input as u64, bytes, end.ms_since(at)]);
                }
            }
            let saved = serde_json::to_string(&quotas).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Quotas>(&saved).unwrap(), &quotas);
        }
    }

    /// Whatever a caller does, its call runs at most so often in a window while it fails in the same way.
    #[test]
    fn a_failing_call_runs_at_most_as_often_as_the_limit(
        steps in vec((0_u64..2_000, 0_usize..3, 0_usize..3), 1..120)
    ) {
        let limits = limits();
        let mut quotas = Quotas::default();
        let mut runs: Vec<(u64, usize, usize)> = Vec::new();
        let mut now = 0;
        for (pause, which, result) in steps {
            now += pause;
            let op = op(&format!(r#"{{"n":{which}}}"#));
            let at = Time::from_ms(now);
            if let Ok(charge) = quotas.admit(at, &limits, "a", "t", (&op, 1)) {
                let outcome = answer(1, ["one", "two", "fine"][result], result < 2);
                quotas.ended(at, &limits, &charge, Some(&op), &outcome);
                runs.push((now, which, result));
            }
        }
        for (first, run) in runs.iter().enumerate().filter(|(_, run)| run.2 < 2) {
            let same = runs[first..].iter().filter(|other| other.1 == run.1);
            let row = same.take_while(|other| other.2 == run.2 && other.0 - run.0 < limits.repeated_failures_ms);
            // The first of them may be the last of another window.
            prop_assert!(row.count() < 2 * limits.repeated_failures as usize);
        }
    }
}
