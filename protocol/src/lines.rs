//! The response of a read: newline-delimited JSON, one fact a line (db-forward §5.5 step 6).

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
    /// None, or several, of the line's kinds in one object.
    #[error("not exactly one fact in a line")]
    Kind,
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

/// A line as JSON: exactly one kind is present.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admitted: Option<ReadId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    picked: Option<BoxName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<Phase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<ReadResult>,
}

impl Line {
    /// The line's bytes, newline included.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = Text::default();
        match self {
            Self::Admitted(id) => text.admitted = Some(*id),
            Self::Picked(name) => text.picked = Some(name.clone()),
            Self::Chunk { seq, data } => {
                text.chunk = Some(*seq);
                text.data = Some(base64_text::encode(data));
            }
            Self::Wait(phase) => text.wait = Some(*phase),
            Self::Result(result) => text.result = Some(result.clone()),
        }
        let mut bytes = canon::encode(&text);
        bytes.push(b'\n');
        bytes
    }

    /// Reads one line without its newline.
    ///
    /// # Errors
    /// [`LineError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LineError> {
        let text: Text = canon::decode_loose(bytes, LINE_BYTES)?;
        match text {
            Text {
                admitted: Some(id),
                picked: None,
                chunk: None,
                data: None,
                wait: None,
                result: None,
            } => Ok(Self::Admitted(id)),
            Text {
                admitted: None,
                picked: Some(name),
                chunk: None,
                data: None,
                wait: None,
                result: None,
            } => Ok(Self::Picked(name)),
            Text {
                admitted: None,
                picked: None,
                chunk: Some(seq),
                data: Some(data),
                wait: None,
                result: None,
            } => chunk(seq, &data),
            Text {
                admitted: None,
                picked: None,
                chunk: None,
                data: None,
                wait: Some(phase),
                result: None,
            } => Ok(Self::Wait(phase)),
            Text {
                admitted: None,
                picked: None,
                chunk: None,
                data: None,
                wait: None,
                result: Some(result),
            } => {
                result.check().map_err(|_| LineError::Result)?;
                Ok(Self::Result(result))
            }
            _ => Err(LineError::Kind),
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

    /// The next whole line, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`LineError`]; the response is of no further use then.
    #[expect(clippy::should_implement_trait, reason = "a push decoder pauses, an iterator ends")]
    pub fn next(&mut self) -> Option<Result<Line, LineError>> {
        let newline = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
        let Some(offset) = newline else {
            self.searched = self.buffer.len();
            let waiting = self.buffer.len() - self.read;
            return (waiting > LINE_BYTES).then_some(Err(LineError::TooLong));
        };
        let end = self.searched + offset;
        let line = &self.buffer[self.read..end];
        self.read = end + 1;
        self.searched = self.read;
        Some(Line::from_bytes(line))
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
            assert_eq!(Line::from_bytes(line), Err(LineError::Kind));
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
            for cut in cuts.into_iter().cycle().take_while(|_| !got.len().eq(&5)) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                decoder.feed(now);
                got.extend(drain(&mut decoder));
                rest = later;
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
