//! Settings of a pack, and the reasons for which it may refuse to start.

use std::fmt;

use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The configuration that the host hands to a pack: a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    json: Json,
    violations: usize,
}

impl Settings {
    /// The pack's own settings, with the host's default limits.
    pub fn new(json: Json) -> Self {
        let violations = Limits::default().violations;
        Self { json, violations }
    }

    /// Takes the number of violations that a verdict lists.
    #[must_use]
    pub(crate) const fn with_violations(mut self, violations: usize) -> Self {
        self.violations = violations;
        self
    }

    /// Violations that a verdict lists (`limits.violations` of the host).
    pub const fn violations(&self) -> usize {
        self.violations
    }

    /// The settings as the pack's own type. Unknown keys are that type's to refuse.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Unable> {
        serde_json::from_str(self.json.as_str())
            .map_err(|error| Unable::new(format_args!("the pack's settings are wrong: {error}")))
    }

    /// The settings as they came.
    pub const fn json(&self) -> &Json {
        &self.json
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Json::empty_object())
    }
}

/// Why a pack cannot start, in a sentence that says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct Unable {
    pub detail: String,
}

impl Unable {
    pub fn new(detail: impl fmt::Display) -> Self {
        Self {
            detail: detail.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        #[serde(default)]
        root: Option<String>,
    }

    #[test]
    fn wrong_settings_are_a_reason_not_to_start() {
        let own: Own = Settings::default().parse().unwrap();
        assert_eq!(own.root, None);
        let settings = Settings::new(Json::parse(r#"{"rot":1}"#).unwrap());
        let unable = settings.parse::<Own>().unwrap_err();
        assert!(unable.detail.contains("unknown field `rot`"), "{unable}");
    }
}
