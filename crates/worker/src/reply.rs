//! What a tool answers: a JSON object, and text for reading that is made only when asked for.

use std::fmt;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::{Bounds, Porcelain, RenderMode};
use serde::Serialize;

/// The answer of a tool.
#[must_use]
pub struct Reply {
    json: Json,
    porcelain: Option<Box<dyn FnOnce() -> Porcelain>>,
}

impl Reply {
    /// A value that serialises to a JSON object.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::raw(Json::from_serialize(value))
    }

    /// JSON text that is already there; it must be an object.
    pub const fn raw(json: Json) -> Self {
        Self {
            json,
            porcelain: None,
        }
    }

    /// How the answer reads. Runs only when the call asked for porcelain.
    pub fn porcelain(mut self, text: impl FnOnce() -> Porcelain + 'static) -> Self {
        self.porcelain = Some(Box::new(text));
        self
    }

    /// The reply as it crosses the pipe.
    pub(crate) fn render(self, mode: RenderMode) -> Result<ToolReply, Problem> {
        if !self.json.as_str().trim_start().starts_with('{') {
            return Err(Problem::new(
                ErrorKind::InvalidOutput,
                "the tool's answer is not a JSON object",
            ));
        }
        let text = match mode {
            RenderMode::Porcelain => self.porcelain.map(|text| text().finish(Bounds::PORCELAIN)),
            RenderMode::Json => None,
        };
        Ok(ToolReply {
            json: self.json,
            text,
        })
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("json", &self.json)
            .field("porcelain", &self.porcelain.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use serde_json::json;

    use super::*;

    #[test]
    fn porcelain_is_made_only_when_it_is_asked_for() {
        let made = Rc::new(Cell::new(0));
        let reply = || {
            let made = Rc::clone(&made);
            Reply::json(&json!({"n": 1})).porcelain(move || {
                made.set(made.get() + 1);
                Porcelain::summary("one")
            })
        };
        let plain = reply().render(RenderMode::Json).unwrap();
        assert_eq!((plain.text, made.get()), (None, 0));
        let text = reply().render(RenderMode::Porcelain).unwrap().text;
        assert_eq!((text.as_deref(), made.get()), (Some("one"), 1));
    }

    #[test]
    fn an_answer_that_is_no_object_is_a_defect_of_the_tool() {
        let problem = Reply::json(&[1, 2]).render(RenderMode::Json).unwrap_err();
        assert_eq!(problem.kind, ErrorKind::InvalidOutput);
    }
}
