//! The tool calls in flight, for operators, who may end them.

use mainstay_contract::control::{CallInFlight, CallStage};
use mainstay_contract::dialect::CancelKind;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;

use super::Kernel;
use crate::call::{Call, SlotId, Stage};
use crate::time::Time;

/// Calls that one listing shows.
const MOST: usize = 200;

impl Kernel {
    /// The tool calls in flight, the oldest first. `name_of` is the name of a slot's pack or server.
    pub fn calls_in_flight<'a>(
        &self,
        now: Time,
        name_of: impl Fn(SlotId) -> &'a str,
    ) -> Vec<CallInFlight> {
        let calls = self.calls.iter().filter(|(_, call)| call.is_tool_call());
        let shown = calls.take(MOST).map(|(id, call)| CallInFlight {
            call: id.get(),
            tool: call.request.tool.clone(),
            server: call.slot().map(|slot| name_of(slot).to_owned()),
            stage: stage_of(call),
            age_ms: now.ms_since(call.accepted),
            attempt: call.attempt,
            generation: call.generation,
        });
        shown.collect()
    }

    /// Ends a tool call as `$/cancelRequest` of its client would: it is answered with `CANCELLED`. False if no such call is in
    /// flight.
    pub fn cancel_call(&mut self, now: Time, id: CallId) -> bool {
        let Some(call) = self.calls.get(&id).filter(|call| call.is_tool_call()) else {
            return false;
        };
        let late = call.is_late(self.paused(call.slot()).unwrap_or(now));
        let kind = match late {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.give_up(now, id, kind, Self::delivery(CancelKind::Answered));
        true
    }
}

fn stage_of(call: &Call) -> CallStage {
    match call.stage {
        Stage::Waiting => CallStage::Waiting,
        Stage::Serving => CallStage::Serving,
        Stage::Queued { .. } => CallStage::Queued,
        Stage::Running { .. } | Stage::Checking { .. } => CallStage::Running,
    }
}
