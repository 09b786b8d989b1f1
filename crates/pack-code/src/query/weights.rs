//! tuning (temporary)
use std::sync::atomic::{AtomicU64, Ordering};
pub const NAMES: &[(&str, f64)] = &[
    ("k1", 1.2),
    ("b", 0.5),
    ("def", 1.6),
    ("name", 3.0),
    ("folder", 0.8),
    ("floor", 0.35),
    ("passage", 0.45),
    ("defines", 0.55),
    ("named", 1.4),
    ("file_name", 0.7),
    ("file_floor", 0.4),
    ("def_cover", 0.3),
    ("head", 0.3),
    ("header", 0.9),
    ("legacy", 0.7),
    ("joined", 0.5),
    ("weak", 0.3),
    ("part", 0.7),
    ("whole", 1.2),
    ("window", 24.0),
    ("worth_floor", 0.4),
    ("first", 1.0),
    ("head_lines", 30.0),
    ("folder_name", 0.2),
    ("class2", 0.5),
];
static W: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];
pub fn set(i: usize, v: f64) {
    W[i].store(v.to_bits(), Ordering::Relaxed);
}
pub fn get(i: usize) -> f64 {
    let bits = W[i].load(Ordering::Relaxed);
    if bits == 0 {
        NAMES[i].1
    } else {
        f64::from_bits(bits)
    }
}
