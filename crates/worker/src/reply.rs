//! The answer of a tool: a JSON object, and text for reading that is made only on request.
//!
//! A listing is a [`Reply::page`]: the library decides how many of its items the answer has, and the
//! tool makes JSON, text, hint and cursor of exactly these. So a text never leaves out what its cursor
//! passes over.

use std::fmt;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::{Bounds, Porcelain, RenderMode};
use serde::Serialize;
use serde_json::Value;

/// The answer of a tool.
#[must_use]
pub struct Reply(Form);

enum Form {
    Whole {
        json: Json,
        porcelain: Option<Box<dyn FnOnce() -> Porcelain>>,
    },
    Page(MakePage),
}

/// Makes JSON and text of as many items as the text has room for; of all, without text, for `None`.
type MakePage = Box<dyn FnOnce(Option<Bounds>) -> (Json, Option<String>)>;

impl Reply {
    /// A value that serialises to a JSON object.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::raw(Json::from_serialize(value))
    }

    /// JSON text that is already there; it must be an object.
    pub const fn raw(json: Json) -> Self {
        Self(Form::Whole {
            json,
            porcelain: None,
        })
    }

    /// How the answer reads. Runs only when the call asked for porcelain. A text that is too long is
    /// cut, with a note that counts the rest and names the JSON form, which has all of it.
    pub fn porcelain(mut self, text: impl FnOnce() -> Porcelain + 'static) -> Self {
        if let Form::Whole { porcelain, .. } = &mut self.0 {
            *porcelain = Some(Box::new(text));
        }
        self
    }

    /// A page of a listing with up to `most` items. `json` and `text` get the number of items that
    /// the answer has: `most` if the call asked for JSON, else as many as the text has room for, and
    /// at least one. Both must give the first items, and say how the listing continues after them.
    ///
    /// Each item takes at least one line of the text.
    pub fn page<T: 'static>(
        listing: T,
        most: usize,
        json: impl FnOnce(&T, usize) -> Value + 'static,
        text: impl Fn(&T, usize) -> Porcelain + 'static,
    ) -> Self {
        Self(Form::Page(Box::new(move |bounds| match bounds {
            None => (Json::from(json(&listing, most)), None),
            Some(bounds) => {
                let items = fitting(most, bounds, |items| text(&listing, items));
                let shown = text(&listing, items).finish_answer(bounds);
                (Json::from(json(&listing, items)), Some(shown))
            }
        })))
    }

    /// The reply as it crosses the pipe.
    pub(crate) fn render(self, mode: RenderMode, bounds: Bounds) -> Result<ToolReply, Problem> {
        let bounds = (mode == RenderMode::Porcelain).then_some(bounds);
        let (json, text) = match self.0 {
            Form::Whole { json, porcelain } => {
                let text = porcelain.zip(bounds);
                let text = text.map(|(text, bounds)| text().finish_answer(bounds));
                (json, text)
            }
            Form::Page(make) => make(bounds),
        };
        if !json.as_str().trim_start().starts_with('{') {
            return Err(Problem::new(
                ErrorKind::InvalidOutput,
                "the tool's answer is not a JSON object",
            ));
        }
        Ok(ToolReply { json, text })
    }
}

/// The most items, of at most `most`, whose text fits; one if even that does not fit.
fn fitting(most: usize, bounds: Bounds, text: impl Fn(usize) -> Porcelain) -> usize {
    let fits = |items: usize| text(items).fits(bounds);
    if most <= 1 || most <= bounds.lines && fits(most) {
        return most;
    }
    let (mut fit, mut over) = (1, most.min(bounds.lines));
    while fit + 1 < over {
        let middle = fit.midpoint(over);
        if fits(middle) {
            fit = middle;
        } else {
            over = middle;
        }
    }
    fit
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Whole { json, porcelain } => f
                .debug_struct("Reply")
                .field("json", json)
                .field("porcelain", &porcelain.is_some())
                .finish(),
            Form::Page(_) => f.debug_struct("Reply").finish_non_exhaustive(),
        }
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
        let bounds = Bounds::PORCELAIN;
        let plain = reply().render(RenderMode::Json, bounds).unwrap();
        assert_eq!((plain.text, made.get()), (None, 0));
        let text = reply().render(RenderMode::Porcelain, bounds).unwrap().text;
        assert_eq!((text.as_deref(), made.get()), (Some("one"), 1));
    }

    #[test]
    fn an_answer_that_is_no_object_is_a_defect_of_the_tool() {
        let reply = Reply::json(&[1, 2]).render(RenderMode::Json, Bounds::PORCELAIN);
        assert_eq!(reply.unwrap_err().kind, ErrorKind::InvalidOutput);
    }

    /// A page of the numbers from `first` on, which are `rows` lines each.
    fn numbers(first: usize, all: usize, rows: usize) -> Reply {
        Reply::page(
            (first..all).collect::<Vec<_>>(),
            all - first,
            |all, items| json!({"numbers": all[..items], "next": all.get(items)}),
            move |all, items| {
                let lines = all[..items].iter();
                let lines = lines.flat_map(|n| std::iter::repeat_n(n.to_string(), rows));
                let page = Porcelain::summary(format!("{items} numbers")).items(lines);
                match all.get(items) {
                    Some(next) => page.hint(format!("{next} continues")),
                    None => page,
                }
            },
        )
    }

    #[test]
    fn pages_that_fit_the_bounds_give_every_item_once() {
        for (lines, rows) in [(5, 1), (7, 3), (40, 3), (500, 3)] {
            let bounds = Bounds { lines, bytes: 2000 };
            let (mut first, mut seen) = (0, Vec::new());
            loop {
                let reply = numbers(first, 100, rows);
                let reply = reply.render(RenderMode::Porcelain, bounds).unwrap();
                let (text, json) = (reply.text.unwrap(), reply.json.to_value().unwrap());
                assert!(
                    text.len() <= 2000 && text.lines().count() <= lines,
                    "{text}"
                );
                let shown = text.lines().filter_map(|line| line.strip_prefix("- "));
                let mut shown: Vec<usize> = shown.map(|n| n.parse().unwrap()).collect();
                shown.dedup();
                assert_eq!(json["numbers"], json!(shown), "text and data are one page");
                seen.extend(shown);
                let Some(next) = json["next"].as_u64() else {
                    break;
                };
                assert!(text.ends_with(&format!("hint: {next} continues")), "{text}");
                first = usize::try_from(next).unwrap();
            }
            assert_eq!(seen, (0..100).collect::<Vec<_>>());
        }
        let all = numbers(0, 100, 1).render(RenderMode::Json, Bounds::PORCELAIN);
        assert_eq!(all.unwrap().json.to_value().unwrap()["numbers"][99], 99);
    }
}
