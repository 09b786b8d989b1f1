//! From the root form along failed stops to the violations.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use serde_json::Value;

use super::{
    Explained, Explainer, Reach,
    choose::{Choice, choose},
    cut::Stop,
    finding::{Class, Finding, What},
};
use crate::{Violation, bounds, messages};

pub(super) fn walk(explainer: &Explainer, instance: &Value) -> Explained {
    let large = bounds::exceeds(instance, explainer.limits.explained_values);
    let mut walk = Walk {
        explainer,
        instance,
        reach: if large { Reach::First } else { Reach::All },
        left: explainer.limits.explained_forms,
        queue: BinaryHeap::from([Reverse((String::new(), 0))]),
        seen: HashSet::new(),
        wholes: Vec::new(),
        found: Vec::new(),
        unexplained: Vec::new(),
    };
    while let Some(Reverse((path, form))) = walk.queue.pop() {
        walk.explain(form, &path);
    }
    walk.explain_wholes();
    if walk.found.is_empty() {
        walk.found = std::mem::take(&mut walk.unexplained)
            .into_iter()
            .map(|path| Violation {
                path,
                message: messages::NO_MATCH.to_owned(),
            })
            .collect();
    }
    Explained {
        found: walk.found,
        unexplained: walk.unexplained.len(),
        reach: walk.reach,
    }
}

struct Walk<'a> {
    explainer: &'a Explainer,
    instance: &'a Value,
    reach: Reach,
    /// Forms that may still run.
    left: usize,
    /// Forms to run, each at a place of the instance. Those that come first in the
    /// report run first, so that a spent budget costs only its end.
    queue: BinaryHeap<Reverse<(String, usize)>>,
    seen: HashSet<(usize, String)>,
    wholes: Vec<(usize, String)>,
    found: Vec<Violation>,
    /// Places that fail for a reason that cannot be told.
    unexplained: Vec<String>,
}

impl<'a> Walk<'a> {
    fn explain(&mut self, form: usize, path: &str) {
        if !self.seen.insert((form, path.to_owned())) {
            return;
        }
        let value = self.value(path);
        let findings = value.and_then(|value| self.run(form, value));
        let findings = findings.unwrap_or_default();
        // The budget is spent, or the form by itself does not see what is wrong: on the
        // way to it, a dynamic reference may lead elsewhere.
        if findings.is_empty() {
            self.unexplained.push(path.to_owned());
        }
        for finding in findings {
            self.take(finding, path);
        }
    }

    /// `None` when the budget is spent.
    fn run(&mut self, form: usize, value: &Value) -> Option<Vec<Finding>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.explainer.run(form, value, self.reach))
    }

    fn value(&self, path: &str) -> Option<&'a Value> {
        self.instance.pointer(path)
    }

    fn take(&mut self, finding: Finding, base: &str) {
        let path = format!("{base}{}", finding.path);
        let id = match finding.what {
            What::Says { message, .. } => {
                self.found.push(Violation { path, message });
                return;
            }
            What::Stop(id) => id,
        };
        match self.explainer.stops.get(id) {
            Some(Stop::Reference { form, .. }) => self.queue.push(Reverse((path, *form))),
            Some(Stop::Union { one, branches }) => self.union(*one, branches, &path),
            Some(Stop::Whole { .. }) => self.wholes.push((id, path)),
            Some(Stop::Opaque { .. }) | None => self.unexplained.push(path),
        }
    }

    fn union(&mut self, one: bool, branches: &[(usize, String)], path: &str) {
        let value = self.value(path);
        let branches_run: Option<Vec<_>> = match value {
            Some(value) if self.reach == Reach::All => branches
                .iter()
                .map(|(form, _)| self.branch(*form, value))
                .collect(),
            _ => None,
        };
        let choice = match (branches_run, value) {
            (Some(run), _) if one && run.iter().filter(|run| run.is_empty()).count() > 1 => {
                Choice::Sentence {
                    path: String::new(),
                    message: messages::SEVERAL_FORMS.to_owned(),
                }
            }
            (Some(run), Some(value)) if run.iter().all(|run| !run.is_empty()) => choose(value, run),
            // Not looked at: of `oneOf`, it may be none or several that fit.
            _ => Choice::Sentence {
                path: String::new(),
                message: if one {
                    messages::NO_MATCH.to_owned()
                } else {
                    messages::no_form(branches.len())
                },
            },
        };
        match choice {
            Choice::Findings(findings) => {
                for finding in findings {
                    self.take(finding, path);
                }
            }
            Choice::Sentence { path: at, message } => self.found.push(Violation {
                path: format!("{path}{at}"),
                message,
            }),
        }
    }

    /// The findings of a branch, references to further schemas for the same value
    /// followed, since a branch is often no more than a reference.
    fn branch(&mut self, form: usize, value: &Value) -> Option<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut seen = HashSet::from([form]);
        let mut queue = vec![form];
        while let Some(form) = queue.pop() {
            for finding in self.run(form, value)? {
                match finding.what {
                    What::Stop(id) if finding.path.is_empty() => match self.explainer.stops.get(id)
                    {
                        Some(Stop::Reference { form, .. }) => {
                            if seen.insert(*form) {
                                queue.push(*form);
                            }
                        }
                        _ => findings.push(finding),
                    },
                    _ => findings.push(finding),
                }
            }
        }
        // A schema with these fails with anything in it, which says nothing more.
        let tells = |finding: &Finding| match finding.what {
            What::Stop(id) => !matches!(
                self.explainer.stops.get(id),
                Some(Stop::Whole { .. } | Stop::Opaque { .. })
            ),
            What::Says { .. } => true,
        };
        if findings.iter().any(tells) {
            findings.retain(tells);
        }
        Some(findings)
    }

    /// Unevaluated members and items, where nothing else is wrong: what is evaluated
    /// depends on what else holds, so they are not known before.
    fn explain_wholes(&mut self) {
        let limit = self.explainer.limits.explained_values;
        for (id, path) in std::mem::take(&mut self.wholes) {
            let inside = |other: &str| {
                other
                    .strip_prefix(path.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let told = self.found.iter().any(|violation| inside(&violation.path))
                || self.unexplained.iter().any(|other| inside(other));
            if told {
                continue;
            }
            let Some(value) = self.value(&path) else {
                continue;
            };
            let steps = self.explainer.in_place.checked_pow(bounds::depth(value));
            if steps.is_none_or(|steps| steps > self.explainer.limits.explained_steps) {
                self.unexplained.push(path);
                continue;
            }
            for finding in self.explainer.probe.first_error(id, value, limit) {
                match finding.what {
                    What::Says {
                        message,
                        class: Class::Unevaluated,
                    } => self.found.push(Violation {
                        path: format!("{path}{}", finding.path),
                        message,
                    }),
                    _ => self.unexplained.push(path.clone()),
                }
            }
        }
    }
}
