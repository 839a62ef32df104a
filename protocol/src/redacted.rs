//! What `Debug` says of a text that no log may hold (db-forward §9.3).

use std::fmt;

use crate::ids::Digest;

/// A text by its length and the prefix of its digest, as the audit row keeps a statement.
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Digest::of(self.0.as_bytes()).prefix();
        write!(f, "<{} bytes, sha256 {digest}>", self.0.len())
    }
}
