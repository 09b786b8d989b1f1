//! Compiled definitions that the host keeps: the least recently used one is evicted first.

use std::collections::BTreeMap;

use mainstay_schema::Fingerprint;
use mainstay_schema::check::{Compiled, Definition};

/// A cache, bounded by entries and by bytes of schemas.
#[derive(Debug)]
pub(super) struct Cache {
    most: usize,
    most_bytes: usize,
    bytes: usize,
    /// Counts uses.
    now: u64,
    entries: BTreeMap<Fingerprint, Entry>,
    /// The last use of each entry.
    uses: BTreeMap<u64, Fingerprint>,
}

#[derive(Debug)]
struct Entry {
    compiled: Result<Compiled, String>,
    bytes: usize,
    used: u64,
}

impl Cache {
    pub(super) const fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            most,
            most_bytes,
            bytes: 0,
            now: 0,
            entries: BTreeMap::new(),
            uses: BTreeMap::new(),
        }
    }

    /// The compiled form of a definition.
    pub(super) fn get(&mut self, definition: &Definition) -> Result<Compiled, String> {
        self.now += 1;
        let digest = definition.digest();
        if let Some(entry) = self.entries.get_mut(&digest) {
            self.uses.remove(&entry.used);
            entry.used = self.now;
            self.uses.insert(self.now, digest);
            return entry.compiled.clone();
        }
        let compiled = Compiled::compile(definition);
        let bytes = definition.schema_bytes();
        self.bytes = self.bytes.saturating_add(bytes);
        self.uses.insert(self.now, digest);
        let entry = Entry {
            compiled: compiled.clone(),
            bytes,
            used: self.now,
        };
        self.entries.insert(digest, entry);
        while self.entries.len() > self.most || self.bytes > self.most_bytes {
            let Some((_, oldest)) = self.uses.pop_first() else {
                break;
            };
            if let Some(evicted) = self.entries.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(evicted.bytes);
            }
        }
        compiled
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str) -> Definition {
        Definition::of_server(
            name,
            &json!({"inputSchema": {"type": "object"}}),
            true,
            true,
        )
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut cache = Cache::new(2, 1_000);
        for name in ["a", "b", "a", "c"] {
            cache.get(&definition(name)).unwrap();
        }
        let has = |name: &str| cache.entries.contains_key(&definition(name).digest());
        assert_eq!(["a", "b", "c"].map(has), [true, false, true]);
        assert_eq!(cache.uses.len(), 2);
    }

    #[test]
    fn the_bytes_of_schemas_are_bounded() {
        let mut cache = Cache::new(100, 40);
        for name in ["a", "b", "c"] {
            cache.get(&definition(name)).unwrap();
        }
        assert_eq!((cache.entries.len(), cache.bytes), (2, 34));
    }
}
