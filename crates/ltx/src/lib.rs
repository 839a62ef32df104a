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
//! by Litestream 0.5.0 to 0.5.15) and one LZ4 block with its size (0.5.16 and later). Older
//! formats, encrypted files and other foreign bytes are refused by name: [`LtxError`] says what
//! was found.
//!
//! Nothing here opens a file, and nothing allocates by a number that a file claims: a decoder holds
//! one page's stored bytes at most.
//!
//! # Examples
//!
//! The name and the header of a file say which transactions it holds:
//!
//! ```
//! use carlos_ltx::{Header, Txid, TxidRange};
//!
//! let range = TxidRange::from_name("0000000000000001-000000000000002a.ltx");
//! let range = range.expect("a file's name");
//! assert!(range.is_snapshot());
//! assert_eq!(range.max(), Txid(42));
//!
//! let header = Header::new(4096, 5, range, 1_796_048_092_587);
//! assert_eq!(Header::decode(&header.encode())?.database_bytes(), 20_480);
//! # Ok::<(), carlos_ltx::LtxError>(())
//! ```
//!
//! With the `pages` feature, a whole file is written and read:
//!
//! ```
//! # #[cfg(feature = "pages")] {
//! use carlos_ltx::{Encoder, Encoding, Header, Txid, TxidRange, decode_pages};
//!
//! let range = TxidRange::new(Txid(7), Txid(7)).expect("1 <= 7 <= 7");
//! let mut file = Vec::new();
//! let mut encoder = Encoder::new(Header::new(512, 9, range, 0), Encoding::Block, &mut file)?;
//! encoder.page(3, &[0x5a; 512], &mut file)?;
//! encoder.finish(0, &mut file)?;
//!
//! let mut pages = Vec::new();
//! let verified = decode_pages(&file, |number, page| pages.push((number, page[0])))?;
//! assert_eq!(pages, [(3, 0x5a)]);
//! assert_eq!(verified.header.range, range);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
