//! Prompts, resources, templates and instructions of a wrapped server, held against a lock.
//!
//! A list passes without the items that the lock does not have as they are. A request for a prompt or a
//! resource is rejected if the lock does not have it, or if the server last listed it differently. A resource
//! that the lock does not name may still fit a template that it has. Tools have a machine of their own
//! ([`super::tools`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit;
use super::requests::ClientRequest;
use super::rules::fits;
use crate::locked::{Locked, Withdrawn};

/// Names of withdrawn items that are remembered per list.
const WITHDRAWN: usize = 10_000;

/// The items of one server that are withdrawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reviewed {
    locked: Option<Arc<Locked>>,
    /// As the server last listed them.
    withdrawn: BTreeMap<ListKind, BTreeMap<String, Withdrawn>>,
    /// Items that the log named already.
    reported: BTreeSet<(ListKind, String)>,
    instructions_reported: bool,
}

impl Reviewed {
    pub(super) fn new(locked: Option<Arc<Locked>>) -> Self {
        Self {
            locked,
            ..Self::default()
        }
    }

    /// Takes another lock. False if it is the same.
    pub(super) fn apply_lock(&mut self, locked: Option<&Arc<Locked>>) -> bool {
        if self.locked.as_ref() == locked {
            return false;
        }
        self.locked = locked.cloned();
        self.reported.clear();
        self.instructions_reported = false;
        true
    }

    /// The result of a handshake without instructions that differ from the lock, and true if that was not
    /// logged yet.
    pub(super) fn handshake(&mut self, result: &str) -> Option<(String, bool)> {
        let locked = self.locked.as_ref()?;
        let text = scan::member(result, "instructions").filter(|text| *text != "null")?;
        let read = scan::unquote(text);
        // Readers may differ about instructions that are there twice.
        let is_clear = !edit::has_twice(result);
        if is_clear && read.is_some_and(|text| locked.permits_instructions(&text)) {
            return None;
        }
        if locked.covers_tools_only() {
            return None;
        }
        let is_new = !std::mem::replace(&mut self.instructions_reported, true);
        let rest = edit::filtered(result, |name| name != "instructions");
        Some((rest, is_new))
    }

    /// A page of a list, without what is withdrawn, and the withdrawn items that were not logged yet.
    pub(super) fn page(
        &mut self,
        kind: ListKind,
        is_first: bool,
        result: &str,
    ) -> (Option<String>, Vec<(String, Withdrawn)>) {
        let Some(locked) = self.locked.clone() else {
            return (None, Vec::new());
        };
        if locked.names(kind).is_none() {
            return (None, Vec::new());
        }
        let withdrawn = self.withdrawn.entry(kind).or_default();
        if is_first {
            withdrawn.clear();
        }
        let items = edit::items(scan::member(result, kind.member()).unwrap_or("[]"));
        let (mut shown, mut news) = (Vec::new(), Vec::new());
        for item in &items {
            let Some((name, verdict)) = judge(&locked, kind, item) else {
                continue;
            };
            match verdict {
                None => shown.push(*item),
                Some(why) => {
                    if withdrawn.len() < WITHDRAWN {
                        withdrawn.insert(name.clone(), why);
                    }
                    if self.reported.len() < WITHDRAWN && self.reported.insert((kind, name.clone()))
                    {
                        news.push((name, why));
                    }
                }
            }
        }
        if shown.len() == items.len() {
            return (None, news);
        }
        let list = edit::array(shown);
        (Some(edit::with_member(result, kind.member(), &list)), news)
    }

    /// The reason why a request must not be sent, if the lock gives one.
    pub(super) fn refusal(&self, request: &ClientRequest) -> Option<Problem> {
        let text = |key: &str| request.param(key).and_then(scan::unquote);
        match Method::parse(&request.method)? {
            Method::GetPrompt => self.named(ListKind::Prompts, &text("name")?),
            Method::ReadResource | Method::SubscribeResource => self.resource(&text("uri")?),
            Method::Complete => {
                let target = request.param("ref")?;
                let member = |key| scan::member(target, key).and_then(scan::unquote);
                match member("type")?.as_ref() {
                    "ref/prompt" => self.named(ListKind::Prompts, &member("name")?),
                    "ref/resource" => self.resource(&member("uri")?),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn withdrawal(&self, kind: ListKind, name: &str) -> Option<Withdrawn> {
        let names = self.locked.as_ref()?.names(kind)?;
        if !names.contains_key(name) {
            return Some(Withdrawn::New);
        }
        self.withdrawn.get(&kind)?.get(name).copied()
    }

    fn named(&self, kind: ListKind, name: &str) -> Option<Problem> {
        let withdrawn = self.withdrawal(kind, name)?;
        Some(withdrawn.problem(kind, name))
    }

    fn resource(&self, uri: &str) -> Option<Problem> {
        let withdrawn = self.withdrawal(ListKind::Resources, uri)?;
        let templates = self.locked.as_ref()?.names(ListKind::Templates)?;
        // The request for a completion names the template itself.
        let covers = |template: &String| template == uri || expands_to(template, uri);
        let open = |template: &&String| self.withdrawal(ListKind::Templates, template).is_none();
        let is_covered = templates.keys().filter(open).any(covers);
        let is_named = withdrawn != Withdrawn::New;
        (is_named || !is_covered).then(|| withdrawn.problem(ListKind::Resources, uri))
    }
}

/// An item's name, and why it is withdrawn.
fn judge(locked: &Locked, kind: ListKind, item: &str) -> Option<(String, Option<Withdrawn>)> {
    let definition: Value = serde_json::from_str(item).ok()?;
    let name = definition.get(kind.key())?.as_str()?.to_owned();
    let why = match edit::has_twice(item) {
        true => Some(Withdrawn::Ambiguous),
        false => locked.compare(kind, &name, &Fingerprint::of(&definition)),
    };
    Some((name, why))
}

/// True if a URI template may become this URI. Only expressions with an operator (`{+path}`, `{/path*}`) add
/// slashes.
pub(crate) fn expands_to(template: &str, uri: &str) -> bool {
    let mut pattern = String::with_capacity(template.len());
    let mut adds_slashes = false;
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        pattern.push_str(before);
        pattern.push('*');
        let expression;
        (expression, rest) = after.split_once('}').unwrap_or((after, ""));
        adds_slashes |=
            expression.starts_with(['+', '#', '/', '?', '&']) || expression.ends_with('*');
    }
    pattern.push_str(rest);
    let slashes = |text: &str| text.matches('/').count();
    fits(&pattern, uri) && (adds_slashes || slashes(&pattern) == slashes(uri))
}

#[cfg(test)]
mod tests {
    use mainstay_contract::dialect::{Relayed, relay};
    use mainstay_schema::lock::{Lock, Surface};
    use serde_json::json;

    use super::*;

    fn reviewed() -> Reviewed {
        let mut surface = Surface::with_instructions(Some("be kind".to_owned()));
        surface.add(
            ListKind::Prompts,
            json!({"name": "p", "description": "asks"}),
        );
        surface.add(ListKind::Resources, json!({"uri": "a://x", "name": "x"}));
        for template in ["file:///{+path}", "note:///{name}"] {
            let template = json!({"uriTemplate": template, "name": "t"});
            surface.add(ListKind::Templates, template);
        }
        let lock = Lock {
            surface: Some(surface),
            ..Lock::default()
        };
        Reviewed::new(Some(Arc::new(Locked::from(&lock))))
    }

    fn refused(reviewed: &Reviewed, method: &str, params: &Value) -> bool {
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let text = text.to_string();
        let Ok(Relayed::Request(request)) = relay(text.as_bytes(), 64) else {
            panic!("it is a request");
        };
        let request = ClientRequest::new(&text, &request, None);
        reviewed.refusal(&request).is_some()
    }

    #[test]
    fn a_list_passes_without_what_the_lock_does_not_have_as_it_is() {
        let mut reviewed = reviewed();
        let page = r#"{"prompts":[{"name":"p","description":"asks"},{"name":"q"}],"n":1.0}"#;
        let (shown, news) = reviewed.page(ListKind::Prompts, true, page);
        let left = r#"{"prompts":[{"name":"p","description":"asks"}],"n":1.0}"#;
        assert_eq!(shown.as_deref(), Some(left));
        assert_eq!(news, [("q".to_owned(), Withdrawn::New)]);
        let (_, news) = reviewed.page(ListKind::Prompts, true, page);
        assert_eq!(news, [], "logged once");
        let changed = r#"{"prompts":[{"name":"p","description":"obey"}]}"#;
        let (shown, news) = reviewed.page(ListKind::Prompts, true, changed);
        assert_eq!(shown.as_deref(), Some(r#"{"prompts":[]}"#));
        assert_eq!(news, [("p".to_owned(), Withdrawn::Changed)]);
        assert!(refused(&reviewed, "prompts/get", &json!({"name": "p"})));
        let twice = r#"{"prompts":[{"name":"p","description":"obey","description":"asks"}]}"#;
        assert!(reviewed.page(ListKind::Prompts, true, twice).0.is_some());
        let (shown, _) = reviewed.page(ListKind::Prompts, true, left);
        assert_eq!(shown, None);
        assert!(!refused(&reviewed, "prompts/get", &json!({"name": "p"})));
    }

    #[test]
    fn a_request_needs_a_name_or_a_template_of_the_lock() {
        let mut reviewed = reviewed();
        let read =
            |reviewed: &Reviewed, uri| refused(reviewed, "resources/read", &json!({"uri": uri}));
        assert!(!read(&reviewed, "a://x"));
        assert!(!read(&reviewed, "file:///etc/motd"));
        assert!(!read(&reviewed, "note:///a"));
        assert!(read(&reviewed, "note:///a/../../b"));
        assert!(read(&reviewed, "a://y"));
        assert!(refused(
            &reviewed,
            "resources/subscribe",
            &json!({"uri": "a://y"})
        ));
        assert!(refused(&reviewed, "prompts/get", &json!({"name": "q"})));
        assert!(!refused(&reviewed, "tools/list", &json!({})));
        let complete = |reviewed: &Reviewed, target| {
            refused(
                reviewed,
                "completion/complete",
                &json!({"ref": target, "argument": {}}),
            )
        };
        assert!(complete(
            &reviewed,
            json!({"type": "ref/prompt", "name": "q"})
        ));
        let template = json!({"type": "ref/resource", "uri": "file:///{+path}"});
        assert!(!complete(&reviewed, template.clone()));
        let changed = r#"{"resourceTemplates":[{"uriTemplate":"file:///{+path}","name":"all"}]}"#;
        reviewed.page(ListKind::Templates, true, changed);
        assert!(
            read(&reviewed, "file:///etc/motd"),
            "its template is withdrawn"
        );
        assert!(complete(&reviewed, template));
        let changed = r#"{"resources":[{"uri":"a://x","name":"y"}]}"#;
        reviewed.page(ListKind::Resources, true, changed);
        assert!(read(&reviewed, "a://x"), "it is listed differently");
    }

    #[test]
    fn only_reviewed_instructions_pass() {
        let mut reviewed = reviewed();
        assert_eq!(reviewed.handshake(r#"{"instructions":"be kind"}"#), None);
        assert_eq!(reviewed.handshake(r#"{"serverInfo":{}}"#), None);
        let evil = r#"{"a":1.0,"instructions":"obey"}"#;
        assert_eq!(
            reviewed.handshake(evil),
            Some((r#"{"a":1.0}"#.to_owned(), true))
        );
        assert_eq!(
            reviewed.handshake(evil),
            Some((r#"{"a":1.0}"#.to_owned(), false))
        );
        let twice = r#"{"instructions":"obey","instructions":"be kind"}"#;
        assert!(reviewed.handshake(twice).is_some());
    }

    #[test]
    fn a_lock_of_tools_withdraws_nothing_else() {
        let locked = Locked::of_tools([]);
        let mut reviewed = Reviewed::new(Some(Arc::new(locked)));
        assert_eq!(reviewed.handshake(r#"{"instructions":"obey"}"#), None);
        assert!(!refused(&reviewed, "prompts/get", &json!({"name": "q"})));
        let page = r#"{"prompts":[{"name":"q"}]}"#;
        assert_eq!(reviewed.page(ListKind::Prompts, true, page).0, None);
    }
}
