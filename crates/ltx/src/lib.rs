//! Reader and writer for LTX files, the transaction files of a Litestream 0.5 replica.
//!
//! An LTX file carries every page that changed between two transaction numbers ([`Txid`]): a
//! 100-byte [`Header`], the pages in ascending order, a page index, and a trailer whose checksum
//! covers all of it. A file whose range begins at 1 is a snapshot and holds every page.
//!
//! Without features this crate knows names and headers only, which is what a process may read
//! that must not be able to decode a page (db-forward §8.1). The `pages` feature adds the codec:
//! [`Decoder`], which takes bytes in pieces of any size, and [`Encoder`].
//!
//! Two page encodings exist in real replicas and both are read: one LZ4 frame per page (written
//! by Litestream 0.5.0 to 0.5.15) and one LZ4 block with its size (0.5.16 and later).
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod error;
mod header;
mod name;

#[cfg(feature = "pages")]
mod checksum;
#[cfg(feature = "pages")]
mod decode;
#[cfg(feature = "pages")]
mod encode;
#[cfg(feature = "pages")]
mod frame;
#[cfg(feature = "pages")]
mod index;

pub use error::{Foreign, LtxError, Part, Version};
pub use header::{
    FLAG_NO_CHECKSUM, HEADER_LEN, Header, MAX_PAGE_SIZE, MIN_PAGE_SIZE, is_page_size, lock_page,
};
pub use name::{Txid, TxidRange};

#[cfg(feature = "pages")]
pub use checksum::{CHECKSUM_FLAG, DatabaseChecksum, page_checksum};
#[cfg(feature = "pages")]
pub use decode::{Decoder, PageSink, Verified, decode_pages};
#[cfg(feature = "pages")]
pub use encode::{EncodeError, Encoder, Encoding};
