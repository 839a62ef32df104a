//! The page index, checked against the pages without keeping either.

use std::hash::{DefaultHasher, Hasher};

/// A running digest of `(page, offset, size)` triples. One is fed from the page block and one
/// from the index; equal digests mean equal lists, and memory stays flat however many pages a
/// file has. The index is not used for reading here, so a forged collision would gain nothing.
#[derive(Default)]
pub(crate) struct IndexDigest {
    hasher: DefaultHasher,
    entries: u64,
}

impl IndexDigest {
    pub(crate) fn add(&mut self, page: u64, offset: u64, size: u64) {
        self.hasher.write_u64(page);
        self.hasher.write_u64(offset);
        self.hasher.write_u64(size);
        self.entries += 1;
    }

    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.entries == other.entries && self.hasher.finish() == other.hasher.finish()
    }
}

/// What stands next in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Page {
        page: u64,
        offset: u64,
        size: u64,
        len: usize,
    },
    End,
    /// The bytes end inside an entry.
    Partial,
}

/// Reads the entry that `bytes` begins with.
pub(crate) fn read_entry(bytes: &[u8]) -> Result<Entry, &'static str> {
    let Some((page, a)) = uvarint(bytes)? else {
        return Ok(Entry::Partial);
    };
    if page == 0 {
        return Ok(Entry::End);
    }
    let Some((offset, b)) = uvarint(&bytes[a..])? else {
        return Ok(Entry::Partial);
    };
    let Some((size, c)) = uvarint(&bytes[a + b..])? else {
        return Ok(Entry::Partial);
    };
    Ok(Entry::Page { page, offset, size, len: a + b + c })
}

/// Appends an unsigned LEB128 number.
pub(crate) fn put_uvarint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A number and its length in bytes; `None` when the bytes end inside it.
fn uvarint(bytes: &[u8]) -> Result<Option<(u64, usize)>, &'static str> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        let low = u64::from(byte & 0x7f);
        if at == 9 && *byte > 1 {
            return Err("a number does not fit 64 bits");
        }
        value |= low << (7 * at);
        if byte & 0x80 == 0 {
            // Every writer uses the shortest form; one entry must not have two spellings.
            let padded = *byte == 0 && at > 0;
            return if padded { Err("a number is padded") } else { Ok(Some((value, at + 1))) };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn oversized_and_padded_numbers_are_refused() {
        assert!(uvarint(&[0xff; 10]).is_err());
        assert!(uvarint(&[0x80, 0x00]).is_err());
        assert_eq!(uvarint(&[0x80]), Ok(None));
        assert_eq!(uvarint(&[0x00]), Ok(Some((0, 1))));
    }

    proptest! {
        #[test]
        fn numbers_round_trip(value in any::<u64>(), tail in any::<u8>()) {
            let mut out = Vec::new();
            put_uvarint(value, &mut out);
            let len = out.len();
            prop_assert_eq!(uvarint(&out[..len - 1]), Ok(None));
            out.push(tail);
            prop_assert_eq!(uvarint(&out), Ok(Some((value, len))));
        }
    }
}
