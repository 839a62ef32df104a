//! The bytes of a plan, in plan order, with small files asked for before their turn.
//!
//! A plan is one large file and then many small ones, so that over a network most of its time
//! would be spent waiting for answers. Small files are fetched whole, several at once, while
//! those before them arrive. A large file is only asked for when its turn comes: a stream that
//! is opened early sits idle, and stores drop such streams.

use std::collections::VecDeque;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use futures::future::{BoxFuture, poll_fn};
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};

use crate::{Fetch, ReadError, ReplicaFile, ReplicaReader};

/// Files that are asked for at once. With 20 ms to an answer, ten thousand small files take 13 s
/// instead of 200; stores allow far more.
const FILES_AHEAD: usize = 16;
/// The largest file that is fetched whole before its turn. Level-0 files and most of level 1 are
/// smaller; for larger ones the wait for an answer is a small part of their time.
const SMALL: u64 = 1 << 20;
/// The most bytes that files before their turn may hold together.
const BYTES_AHEAD: u64 = 4 << 20;

/// Reads planned files one after another. Memory is bounded: what is held ahead, and the piece
/// that was given out.
pub struct Download<'a> {
    reader: &'a dyn ReplicaReader,
    unasked: std::slice::Iter<'a, ReplicaFile>,
    turns: VecDeque<Turn<'a>>,
    /// The files of the queue's [`Turn::Ahead`], in their order.
    ahead: FuturesOrdered<BoxFuture<'a, Whole>>,
    /// Those of them that are there.
    arrived: VecDeque<Whole>,
    bytes_ahead: u64,
    /// What is left of a small file whose turn it is.
    pieces: VecDeque<Bytes>,
}

type Whole = Result<VecDeque<Bytes>, ReadError>;

enum Turn<'a> {
    /// A small file of so many bytes.
    Ahead(u64),
    Stream(Fetch<'a>),
}

impl<'a> Download<'a> {
    /// Nothing is requested before the first [`Download::next`].
    #[must_use]
    pub fn new(reader: &'a dyn ReplicaReader, files: &'a [ReplicaFile]) -> Self {
        Self {
            reader,
            unasked: files.iter(),
            turns: VecDeque::new(),
            ahead: FuturesOrdered::new(),
            arrived: VecDeque::new(),
            bytes_ahead: 0,
            pieces: VecDeque::new(),
        }
    }

    /// The next bytes: all of the first file, then all of the second, and so on. `None` after
    /// the last. A call that is dropped half way may lose bytes.
    ///
    /// # Errors
    /// As [`Fetch::next`], in plan order: what is wrong with a later file is said in its turn.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            self.ask();
            match self.turns.front_mut() {
                None => return Ok(None),
                Some(Turn::Ahead(size)) => {
                    self.bytes_ahead -= *size;
                    self.turns.pop_front();
                    self.pieces = self.whole().await?;
                }
                Some(Turn::Stream(fetch)) => {
                    let (ahead, arrived) = (&mut self.ahead, &mut self.arrived);
                    match meanwhile(ahead, arrived, fetch.next()).await? {
                        Some(bytes) => return Ok(Some(bytes)),
                        None => drop(self.turns.pop_front()),
                    }
                }
            }
        }
    }

    /// Fills the queue. Its front may be of any size, so that there always is one.
    fn ask(&mut self) {
        while self.turns.len() < FILES_AHEAD
            && let Some(file) = self.unasked.as_slice().first()
        {
            let fetch = Fetch::new(self.reader, file);
            if file.size > SMALL {
                self.turns.push_back(Turn::Stream(fetch));
            } else if self.bytes_ahead + file.size <= BYTES_AHEAD {
                self.bytes_ahead += file.size;
                self.turns.push_back(Turn::Ahead(file.size));
                self.ahead.push_back(whole(fetch).boxed());
            } else {
                break;
            }
            self.unasked.next();
        }
    }

    async fn whole(&mut self) -> Whole {
        if let Some(whole) = self.arrived.pop_front() {
            return whole;
        }
        self.ahead.next().await.expect("every small file in the queue was asked for")
    }
}

async fn whole(mut fetch: Fetch<'_>) -> Whole {
    let mut pieces = VecDeque::new();
    while let Some(piece) = fetch.next().await? {
        pieces.push_back(piece);
    }
    Ok(pieces)
}

/// Waits for `first` while the files ahead of it arrive.
async fn meanwhile<T>(
    ahead: &mut FuturesOrdered<BoxFuture<'_, Whole>>,
    arrived: &mut VecDeque<Whole>,
    first: impl Future<Output = T>,
) -> T {
    let mut first = pin!(first);
    poll_fn(|cx| {
        while let Poll::Ready(Some(whole)) = ahead.poll_next_unpin(cx) {
            arrived.push_back(whole);
        }
        first.as_mut().poll(cx)
    })
    .await
}
