//! Encoder and decoder against each other, in every piece size, and against damage.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

use carlos_ltx::{CHECKSUM_FLAG, DatabaseChecksum, Decoder, EncodeError, Encoder, Encoding};
use carlos_ltx::{FLAG_NO_CHECKSUM, HEADER_LEN, Header, LtxError, PageSink, Part, Txid, TxidRange};
use carlos_ltx::{Verified, Version, decode_pages, lock_page};
use proptest::prelude::*;

type Pages = Vec<(u32, Vec<u8>)>;

#[derive(Default)]
struct Collect {
    page_size: usize,
    pages: Pages,
}

impl PageSink for Collect {
    type Error = LtxError;

    fn begin(&mut self, header: &Header) -> Result<(), LtxError> {
        self.page_size = header.page_size as usize;
        Ok(())
    }

    fn slot(&mut self, number: u32) -> Result<&mut [u8], LtxError> {
        // Old content must be overwritten to the last byte.
        self.pages.push((number, vec![0xee; self.page_size]));
        Ok(&mut self.pages.last_mut().unwrap().1)
    }
}

fn range(min: u64, max: u64) -> TxidRange {
    TxidRange::new(Txid(min), Txid(max)).unwrap()
}

fn header(min: u64, max: u64, commit: u32) -> Header {
    Header::new(512, commit, range(min, max), 1_796_048_092_587)
}

fn page(seed: u32) -> Vec<u8> {
    (0..512u32).map(|at| if at % 7 == 0 { (seed + at) as u8 } else { 3 }).collect()
}

fn encode(header: Header, pages: &[(u32, Vec<u8>)], encoding: Encoding, post: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(header, encoding, &mut out).unwrap();
    for (number, page) in pages {
        encoder.page(*number, page, &mut out).unwrap();
    }
    encoder.finish(post, &mut out).unwrap();
    out
}

fn increment(encoding: Encoding) -> (Vec<u8>, Pages) {
    let pages: Pages = [1, 4, 5, 300].map(|number| (number, page(number))).into();
    (encode(header(5, 6, 300), &pages, encoding, 0), pages)
}

fn decode(bytes: &[u8], piece: usize) -> Result<(Verified, Pages), LtxError> {
    let mut decoder = Decoder::new();
    let mut sink = Collect::default();
    for piece in bytes.chunks(piece) {
        decoder.feed(piece, &mut sink)?;
    }
    Ok((decoder.finish()?, sink.pages))
}

fn refusal(bytes: &[u8]) -> LtxError {
    let whole = decode(bytes, bytes.len().max(1)).unwrap_err();
    assert_eq!(decode(bytes, 1).unwrap_err(), whole, "pieces must not change the refusal");
    whole
}

#[test]
fn both_encodings_are_read_in_pieces_of_any_size() {
    for encoding in [Encoding::Block, Encoding::Frame] {
        let (bytes, pages) = increment(encoding);
        for piece in [1, 2, 3, 7, 64, 100, 101, bytes.len()] {
            let (verified, read) = decode(&bytes, piece).unwrap();
            assert_eq!(read, pages, "{encoding:?} in pieces of {piece}");
            assert_eq!(verified.bytes, bytes.len() as u64);
            assert_eq!(verified.pages, 4);
        }
    }
}

#[test]
fn every_truncation_is_refused_as_one() {
    for encoding in [Encoding::Block, Encoding::Frame] {
        let (bytes, _) = increment(encoding);
        for len in 1..bytes.len() {
            let refused = refusal(&bytes[..len]);
            assert!(matches!(refused, LtxError::Truncated { .. }), "{len}: {refused}");
        }
    }
}

#[test]
fn truncations_name_the_part_and_the_length() {
    let (bytes, _) = increment(Encoding::Block);
    let part = |len: usize| match refusal(&bytes[..len]) {
        LtxError::Truncated { part, bytes } if bytes == len as u64 => part,
        other => unreachable!("{other}"),
    };
    assert_eq!(part(60), Part::Header);
    assert_eq!(part(HEADER_LEN), Part::PageBlock);
    assert_eq!(part(bytes.len() - 25), Part::PageIndex);
    assert_eq!(part(bytes.len() - 24), Part::Trailer);
    assert_eq!(part(bytes.len() - 1), Part::Trailer);
}

/// Whatever single bit is changed: refused, or (where only LZ4's own spelling changed, or the
/// frame's) the very same pages.
#[test]
fn every_single_bit_flip_is_refused_or_harmless() {
    for encoding in [Encoding::Block, Encoding::Frame] {
        let (bytes, pages) = increment(encoding);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok((verified, read)) = decode(&damaged, damaged.len()) {
                    assert_eq!(read, pages, "{encoding:?} byte {at} bit {bit}");
                    assert_eq!(verified.header, header(5, 6, 300));
                }
            }
        }
    }
}

#[test]
fn bytes_after_the_trailer_are_refused() {
    let (mut bytes, _) = increment(Encoding::Block);
    let end = bytes.len() as u64;
    bytes.push(0);
    assert_eq!(refusal(&bytes), LtxError::TrailingBytes(end));
}

#[test]
fn a_refused_file_stays_refused() {
    let (mut bytes, _) = increment(Encoding::Block);
    bytes[3] = b'9';
    let mut decoder = Decoder::new();
    let mut sink = Collect::default();
    assert!(decoder.feed(&bytes, &mut sink).is_err());
    assert_eq!(decoder.feed(&bytes, &mut sink), Err(LtxError::AlreadyRefused));
    assert_eq!(decoder.finish(), Err(LtxError::AlreadyRefused));
}

#[test]
fn older_formats_are_called_what_they_are() {
    let head = header(5, 6, 300).encode();
    let with = |rest: &[u8]| refusal(&[&head[..], rest, &[0; 64]].concat());
    let format2 = with(&[0, 0, 0, 1, 0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7]);
    assert_eq!(format2, LtxError::UnknownVersion(Version::Format2));
    let format1 = with(b"\0\0\0\x01SQLite format 3\0");
    assert_eq!(format1, LtxError::UnknownVersion(Version::Format1));
    let newer = with(&[0, 0, 0, 1, 0, 2]);
    assert_eq!(newer, LtxError::UnknownPageFlags { page: 1, flags: 2 });
}

#[test]
fn absurd_sizes_are_refused_before_memory_is_taken() {
    let head = header(5, 6, 300).encode();
    let block = [&head[..], &[0, 0, 0, 1, 0, 1, 0xff, 0xff, 0xff, 0xff]].concat();
    let size = u32::MAX;
    assert_eq!(refusal(&block), LtxError::CompressedSize { page: 1, size });
    let frame_head = [0, 0, 0, 1, 0, 0, 0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7];
    let frame = [&head[..], &frame_head, &[0xff, 0xff, 0xff, 0x7f]].concat();
    assert!(matches!(refusal(&frame), LtxError::Compression { page: 1, .. }));
}

#[test]
fn pages_out_of_order_or_on_the_lock_are_refused() {
    let (bytes, _) = increment(Encoding::Block);
    let mut twice = bytes.clone();
    // The second page's number is the first four bytes after the first page's data.
    let size = u32::from_be_bytes(*bytes[HEADER_LEN + 6..].first_chunk().unwrap()) as usize;
    let second = HEADER_LEN + 10 + size;
    twice[second..second + 4].copy_from_slice(&1u32.to_be_bytes());
    assert_eq!(refusal(&twice), LtxError::PageOrder { page: 1, after: 1 });
    let lock = lock_page(512);
    twice[second..second + 4].copy_from_slice(&lock.to_be_bytes());
    assert_eq!(refusal(&twice), LtxError::LockPage(lock));
}

#[test]
fn a_snapshot_must_hold_every_page() {
    let all: Pages = (1..=3).map(|number| (number, page(number))).collect();
    let bytes = encode(header(1, 4, 3), &all, Encoding::Block, 0);
    assert_eq!(decode(&bytes, 9).unwrap().1, all);
    // The same pages under a commit of four.
    let mut short = bytes.clone();
    short[15] = 4;
    assert_eq!(refusal(&short), LtxError::SnapshotHole(range(1, 4), 4));
    // An increment with a hole, made a snapshot.
    let (mut holes, _) = increment(Encoding::Block);
    holes[23] = 1;
    assert_eq!(refusal(&holes), LtxError::SnapshotHole(range(1, 6), 2));
}

#[test]
fn an_index_of_other_pages_is_refused() {
    let (bytes, _) = increment(Encoding::Block);
    let index_len = u64::from_be_bytes(*bytes[bytes.len() - 24..].first_chunk().unwrap()) as usize;
    let index = bytes.len() - 24 - index_len;
    let mut other = bytes.clone();
    other[index] = 2;
    assert!(matches!(refusal(&other), LtxError::Index(_)));
    let mut emptied = bytes.clone();
    emptied[index] = 0;
    assert!(matches!(refusal(&emptied), LtxError::Index(_)));
    let mut length = bytes;
    let at = length.len() - 17;
    length[at] ^= 1;
    assert!(matches!(refusal(&length), LtxError::Index(_)));
}

#[test]
fn database_checksums_are_accepted_and_checked_in_snapshots() {
    let all: Pages = (1..=3).map(|number| (number, page(number))).collect();
    let mut checksum = DatabaseChecksum::default();
    all.iter().for_each(|(number, page)| checksum.toggle(*number, page));
    let tracked = Header { flags: 0, ..header(1, 1, 3) };
    let right = encode(tracked, &all, Encoding::Frame, checksum.value());
    assert_eq!(decode(&right, 5).unwrap().0.post_apply, checksum.value());
    let wrong = encode(tracked, &all, Encoding::Frame, checksum.value() ^ 1);
    assert!(matches!(refusal(&wrong), LtxError::DatabaseChecksum { .. }));
}

#[test]
fn the_encoder_refuses_what_a_reader_would() {
    let mut out = Vec::new();
    let mut snapshot = Encoder::new(header(1, 1, 3), Encoding::Block, &mut out).unwrap();
    let len = out.len();
    let hole = snapshot.page(2, &page(2), &mut out);
    assert_eq!(hole, Err(EncodeError::SnapshotHole(range(1, 1), 1)));
    assert_eq!(snapshot.page(1, &[0; 511], &mut out), Err(EncodeError::PageSize(511)));
    let beyond = EncodeError::BeyondCommit { page: 4, commit: 3 };
    assert_eq!(snapshot.page(4, &page(4), &mut out), Err(beyond));
    assert_eq!(out.len(), len, "a refused page appends nothing");
    let tracked = Header { flags: 0, pre_apply: CHECKSUM_FLAG, ..header(2, 2, 3) };
    let encoder = Encoder::new(tracked, Encoding::Block, &mut out).unwrap();
    assert_eq!(encoder.finish(0, &mut out), Err(EncodeError::PostApplyChecksum(0)));
    let flags = Header { flags: FLAG_NO_CHECKSUM | 8, ..header(2, 2, 3) };
    assert!(Encoder::new(flags, Encoding::Block, &mut out).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        numbers in proptest::collection::btree_set(1u32..5000, 0..20),
        fill in proptest::collection::vec(any::<u8>(), 1..600),
        shift in 0u32..8,
        frames in any::<bool>(),
        piece in 1usize..5000,
    ) {
        let page_size = 512usize << shift;
        let header = Header { page_size: page_size as u32, ..header(2, 9, 5000) };
        let content = |number: u32| {
            fill.iter().cycle().skip(number as usize % fill.len()).take(page_size).copied()
        };
        let pages: Pages = numbers.iter().map(|n| (*n, content(*n).collect())).collect();
        let encoding = if frames { Encoding::Frame } else { Encoding::Block };
        let bytes = encode(header, &pages, encoding, 0);
        let (verified, read) = decode(&bytes, piece).unwrap();
        prop_assert_eq!(read, pages);
        prop_assert_eq!(verified.header, header);
    }

    #[test]
    fn no_bytes_whatever_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        valid_header in any::<bool>(),
    ) {
        let head = if valid_header { header(2, 2, 9).encode().to_vec() } else { Vec::new() };
        let bytes = [head, bytes].concat();
        let refused = decode_pages(&bytes, |_, _| ()).is_err();
        prop_assert!(refused);
    }
}

/// The densest files there are, nothing but zeros, and one whose count has a flipped bit.
#[test]
fn pages_of_zeros_fit_their_file_and_a_flipped_count_does_not() {
    for page_size in (9..=16).map(|bits| 1_u32 << bits) {
        for encoding in [Encoding::Block, Encoding::Frame] {
            let range = TxidRange::new(Txid(1), Txid(1)).unwrap();
            let header = Header::new(page_size, 64, range, 0);
            let mut file = Vec::new();
            let mut encoder = Encoder::new(header, encoding, &mut file).unwrap();
            for page in 1..=64 {
                encoder.page(page, &vec![0; page_size as usize], &mut file).unwrap();
            }
            encoder.finish(0, &mut file).unwrap();
            assert!(header.fits(file.len() as u64), "{page_size} {encoding:?}");
            let flipped = Header { commit: 64 | 1 << 20, ..header };
            assert!(!flipped.fits(file.len() as u64), "{page_size} {encoding:?}");
        }
    }
}
