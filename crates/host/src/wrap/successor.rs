//! What a successor offers, read before it gets requests; and what that means for calls that were
//! admitted under its predecessor.
//!
//! A server that takes over from another may list other tools. Its list is read as the last step
//! before it is ready. A successor beside a good incumbent (a rollout, a standby) whose list cannot
//! be read never takes over; where nobody serves, a server with a broken list is better than none.
//! Every call is looked at again before it is sent to a server that it was not admitted for.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::Answer;
use mainstay_contract::scan;
use mainstay_kernel::time::Time;

use super::edit;
use super::engine::{Engine, SLOT};
use super::lists::{Kind, Seen, page_request};
use super::server::Awaited;

/// Bytes of a list that is kept until its server takes over.
const CATALOG_BYTES: usize = 16 * 1024 * 1024;
/// Milliseconds for a page of it.
const PAGE_MS: u64 = 5_000;
/// `_meta` key that says to which subscription a notice belongs.
const SUBSCRIPTION_META: &str = "io.modelcontextprotocol/subscriptionId";

/// The tools of a server that does not serve yet.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// The results of its pages.
    pages: Vec<Json>,
    seen: Seen,
}

impl Catalog {
    /// Takes in a page; the error says why it cannot be one.
    fn add(&mut self, cursor: Option<&str>, result: Option<&str>) -> Result<(), &'static str> {
        let result = result.ok_or("the server refused it")?;
        let tools = scan::member(result, Kind::Tools.member());
        if !tools.is_some_and(|tools| tools.starts_with('[')) {
            return Err("it is no list");
        }
        if !self.seen.page(Kind::Tools, cursor, result) {
            return Err("it does not end");
        }
        self.pages.push(Json::from_scanned(result));
        if self.pages.iter().map(Json::len).sum::<usize>() > CATALOG_BYTES {
            return Err("it is too large");
        }
        Ok(())
    }
}

impl Engine {
    /// A server has been told everything: it is ready, once its tools are known where they matter.
    pub(super) fn told_all(&mut self, generation: Generation) {
        let has_tools = if self.told.has_session() {
            self.told.capability("tools").is_some()
        } else {
            self.meta.is_some() && self.tools.any()
        };
        if has_tools && self.met.is_some() {
            self.read_ahead(generation, Catalog::default());
        } else {
            self.ready(generation);
        }
    }

    fn read_ahead(&mut self, generation: Generation, catalog: Catalog) {
        let id = self.own_id();
        let meta = self.meta.as_ref().filter(|_| !self.told.has_session());
        let cursor = catalog.seen.next().map(str::to_owned);
        let line = page_request(&id, Kind::Tools, cursor.as_deref(), meta);
        let until = self.clock.now().plus_ms(PAGE_MS);
        if let Some(server) = self.servers.get_mut(&generation) {
            let awaited = Awaited::Catalog {
                cursor,
                catalog,
                until,
            };
            server.awaited.insert(id, awaited);
            server.handle.say(line.as_str());
        }
    }

    /// A page of a list that was asked for ahead.
    pub(super) fn read_page(
        &mut self,
        generation: Generation,
        cursor: Option<&str>,
        mut catalog: Catalog,
        result: Option<&str>,
    ) {
        match catalog.add(cursor, result) {
            Err(why) => self.unreadable(generation, why),
            Ok(()) if catalog.seen.next().is_some() => self.read_ahead(generation, catalog),
            Ok(()) => {
                if let Some(server) = self.servers.get_mut(&generation) {
                    server.catalog = Some(catalog);
                }
                self.ready(generation);
            }
        }
    }

    /// Lists that were asked for ahead and did not come in time.
    pub(super) fn catalogs_due(&mut self, now: Time) {
        let is_due =
            |awaited: &Awaited| matches!(awaited, Awaited::Catalog { until, .. } if *until <= now);
        let mut late = Vec::new();
        for (generation, server) in &mut self.servers {
            if server.awaited.values().any(is_due) {
                server.awaited.retain(|_, awaited| !is_due(awaited));
                late.push(*generation);
            }
        }
        for generation in late {
            self.unreadable(generation, "it did not come in time");
            self.act();
        }
    }

    fn unreadable(&mut self, generation: Generation, why: &str) {
        if self.kernel.is_spare(SLOT, generation) {
            let detail = format!("the successor's list of tools cannot be read: {why}");
            return self.unfit(generation, &detail);
        }
        let name = &self.common.name;
        let line = format!("mcp:warning reason=tools_unreadable pack={name} {why}");
        self.common.log.line(&line);
        self.ready(generation);
    }

    /// A server gets its first call or takes over: what it lists is what counts from now on.
    pub(super) fn meet(&mut self, generation: Generation) {
        let before = self.met.replace(generation);
        if before.is_none() || before == Some(generation) {
            return;
        }
        let server = self.servers.get_mut(&generation);
        let Some(catalog) = server.and_then(|server| server.catalog.take()) else {
            return self.tools.doubt();
        };
        self.tools.forget();
        for page in &catalog.pages {
            self.learn(page.as_str());
        }
        self.tools_complete(self.tools.epoch());
        self.compared(Kind::Tools, catalog.seen);
    }

    /// The client hears of a list that is not what it saw.
    pub(super) fn compared(&mut self, kind: Kind, now: Seen) {
        let before = self.seen.get(&kind).and_then(Seen::fingerprint);
        if before.is_some_and(|before| Some(before) != now.fingerprint()) {
            self.announce(kind);
            self.seen.insert(kind, now);
        }
    }

    pub(super) fn announce(&self, kind: Kind) {
        let notice = || {
            ObjectWriter::with_capacity(160)
                .string("jsonrpc", "2.0")
                .string("method", kind.changed())
        };
        if self.told.announces(kind.capability()) {
            self.tell_client(&notice().finish());
        }
        for id in self.listeners(kind) {
            let meta = edit::with_member("{}", SUBSCRIPTION_META, id);
            let params = edit::with_member("{}", "_meta", &meta);
            self.tell_client(&notice().raw("params", &params).finish());
        }
    }

    /// Ids of the subscriptions that want to hear of changes of a list.
    fn listeners(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.passed.values().filter_map(move |passed| {
            let is_listening = passed.method == "subscriptions/listen";
            let wanted = passed.param("notifications").filter(|_| is_listening)?;
            let wants = scan::member(wanted, kind.wanted()) == Some("true");
            wants.then(|| passed.id.as_raw())
        })
    }

    /// Whether the client would hear of changes of a list.
    pub(super) fn is_heard(&self, kind: Kind) -> bool {
        self.told.announces(kind.capability()) || self.listeners(kind).next().is_some()
    }

    /// Whether a call that is to be sent is refused instead, because the tools are others than
    /// those it was admitted for.
    pub(super) fn refuses(&mut self, generation: Generation, call: CallId) -> bool {
        let Some(problem) = self.second_thoughts(call) else {
            return false;
        };
        let answer = Answer::Failed(problem);
        self.kernel
            .handle_answer(self.clock.now(), generation, call, answer);
        true
    }

    fn second_thoughts(&mut self, call: CallId) -> Option<Problem> {
        let probing = self.kernel.is_probing(call);
        let passed = self.passed.get_mut(&call)?;
        if std::mem::replace(&mut passed.admitted, self.met) == self.met {
            return None;
        }
        let passed = self.passed.get(&call)?;
        let name = passed.tool.as_deref()?;
        if probing {
            let rules = self.common.rules.tools.get(name)?;
            let probe = &rules.probe.as_ref()?.tool;
            let standing = self.tools.get(probe).map(|tool| tool.standing);
            return standing
                .unwrap_or_else(|| self.tools.stranger(probe))
                .problem(probe);
        }
        match self.tools.get(name) {
            Some(tool) => tool.refusal(name, passed.param("arguments")),
            None if passed.listed && self.tools.is_complete() => Some(
                Problem::new(
                    ErrorKind::UnknownTool,
                    format!("the tool {name} is no longer offered by the server"),
                )
                .with_hint("list the tools again"),
            ),
            None => self.tools.stranger(name).problem(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_none_or_does_not_end_cannot_be_read() {
        let page = r#"{"tools":[{"name":"a"}],"nextCursor":"2"}"#;
        let mut catalog = Catalog::default();
        assert_eq!(catalog.add(None, Some(page)), Ok(()));
        assert_eq!(catalog.add(Some("7"), Some(page)), Err("it does not end"));
        for (result, why) in [
            (None, "the server refused it"),
            (Some("{}"), "it is no list"),
            (Some(r#"{"tools":{}}"#), "it is no list"),
        ] {
            assert_eq!(Catalog::default().add(None, result), Err(why));
        }
    }
}
