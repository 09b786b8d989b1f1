//! Messages of clients and workers, in the contract's types.

use mainstay_contract::dialect::{Dialect, EchoId, Form, Shape};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::RenderMode;
use mainstay_contract::rpc::{self, Answer, Probed};
use mainstay_contract::tool::Pace;
use mainstay_kernel::call::{Late, NewRequest, SlotId, Task, Work};

use super::Wanted;
use super::script::{Ask, Reply};

/// Ids as clients write them: three pairs of one string form, and two more.
const IDS: [&str; 8] = [
    "1",
    "\"1\"",
    "2",
    "\"2\"",
    "\"\\u0033\"",
    "\"3\"",
    "4",
    "\"five\"",
];
/// One of a few ids.
pub fn request_id(pick: u8) -> RequestId {
    RequestId::parse(IDS[usize::from(pick)]).unwrap()
}

/// A request; its size comes back in its end. The tool of an unrouted one is not known.
pub fn request(id: RequestId, dialect: Dialect, bytes: usize, work: Work) -> NewRequest {
    let known = !matches!(work, Work::Unrouted);
    NewRequest {
        id: EchoId::Known(id),
        form: Form {
            dialect,
            shape: Shape::Tool,
        },
        method: "tools/call".to_owned(),
        tool: known.then(|| "t".to_owned()),
        progress_token: None,
        input_bytes: bytes,
        trace: None,
        may_have_run: false,
        work,
    }
}

/// Who answers what is asked for, for the kernel and for the trace.
pub fn work(ask: Ask, pick_slot: impl Fn(u8) -> usize) -> (Work, Wanted) {
    match ask {
        Ask::Refused => (
            Work::Refused(Problem::of(ErrorKind::InvalidParams)),
            Wanted::Refusal,
        ),
        Ask::Host => (Work::Host, Wanted::Host),
        Ask::Tool {
            slot,
            replay,
            timeout_ms,
        } => {
            let slot = pick_slot(slot);
            let task = Task {
                slot: SlotId(slot),
                op: rpc::Op::Tool {
                    name: "t".to_owned(),
                    arguments: Json::empty_object(),
                    render: RenderMode::Json,
                },
                replay,
                timeout_ms,
                late: Late::Ask,
                pace: Pace::Short,
            };
            let wanted = Wanted::Worker {
                slot,
                replay,
                timeout_ms,
            };
            (Work::Worker(task), wanted)
        }
    }
}

/// A worker's answer to a call or to a probe.
pub fn answer(is_probe: bool, reply: Reply) -> Answer {
    let good = ToolReply {
        json: Json::empty_object(),
        text: None,
    };
    match (is_probe, reply) {
        (_, Reply::Failed) => Answer::Failed(Problem::of(ErrorKind::NotFound)),
        (false, Reply::Fitting(_)) | (true, Reply::Wrong) => Answer::Tool(good),
        (false, Reply::Wrong) => Answer::Probed(Probed::Unknown {}),
        (true, Reply::Fitting(found)) => Answer::Probed(match found % 4 {
            0 | 1 => Probed::NotApplied {},
            2 => Probed::Applied(good),
            _ => Probed::Unknown {},
        }),
    }
}
