//! Lists that the host fetches itself: to know the tools before a call is decided about, and to
//! notice what a successor lists differently.

use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde_json::{Value, json};

use super::edit;
use super::told::request;

/// Pages that one list may have.
const PAGES: usize = 1000;

/// A kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    pub(super) const ALL: [Self; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The member of the result that holds the items.
    pub(super) const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The capability under which its changes are declared.
    pub(super) const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// The name under which a subscription asks for its changes.
    pub(super) const fn wanted(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources | Self::Templates => "resourcesListChanged",
        }
    }

    pub(super) const fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    pub(super) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }
}

/// A list as far as it was seen: what the client, or we, got page by page.
#[derive(Clone, Debug, Default)]
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
    pub(super) fn page(&mut self, kind: Kind, cursor: Option<&str>, result: &str) -> bool {
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
    kind: Kind,
    cursor: Option<&str>,
    meta: Option<&Json>,
) -> Json {
    let mut params = serde_json::Map::new();
    if let Some(cursor) = cursor {
        params.insert("cursor".to_owned(), Value::from(cursor));
    }
    let mut params = Value::Object(params).to_string();
    if let Some(meta) = meta {
        params = edit::with_member(&params, "_meta", meta.as_str());
    }
    request(id, kind.method(), &params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_known_when_its_last_page_was_seen() {
        let mut seen = Seen::default();
        assert!(seen.page(
            Kind::Tools,
            None,
            r#"{"tools":[{"name":"a"}],"nextCursor":"2"}"#
        ));
        assert_eq!(seen.fingerprint(), None);
        assert!(
            !seen.page(Kind::Tools, Some("7"), "{}"),
            "not the next page"
        );
        assert!(seen.page(Kind::Tools, Some("2"), r#"{"tools":[{"name":"b"}]}"#));
        let whole = seen.fingerprint().unwrap();
        let mut other = Seen::default();
        other.page(
            Kind::Tools,
            None,
            r#"{"tools":[{"name":"a"},{"name":"b"}]}"#,
        );
        assert_eq!(
            other.fingerprint(),
            Some(whole),
            "paging makes no difference"
        );
        other.page(Kind::Tools, None, r#"{"tools":[{"name":"a"}]}"#);
        assert_ne!(other.fingerprint(), Some(whole));
    }
}
