//! List knowledge: what the client last saw of each list, and how far a list was read.
//!
//! The host fetches lists itself to know the tools before it admits a call, and to notice what a
//! successor lists differently.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::id::{Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::method::ListKind;
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::edit;
use super::memory::request;

/// Bytes of one page of a list: every item of it is parsed and compared.
pub(super) const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Pages that one list may have.
pub(super) const PAGES: usize = 1000;

/// The lists of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lists {
    /// The lists as the client last saw them.
    pub(super) last_seen: BTreeMap<ListKind, Seen>,
    /// Lists that are read again because a new server may list other items.
    pub(super) comparing: BTreeSet<ListKind>,
    /// The epoch of the tool knowledge in which the client began its list.
    pub(super) begun: u64,
    /// A server whose list of tools did not come: its calls no longer wait for it.
    pub(super) unlistable: Option<Generation>,
    /// The lists that a modern server has, once it has described itself.
    #[serde(default)]
    offered: Option<BTreeSet<ListKind>>,
}

impl Lists {
    /// True if the client has seen any page of a list.
    pub(super) fn was_seen(&self, kind: ListKind) -> bool {
        self.last_seen.contains_key(&kind)
    }

    /// Records the lists that a server declares in its handshake.
    pub(super) fn offer(&mut self, handshake: &str) {
        let declared = scan::member(handshake, "capabilities").unwrap_or("{}");
        let has = |kind: &ListKind| {
            scan::member(declared, kind.capability()).is_some_and(|list| list.starts_with('{'))
        };
        self.offered = Some(ListKind::ALL.into_iter().filter(has).collect());
    }

    /// True if a server that described itself has this list, or if none did.
    pub(super) fn is_offered(&self, kind: ListKind) -> bool {
        let offered = self.offered.as_ref();
        offered.is_none_or(|offered| offered.contains(&kind))
    }

    /// The fingerprint of a list that the client has seen whole.
    pub(super) fn fingerprint(&self, kind: ListKind) -> Option<Fingerprint> {
        self.last_seen.get(&kind).and_then(Seen::fingerprint)
    }
}

/// A list as far as it was seen: what the client, or we, got page by page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Of everything so far, item by item.
    digest: Option<Fingerprint>,
    /// The cursor that leads to the next page; `None` when it is whole.
    next: Option<String>,
    pages: usize,
}

impl Seen {
    /// Takes in a page: the cursor it was asked for with, and the result. False if it does not
    /// follow what was seen before.
    pub(super) fn page(&mut self, kind: ListKind, cursor: Option<&str>, result: &str) -> bool {
        if result.len() > PAGE_BYTES {
            return false;
        }
        if cursor.is_none() {
            *self = Self::default();
        } else if cursor != self.next.as_deref() || self.pages >= PAGES {
            return false;
        }
        let items = scan::member(result, kind.member()).unwrap_or("[]");
        for item in edit::items(items) {
            let item: Value = serde_json::from_str(item).unwrap_or_default();
            let before = self.digest.map(|digest| digest.to_string());
            self.digest = Some(Fingerprint::of(&json!([before, item])));
        }
        self.next = scan::member(result, "nextCursor")
            .and_then(scan::unquote)
            .map(std::borrow::Cow::into_owned);
        self.pages += 1;
        true
    }

    /// Takes in the page that follows what was seen. False if the list is too long.
    pub(super) fn next_page(&mut self, kind: ListKind, result: &str) -> bool {
        let cursor = self.next.clone();
        self.page(kind, cursor.as_deref(), result)
    }

    /// The cursor of the next page, if the list goes on.
    pub(super) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// The fingerprint of a list that was seen whole.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        let whole = self.pages > 0 && self.next.is_none();
        let empty = || Fingerprint::of(&Value::Null);
        whole.then(|| self.digest.unwrap_or_else(empty))
    }
}

/// The request for a page.
pub(super) fn page_request(
    id: &RequestId,
    kind: ListKind,
    cursor: Option<&str>,
    meta: Option<&Json>,
) -> Json {
    let params = ObjectWriter::with_capacity(64)
        .optional_string("cursor", cursor)
        .optional_raw("_meta", meta.map(Json::as_str))
        .finish();
    request(id, kind.method().name(), &params)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Reads items in pages that end after these items.
    fn read(items: &[u8], ends: &[usize]) -> Seen {
        let mut ends: Vec<usize> = ends.iter().map(|end| end % (items.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(items.len());
        let (mut seen, mut start, mut cursor) = (Seen::default(), 0, None);
        for (number, end) in ends.iter().enumerate() {
            let page = items.get(start..*end).unwrap();
            let page: Vec<Value> = page.iter().map(|item| json!({ "name": item })).collect();
            let mut result = json!({ "tools": page });
            let next = (number + 1 < ends.len()).then(|| format!("page {number}"));
            if let Some(next) = &next {
                result["nextCursor"] = Value::from(next.as_str());
            }
            assert_eq!(seen.fingerprint(), None, "it is not whole yet");
            assert!(seen.page(ListKind::Tools, cursor.as_deref(), &result.to_string()));
            assert_eq!(seen.next(), next.as_deref());
            (start, cursor) = (*end, next);
        }
        seen
    }

    proptest! {
        #[test]
        fn a_fingerprint_depends_on_the_items_and_not_on_the_pages(
            one in vec(0..3_u8, 0..6),
            other in vec(0..3_u8, 0..6),
            ends in vec(any::<usize>(), 0..4),
            other_ends in vec(any::<usize>(), 0..4),
        ) {
            let seen = read(&one, &ends).fingerprint();
            prop_assert!(seen.is_some());
            prop_assert_eq!(seen, read(&one, &other_ends).fingerprint());
            let changed = seen != read(&other, &other_ends).fingerprint();
            prop_assert_eq!(changed, one != other);
        }

        #[test]
        fn a_page_that_does_not_follow_changes_nothing(
            items in vec(0..3_u8, 1..6),
            cursor in "[a-z]{1,4}",
        ) {
            let mut seen = read(&items, &[]);
            let before = seen.clone();
            let follows = seen.page(ListKind::Tools, Some(&cursor), r#"{"tools":[{}]}"#);
            prop_assert!(!follows);
            prop_assert_eq!(seen, before);
        }
    }

    #[test]
    fn a_list_that_never_ends_is_given_up() {
        let mut seen = Seen::default();
        let page = r#"{"tools":[],"nextCursor":"again"}"#;
        assert!(seen.page(ListKind::Tools, None, page));
        for _ in 1..PAGES {
            assert!(seen.page(ListKind::Tools, Some("again"), page));
        }
        assert!(!seen.page(ListKind::Tools, Some("again"), page));
        assert_eq!(seen.fingerprint(), None);
    }

    #[test]
    fn a_list_is_known_when_its_last_page_was_seen() {
        let mut seen = Seen::default();
        assert!(seen.page(
            ListKind::Tools,
            None,
            r#"{"tools":[{"name":"a"}],"nextCursor":"2"}"#
        ));
        assert_eq!(seen.fingerprint(), None);
        assert!(
            !seen.page(ListKind::Tools, Some("7"), "{}"),
            "not the next page"
        );
        assert!(seen.page(ListKind::Tools, Some("2"), r#"{"tools":[{"name":"b"}]}"#));
        let whole = seen.fingerprint().unwrap();
        let mut other = Seen::default();
        other.page(
            ListKind::Tools,
            None,
            r#"{"tools":[{"name":"a"},{"name":"b"}]}"#,
        );
        assert_eq!(
            other.fingerprint(),
            Some(whole),
            "paging makes no difference"
        );
        other.page(ListKind::Tools, None, r#"{"tools":[{"name":"a"}]}"#);
        assert_ne!(other.fingerprint(), Some(whole));
    }
}
