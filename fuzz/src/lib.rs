//! Fuzz targets: one function of bytes for every decoder that reads what others wrote.
//!
//! A target panics when its decoder does, or when it breaks its promise: what is read is written
//! back to the same bytes, and a decoder that takes pieces reads the same whatever the pieces.
//! Three things drive them:
//!
//! - `cargo test -p carlos-fuzz` mutates the seeds a fixed number of times from a fixed seed;
//! - `cargo run --release -p carlos-fuzz -- TARGET|all SECONDS [SEED]` does so for a time;
//! - `fuzz/libfuzzer` hands them to libFuzzer, which sees coverage (nightly toolchain).
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod mesh;
pub mod mutate;
pub mod protocol;
pub mod replica;
pub mod rows;
pub mod seeds;
pub mod smoke;
pub mod worker;

/// A target: its name, its function, and inputs that reach deep into it.
#[derive(Clone, Copy)]
pub struct Target {
    /// As the command line names it.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Good inputs to mutate.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($module:ident::$name:ident from $seeds:ident;)*) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $module::$name,
            seeds: seeds::$seeds,
        }),*];
    };
}

targets! {
    mesh::mesh_descriptors from mesh;
    mesh::mesh_hellos from mesh;
    mesh::mesh_metadata from mesh;
    mesh::mesh_names from mesh;
    mesh::mesh_presences from mesh;
    mesh::mesh_records from mesh;
    protocol::accounts from bodies;
    protocol::api from api;
    protocol::boxes from bodies;
    protocol::chain_entries from bodies;
    protocol::envelopes from envelopes;
    protocol::frames from frames;
    protocol::hosts from bodies;
    protocol::key_files from key_files;
    protocol::keys from keys;
    protocol::lines from lines;
    protocol::markers from bodies;
    protocol::names from names;
    protocol::requests from requests;
    protocol::results from bodies;
    protocol::sealed from sealed;
    protocol::sentences from names;
    protocol::statements from statements;
    protocol::summaries from bodies;
    protocol::times from names;
    protocol::tokens from names;
    replica::ltx_ends from ltx_ends;
    replica::ltx_files from ltx_files;
    replica::ltx_headers from ltx_files;
    replica::ltx_names from names;
    replica::plans from listings;
    replica::replicas from replicas;
    replica::restores from ltx_files;
    rows::row_streams from row_streams;
    worker::worker_conversations from conversations;
    worker::worker_images from images;
}

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
