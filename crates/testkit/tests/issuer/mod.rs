//! An issuer of tokens whose keys a host has in a file.

use std::path::PathBuf;

use mainstay_testkit::process::Serve;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

/// The resource that the tokens are for.
pub(crate) const RESOURCE: &str = "https://tools.example/mcp";
/// A time that no test sees.
pub(crate) const FAR: u64 = 4_000_000_000;
const NAME: &str = "https://issuer.example";

pub(crate) struct Issuer {
    key: Ed25519KeyPair,
    keys: PathBuf,
}

impl Issuer {
    /// An issuer whose keys are in a file of this folder.
    pub(crate) fn new(folder: &std::path::Path) -> anyhow::Result<Self> {
        let random = ring::rand::SystemRandom::new();
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random);
        let pkcs8 = pkcs8.map_err(|_| anyhow::anyhow!("no key can be made"))?;
        let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref());
        let key = key.map_err(|error| anyhow::anyhow!("{error}"))?;
        let keys = folder.join("keys.json");
        let x = coded(key.public_key().as_ref());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x}]});
        std::fs::write(&keys, set.to_string())?;
        Ok(Self { key, keys })
    }

    /// A host that trusts it.
    pub(crate) fn trusted_by(&self, serve: Serve) -> Serve {
        serve
            .env("MAINSTAY_ISSUER", NAME)
            .env("MAINSTAY_ISSUER_KEYS", &self.keys)
            .env("MAINSTAY_RESOURCE", RESOURCE)
    }

    pub(crate) fn token(&self, subject: &str, audience: &str, expires: u64) -> String {
        let header = json!({"alg": "EdDSA", "kid": "k"}).to_string();
        let claims = json!({ "iss": NAME, "sub": subject, "aud": audience, "exp": expires });
        let claims = claims.to_string();
        let message = format!("{}.{}", coded(header.as_bytes()), coded(claims.as_bytes()));
        let signature = coded(self.key.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }
}

/// Base64 for URLs, without padding.
fn coded(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let held = chunk
            .iter()
            .fold(0_u32, |held, byte| held << 8 | u32::from(*byte));
        let held = held << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            text.push(char::from(
                ALPHABET[((held >> (18 - 6 * at)) & 63) as usize],
            ));
        }
    }
    text
}
