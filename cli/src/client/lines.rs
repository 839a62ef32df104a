//! The lines of a streamed response, as its bytes arrive.

use bytes::Bytes;
use carlos_protocol::lines::{Line, LineDecoder};
use futures::{Stream, StreamExt as _};

/// Why the next line cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinesError {
    /// The connection broke, or the response ended inside a line: what is missing is unknown.
    #[error("the response was cut off")]
    Cut,
    /// No console of this protocol writes that.
    #[error("a line is not one of the protocol's")]
    Garbage,
}

/// Splits a response body into lines. Holds at most one line and one piece of the body.
pub struct Lines<S> {
    body: S,
    decoder: LineDecoder,
}

impl<S, E> Lines<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// Reads `body` from its start.
    pub fn new(body: S) -> Self {
        Self { body, decoder: LineDecoder::new() }
    }

    /// The next line, or `None` where the response ended on a line break.
    ///
    /// A last line without its break is a cut, never a line: ndjson has no other way to tell.
    ///
    /// # Errors
    /// See [`LinesError`].
    pub async fn next(&mut self) -> Result<Option<Line>, LinesError> {
        loop {
            if let Some(line) = self.decoder.next() {
                return line.map(Some).map_err(|_| LinesError::Garbage);
            }
            match self.body.next().await {
                Some(Ok(piece)) => self.decoder.feed(&piece),
                Some(Err(_)) => return Err(LinesError::Cut),
                None => {
                    return self.decoder.finish().map(|()| None).map_err(|_| LinesError::Cut);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use carlos_protocol::lines::Phase;
    use futures::executor::block_on;
    use futures::stream;

    use super::*;

    const LINE: &[u8] = b"{\"wait\":\"queued\"}\n";

    fn lines(pieces: Vec<Result<&'static [u8], ()>>) -> (usize, Result<(), LinesError>) {
        let pieces = pieces.into_iter().map(|piece| piece.map(Bytes::from_static));
        let mut lines = Lines::new(stream::iter(pieces));
        let mut read = 0;
        loop {
            match block_on(lines.next()) {
                Ok(Some(line)) => assert_eq!(line, Line::Wait(Phase::Queued)),
                Ok(None) => return (read, Ok(())),
                Err(error) => return (read, Err(error)),
            }
            read += 1;
        }
    }

    #[test]
    fn lines_do_not_depend_on_how_the_body_arrives() {
        assert_eq!(lines(vec![]), (0, Ok(())));
        let twice = [LINE, LINE].concat().leak();
        for size in 1..twice.len() {
            assert_eq!(lines(twice.chunks(size).map(Ok).collect()), (2, Ok(())), "{size}");
        }
    }

    #[test]
    fn a_cut_or_broken_line_is_not_a_line() {
        let whole_but_for_the_break = &LINE[..LINE.len() - 1];
        assert_eq!(lines(vec![Ok(LINE), Ok(whole_but_for_the_break)]), (1, Err(LinesError::Cut)));
        assert_eq!(lines(vec![Ok(LINE), Err(())]), (1, Err(LinesError::Cut)));
    }

    #[test]
    fn garbage_is_told_from_a_cut() {
        assert_eq!(lines(vec![Ok(LINE), Ok(b"rows: 3\n")]), (1, Err(LinesError::Garbage)));
        assert_eq!(lines(vec![Ok(b"\n")]), (0, Err(LinesError::Garbage)));
    }
}
