//! A panic while an event is handled ends the session or the worker that caused it; the others are served.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_kernel::Core;
use mainstay_kernel::core::action::CoreEvent;

use super::Engine;

/// The peer that an event came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Session(SessionId),
    Worker(Generation),
    /// A timer, an operator or a checker.
    Host,
}

impl Origin {
    pub(super) const fn of(event: &CoreEvent) -> Self {
        match event {
            CoreEvent::Line { session, .. }
            | CoreEvent::Oversize { session, .. }
            | CoreEvent::InputEnded { session }
            | CoreEvent::Pace { session, .. }
            | CoreEvent::Ask { session, .. } => Self::Session(*session),
            CoreEvent::Worker { generation, .. } => Self::Worker(*generation),
            _ => Self::Host,
        }
    }
}

impl Engine {
    /// Works with the core. A panic is an `invariant` fault of the peer whose event is being handled.
    pub(super) fn guarded<T>(&mut self, work: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let core = &mut self.core;
        // The core may be left in the middle of an event; ending its peer removes what that event touched.
        let done = catch_unwind(AssertUnwindSafe(|| work(core)));
        match done {
            Ok(value) => Some(value),
            Err(_) => {
                self.quarantine();
                None
            }
        }
    }

    fn quarantine(&mut self) {
        let origin = std::mem::replace(&mut self.handling, Origin::Host);
        let log = &self.reports.log;
        match origin {
            Origin::Session(session) => {
                log.line(&format!("mcp:error reason=invariant session={session}"));
                self.drop_conversation(session);
                let now = self.clock.now();
                self.guarded(|core| core.handle(now, CoreEvent::Gone { session }));
            }
            Origin::Worker(generation) => {
                log.line(&format!(
                    "mcp:error reason=invariant generation={generation}"
                ));
                let detail = "the host failed while it handled a line of this worker";
                let fault = Fault::new(ErrorKind::Internal, detail).of(generation);
                self.abandon(generation, fault);
            }
            // No peer to blame: the host stops in order.
            Origin::Host => {
                log.line("mcp:error reason=invariant");
                let now = self.clock.now();
                let stop = AssertUnwindSafe(|| self.core.handle(now, CoreEvent::Stop));
                let _ = catch_unwind(stop);
            }
        }
    }
}
