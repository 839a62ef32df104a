//! One page's stored bytes, in both encodings that real replicas hold.
//!
//! An LZ4 frame does not say how long it is: its end is found by walking its blocks. Libraries
//! that read frames from a stream may look past that end for a concatenated frame and lose the
//! next page's header, so frames are walked here by hand, over bytes that are already present.

use lz4_flex::block::decompress_into;
use twox_hash::XxHash32;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Magic, flags, block descriptor, descriptor checksum.
const DESCRIPTOR_LEN: usize = 7;
/// The descriptor every known writer uses: version 1, independent blocks, content checksum,
/// 64 KiB blocks.
const DESCRIPTOR: [u8; DESCRIPTOR_LEN] = [0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7];
const BLOCK_CHECKSUM: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
/// Set in a block's size word when its bytes are stored as they are.
const STORED: u32 = 0x8000_0000;
/// One block holds any page, so writers use one. A few more are tolerated; a bound keeps the
/// repeated walk over a frame that arrives byte by byte cheap.
const MAX_BLOCKS: usize = 8;

/// How far a frame reaches, in bytes from its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole(usize),
    /// At least so many bytes are needed to say more; never past the frame's end.
    AtLeast(usize),
}

/// The most bytes an LZ4 block can need for `len` bytes of content.
pub(crate) const fn max_compressed(len: usize) -> usize {
    len + len / 255 + 16
}

/// Decompresses one LZ4 block that must fill `page` exactly.
pub(crate) fn read_block(block: &[u8], page: &mut [u8]) -> Result<(), &'static str> {
    match decompress_into(block, page) {
        Ok(len) if len == page.len() => Ok(()),
        Ok(_) => Err("the LZ4 block is shorter than a page"),
        Err(_) => Err("the LZ4 block is damaged"),
    }
}

/// Finds where the frame that `bytes` begins with ends.
pub(crate) fn measure(bytes: &[u8], page_size: usize) -> Result<Extent, &'static str> {
    if bytes.len() < DESCRIPTOR_LEN {
        return Ok(Extent::AtLeast(DESCRIPTOR_LEN));
    }
    let flags = flags(bytes)?;
    let mut at = descriptor_len(flags);
    for _ in 0..=MAX_BLOCKS {
        let Some(word) = le32(bytes, at) else {
            return Ok(Extent::AtLeast(at + 4));
        };
        at += 4;
        if word == 0 {
            return Ok(end_at(bytes, at + checksum_len(flags, CONTENT_CHECKSUM)));
        }
        let stored = (word & !STORED) as usize;
        if stored > max_compressed(page_size) {
            return Err("a block of the LZ4 frame is larger than a page can need");
        }
        at += stored + checksum_len(flags, BLOCK_CHECKSUM);
    }
    Err("the LZ4 frame has too many blocks")
}

/// Decompresses a whole frame, as [`measure`] delimited it, into exactly `page`.
pub(crate) fn read_frame(frame: &[u8], page: &mut [u8]) -> Result<(), &'static str> {
    let flags = flags(frame)?;
    check_descriptor(frame, flags, page.len())?;
    let mut at = descriptor_len(flags);
    let mut filled = 0;
    loop {
        let word = le32(frame, at).ok_or("the LZ4 frame is cut short")?;
        at += 4;
        if word == 0 {
            break;
        }
        let end = at + (word & !STORED) as usize;
        let block = frame.get(at..end).ok_or("the LZ4 frame is cut short")?;
        filled += unpack(block, word & STORED != 0, &mut page[filled..])?;
        if flags & BLOCK_CHECKSUM != 0 {
            check_hash(frame, end, block, "a block checksum of the LZ4 frame does not match")?;
        }
        at = end + checksum_len(flags, BLOCK_CHECKSUM);
    }
    if filled != page.len() {
        return Err("the LZ4 frame is shorter than a page");
    }
    if flags & CONTENT_CHECKSUM != 0 {
        check_hash(frame, at, page, "the content checksum of the LZ4 frame does not match")?;
    }
    Ok(())
}

/// Appends `page` as a frame, the way Litestream 0.5.0 to 0.5.15 wrote one.
pub(crate) fn write_frame(page: &[u8], out: &mut Vec<u8>) {
    let block = lz4_flex::block::compress(page);
    let (word, stored) = if block.len() < page.len() {
        (block.len() as u32, &block[..])
    } else {
        (page.len() as u32 | STORED, page)
    };
    out.extend_from_slice(&DESCRIPTOR);
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(stored);
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&XxHash32::oneshot(0, page).to_le_bytes());
}

/// The flag byte of a frame, refused when it asks for what is not read here.
fn flags(bytes: &[u8]) -> Result<u8, &'static str> {
    if bytes[..4] != MAGIC {
        return Err("no LZ4 frame begins here");
    }
    let flags = bytes[4];
    if flags >> 6 != 1 || flags & 0x02 != 0 {
        return Err("the LZ4 frame is of an unknown version");
    }
    if flags & 0x01 != 0 {
        return Err("the LZ4 frame needs a dictionary");
    }
    Ok(flags)
}

fn check_descriptor(frame: &[u8], flags: u8, page_len: usize) -> Result<(), &'static str> {
    let sum_at = descriptor_len(flags) - 1;
    let described = frame.get(4..sum_at).ok_or("the LZ4 frame is cut short")?;
    let sum = (XxHash32::oneshot(0, described) >> 8) as u8;
    if frame.get(sum_at) != Some(&sum) {
        return Err("the header checksum of the LZ4 frame does not match");
    }
    let size = described.get(2..10).and_then(|size| size.first_chunk());
    match size {
        Some(size) if u64::from_le_bytes(*size) != page_len as u64 => {
            Err("the LZ4 frame states another size than a page's")
        }
        _ => Ok(()),
    }
}

fn unpack(block: &[u8], stored: bool, out: &mut [u8]) -> Result<usize, &'static str> {
    if !stored {
        // A block that refers back into an earlier one fails here: only independent blocks exist
        // in replicas, and a first block has nothing to refer to.
        return decompress_into(block, out).map_err(|_| "the LZ4 frame is damaged");
    }
    let out = out.get_mut(..block.len()).ok_or("the LZ4 frame is longer than a page")?;
    out.copy_from_slice(block);
    Ok(block.len())
}

fn check_hash(
    frame: &[u8],
    at: usize,
    content: &[u8],
    otherwise: &'static str,
) -> Result<(), &'static str> {
    let stored = le32(frame, at).ok_or("the LZ4 frame is cut short")?;
    if stored != XxHash32::oneshot(0, content) {
        return Err(otherwise);
    }
    Ok(())
}

const fn end_at(bytes: &[u8], end: usize) -> Extent {
    if bytes.len() < end { Extent::AtLeast(end) } else { Extent::Whole(end) }
}

const fn descriptor_len(flags: u8) -> usize {
    DESCRIPTOR_LEN + if flags & CONTENT_SIZE != 0 { 8 } else { 0 }
}

const fn checksum_len(flags: u8, which: u8) -> usize {
    if flags & which != 0 { 4 } else { 0 }
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 7u32;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(step).collect()
    }

    #[test]
    fn the_usual_descriptor_has_a_right_checksum() {
        let mut frame = Vec::new();
        write_frame(&[7; 512], &mut frame);
        assert_eq!(check_descriptor(&frame, flags(&frame).unwrap(), 512), Ok(()));
    }

    #[test]
    fn a_page_that_does_not_compress_is_stored() {
        let page = noise(65_536);
        let mut frame = Vec::new();
        write_frame(&page, &mut frame);
        assert_eq!(measure(&frame, page.len()), Ok(Extent::Whole(frame.len())));
        let mut back = vec![0; page.len()];
        read_frame(&frame, &mut back).unwrap();
        assert_eq!(back, page);
    }

    #[test]
    fn frames_of_another_encoder_are_read_to_their_exact_end() {
        use std::io::Write;
        let info = lz4_flex::frame::FrameInfo::new()
            .content_checksum(true)
            .block_checksums(true)
            .content_size(Some(4096));
        let page = [noise(2048), vec![1; 2048]].concat();
        let mut writer = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        writer.write_all(&page).unwrap();
        let frame = writer.finish().unwrap();
        let followed = [&frame[..], &MAGIC].concat();
        assert_eq!(measure(&followed, 4096), Ok(Extent::Whole(frame.len())));
        let mut back = vec![0; 4096];
        read_frame(&frame, &mut back).unwrap();
        assert_eq!(back, page);
    }

    proptest! {
        #[test]
        fn a_frame_is_delimited_from_any_prefix(
            page in proptest::collection::vec(0u8..4, 512),
            cut in 0usize..600,
        ) {
            let mut frame = Vec::new();
            write_frame(&page, &mut frame);
            let cut = cut.min(frame.len());
            let whole = frame.len();
            match measure(&frame[..cut], 512).unwrap() {
                Extent::Whole(len) => prop_assert_eq!((len, cut), (whole, whole)),
                Extent::AtLeast(len) => prop_assert!(cut < len && len <= whole),
            }
        }

        #[test]
        fn one_changed_byte_never_passes_as_the_same_page(
            page in proptest::collection::vec(0u8..4, 512),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut frame = Vec::new();
            write_frame(&page, &mut frame);
            let at = at.index(frame.len());
            frame[at] ^= flip;
            let mut back = vec![0; 512];
            let read = measure(&frame, 512).and_then(|extent| match extent {
                Extent::Whole(len) => read_frame(&frame[..len], &mut back),
                Extent::AtLeast(_) => Err("cut short"),
            });
            prop_assert!(read.is_err() || back == page);
        }
    }
}
