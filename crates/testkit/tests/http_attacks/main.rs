//! What nobody should send over HTTP, sent: foreign places and pages, bad tokens, guessed sessions,
//! floods, slow clients, requests in two readings. Raw sockets against the real host, packs and a
//! wrapped server alike; after each attack a good client is served, and memory stays bounded.

mod bodies;
mod crowds;
mod frames;
mod heads;
mod place;
mod routes;
mod sessions;
mod streams;
mod tokens;
mod victim;
