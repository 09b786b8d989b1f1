//! Tokens that are taken, and tokens that are not.

use std::time::{Duration, UNIX_EPOCH};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::jwt::{Subject, TokenError};
use super::*;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "http://127.0.0.1:8080/mcp";
const NOW: u64 = 1_800_000_000;

fn coded(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let held = chunk
            .iter()
            .fold(0_u32, |held, byte| held << 8 | u32::from(*byte));
        let held = held << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            let six = (held >> (18 - 6 * at)) & 63;
            text.push(char::from(ALPHABET[six as usize]));
        }
    }
    text
}

/// An issuer with one key of each of two kinds.
struct Signer {
    edwards: Ed25519KeyPair,
    p256: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let p256 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self {
            edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap(),
            p256: EcdsaKeyPair::from_pkcs8(kind, p256.as_ref(), &random).unwrap(),
        }
    }

    fn set(&self) -> Value {
        let point = self.p256.public_key().as_ref();
        json!({"keys": [
            {"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": coded(self.edwards.public_key().as_ref())},
            {"kty": "EC", "crv": "P-256", "kid": "p", "use": "sig", "x": coded(&point[1..33]), "y": coded(&point[33..])},
            {"kty": "oct", "kid": "o", "k": "c2VjcmV0"},
        ]})
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            coded(header.to_string().as_bytes()),
            coded(claims.to_string().as_bytes())
        );
        let signature = if header["alg"] == "ES256" {
            let random = SystemRandom::new();
            let signature = self.p256.sign(&random, message.as_bytes()).unwrap();
            signature.as_ref().to_vec()
        } else {
            self.edwards.sign(message.as_bytes()).as_ref().to_vec()
        };
        format!("{message}.{}", coded(&signature))
    }
}

fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "ada", "aud": [AUDIENCE, "other"], "exp": NOW + 600, "nbf": NOW})
}

fn check(keys: &Value, token: &str) -> Result<Subject, TokenError> {
    let keys = Keys::parse(&keys.to_string()).unwrap();
    let expected = Expected {
        keys: &keys,
        issuer: ISSUER,
        audience: AUDIENCE,
        now: UNIX_EPOCH + Duration::from_secs(NOW),
    };
    jwt::check(token, &expected)
}

#[test]
fn a_token_of_the_issuer_for_this_server_names_its_subject() {
    let signer = Signer::new();
    for header in [
        json!({"alg": "EdDSA", "kid": "e"}),
        json!({"alg": "ES256", "kid": "p"}),
        json!({"alg": "ES256"}),
    ] {
        let token = signer.token(&header, &claims());
        let subject = check(&signer.set(), &token).unwrap();
        assert_eq!((subject.claim, subject.name.as_str()), ("sub", "ada"));
        assert_eq!(subject.valid_for, Duration::from_secs(600 + 60));
    }
}

#[test]
fn a_claim_that_does_not_hold_is_refused_with_its_reason() {
    let signer = Signer::new();
    let header = json!({"alg": "EdDSA", "kid": "e"});
    let mut cases = Vec::new();
    for (member, value, reason) in [
        ("iss", json!("https://other.example"), TokenError::Issuer),
        ("iss", Value::Null, TokenError::Issuer),
        ("aud", json!("http://127.0.0.1:8080"), TokenError::Audience),
        ("aud", Value::Null, TokenError::Audience),
        ("aud", json!([]), TokenError::Audience),
        ("exp", json!(NOW - 61), TokenError::Time),
        ("exp", Value::Null, TokenError::Time),
        ("nbf", json!(NOW + 120), TokenError::Time),
        ("sub", json!(""), TokenError::Subject),
        ("sub", Value::Null, TokenError::Subject),
    ] {
        let mut claims = claims();
        claims[member] = value;
        cases.push((claims, reason));
    }
    for (claims, reason) in cases {
        let token = signer.token(&header, &claims);
        assert_eq!(check(&signer.set(), &token), Err(reason), "{claims}");
    }
}

#[test]
fn no_other_signature_and_no_other_algorithm_passes() {
    let (signer, other) = (Signer::new(), Signer::new());
    let good = json!({"alg": "EdDSA", "kid": "e"});
    let token = other.token(&good, &claims());
    assert_eq!(check(&signer.set(), &token), Err(TokenError::Signature));
    for header in [
        json!({"alg": "none"}),
        json!({"alg": "HS256", "kid": "o"}),
        json!({"alg": "ES256", "kid": "e"}),
        json!({"alg": "EdDSA", "kid": "unknown"}),
    ] {
        let token = signer.token(&header, &claims());
        assert_eq!(
            check(&signer.set(), &token),
            Err(TokenError::Key),
            "{header}"
        );
    }
    let critical = json!({"alg": "EdDSA", "kid": "e", "crit": ["x"], "x": 1});
    let token = signer.token(&critical, &claims());
    assert_eq!(check(&signer.set(), &token), Err(TokenError::Form));
    let token = signer.token(&good, &claims());
    let (message, _) = token.rsplit_once('.').unwrap();
    for broken in [
        message,
        "",
        "a.b",
        "a.b.c",
        &format!("{message}."),
        &format!("{token}="),
    ] {
        assert!(check(&signer.set(), broken).is_err(), "{broken}");
    }
}

/// The example of RFC 7515, appendix A.2: its signature holds, its audience is missing.
#[test]
fn rsa_signatures_are_checked() {
    let keys = json!({"keys": [{"kty": "RSA",
        "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
        "e": "AQAB"}]});
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    assert_eq!(
        check(&keys, token),
        Err(TokenError::Issuer),
        "its signature holds"
    );
    let tampered = token.replacen("eyJpc3MiOiJqb2Ui", "eyJpc3MiOiJqb2Uj", 1);
    assert_eq!(check(&keys, &tampered), Err(TokenError::Signature));
    let mut pss = keys;
    pss["keys"][0]["alg"] = json!("PS256");
    assert_eq!(check(&pss, token), Err(TokenError::Key));
}

#[test]
fn a_set_without_a_key_for_signatures_is_refused() {
    let parse = |set: Value| Keys::parse(&set.to_string());
    assert!(matches!(parse(json!({"keys": []})), Err(KeysError::Empty)));
    let encrypting = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "enc", "x": "AA"}]});
    assert!(matches!(parse(encrypting), Err(KeysError::Empty)));
    assert!(matches!(parse(json!([])), Err(KeysError::Form(_))));
    let mut twice = Signer::new().set();
    twice["keys"][1]["kid"] = json!("e");
    assert!(matches!(parse(twice), Err(KeysError::Ambiguous(_))));
}

#[test]
fn a_refused_client_learns_where_tokens_come_from() {
    let keys = Arc::new(Keys::parse(&Signer::new().set().to_string()).unwrap());
    let issuer = Issuer {
        url: ISSUER.to_owned(),
        keys,
        resource: None,
    };
    let access = Access::new(None, Some(&issuer), "http://127.0.0.1:8080");
    assert_eq!(
        access.challenge(),
        "Bearer resource_metadata=\"http://127.0.0.1:8080/.well-known/oauth-protected-resource/mcp\""
    );
    let metadata: Value = serde_json::from_str(&access.metadata("/mcp").unwrap()).unwrap();
    assert_eq!(metadata["resource"], AUDIENCE);
    assert_eq!(metadata["authorization_servers"], json!([ISSUER]));
    assert_eq!(access.metadata("/other"), None);
    assert!(access.judge("nonsense").is_err());
    let plain = Access::new(Some("t"), None, "");
    assert_eq!(plain.challenge(), "Bearer");
    assert_eq!(plain.metadata(""), None);
    assert_eq!(plain.judge("t"), plain.judge("t"));
    assert!(plain.judge("t").is_ok());
}

#[test]
fn a_client_is_not_the_user_of_the_same_name_and_both_expire() {
    let signer = Signer::new();
    let keys = Arc::new(Keys::parse(&signer.set().to_string()).unwrap());
    let url = ISSUER.to_owned();
    let resource = Some(AUDIENCE.to_owned());
    let issuer = Issuer {
        url,
        keys,
        resource,
    };
    let access = Access::new(None, Some(&issuer), "");
    let exp = wall().duration_since(UNIX_EPOCH).unwrap().as_secs() + 600;
    let judge = |claim: &str| {
        let claims = json!({"iss": ISSUER, "aud": AUDIENCE, "exp": exp, claim: "alice"});
        let token = signer.token(&json!({"alg": "EdDSA", "kid": "e"}), &claims);
        access.judge(&token).unwrap()
    };
    let (user, client) = (judge("sub"), judge("client_id"));
    assert_ne!(user.who, client.who);
    for admitted in [user, client] {
        let left = admitted.expires.unwrap() - Instant::now();
        assert!(left > Duration::from_secs(600) && left <= Duration::from_secs(660));
    }
}
