//! A small HTTP/1.1 client for tests: raw where it must be, MCP where that helps.
//!
//! [`Request`] is bytes to send, good or bad. [`Connection`] is one TCP connection on which every
//! wait has a deadline; it reads whole answers and streams of events. [`Session`] speaks MCP of
//! the legacy era in one session and of the modern era in single requests. [`bridge`] lets a
//! conversation in lines run over HTTP.

mod bridge;
mod connection;
mod events;
mod session;
mod wire;

pub use bridge::{Era, bridge};
pub use connection::{Connection, Framing, Response};
pub use events::{Event, Events};
pub use session::{Session, initialize, modern};
pub use wire::{Head, Request};
