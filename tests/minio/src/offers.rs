//! Requests that the test itself signs and writes, as a console would or as nobody should.

use bytes::Bytes;
use carlos_bucket::{Purpose, Serial};
use carlos_cli::client::Answer;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{Key, QueueEntry, out_prefix};
use carlos_protocol::lines::Line;
use carlos_protocol::params::Params;
use carlos_protocol::records::HostRecord;
use carlos_protocol::request::{NewRequest, OP_QUERY, ReadRequest};
use carlos_protocol::result::ReadResult;
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::{At, Seconds};

use crate::World;
use crate::world::{EMAIL, parse};

/// A request with the key that opens its answer.
pub struct Offer {
    pub request: ReadRequest,
    key: ReplyKey,
}

impl World {
    /// The shop's record now.
    pub async fn record(&self) -> HostRecord {
        self.operator.instance(&self.place.host).await.unwrap()
    }

    /// What a console would ask for the shop of `record` now.
    pub fn offer_of(&self, record: &HostRecord, sql: &str) -> Offer {
        self.offer_with(record, sql, |_| {})
    }

    /// The same, but for what `change` does.
    pub fn offer_with(
        &self,
        record: &HostRecord,
        sql: &str,
        change: impl FnOnce(&mut NewRequest),
    ) -> Offer {
        let entropy = &mut self.context.entropy();
        let key = ReplyKey::generate(entropy);
        let mut new = NewRequest {
            id: ReadId::mint(entropy),
            incarnation: record.incarnation(),
            account: record.account.clone(),
            app: record.app.clone(),
            host: record.host.clone(),
            region: parse("uk"),
            op: OP_QUERY.to_owned(),
            sql: sql.to_owned(),
            params: Params::default(),
            at: At::Newest,
            reply_key: key.public(),
            by: EMAIL.to_owned(),
            issued_at: Seconds::new(self.context.now_unix()),
        };
        change(&mut new);
        Offer { request: new.into(), key }
    }

    /// The envelope of `request` under the deployment's own root key.
    pub fn signed(&self, request: &ReadRequest) -> Bytes {
        self.key.sign(request).unwrap().to_bytes().into()
    }

    /// Writes the request and its queue entry, and tells the boxes.
    pub async fn write_offer(&self, offer: &Offer) {
        let entry = offer.request.queue_entry();
        self.write(&entry, self.signed(&offer.request)).await;
    }

    /// Writes `envelope` as the request of `entry`, and tells the boxes.
    pub async fn write(&self, entry: &QueueEntry, envelope: Bytes) {
        self.create(&Key::Request(entry.id), envelope).await;
        self.queue(entry).await;
    }

    /// Puts an entry into the queue, and tells the boxes.
    pub async fn queue(&self, entry: &QueueEntry) {
        self.create(&Key::Queue(entry.clone()), "").await;
        let key = Key::Serial(parse("uk")).to_path();
        Serial::new(self.bucket.clone(), key).bump().await.unwrap();
    }

    /// The rows of an offer that was answered with `result`, as they are printed into a pipe,
    /// checked as the command line checks them.
    pub async fn rows(&self, offer: &Offer, result: ReadResult) -> String {
        let id = offer.request.id;
        let mut answer = Answer::default();
        answer.take(Line::Admitted(id)).unwrap();
        answer.take(Line::Picked(result.box_name.clone())).unwrap();
        for key in self.keys(&out_prefix(&id)).await {
            let Ok(Key::Chunk(_, seq)) = Key::parse(&key) else { panic!("{key}") };
            let data = self.bucket.get(&key, Purpose::Claim).await.unwrap().unwrap();
            answer.take(Line::Chunk { seq, data: data.into() }).unwrap();
        }
        answer.take(Line::Result(result.clone())).unwrap();
        let verified = answer.verify(&offer.key, &result).unwrap();
        let mut out = Vec::new();
        carlos_dbquery::render(carlos_dbquery::Format::Tsv, &verified.rows, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}
