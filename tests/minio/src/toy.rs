//! Stores that lie, over HTTP.
