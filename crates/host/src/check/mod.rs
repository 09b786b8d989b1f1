//! Temporary: inline checks.
use std::marker::PhantomData;
use mainstay_schema::check::{Compiled, Definition, Subject, Verdict};
use tokio::sync::mpsc;
use tokio::time::Instant;
use crate::config::Shim;

#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ticket: u64,
    pub(crate) verdict: Verdict,
}
#[derive(Debug, Default)]
pub(crate) struct CheckLimits {}
#[derive(Debug)]
pub(crate) struct Checkers<E> { cache: std::collections::BTreeMap<mainstay_schema::Fingerprint, Result<Compiled, String>>, p: PhantomData<E> }
impl<E> Checkers<E> {
    pub(crate) fn new(_: &Shim, _: CheckLimits, _: mpsc::Sender<E>) -> Self { Self { cache: Default::default(), p: PhantomData } }
    pub(crate) fn submit(&mut self, _ticket: u64, _fair: u64, d: &Definition, s: Subject, _: Instant) -> Option<Verdict> {
        let c = self.cache.entry(d.digest()).or_insert_with(|| Compiled::compile(d));
        Some(match c { Ok(c) => c.run(&s), Err(reason) => Verdict::Unchecked { reason: reason.clone() } })
    }
    pub(crate) fn vet(&mut self, _: u64, _: Vec<Definition>, _: Instant) -> Option<Verdict> { Some(Verdict::Passed) }
    pub(crate) fn forget(&mut self, _: u64) {}
}
