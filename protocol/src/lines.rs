//! The response of a read: newline-delimited JSON, one fact a line (db-forward §5.5 step 6).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base64_text;
use crate::canon::{self, CanonError};
use crate::ids::{BoxName, ReadId};
use crate::limits::{CHUNK_BYTES, LINE_BYTES, MAX_CHUNKS};
use crate::result::ReadResult;
use crate::seal::SEAL_OVERHEAD;

/// The response's content type. Nothing between console and client compresses or buffers it.
pub const CONTENT_TYPE: &str = "application/x-ndjson";

/// One line of the response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Line {
    /// The read exists. Always the first line, sent with the headers.
    Admitted(ReadId),
    /// A box owns the read.
    Picked(BoxName),
    /// A sealed chunk. Chunks come in order, from 1, without gaps.
    Chunk {
        /// The chunk's number.
        seq: u64,
        /// The sealed bytes.
        data: Vec<u8>,
    },
    /// Nothing new for a while; keeps the connection alive.
    Wait(Phase),
    /// How the read ended. Always the last line, after every chunk it names.
    Result(ReadResult),
}

/// What a read is waiting for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No box has picked it.
    Queued,
    /// Picked, and no chunk yet.
    Reading,
    /// Chunks have come.
    Streaming,
}

/// Why bytes are not a response.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum LineError {
    /// A chunk number or size no honest console sends.
    #[error("a chunk outside its bounds")]
    Chunk,
    /// Not a line's JSON.
    #[error(transparent)]
    Form(#[from] CanonError),
    /// A result that contradicts itself.
    #[error("a result that contradicts itself")]
    Result,
    /// No newline within the longest line.
    #[error("a line longer than {LINE_BYTES} bytes")]
    TooLong,
    /// The response ended inside a line.
    #[error("the response ended inside a line")]
    Truncated,
}

/// A line as JSON. The kinds are told apart by their fields alone.
#[derive(Deserialize, Serialize)]
#[serde(untagged, deny_unknown_fields)]
enum Text<'a> {
    Admitted { admitted: ReadId },
    Picked { picked: BoxName },
    Chunk { chunk: u64, data: Cow<'a, str> },
    Wait { wait: Phase },
    Result { result: Cow<'a, ReadResult> },
}

impl Line {
    /// The line's bytes, newline included.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = canon::encode(&match self {
            Self::Admitted(id) => Text::Admitted { admitted: *id },
            Self::Picked(name) => Text::Picked { picked: name.clone() },
            Self::Chunk { seq, data } => {
                Text::Chunk { chunk: *seq, data: base64_text::encode(data).into() }
            }
            Self::Wait(phase) => Text::Wait { wait: *phase },
            Self::Result(result) => Text::Result { result: Cow::Borrowed(result) },
        });
        bytes.push(b'\n');
        bytes
    }

    /// Reads one line without its newline.
    ///
    /// # Errors
    /// [`LineError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LineError> {
        match canon::decode_loose(bytes, LINE_BYTES)? {
            Text::Admitted { admitted } => Ok(Self::Admitted(admitted)),
            Text::Picked { picked } => Ok(Self::Picked(picked)),
            Text::Chunk { chunk: seq, data } => chunk(seq, &data),
            Text::Wait { wait } => Ok(Self::Wait(wait)),
            Text::Result { result } => {
                result.check().map_err(|_| LineError::Result)?;
                Ok(Self::Result(result.into_owned()))
            }
        }
    }
}

fn chunk(seq: u64, data: &str) -> Result<Line, LineError> {
    let data = base64_text::decode(data).ok_or(LineError::Chunk)?;
    let sized = (SEAL_OVERHEAD..=CHUNK_BYTES + SEAL_OVERHEAD).contains(&data.len());
    let good = sized && (1..=MAX_CHUNKS).contains(&seq);
    if good { Ok(Line::Chunk { seq, data }) } else { Err(LineError::Chunk) }
}

/// Cuts a response into lines as its bytes arrive; holds at most one line and what was fed.
#[derive(Debug, Default)]
pub struct LineDecoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` already given out.
    read: usize,
    /// Bytes of `buffer` already searched for a newline.
    searched: usize,
    /// An error has been given out: nothing after it has a meaning.
    failed: bool,
}

impl LineDecoder {
    /// A decoder at the start of a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes as they arrive. Call [`Self::next`] until it gives `None` before feeding more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.searched -= self.read;
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, or `None` until more bytes arrive. Gives `None` for ever after an
    /// error.
    ///
    /// # Errors
    /// [`LineError`]; the response is of no further use then.
    #[expect(clippy::should_implement_trait, reason = "a push decoder pauses, an iterator ends")]
    pub fn next(&mut self) -> Option<Result<Line, LineError>> {
        if self.failed {
            return None;
        }
        let line = self.cut().transpose();
        self.failed = matches!(line, Some(Err(_)));
        line
    }

    fn cut(&mut self) -> Result<Option<Line>, LineError> {
        let newline = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
        let Some(offset) = newline else {
            self.searched = self.buffer.len();
            let waiting = self.buffer.len() - self.read;
            return if waiting > LINE_BYTES { Err(LineError::TooLong) } else { Ok(None) };
        };
        let end = self.searched + offset;
        let line = Line::from_bytes(&self.buffer[self.read..end])?;
        self.read = end + 1;
        self.searched = self.read;
        Ok(Some(line))
    }

    /// Says whether the response may end here.
    ///
    /// # Errors
    /// [`LineError::Truncated`] inside a line.
    pub fn finish(&self) -> Result<(), LineError> {
        if self.read == self.buffer.len() { Ok(()) } else { Err(LineError::Truncated) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::result::tests::done;

    fn lines() -> Vec<Line> {
        vec![
            Line::Admitted(ReadId::from_bytes([7; 16])),
            Line::Wait(Phase::Queued),
            Line::Picked(BoxName::parse("uk-1").expect("label")),
            Line::Chunk { seq: 1, data: vec![9; SEAL_OVERHEAD] },
            Line::Result(done()),
        ]
    }

    fn drain(decoder: &mut LineDecoder) -> Vec<Result<Line, LineError>> {
        std::iter::from_fn(|| decoder.next()).collect()
    }

    #[test]
    fn every_kind_round_trips() {
        for line in lines() {
            let bytes = line.to_bytes();
            let (body, newline) = bytes.split_at(bytes.len() - 1);
            assert_eq!((Line::from_bytes(body), newline), (Ok(line), b"\n".as_slice()));
        }
        let text = Line::Wait(Phase::Reading).to_bytes();
        assert_eq!(text, b"{\"wait\":\"reading\"}\n");
    }

    #[test]
    fn the_largest_chunk_fits_a_line() {
        let line = Line::Chunk { seq: MAX_CHUNKS, data: vec![0; CHUNK_BYTES + SEAL_OVERHEAD] };
        let bytes = line.to_bytes();
        assert!(bytes.len() <= LINE_BYTES);
        assert_eq!(Line::from_bytes(&bytes[..bytes.len() - 1]), Ok(line));
    }

    #[test]
    fn lines_that_say_nothing_or_two_things_are_refused() {
        let two = br#"{"picked":"uk-1","wait":"queued"}"#;
        for line in [b"{}".as_slice(), two, br#"{"chunk":1}"#, br#"{"data":""}"#] {
            assert!(matches!(Line::from_bytes(line), Err(LineError::Form(_))));
        }
        let short = br#"{"chunk":1,"data":"AAAA"}"#;
        assert_eq!(Line::from_bytes(short), Err(LineError::Chunk));
        assert!(matches!(Line::from_bytes(br#"{"new":1}"#), Err(LineError::Form(_))));
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut decoder = LineDecoder::new();
        decoder.feed(&vec![b' '; LINE_BYTES + 1]);
        assert_eq!(decoder.next(), Some(Err(LineError::TooLong)));
    }

    #[test]
    fn a_response_that_ends_inside_a_line_says_so() {
        let mut decoder = LineDecoder::new();
        decoder.feed(b"{\"wait\":");
        assert_eq!(decoder.next(), None);
        assert_eq!(decoder.finish(), Err(LineError::Truncated));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(cuts in prop::collection::vec(1..80_usize, 1..40)) {
            let bytes: Vec<u8> = lines().iter().flat_map(Line::to_bytes).collect();
            let (mut decoder, mut got, mut rest) = (LineDecoder::new(), Vec::new(), &bytes[..]);
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let cut = cuts.next().expect("a cycle").min(rest.len());
                decoder.feed(&rest[..cut]);
                got.extend(drain(&mut decoder));
                rest = &rest[cut..];
            }
            let want: Vec<_> = lines().into_iter().map(Ok).collect();
            prop_assert_eq!(got, want);
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let mut decoder = LineDecoder::new();
            decoder.feed(&bytes);
            drain(&mut decoder);
        }
    }
}
