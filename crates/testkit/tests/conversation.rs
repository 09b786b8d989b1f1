//! The recorded conversations with the fixture: every feature is in them, every run gives the same
//! bytes, and the server hears exactly what was sent.

use mainstay_testkit::conversation::{Conversation, RECORDED, Transcript, hold};
use mainstay_testkit::fixture::{Executed, read_executed, read_told};
use mainstay_testkit::wrapped::{Fixture, WAYS, Way};

/// What a run leaves behind.
struct Held {
    transcript: Transcript,
    told: Vec<String>,
    executed: Vec<Executed>,
}

fn held(way: Way, conversation: &Conversation, options: &str) -> anyhow::Result<Held> {
    let fixture = Fixture::new(way)?.options(options);
    let transcript = hold(conversation, &mut fixture.launch().command()?)?;
    let told = read_told(&fixture.state())?.into_iter();
    Ok(Held {
        transcript,
        told: told.map(|told| told.line).collect(),
        executed: read_executed(&fixture.effects())?,
    })
}

#[test]
fn every_way_to_the_server_gives_the_same_bytes() -> anyhow::Result<()> {
    for (name, options, text) in RECORDED {
        let conversation = Conversation::parse(name, text)?;
        let bare = held(Way::Bare, &conversation, options)?;
        assert!(bare.transcript.status.success(), "{name}");
        // The host declares the changes of lists that it announces itself.
        let declared = bare
            .transcript
            .replacing(r#""prompts":{}"#, r#""prompts":{"listChanged":true}"#)
            .replacing(
                r#""resources":{"subscribe":true}"#,
                r#""resources":{"subscribe":true,"listChanged":true}"#,
            );
        for way in WAYS {
            let again = held(*way, &conversation, options)?;
            let expected = match way {
                Way::Wrapped => &declared,
                _ => &bare.transcript,
            };
            again
                .transcript
                .same_as(expected)
                .map_err(|error| error.context(format!("{name}, {way:?}")))?;
            let effects = |held: &Held| {
                let effects = held.executed.iter().map(Executed::effect);
                effects.collect::<Vec<_>>()
            };
            assert_eq!(effects(&again), effects(&bare), "{name}, {way:?}");
            assert_eq!(effects(&bare).len(), 4);
        }
    }
    Ok(())
}

#[test]
fn bare_server_hears_what_the_script_sends() -> anyhow::Result<()> {
    for (name, options, text) in RECORDED {
        let conversation = Conversation::parse(name, text)?;
        let held = held(Way::Bare, &conversation, options)?;
        let mut heard = held.told.iter();
        for sent in conversation.sent() {
            // In between are the answers to the server's own requests.
            assert!(heard.any(|line| line == sent), "{name}: not heard: {sent}");
        }
    }
    Ok(())
}

#[test]
fn every_feature_is_used() -> anyhow::Result<()> {
    // What misbehaves or leaves something behind has tests of its own.
    const LEFT_OUT: &[&str] = &[
        "fork",
        "crash",
        "hang",
        "freeze",
        "garbage",
        "half_frame",
        "oversize",
        "wrong_id",
        "answer_twice",
        "exit_clean",
    ];
    for (name, options, text) in RECORDED {
        let conversation = Conversation::parse(name, text)?;
        let all = held(Way::Bare, &conversation, options)?;
        let listed = all.transcript.lines().join("\n");
        let mut tools = 0;
        for (at, _) in listed.match_indices("\"inputSchema\"") {
            // The name stands before the schema in every definition.
            let before = listed.get(..at).unwrap_or_default();
            let at = before.rfind("\"name\"").unwrap_or_default();
            let tool = before.get(at..).unwrap_or_default();
            let tool = tool.split('"').nth(3).unwrap_or_default();
            tools += 1;
            let called = format!("\"name\":\"{tool}\"");
            let is_called = conversation
                .sent()
                .iter()
                .any(|line| line.contains(&called));
            assert!(
                is_called || LEFT_OUT.contains(&tool),
                "{name}: {tool} is never called"
            );
        }
        assert!(tools >= 28, "{name}: only {tools} tools were listed");
    }
    Ok(())
}
