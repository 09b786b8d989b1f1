//! Requests in flight by their JSON-RPC ids: one table for every place that matches answers and cancels
//! to requests.
//!
//! An id in flight is taken by its exact text. A peer may spell a number differently in its answer or cancel,
//! or turn it into a string or back; [`RequestTable::meant`] accepts that as long as exactly one request can
//! be meant.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use crate::id::RequestId;

/// Open requests, each with what its owner needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestTable<T> {
    open: BTreeMap<RequestId, T>,
}

/// A request with this id is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight;

impl<T> Default for RequestTable<T> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
        }
    }
}

impl<T> RequestTable<T> {
    /// Adds a request, unless its id is in flight.
    pub fn open(&mut self, id: RequestId, request: T) -> Result<(), InFlight> {
        match self.open.entry(id) {
            Entry::Occupied(_) => Err(InFlight),
            Entry::Vacant(free) => {
                free.insert(request);
                Ok(())
            }
        }
    }

    /// True while a request with this id is in flight.
    pub fn contains(&self, id: &RequestId) -> bool {
        self.open.contains_key(id)
    }

    /// The request with this id.
    pub fn get(&self, id: &RequestId) -> Option<&T> {
        self.open.get(id)
    }

    /// Removes the request with this id.
    pub fn close(&mut self, id: &RequestId) -> Option<T> {
        self.open.remove(id)
    }

    /// The id of the request that a peer means: the one of this text, else the only one of the same value,
    /// else the only one whose string form is the same; of the latter two only one for which `may_be` holds.
    pub fn meant(&self, id: &RequestId, may_be: impl Fn(&RequestId) -> bool) -> Option<RequestId> {
        if self.open.contains_key(id) {
            return Some(id.clone());
        }
        let only = |is_it: &dyn Fn(&RequestId) -> bool| {
            let mut same = self
                .open
                .keys()
                .filter(|known| is_it(known) && may_be(known));
            same.next().filter(|_| same.next().is_none()).cloned()
        };
        let text = id.lookup_form();
        only(&|known| known.same_value(id)).or_else(|| only(&|known| known.lookup_form() == text))
    }

    /// Removes the request that a peer means, if exactly one can be meant.
    pub fn close_meant(&mut self, id: &RequestId) -> Option<T> {
        let known = self.meant(id, |_| true)?;
        self.open.remove(&known)
    }

    /// Keeps the requests for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&RequestId, &mut T) -> bool) {
        self.open.retain(keep);
    }

    /// All requests, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&RequestId, &T)> {
        self.open.iter()
    }

    /// The entries of all requests, in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.open.values()
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True if no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    fn table(ids: &[&str]) -> RequestTable<usize> {
        let mut table = RequestTable::default();
        for (number, raw) in ids.iter().enumerate() {
            table.open(id(raw), number).unwrap();
        }
        table
    }

    #[test]
    fn an_id_is_open_once() {
        let mut table = table(&["1", "\"1\""]);
        assert_eq!(table.open(id("1"), 9), Err(InFlight));
        assert_eq!(table.close(&id("1")), Some(0));
        assert_eq!(table.open(id("1"), 9), Ok(()));
        assert_eq!(table.get(&id("\"1\"")), Some(&1));
    }

    #[test]
    fn another_spelling_is_meant_only_if_one_request_fits() {
        let open = table(&["7", "\"b\""]);
        assert_eq!(open.meant(&id("\"7\""), |_| true), Some(id("7")));
        assert_eq!(open.meant(&id("\"7\""), |_| false), None);
        assert_eq!(open.meant(&id("8"), |_| true), None);
        assert_eq!(open.meant(&id("7.0"), |_| true), Some(id("7")), "by value");
        let both = table(&["7", "\"\\u0037\""]);
        assert_eq!(both.meant(&id("\"7\""), |_| true), None, "two fit");
        assert_eq!(both.meant(&id("7"), |_| true), Some(id("7")), "exactly");
    }
}
