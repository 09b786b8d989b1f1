//! Failed stops, noted instead of raised.
//!
//! `jsonschema` copies the value into every error of a keyword that is not its own: with a stop in
//! the root that fails, the whole document. So while a form is run, its stops pass and note where
//! they would have failed, by the address of the value; afterwards the addresses are looked up in
//! the value. One that is not found there is of a value that the library made itself (the name of
//! a member, for `propertyNames`); then the form is run again and the stops do fail.

use std::cell::RefCell;

use serde_json::Value;

use super::finding::{Finding, What};
use crate::keywords::join;

struct Note {
    /// Of the value a stop failed for. Never followed, only compared.
    address: usize,
    stop: usize,
}

thread_local! {
    static NOTES: RefCell<Option<Vec<Note>>> = const { RefCell::new(None) };
}

/// Runs a form on `value`, its stops noting; `None` if some note has no place in it.
pub(super) fn noting(value: &Value, run: impl FnOnce() -> Vec<Finding>) -> Option<Vec<Finding>> {
    NOTES.set(Some(Vec::new()));
    let end = End;
    let mut found = run();
    let mut notes = NOTES.take().unwrap_or_default();
    drop(end);
    if !notes.is_empty() {
        look_up(value, &mut notes, &mut found);
    }
    notes.is_empty().then_some(found)
}

/// Ends the noting, also if the form panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        NOTES.set(None);
    }
}

/// Notes which stops fail for `value`; false if notes are off.
pub(super) fn note<I: Iterator<Item = usize>>(value: &Value, failed: impl FnOnce() -> I) -> bool {
    NOTES.with_borrow_mut(|notes| {
        let Some(notes) = notes else {
            return false;
        };
        let address = std::ptr::from_ref(value).addr();
        notes.extend(failed().map(|stop| Note { address, stop }));
        true
    })
}

/// A value on the way down, and how it is reached.
struct Place<'a> {
    value: &'a Value,
    parent: usize,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Name(&'a str),
    Index(usize),
}

/// Moves the notes whose values are in `value` to `found`. Level by level: a form's stops are
/// near its root.
fn look_up(value: &Value, notes: &mut Vec<Note>, found: &mut Vec<Finding>) {
    let mut places = vec![Place {
        value,
        parent: 0,
        step: Step::Root,
    }];
    let mut next = 0;
    while let Some(place) = places.get(next) {
        let (value, address) = (place.value, std::ptr::from_ref(place.value).addr());
        notes.retain(|note| {
            let is_here = note.address == address;
            if is_here {
                found.push(Finding {
                    path: pointer(&places, next),
                    what: What::Stop(note.stop),
                });
            }
            !is_here
        });
        if notes.is_empty() {
            return;
        }
        let parent = next;
        let place = |(value, step)| Place {
            value,
            parent,
            step,
        };
        match value {
            Value::Object(members) => {
                let members = members.iter();
                places.extend(members.map(|(name, value)| place((value, Step::Name(name)))));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                places.extend(items.map(|(index, value)| place((value, Step::Index(index)))));
            }
            _ => {}
        }
        next += 1;
    }
}

fn pointer(places: &[Place<'_>], at: usize) -> String {
    let Some(place) = places.get(at) else {
        return String::new();
    };
    match place.step {
        Step::Root => String::new(),
        Step::Name(name) => join(&pointer(places, place.parent), name),
        Step::Index(index) => format!("{}/{index}", pointer(places, place.parent)),
    }
}
