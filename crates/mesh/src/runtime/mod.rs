//! Tasks and handles: what makes a core, links, mailboxes and a store into a running node.

mod calls;
mod conn;
mod host;
mod locate;
mod node;
mod shared;

pub use calls::{CallOptions, ChannelHandle, Reply};
pub use host::{MeshHost, SHUTDOWN, Shutdown, StartError};
