//! A plan's bytes over a network: asked for ahead, in order, within bounds.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use carlos_replica::{ByteStream, Download, HEADER_LEN, ReadError, ReplicaFile, ReplicaReader};
use carlos_replica::{Resolution, Txid, TxidRange};
use futures::{StreamExt, stream};
use tokio::time::Instant;

const ANSWER: Duration = Duration::from_millis(20);
const PIECE: usize = 100 << 10;

/// Files whose bytes all say their transaction; every request takes [`ANSWER`].
#[derive(Default)]
struct Slow {
    requests: AtomicUsize,
    read: AtomicU64,
    open: AtomicUsize,
    most_open: AtomicUsize,
    /// A stream ends after so many bytes, without a word.
    breaks_after: Option<u64>,
    gone: Option<Txid>,
}

#[async_trait::async_trait]
impl ReplicaReader for Slow {
    fn resolution(&self) -> Resolution {
        Resolution::Second
    }

    async fn list(&self, _level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
        Ok(Vec::new())
    }

    async fn open(&self, file: &ReplicaFile, offset: u64) -> Result<ByteStream, ReadError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_open.fetch_max(open, Ordering::Relaxed);
        tokio::time::sleep(ANSWER).await;
        self.open.fetch_sub(1, Ordering::Relaxed);
        if Some(file.range.max()) == self.gone {
            return Err(ReadError::Changed { file: file.planned() });
        }
        let len = (file.size - offset).min(self.breaks_after.unwrap_or(u64::MAX));
        self.read.fetch_add(len, Ordering::Relaxed);
        let content = vec![file.range.max().0 as u8; len as usize];
        let pieces: Vec<_> = content.chunks(PIECE).map(Bytes::copy_from_slice).map(Ok).collect();
        Ok(stream::iter(pieces).boxed())
    }

    async fn header(&self, file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError> {
        Err(ReadError::Changed { file: file.planned() })
    }
}

fn files(sizes: impl IntoIterator<Item = u64>) -> Vec<ReplicaFile> {
    let file = |(txid, size)| {
        let range = TxidRange::new(Txid(txid), Txid(txid)).unwrap();
        ReplicaFile { level: 0, range, size, created_ms: 0, tag: None }
    };
    (1..).zip(sizes).map(file).collect()
}

/// Downloads all of it and checks that every byte is in its place.
async fn download(store: &Slow, files: &[ReplicaFile]) -> Duration {
    let start = Instant::now();
    let mut download = Download::new(store, files);
    let mut left = files.iter().flat_map(|file| [(file.range.max().0 as u8, file.size)]);
    let mut current = left.next();
    while let Some(piece) = download.next().await.unwrap() {
        let mut piece = &piece[..];
        while !piece.is_empty() {
            let (byte, size) =
                current.filter(|(_, size)| *size > 0).or_else(|| left.next()).unwrap();
            let len = piece.len().min(size as usize);
            assert!(piece[..len].iter().all(|held| *held == byte));
            piece = &piece[len..];
            current = Some((byte, size - len as u64));
        }
    }
    assert_eq!((current.map(|(_, size)| size), left.next()), (Some(0), None));
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_small_files_take_a_sixteenth_of_their_answers() {
    let store = Slow::default();
    let took = download(&store, &files((0..10_000).map(|n| 200 + n % 50))).await;
    assert!(took < ANSWER * 10_000 / 14, "{took:?}");
    assert_eq!(store.requests.load(Ordering::Relaxed), 10_000);
    assert!(store.most_open.load(Ordering::Relaxed) <= 16);
}

#[tokio::test(start_paused = true)]
async fn small_files_arrive_while_a_large_one_does_and_large_ones_do_not_idle() {
    let store = Slow::default();
    let sizes = [30 << 20, 9, 9, 9, 20 << 20, 9, 9].map(|size: u64| size);
    let took = download(&store, &files(sizes)).await;
    // The first large file with all small ones, then the second large one.
    assert_eq!(took, ANSWER * 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_ahead_is_bounded() {
    let store = Slow::default();
    let planned = files(std::iter::repeat_n(1 << 20, 64));
    let mut download = Download::new(&store, &planned);
    let (mut given, mut most) = (0, 0);
    while let Some(piece) = download.next().await.unwrap() {
        given += piece.len() as u64;
        most = most.max(store.read.load(Ordering::Relaxed) - given);
    }
    // Four files ahead, and the rest of the one that is given out.
    assert!(most < 5 << 20, "{most}");
}

#[tokio::test(start_paused = true)]
async fn broken_streams_go_on_where_they_ended() {
    let store = Slow { breaks_after: Some(700 << 10), ..Slow::default() };
    let planned = files([5 << 20, 900 << 10, 300, 1 << 20, 2 << 20]);
    download(&store, &planned).await;
    let planned: u64 = planned.iter().map(|file| file.size).sum();
    assert_eq!(store.read.load(Ordering::Relaxed), planned, "no byte is read twice");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_gone_is_said_in_its_turn() {
    let store = Slow { gone: Some(Txid(3)), ..Slow::default() };
    let planned = files([10, 10, 10, 10]);
    let mut download = Download::new(&store, &planned);
    for _ in 0..2 {
        assert_eq!(download.next().await.unwrap().unwrap().len(), 10);
    }
    let gone = download.next().await.unwrap_err();
    assert!(matches!(gone, ReadError::Changed { file } if file.range.max() == Txid(3)), "{gone}");
}
