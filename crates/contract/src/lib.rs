pub mod normalise;
pub mod render;
