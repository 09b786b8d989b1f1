//! Tests of what is taken out, and of what stays.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn names_are_known_in_any_spelling() {
    for name in [
        "authorization",
        "Proxy-Authorization",
        "token",
        "TOKEN",
        "accessToken",
        "access_token",
        "x-auth-token",
        "accesstoken",
        "tokenValue",
        "password",
        "userPassword",
        "DB_PASSWORD",
        "apiKey",
        "api_key",
        "api-key",
        "API KEY",
        "X-API-Key",
        "client_secret",
        "Set-Cookie",
        "tokens",
    ] {
        assert!(is_secret_name(name), "{name}");
    }
    for name in [
        "",
        "tokenizer",
        "key",
        "pass",
        "author",
        "api",
        "name",
        "basics",
    ] {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn trees_lose_their_secrets_at_any_depth_and_nothing_else() {
    let mut value = json!({
        "user": "ann", "max_tokens": 7, "password": 1234, "token": null,
        "tokens": ["a", "b"],
        "headers": [{"Authorization": "Bearer abc"}, {"note": "sent Bearer a.b-c= twice"}],
        "auth": {"type": "api_key", "apiKey": {"deep": "x"}},
    });
    redact_value(&mut value);
    assert_eq!(
        value,
        json!({
            "user": "ann", "max_tokens": 7, "password": MARK, "token": null,
            "tokens": MARK,
            "headers": [{"Authorization": MARK}, {"note": format!("sent Bearer {MARK} twice")}],
            "auth": {"type": "api_key", "apiKey": MARK},
        })
    );
    let json = Json::parse(r#"{"token":"x","n":1e400}"#).unwrap();
    assert_eq!(Redactor::default().json(&json).as_str(), "\"[redacted]\"");
}

#[test]
fn text_loses_its_secrets_in_every_form() {
    for (text, expected) in [
        (
            "Authorization: Digest a=1, b=2\nHost: x",
            "Authorization: [redacted]\nHost: x",
        ),
        (
            "authorization=Bearer abc next=1",
            "authorization=[redacted] next=1",
        ),
        (
            "got Basic dXNlcjpwYXNz= from it",
            "got Basic [redacted] from it",
        ),
        ("bearer  a.b.c", "bearer  [redacted]"),
        ("token=abc&x=1", "token=[redacted]&x=1"),
        ("?api_key=abc;y", "?api_key=[redacted];y"),
        ("api key: abc", "api key: [redacted]"),
        (
            r#"{"password": "a\"b", "x": 1}"#,
            r#"{"password": "[redacted]", "x": 1}"#,
        ),
        (
            r#""{\"token\":\"abc\"}""#,
            r#""{\"token\":\"[redacted]\"}""#,
        ),
        ("password = 'p w' x", "password = '[redacted]' x"),
        ("token: {a: b} c", "token: [redacted]"),
        (
            "authorization=Token abc0123 next=1",
            "authorization=[redacted] next=1",
        ),
        ("run --password abc -v", "run --password [redacted] -v"),
        ("run --token --verbose", "run --token --verbose"),
        (
            r#"["--api-key", "abc", "x"]"#,
            r#"["--api-key", "[redacted]", "x"]"#,
        ),
        (
            "\u{1b}[31mAPI_KEY\u{1b}[0m=abc x",
            "\u{1b}[31mAPI_KEY\u{1b}[0m=[redacted] x",
        ),
        ("X-Api-Key:", "X-Api-Key:"),
        ("the token is missing", "the token is missing"),
        ("expected string", "expected string"),
        ("api ééé token=abc", "api ééé token=[redacted]"),
        ("an api", "an api"),
        (
            "ünïcode pässword=x token=ÿ z",
            "ünïcode pässword=x token=[redacted] z",
        ),
    ] {
        assert_eq!(redact_text(text), expected, "{text}");
    }
}

/// Made up, and split so that no scanner takes them for real ones.
const ISSUED: [&str; 9] = [
    concat!("ya", "29.a0AfH6SMBxyzABCDEFGH"),
    concat!("GO", "CSPX-aB3dE5gH7jK9mN1pQ3s5"),
    concat!("gh", "p_abcdefghij0123456789klmn"),
    concat!("sk", "-proj-abc123def456ghi789"),
    concat!("AK", "IAABCDEFGHIJ234567"),
    concat!("gl", "pat-abcdefgh12345678"),
    concat!("xo", "xb-1234567890-abcdef"),
    concat!(
        "ey",
        "JhbGciOiJub25lIn0.ey",
        "JzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
    ),
    concat!("ey", "JhbGciOiJub25lIn0.ey", "JzdWIiOiJhZGEifQ"),
];

#[test]
fn credentials_of_the_usual_forms_are_known_without_a_name() {
    for token in ISSUED {
        for (before, after) in [("", ""), ("using ", " now"), ("(", ")."), ("\"", "\",")] {
            let shown = redact_text(&format!("{before}{token}{after}")).into_owned();
            assert_eq!(shown, format!("{before}{MARK}{after}"), "{token}");
        }
    }
    for plain in [
        "sk-learn-and-numpy",
        "ghp_short",
        "AKIA is a prefix",
        "eyJ.a.b",
        "task-force-1234567890123456",
        "ssh://git@example.com/x",
        "http://example.com/a@b",
    ] {
        assert_eq!(redact_text(plain), plain);
    }
    for (url, expected) in [
        ("postgres://ann:pw@db/x", "postgres://[redacted]@db/x"),
        (
            "https://t0ken@example.com",
            "https://[redacted]@example.com",
        ),
        ("http://a:b@c@d:80?q", "http://[redacted]@d:80?q"),
        (
            "post to https://hooks.slack.com/services/T0/B0/xyz now",
            "post to https://hooks.slack.com/services/[redacted] now",
        ),
    ] {
        assert_eq!(redact_text(url), expected);
    }
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- x";
    let shown = "-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY----- x";
    assert_eq!(redact_text(key), shown);
    let certificate = "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----";
    assert_eq!(redact_text(certificate), certificate);
}

#[test]
fn a_private_key_is_hidden_line_by_line_and_its_end_is_found() {
    let (redactor, mut block) = (Redactor::default(), KeyBlock::default());
    let shown: Vec<_> = [
        "before",
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBg",
        "-----END PRIVATE KEY-----",
        "after",
    ]
    .into_iter()
    .map(|line| redactor.line(line, &mut block).into_owned())
    .collect();
    let begin = "-----BEGIN PRIVATE KEY-----";
    assert_eq!(shown, ["before", begin, MARK, MARK, "after"]);
    redactor.line(begin, &mut block);
    let hidden = (0..1000).filter(|_| redactor.line("x", &mut block) == MARK);
    assert_eq!(hidden.count(), KEY_LINES, "a key without an end");
}

#[test]
fn known_values_are_hidden_wherever_they_are() {
    let values = ["hunter2hunter2", "hunter2hunter2-long", "short", "  "];
    let redactor = Redactor::new(values.map(str::to_owned));
    assert_eq!(redactor.text("a hunter2hunter2-long b"), "a [redacted] b");
    assert_eq!(redactor.text("xhunter2hunter2x"), "x[redacted]x");
    assert_eq!(redactor.text("a short word"), "a short word");
    assert_eq!(redactor.text("token=hunter2hunter2"), "token=[redacted]");
    assert!(!format!("{redactor:?}").contains("hunter"));
    for name in [
        "STRIPE_KEY",
        "DB_PASS",
        "GITHUB_PAT",
        "SENTRY_DSN",
        "API_TOKEN",
    ] {
        assert!(is_secret_variable(name), "{name}");
    }
    let plain = ["KEY", "PWD", "OLDPWD", "PATH", "HOME", "KEYBOARD", "LANG"];
    for name in plain.into_iter().chain(["API_TOKEN_FILE", "KEY_DIR"]) {
        assert!(!is_secret_variable(name), "{name}");
    }
}

proptest! {
    #[test]
    fn redacting_twice_changes_nothing_more(text in "([a-z]{0,4}|token|Bearer|api|key|https://|eyJhbGciOi\\.|@|-----BEGIN|[:=\"'\\\\{ \n]|é){0,12}") {
        let once = redact_text(&text).into_owned();
        prop_assert_eq!(redact_text(&once).into_owned(), once);
    }

    #[test]
    fn a_secret_never_survives(
        name in "(X-)?(Authorization|token|PASSWORD|apiKey|api-key|access_token)",
        separator in "( = |=|: |:)",
        quote in "[\"']?",
        secret in "s3cr3t[a-z0-9]{4,12}",
        before in "[a-z ]{0,8}", after in "[a-z ]{0,8}",
    ) {
        let text = format!("{before} {name}{separator}{quote}{secret}{quote} {after}");
        prop_assert!(!redact_text(&text).contains("s3cr3t"), "{text}");
    }
}

const SECRET: &str = "k3y/With \"odd\" bytes+é%";

/// The forms in which a careless program shows a value.
fn spellings(secret: &str) -> Vec<String> {
    let percent = |lower: bool, keeps: fn(u8) -> bool| {
        let digits = |byte: u8| match lower {
            true => format!("%{byte:02x}"),
            false => format!("%{byte:02X}"),
        };
        let spelled = |byte: u8| match keeps(byte) {
            true => char::from(byte).to_string(),
            false => digits(byte),
        };
        secret.bytes().map(spelled).collect::<String>()
    };
    let ascii = secret.chars().map(|c| match c.is_ascii() {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    });
    let json = serde_json::to_string(secret).unwrap();
    let json = &json[1..json.len() - 1];
    let nested = serde_json::to_string(json).unwrap();
    let mut all = vec![
        secret.to_owned(),
        percent(false, |byte| byte.is_ascii_alphanumeric()),
        percent(true, |byte| {
            byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte)
        }),
        percent(false, |_| false),
        percent(false, |byte| byte.is_ascii_alphanumeric() || byte == b' ').replace(' ', "+"),
        json.to_owned(),
        nested[1..nested.len() - 1].to_owned(),
        ascii.collect::<String>().replace('"', "\\\""),
    ];
    for (before, behind) in [("", ""), ("u:", ""), ("me:", "x"), ("abc", "yz")] {
        let text = format!("{before}{secret}{behind}");
        let plain = base64(text.as_bytes());
        all.push(plain.replace('+', "-").replace('/', "_"));
        all.push(plain.trim_end_matches('=').to_owned());
        all.push(plain);
    }
    all
}

/// An encoder of its own, so that the tested one is not its own judge.
fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let sum = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4_usize {
            let digit = sum >> (18 - 6 * at) & 63;
            let is_padding = at > chunk.len();
            text.push(if is_padding {
                '='
            } else {
                char::from(digits[digit as usize])
            });
        }
    }
    text
}

#[test]
fn a_known_value_is_found_in_every_spelling() {
    for secret in [
        SECRET,
        "plain-token-value",
        "12345678",
        r"!\\!A!!A",
        "a\\\tb \\\\n c",
    ] {
        let redactor = Redactor::new([secret.to_owned()]);
        for spelling in spellings(secret) {
            let text = format!("before <{spelling}> behind");
            assert_eq!(
                redactor.known(&text),
                format!("before <{MARK}> behind"),
                "{spelling}"
            );
        }
        assert_eq!(redactor.known("nothing of it"), "nothing of it");
    }
}

#[test]
fn the_colours_of_a_terminal_do_not_hide_a_value() {
    let redactor = Redactor::new(["s3cr3t-Value".to_owned()]);
    for colours in [
        "\u{1b}[31m",
        "\u{1b}[0;1;38;5;9m",
        "\u{1b}]8;;http://h\u{7}",
        "\u{1b}]0;title\u{1b}\\",
        "\u{1b}c",
    ] {
        let text = format!("é {colours}key={colours}s3cr{colours}3t-Val{colours}ue{colours} end");
        let clean = redactor.known(&text);
        assert!(clean.contains(MARK) && clean.ends_with(" end"), "{clean:?}");
        assert!(
            !clean.contains("s3cr") && !clean.contains("ue"),
            "{clean:?}"
        );
    }
    // Other text keeps its colours.
    let other = "\u{1b}[31ms3cr3t\u{1b}[0m-other \u{1b}";
    assert_eq!(redactor.known(other), other);
}

#[test]
fn values_that_are_learned_later_are_known_to_every_clone() {
    let redactor = Redactor::default();
    let clone = redactor.clone();
    assert_eq!(clone.known("a learned-value"), "a learned-value");
    redactor.learn(["learned-value".to_owned(), "short".to_owned()]);
    assert_eq!(clone.known("a learned-value, short"), "a [redacted], short");
    assert!(!format!("{clone:?}").contains("learned"));
}

#[test]
fn lines_and_parts_of_a_long_value_are_found() {
    let long: String = (1000..1500).map(|number| format!("a{number}")).collect();
    let redactor = Redactor::new([format!("first-line\nsecond-line\n\n{long}")]);
    assert_eq!(redactor.known("at second-line!"), "at [redacted]!");
    assert_eq!(redactor.known(&long), MARK);
    // A text that ends within a value.
    for end in 0..long.len() {
        let cut = redactor.cut(&long[..end]).into_owned();
        assert!(!cut.contains("a1"), "{end}: {cut}");
    }
    let head = format!("{}{}", "x".repeat(4000), &long[..96]);
    let cut = redactor.cut(&head);
    assert!(cut.starts_with("xxx") && !cut.contains("a1"), "{cut}");
    assert_eq!(Redactor::default().cut("a head"), "a head");
}

#[test]
fn a_message_loses_known_values_and_stays_the_same_message() {
    let redactor = Redactor::new([SECRET.to_owned(), "87654321".to_owned()]);
    let line = |text: &str| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "result": {
            "content": [{"type": "text", "text": text}], "structuredContent": {text: [text, 1]}}});
        message.to_string()
    };
    for spelling in spellings(SECRET) {
        for text in [spelling.clone(), format!("a\n\"{spelling}\"\u{7} \\z")] {
            let clean = redactor.json_line(&line(&text)).into_owned();
            let expected = text.replace(&spelling, MARK);
            let parsed: Value = serde_json::from_str(&clean).unwrap();
            let expected: Value = serde_json::from_str(&line(&expected)).unwrap();
            assert_eq!(parsed, expected, "{spelling}");
        }
    }
    let number = r#"{"a":876543210,"b": 1e400 ,"c":"\u0041"}"#;
    let clean = redactor.json_line(number);
    assert_eq!(clean, r#"{"a":"[redacted]","b": 1e400 ,"c":"\u0041"}"#);
    let broken = format!(r#"{{"a":"{} \"#, "87654321");
    assert!(!redactor.json_line(&broken).contains("87654321"));
    assert!(matches!(redactor.json_line("{}"), Cow::Borrowed("{}")));
}

proptest! {
    #[test]
    fn no_message_shows_a_known_value_or_becomes_another(
        texts in proptest::collection::vec("[ -~é\n\"\\\\]{0,12}", 1..5), at in 0_usize..4, secret in "[!-~]{8,20}"
    ) {
        let redactor = Redactor::new([secret.clone()]);
        let mut texts = texts;
        let at = at % texts.len();
        texts[at].push_str(&secret);
        let line = json!({"result": texts}).to_string();
        let clean = redactor.json_line(&line).into_owned();
        let parsed: Value = serde_json::from_str(&clean).unwrap();
        let shown = parsed["result"].as_array().unwrap();
        prop_assert_eq!(shown.len(), texts.len());
        for text in shown {
            prop_assert!(!text.as_str().unwrap().contains(&secret));
        }
    }
}
