//! What is searched for: the text of kernel sources, in four groups.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Literal,
    Identifier,
    Regex,
    /// Identifiers again, as an agent asks for them: without saying how.
    Auto,
}

const LITERALS: [&str; 13] = [
    "out of memory",
    "TODO: ",
    "EXPORT_SYMBOL_GPL(",
    "if (unlikely(",
    "kfree(priv)",
    "struct list_head",
    "return -EINVAL;",
    "GFP_KERNEL",
    "deadlock",
    "unused parameter",
    "#include <linux/",
    "spin_lock_irqsave",
    "copyright (c) 20",
];

const IDENTIFIERS: [&str; 12] = [
    "kmalloc_array",
    "mutex_lock",
    "dev_err",
    "ext4_mark_inode_dirty",
    "skb_put",
    "of_property_read_u32",
    "task_struct",
    "pci_enable_device",
    "btrfs_release_path",
    "irqreturn_t",
    "nf_conntrack_get",
    "kthread_should_stop",
];

const REGEXES: [&str; 10] = [
    r"static int \w+_probe\(",
    r"EXPORT_SYMBOL(_GPL)?\(kmem",
    r"for_each_\w+_safe\(",
    r"0x[0-9a-f]{8}UL",
    r"^#define\s+PCI_DEVICE_ID_\w+",
    r"(alloc|free)_percpu",
    r"\bgoto (out|err)_unlock;",
    r"mutex_(un)?lock\(&\w+->lock\)",
    r"u64_stats_\w+_begin",
    r"W(A|O)RN_ON_ONCE\(",
];

impl Group {
    pub(super) const ALL: [Self; 4] = [Self::Literal, Self::Identifier, Self::Regex, Self::Auto];
    /// Those that the other programs can answer, too.
    pub(super) const COMMON: [Self; 3] = [Self::Literal, Self::Identifier, Self::Regex];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Literal => "literal",
            Self::Identifier => "identifier",
            Self::Regex => "regex",
            Self::Auto => "auto, identifier",
        }
    }

    pub(super) const fn queries(self) -> &'static [&'static str] {
        match self {
            Self::Literal => &LITERALS,
            Self::Identifier | Self::Auto => &IDENTIFIERS,
            Self::Regex => &REGEXES,
        }
    }

    pub(super) fn arguments(self, query: &str) -> Value {
        let kind = match self {
            Self::Literal | Self::Identifier => "literal",
            Self::Regex => "regex",
            Self::Auto => "auto",
        };
        json!({"query": query, "kind": kind, "limit": 50})
    }
}
