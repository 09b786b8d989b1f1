//! The backend that keeps assets: one POST per asset, one answer, no second try.
//!
//! [`Backend`] knows where it is and does the asking; [`answer`] says what its answer means.
//! A request runs on a thread of its own, so that a cancelled call need not wait for a slow
//! backend; the threads are counted, and each ends when its time is up.
//!
//! Deliberately absent: retries, redirects, proxies, connections that are kept, credentials in
//! the URL.

mod answer;
mod client;
mod trust;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use mainstay_worker::{CancelToken, ErrorKind, Json, Problem, Unable};
use ureq::http::Uri;

use self::client::Client;

/// Requests that may be under way, those of cancelled calls included.
const MAX_REQUESTS: usize = 16;

/// How soon a waiting call notices that it is cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// A configured backend.
#[derive(Debug)]
pub(crate) struct Backend {
    base: String,
    client: Client,
    under_way: Arc<AtomicUsize>,
}

impl Backend {
    /// A backend at `base` that takes assets at `path` below it. Over https it is believed if one
    /// of the authorities in the file vouches for it.
    pub(crate) fn new(base: &str, path: &str, authorities: Option<&Path>) -> Result<Self, Unable> {
        let is_https = check_base(base)?;
        let endpoint = endpoint(base, path)?;
        let trusted = match authorities {
            Some(file) => Some(trust::of_file(file)?),
            None if is_https => trust::of_system(),
            None => None,
        };
        Ok(Self {
            base: base.to_owned(),
            client: Client::new(endpoint, trusted),
            under_way: Arc::default(),
        })
    }

    /// The base as it was configured.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends an asset and gives the id under which it is kept.
    pub(crate) fn post(&self, asset: &Json, cancel: &CancelToken) -> Result<String, Problem> {
        let slot = Slot::take(&self.under_way)?;
        let (client, asset) = (self.client.clone(), asset.clone());
        let (sender, receiver) = sync_channel(1);
        let asking = move || {
            let _slot = slot;
            // A call that was cancelled meanwhile no longer listens.
            let _ = sender.send(answer::read(client.post(&asset)));
        };
        let started = thread::Builder::new().name("backend".into()).spawn(asking);
        started.map_err(|_| Problem::of(ErrorKind::Overloaded))?;
        loop {
            match receiver.recv_timeout(CANCEL_POLL) {
                Ok(answer) => return answer.map_err(Into::into),
                Err(RecvTimeoutError::Timeout) => cancel.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Problem::of(ErrorKind::ToolPanicked));
                }
            }
        }
    }
}

/// The right to one request.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(under_way: &Arc<AtomicUsize>) -> Result<Self, Problem> {
        let next = |number: usize| (number < MAX_REQUESTS).then_some(number + 1);
        match under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => Ok(Self(Arc::clone(under_way))),
            Err(_) => Err(Problem::new(
                ErrorKind::Overloaded,
                format!(
                    "{MAX_REQUESTS} requests to the backend are under way; this one was not sent"
                ),
            )),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Refuses a base that is not a plain address; true if it is one for https. A URL with
/// credentials is never repeated.
fn check_base(base: &str) -> Result<bool, Unable> {
    if base.contains('@') {
        return Err(Unable::new(
            "the backend URL holds credentials, which would show in answers; set SYN_BACKEND_URL \
             to a URL without them",
        ));
    }
    let wrong = |why: &str| {
        Unable::new(format_args!(
            "the backend URL {base:?} {why}; set SYN_BACKEND_URL to one such as \
             http://127.0.0.1:8000, or unset it"
        ))
    };
    let uri: Uri = base.parse().map_err(|_| wrong("cannot be read"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("is not an http or https address"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong("names no host"));
    }
    if base.contains(['?', '#']) {
        return Err(wrong("has a query or fragment"));
    }
    Ok(uri.scheme_str() == Some("https"))
}

/// The address that takes assets.
fn endpoint(base: &str, path: &str) -> Result<String, Unable> {
    let endpoint = format!(
        "{}/{}",
        base.trim_end_matches('/'),
        path.trim_start_matches('/')
    );
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
    if is_plain && endpoint.parse::<Uri>().is_ok() {
        return Ok(endpoint);
    }
    Err(Unable::new(format_args!(
        "the backend's path {path:?} cannot be part of a URL; set SYN_BACKEND_ASSETS_PATH to one \
         such as /synesthetic-assets/"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_the_path_below_the_base() {
        for (base, path, expected) in [
            ("http://h:1", "/a/", "http://h:1/a/"),
            ("http://h:1/", "a", "http://h:1/a"),
            (
                "https://[::1]:8/api/",
                "/a?x=1",
                "https://[::1]:8/api/a?x=1",
            ),
            ("http://h", "", "http://h/"),
        ] {
            check_base(base).unwrap();
            assert_eq!(endpoint(base, path).unwrap(), expected);
        }
        for path in ["/a b", "/a\n", "/é", "/#x"] {
            assert!(endpoint("http://h", path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn what_is_no_address_says_what_to_set() {
        for base in [
            "",
            "h:1",
            "localhost",
            "/x",
            "ftp://h",
            "http://",
            "http://h?x",
            "http://h#x",
            "http://h h",
            "file:///etc/passwd",
        ] {
            let said = Backend::new(base, "/", None).unwrap_err().detail;
            assert!(said.contains("set SYN_BACKEND_URL"), "{base:?}: {said}");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for base in ["http://user:hunter2@h/", "http://hunter2@h", "hunter2@h"] {
            let said = Backend::new(base, "/", None).unwrap_err().detail;
            assert!(
                said.contains("credentials") && !said.contains("hunter2"),
                "{said}"
            );
        }
    }

    #[test]
    fn no_more_requests_are_under_way_than_allowed() {
        let under_way = Arc::default();
        let slots: Vec<Slot> = (0..MAX_REQUESTS)
            .map(|_| Slot::take(&under_way).unwrap())
            .collect();
        let refused = Slot::take(&under_way).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Overloaded);
        drop(slots);
        assert!(Slot::take(&under_way).is_ok());
    }
}
