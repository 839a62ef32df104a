//! Somebody who can write the deployment bucket and offers boxes requests of their own making.

use bytes::Bytes;
use carlos_bucket::{Bucket, Outcome, Purpose, Serial};
use carlos_protocol::envelope::Payload;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::params::Params;
use carlos_protocol::request::{NewRequest, OP_QUERY, ReadRequest};
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::{At, Seconds};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::world::{World, parse};

/// Offers requests to the boxes of region `uk`.
pub struct Forger<'w> {
    world: &'w World,
    bucket: Bucket,
}

impl<'w> Forger<'w> {
    pub fn of(world: &'w World) -> Self {
        Self { world, bucket: world.bucket.clone() }
    }

    /// What a console would ask for the shop now.
    pub async fn request(&self) -> NewRequest {
        let host = &self.world.place.host;
        let record = self.world.operator.instance(host).await.unwrap();
        let entropy = &mut self.world.context.entropy();
        NewRequest {
            id: ReadId::mint(entropy),
            incarnation: record.incarnation(),
            account: record.account,
            app: record.app,
            host: record.host,
            region: parse("uk"),
            op: OP_QUERY.to_owned(),
            sql: World::SQL.to_owned(),
            params: Params::default(),
            at: At::Newest,
            reply_key: ReplyKey::generate(entropy).public(),
            by: crate::world::EMAIL.to_owned(),
            issued_at: self.seconds_from_now(0),
        }
    }

    /// The deployment under attack.
    pub fn world(&self) -> &'w World {
        self.world
    }

    /// A time near now.
    pub fn seconds_from_now(&self, seconds: i64) -> Seconds {
        Seconds::new(self.world.context.now_unix().saturating_add_signed(seconds))
    }

    /// The envelope of `request` under the deployment's own root key.
    pub fn signed(&self, request: &ReadRequest) -> Bytes {
        self.world.key.sign(request).unwrap().to_bytes().into()
    }

    /// The root key's envelope around a payload given as text.
    pub fn signed_text(&self, payload: &str) -> Bytes {
        let payload: Box<RawValue> = serde_json::from_str(payload).unwrap();
        self.world.key.sign(&Foreign(payload)).unwrap().to_bytes().into()
    }

    /// Creates an empty object under any name.
    pub async fn create_path(&self, path: &str) {
        let outcome = self.bucket.create(path, Bytes::new(), Purpose::Claim).await;
        assert_eq!(outcome, Outcome::Created, "{path}");
    }

    /// Offers `envelope` as the request of `entry`, and tells the boxes.
    pub async fn offer(&self, entry: &QueueEntry, envelope: Bytes) {
        self.world.create(&Key::Request(entry.id), envelope).await;
        self.queue(entry).await;
    }

    /// Puts an entry into the queue, and tells the boxes.
    pub async fn queue(&self, entry: &QueueEntry) {
        self.world.create(&Key::Queue(entry.clone()), "").await;
        self.bump().await;
    }

    /// Tells the boxes that there is news.
    pub async fn bump(&self) {
        let key = Key::Serial(parse("uk")).to_path();
        Serial::new(self.bucket.clone(), key).bump().await.unwrap();
    }
}

/// A payload of the request's purpose that only a later version can read.
pub fn later_version(forger: &Forger<'_>, id: ReadId) -> Bytes {
    let purpose = ReadRequest::PURPOSE;
    forger.signed_text(&format!(r#"{{"purpose":"{purpose}","v":2,"id":"{id}","beam":"up"}}"#))
}

/// Any JSON as a payload: what a root key of the same deployment may have signed for others.
#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Foreign(Box<RawValue>);

impl Payload for Foreign {
    const PURPOSE: &'static str = "";
    const VERSION: u32 = 0;
}
