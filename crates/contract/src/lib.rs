pub mod frame;
pub mod id;
pub mod scan;
