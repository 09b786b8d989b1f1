//! How often the compiler will compile the schemas of several resources.
//!
//! It compiles a target of a reference once for every list of resources on the way to
//! it, except within its own compilation. That is walked through here, with a budget,
//! before it is done.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::{
    keywords::{references, subschemas},
    world::{At, Reached, World},
};

/// The number of a list of resources.
type Way = usize;

/// True if the compiler would compile more than `limit` schemas, copies counted, to
/// compile those at `starts`. `resource` says in which resource a schema is.
pub(crate) fn exceed(
    world: &World,
    reach: &Reached,
    starts: Vec<At>,
    resource: impl Fn(&At) -> Option<usize>,
    limit: usize,
) -> bool {
    let mut walk = Walk {
        world,
        reach,
        resource,
        ways: HashMap::new(),
        outgoing: HashMap::new(),
    };
    let mut left = limit;
    let mut done: HashSet<(At, Way)> = HashSet::new();
    let mut open: HashSet<At> = HashSet::new();
    let mut starts = starts;
    // What is being compiled, with the targets that are still to come.
    let mut stack: Vec<(At, Way, Vec<At>)> = Vec::new();
    loop {
        let next = match stack.last_mut() {
            None => match starts.pop() {
                Some(start) => Some((start, 0)),
                None => return false,
            },
            Some((at, way, targets)) => match targets.pop() {
                Some(target) => Some((target.clone(), walk.way(*way, at, &target))),
                None => {
                    open.remove(at);
                    done.insert((at.clone(), *way));
                    stack.pop();
                    None
                }
            },
        };
        let Some((at, way)) = next else {
            continue;
        };
        if open.contains(&at) || done.contains(&(at.clone(), way)) {
            continue;
        }
        let (schemas, targets) = walk.outgoing(&at);
        match left.checked_sub(schemas) {
            Some(rest) => left = rest,
            None => return true,
        }
        open.insert(at.clone());
        stack.push((at, way, targets));
    }
}

struct Walk<'a, R> {
    world: &'a World,
    reach: &'a Reached,
    resource: R,
    /// Lists of resources, by what they continue and by what.
    ways: HashMap<(Way, usize), Way>,
    outgoing: HashMap<At, (usize, Vec<At>)>,
}

impl<R: Fn(&At) -> Option<usize>> Walk<'_, R> {
    /// The way to `target` from `at`, to which `way` led.
    fn way(&mut self, way: Way, at: &At, target: &At) -> Way {
        let from = (self.resource)(at);
        if from == (self.resource)(target) {
            return way;
        }
        let new = self.ways.len() + 1;
        *self
            .ways
            .entry((way, from.unwrap_or_default()))
            .or_insert(new)
    }

    /// The number of schemas in the one at `at`, and the targets of their references.
    fn outgoing(&mut self, at: &At) -> (usize, Vec<At>) {
        if let Some(known) = self.outgoing.get(at) {
            return known.clone();
        }
        let mut count = 0usize;
        let mut targets = Vec::new();
        let mut queue = vec![at.clone()];
        while let Some(at) = queue.pop() {
            count += 1;
            let Some(schema) = self.world.schema(&at).and_then(Value::as_object) else {
                continue;
            };
            let draft = self.world.draft(&at);
            for (keyword, text) in references(schema, draft) {
                targets.extend(self.world.resolve(&at, text));
                if keyword == "$dynamicRef"
                    && let Some((_, name)) = text.rsplit_once('#')
                {
                    targets.extend(self.world.dynamic_anchors(self.reach, name));
                }
            }
            subschemas(schema, &at.pointer, draft, &mut |pointer, _, _| {
                queue.push(At {
                    document: at.document,
                    pointer,
                });
            });
        }
        targets.sort_unstable();
        targets.dedup();
        let found = (count, targets);
        self.outgoing.insert(at.clone(), found.clone());
        found
    }
}
