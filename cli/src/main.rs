//! The `carlos` binary.

fn main() {}
