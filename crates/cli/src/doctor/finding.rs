//! Findings of the doctor, and how they are printed.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use mainstay_contract::render::{count, visible, visible_json};
use serde::Serialize;

use crate::environment::is_set;
use crate::exit::Failure;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Good,
    /// It works, and could be better.
    Note,
    /// Something does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) state: State,
    /// The name of the check.
    pub(super) area: &'static str,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

/// All findings, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn good(&mut self, area: &'static str, text: impl Into<String>) {
        self.add(State::Good, area, text.into(), None);
    }

    pub(super) fn note(
        &mut self,
        area: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(State::Note, area, text.into(), Some(fix.into()));
    }

    pub(super) fn problem(
        &mut self,
        area: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(State::Problem, area, text.into(), Some(fix.into()));
    }

    /// A command that failed, with its own hint if it has one.
    pub(super) fn failure(&mut self, area: &'static str, failure: &Failure, fix: &str) {
        let fix = failure.hint.clone().unwrap_or_else(|| fix.to_owned());
        self.problem(area, format!("{:#}", failure.error), fix);
    }

    fn add(&mut self, state: State, area: &'static str, text: String, fix: Option<String>) {
        self.0.push(Finding {
            state,
            area,
            text,
            fix,
        });
    }

    pub(super) fn problems(&self) -> usize {
        let all = self.0.iter();
        all.filter(|finding| finding.state == State::Problem)
            .count()
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        let value = serde_json::to_value(&self.0).map_err(Failure::fault)?;
        Ok(visible_json(&format!("{value:#}\n")).into_owned())
    }

    /// The page for people.
    pub(super) fn text(&self) -> String {
        let coloured = std::io::stdout().is_terminal() && !is_set("NO_COLOR");
        let width = self.0.iter().map(|finding| finding.area.len()).max();
        let width = width.unwrap_or_default();
        let mut text = match self.problems() {
            0 => "nothing is wrong\n".to_owned(),
            problems => format!("{} found\n", count(problems, "problem", "problems")),
        };
        for finding in &self.0 {
            let (word, colour) = match finding.state {
                State::Good => ("ok", "\x1b[32m"),
                State::Note => ("note", "\x1b[33m"),
                State::Problem => ("problem", "\x1b[31m"),
            };
            let (on, off) = match coloured {
                true => (colour, "\x1b[0m"),
                false => ("", ""),
            };
            let (area, said) = (finding.area, visible(&finding.text));
            let _ = writeln!(text, "  {on}{word:<7}{off}  {area:<width$}  {said}");
            if let Some(fix) = &finding.fix {
                let _ = writeln!(text, "  {:7}  {:width$}  fix: {}", "", "", visible(fix));
            }
        }
        text
    }
}
