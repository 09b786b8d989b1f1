//! The choice between porcelain and JSON.

use serde::{Deserialize, Serialize};

use super::shorten;

/// How long a rejected mode may be when it is quoted back.
const QUOTED_MAX_CHARS: usize = 40;

/// The form of a result's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RenderMode {
    /// Lines for a reader, summary first.
    #[default]
    Porcelain,
    /// The result's own JSON.
    Json,
}

impl RenderMode {
    /// Takes the mode a call asked for, or `default` when it asked for none.
    ///
    /// # Errors
    ///
    /// Any spelling other than the two serialised ones.
    pub fn select(requested: Option<&str>, default: Self) -> Result<Self, UnknownMode> {
        match requested {
            None => Ok(default),
            Some("porcelain") => Ok(Self::Porcelain),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(UnknownMode {
                requested: shorten(other, QUOTED_MAX_CHARS),
            }),
        }
    }

    /// The serialised name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Porcelain => "porcelain",
            Self::Json => "json",
        }
    }
}

/// A render mode that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown render mode `{requested}`: use `porcelain` or `json`")]
pub struct UnknownMode {
    /// What was asked for, on one line and shortened.
    pub requested: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_request_takes_the_default() {
        assert_eq!(
            RenderMode::select(None, RenderMode::Json),
            Ok(RenderMode::Json)
        );
        assert_eq!(RenderMode::default(), RenderMode::Porcelain);
    }

    #[test]
    fn names_are_the_serialised_names() {
        for mode in [RenderMode::Porcelain, RenderMode::Json] {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
            assert_eq!(
                RenderMode::select(Some(mode.name()), RenderMode::Porcelain),
                Ok(mode)
            );
        }
    }

    #[test]
    fn unknown_request_is_an_error_on_one_line() {
        for bad in ["JSON", "", " json", "x\ny"] {
            let error = RenderMode::select(Some(bad), RenderMode::Porcelain).unwrap_err();
            assert!(!error.to_string().contains('\n'));
        }
    }
}
