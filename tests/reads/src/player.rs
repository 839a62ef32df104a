//! A writer that plays the box for one read: what a box that keeps the protocol would write, and
//! what one that does not could.

use bytes::Bytes;
use carlos_bucket::{Bucket, Outcome, Purpose};
use carlos_dbquery::rows::{MAX_STREAM_BYTES, Value, Writer};
use carlos_protocol::ids::{Digest, Nonce, ReadId, Txid};
use carlos_protocol::keys::Key;
use carlos_protocol::picked::Picked;
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::{Code, ReadResult, State};
use carlos_protocol::seal::{Place, ReplyPublic, seal};
use carlos_protocol::summary::{Sha256Text, Summary};
use carlos_protocol::time::{Millis, Seconds};

use crate::world::{World, parse};

/// Plays the box for one read.
#[derive(Clone)]
pub struct Player {
    bucket: Bucket,
    pub id: ReadId,
    pub reply_key: ReplyPublic,
    /// The row stream it answers with.
    pub stream: Vec<u8>,
}

impl Player {
    /// Steps in for the read `id`, with rows of its own.
    pub async fn of(world: &World, id: ReadId) -> Self {
        let request: ReadRequest = world.request(id).await.expect("the console signed it");
        Self::new(world.bucket.clone(), id, request.reply_key)
    }

    /// The same in any bucket.
    pub fn new(bucket: Bucket, id: ReadId, reply_key: ReplyPublic) -> Self {
        Self { bucket, id, reply_key, stream: stream() }
    }

    /// The same with another reader's key.
    pub fn with_reply_key(&self, reply_key: ReplyPublic) -> Self {
        Self { reply_key, ..self.clone() }
    }

    /// The same for another read.
    pub fn with_id(&self, id: ReadId) -> Self {
        Self { id, ..self.clone() }
    }

    /// [`stream`]'s rows, as they are printed into a pipe.
    pub const TSV: &str = "who\nnobody\n";

    /// The row stream in three chunks.
    pub fn pieces(&self) -> [Vec<u8>; 3] {
        let size = self.stream.len().div_ceil(3);
        let mut pieces = self.stream.chunks(size).map(<[u8]>::to_vec);
        std::array::from_fn(|_| pieces.next().unwrap())
    }

    /// Owns the read.
    pub async fn pick(&self) {
        let context = self.bucket.context();
        let picked = Picked {
            box_name: parse("player"),
            boot: parse("boot"),
            nonce: Nonce::mint(&mut context.entropy()),
            deadline: Seconds::new(context.now_unix() + 1_200),
        };
        self.create(&Key::Picked(self.id), picked.to_bytes()).await;
    }

    /// `plain` sealed as chunk `seq`.
    pub fn sealed(&self, seq: u64, last: bool, plain: &[u8]) -> Vec<u8> {
        let place = Place::rows(self.id, seq, last);
        seal(&mut self.bucket.context().entropy(), &self.reply_key, &place, plain)
    }

    /// Writes one honest chunk of the three.
    pub async fn chunk(&self, seq: u64) {
        let pieces = self.pieces();
        let sealed = self.sealed(seq, seq == 3, &pieces[seq as usize - 1]);
        self.put_chunk(seq, sealed).await;
    }

    /// Writes any bytes as a chunk.
    pub async fn put_chunk(&self, seq: u64, sealed: Vec<u8>) {
        self.create(&Key::Chunk(self.id, seq), sealed).await;
    }

    /// Says that the read is done and has this many chunks.
    pub async fn done(&self, last_seq: u64) {
        self.create(&Key::Result(self.id), self.result(last_seq).to_bytes()).await;
    }

    /// An honest result but for its number of chunks.
    pub fn result(&self, last_seq: u64) -> ReadResult {
        let summary = Summary {
            txid: Txid(1),
            time: Some(Millis::new(1_792_659_600_000)),
            rows: 1,
            bytes: self.stream.len() as u64,
            sha256: Sha256Text(Some(Digest::of(&self.stream))),
            ..Summary::default()
        };
        let context = self.bucket.context();
        ReadResult {
            state: State::Done,
            code: Code::None,
            box_name: parse("player"),
            last_seq,
            started: Seconds::new(context.now_unix()),
            ended: Seconds::new(context.now_unix()),
            sealed: summary.seal(&mut context.entropy(), &self.reply_key, self.id),
        }
    }

    async fn create(&self, key: &Key, body: impl Into<Bytes>) {
        let outcome = self.bucket.create(&key.to_path(), body.into(), Purpose::Claim).await;
        assert_eq!(outcome, Outcome::Created, "{key}");
    }
}

fn stream() -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = Writer::begin(&mut stream, MAX_STREAM_BYTES, ["who"]).unwrap();
    writer.row(&[Value::Text(b"nobody")]).unwrap();
    writer.finish().unwrap();
    stream
}
