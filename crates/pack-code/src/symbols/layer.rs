//! The symbol layer.
use crate::build::Place;
use crate::store::StoreError;
use crate::view::Generation;
use std::sync::atomic::AtomicBool;

pub(crate) fn extend(
    _place: &Place,
    _generation: &Generation,
    _hurry: &AtomicBool,
) -> Result<bool, StoreError> {
    Ok(false)
}
