//! Who answers what was handed in unrouted, and when the driver says so.

use mainstay_contract::id::CallId;
use mainstay_kernel::call::Work;

use super::Input;
use super::crew::choose;
use super::script::Routing;
use super::world::World;

/// A request that was handed in unrouted.
#[derive(Debug)]
pub struct Errand {
    /// Who answers it, as will turn out.
    pub work: Work,
    pub routing: Routing,
    pub state: State,
}

/// The kernel's knowledge of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It did not ask yet.
    Unasked,
    /// It asked, and waits.
    Awaited,
    /// It was told, or the request ended without that.
    Settled,
}

impl World {
    /// The kernel asks who answers a request.
    pub(super) fn note_route(&mut self, call: CallId) {
        let errand = self.errands.get_mut(&call).expect("it was unrouted");
        assert_eq!(errand.state, State::Unasked, "a request is routed once");
        errand.state = State::Awaited;
        if errand.routing == Routing::AtOnce {
            self.at_once.push_back(call);
        }
    }

    /// A request ended; its route is no longer needed.
    pub(super) fn forget_route(&mut self, call: CallId) {
        if let Some(errand) = self.errands.get_mut(&call) {
            errand.state = State::Settled;
        }
    }

    /// The driver says who answers a request.
    pub(super) fn route(&mut self, call: CallId) {
        let errand = self.errands.get_mut(&call).unwrap();
        let stale = errand.state != State::Awaited;
        if !stale {
            errand.state = State::Settled;
        }
        let work = errand.work.clone();
        let before = stale.then(|| self.kernel.clone());
        let tool = Some("t".to_owned());
        self.kernel.handle_routed(self.now, call, tool, work);
        if let Some(before) = before {
            assert_eq!(self.kernel, before, "what was not asked changes nothing");
        }
        self.step(Input::Routed { call, stale });
    }

    /// A request that the kernel asked about; or, if `stale`, one that it did not.
    pub(super) fn pick_errand(&self, pick: u16, stale: bool) -> Option<CallId> {
        let fits = |errand: &Errand| (errand.state != State::Awaited) == stale;
        let all = self.errands.iter().filter(|(_, errand)| fits(errand));
        choose(all.map(|(call, _)| *call).collect(), pick.into())
    }
}
