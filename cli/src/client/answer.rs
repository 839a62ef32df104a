//! The answer to a read: collected line by line, and shown to nobody before all of it checks out
//! (db-forward §5.5 step 8).

use carlos_dbquery::rows;
use carlos_protocol::ids::{Digest, ReadId};
use carlos_protocol::limits::{MAX_CHUNKS, OUTPUT_BYTES};
use carlos_protocol::lines::Line;
use carlos_protocol::result::ReadResult;
use carlos_protocol::seal::{self, ReplyKey, SEAL_OVERHEAD};
use carlos_protocol::summary::{Sha256Text, Summary};

/// What a response did wrong. All of them mean DBF-13: the answer did not check out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("a line came out of order")]
    OutOfOrder,
    #[error("more chunks than a read can have")]
    TooMuch,
    #[error("the result does not name the chunks that came")]
    OtherChunks,
    #[error("a chunk or the summary does not open")]
    Sealed,
    #[error("the rows are not those the summary describes")]
    OtherRows,
}

/// What has arrived so far. Bounded by the output cap and the sealing overhead of its chunks.
#[derive(Debug, Default)]
pub struct Answer {
    id: Option<ReadId>,
    picked: bool,
    chunks: Vec<Vec<u8>>,
    held: usize,
}

/// A whole answer that checked out.
#[derive(Debug)]
pub struct Verified {
    /// A complete row stream: its end marker and count have been checked.
    pub rows: Vec<u8>,
    pub summary: Summary,
}

impl Answer {
    /// Takes the next line. The result, which is the last line of an answer, comes back.
    ///
    /// # Errors
    /// Anything a console of this protocol does not write, in the order it does not write it.
    pub fn take(&mut self, line: Line) -> Result<Option<ReadResult>, AnswerError> {
        match line {
            Line::Admitted(id) => self.admit(id)?,
            Line::Picked(_) => self.pick()?,
            Line::Chunk { seq, data } => self.hold(seq, data)?,
            Line::Wait(_) => drop(self.check_admitted()?),
            Line::Result(result) => return self.end(result).map(Some),
        }
        Ok(None)
    }

    /// Whether a box has said that it runs the read.
    #[must_use]
    pub fn is_picked(&self) -> bool {
        self.picked
    }

    /// Opens the sealed summary of `result`, whatever its outcome.
    ///
    /// # Errors
    /// [`AnswerError::Sealed`] when it is not sealed to `key` for this read.
    pub fn summary(&self, key: &ReplyKey, result: &ReadResult) -> Result<Summary, AnswerError> {
        let id = self.check_admitted()?;
        Summary::open(key, id, result).map_err(|_| AnswerError::Sealed)
    }

    /// Opens every chunk and checks the whole against the summary.
    ///
    /// # Errors
    /// Any chunk missing, added, moved or changed; any difference from the summary's counts and
    /// hash; a row stream that does not end where the bytes end.
    pub fn verify(self, key: &ReplyKey, result: &ReadResult) -> Result<Verified, AnswerError> {
        let summary = self.summary(key, result)?;
        let id = self.check_admitted()?;
        let last_seq = self.chunks.len() as u64;
        if last_seq == 0 || result.last_seq != last_seq {
            return Err(AnswerError::OtherChunks);
        }
        let mut plain = Vec::with_capacity(self.held);
        // Each sealed chunk is dropped as soon as it is open, so the peak is one answer and a bit.
        for (seq, sealed) in (1..).zip(self.chunks) {
            let place = seal::Place::rows(id, seq, seq == last_seq);
            let opened = seal::open(key, &place, &sealed).map_err(|_| AnswerError::Sealed)?;
            plain.extend_from_slice(&opened);
        }
        check_rows(&plain, &summary)?;
        Ok(Verified { rows: plain, summary })
    }

    fn admit(&mut self, id: ReadId) -> Result<(), AnswerError> {
        if self.id.is_some() {
            return Err(AnswerError::OutOfOrder);
        }
        self.id = Some(id);
        Ok(())
    }

    fn pick(&mut self) -> Result<(), AnswerError> {
        self.check_admitted()?;
        if self.picked {
            return Err(AnswerError::OutOfOrder);
        }
        self.picked = true;
        Ok(())
    }

    fn hold(&mut self, seq: u64, sealed: Vec<u8>) -> Result<(), AnswerError> {
        if !self.picked || seq != self.chunks.len() as u64 + 1 {
            return Err(AnswerError::OutOfOrder);
        }
        self.held += sealed.len();
        if seq > MAX_CHUNKS || self.held > MAX_HELD {
            return Err(AnswerError::TooMuch);
        }
        self.chunks.push(sealed);
        Ok(())
    }

    fn end(&self, result: ReadResult) -> Result<ReadResult, AnswerError> {
        self.check_admitted()?;
        Ok(result)
    }

    fn check_admitted(&self) -> Result<ReadId, AnswerError> {
        self.id.ok_or(AnswerError::OutOfOrder)
    }
}

fn check_rows(plain: &[u8], summary: &Summary) -> Result<(), AnswerError> {
    let same_length = summary.bytes == plain.len() as u64;
    if !same_length || summary.sha256 != Sha256Text(Some(Digest::of(plain))) {
        return Err(AnswerError::OtherRows);
    }
    // The bytes are the ones the worker wrote; that they are a row stream is one more promise, and
    // it is checked before the first row is printed.
    let counted = count_rows(plain).map_err(|_| AnswerError::OtherRows)?;
    if counted != summary.rows {
        return Err(AnswerError::OtherRows);
    }
    Ok(())
}

fn count_rows(plain: &[u8]) -> Result<u64, rows::Malformed> {
    let mut reader = rows::Reader::open(plain)?;
    let mut row = Vec::new();
    while reader.read_row(&mut row)? {}
    Ok(reader.rows())
}

/// The output cap, and the overhead of as many chunks as a result may name.
const MAX_HELD: usize = OUTPUT_BYTES as usize + MAX_CHUNKS as usize * SEAL_OVERHEAD;

#[cfg(test)]
mod tests {
    use carlos_protocol::ids::BoxName;
    use carlos_protocol::limits::CHUNK_BYTES;
    use carlos_protocol::lines::Phase;

    use super::*;

    fn admitted() -> Line {
        Line::Admitted(ReadId::from_bytes([7; 16]))
    }

    fn picked() -> Line {
        Line::Picked(BoxName::parse("uk-1").unwrap())
    }

    fn chunk(seq: u64) -> Line {
        Line::Chunk { seq, data: vec![0; CHUNK_BYTES + SEAL_OVERHEAD] }
    }

    fn take_all(lines: impl IntoIterator<Item = Line>) -> Result<Answer, AnswerError> {
        let mut answer = Answer::default();
        for line in lines {
            assert_eq!(answer.take(line)?, None);
        }
        Ok(answer)
    }

    #[test]
    fn lines_come_in_one_order() {
        let waiting = || Line::Wait(Phase::Queued);
        let answer = take_all([admitted(), waiting(), picked(), chunk(1), waiting(), chunk(2)]);
        assert!(answer.is_ok_and(|answer| answer.is_picked() && answer.chunks.len() == 2));
        let disorders = [
            vec![waiting()],
            vec![picked()],
            vec![admitted(), admitted()],
            vec![admitted(), chunk(1)],
            vec![admitted(), picked(), picked()],
            vec![admitted(), picked(), chunk(2)],
            vec![admitted(), picked(), chunk(1), chunk(1)],
            vec![admitted(), picked(), chunk(1), chunk(3)],
        ];
        for lines in disorders {
            assert_eq!(take_all(lines).err(), Some(AnswerError::OutOfOrder));
        }
    }

    #[test]
    fn no_more_is_held_than_an_honest_answer_has() {
        let mut answer = take_all([admitted(), picked()]).unwrap();
        let mut seq = 1;
        let refused = loop {
            if let Err(error) = answer.take(chunk(seq)) {
                break error;
            }
            seq += 1;
        };
        assert_eq!(refused, AnswerError::TooMuch);
        let full = OUTPUT_BYTES / CHUNK_BYTES as u64;
        assert!((full..full + 4).contains(&answer.chunks.len().try_into().unwrap()));
    }
}
