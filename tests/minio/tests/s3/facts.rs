//! What the product makes of this server's answers.

use carlos_bucket::{Bucket, Cause, Context, Outcome, Purpose, ReadError, StoreClock};
use carlos_replica::{Layout, ReadError as ReplicaError, ReplicaReader, Resolution, StoreReplica};
use carlos_tests_minio::Server;
use carlos_tests_minio::deployment::plain_bucket;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

pub(crate) async fn failures(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let wrong = [("AWS_SECRET_ACCESS_KEY", "not-the-secret")];
    refused(server, &bucket, &wrong, "SignatureDoesNotMatch").await;
    let unknown = [("AWS_ACCESS_KEY_ID", "nobody-s-key")];
    refused(server, &bucket, &unknown, "InvalidAccessKeyId").await;
    let nowhere = server.store("operator", "carlos-there-is-no-such-bucket");
    let nowhere = Bucket::new(nowhere, Context::system());
    let read = nowhere.get("hosts/a.example.com/1", Purpose::Claim).await;
    let Err(ReadError::Store(said)) = read else { panic!("{read:?}") };
    assert!(said.contains("NoSuchBucket"), "{said}");
    let listed = nowhere.list("hosts", None, Purpose::Claim).await;
    assert!(matches!(listed, Err(ReadError::Store(_))), "{listed:?}");
}

/// A refusal is told at once, as one, and repeats no key.
async fn refused(server: &Server, bucket: &str, vars: &[(&str, &str)], code: &str) {
    let store = server.store_with("operator", bucket, vars);
    let bucket = Bucket::new(store, Context::system());
    let begun = bucket.context().monotonic();
    let Outcome::Unknown(Cause::Denied(said)) =
        bucket.create("probe/x/1", "x".into(), Purpose::Claim).await
    else {
        panic!("a create with a wrong key")
    };
    assert!(said.contains(code), "{said}");
    let keys = &server.users["operator"];
    let hidden = [keys.id.as_str(), keys.secret.as_str(), "not-the-secret", "nobody-s-key"];
    assert!(hidden.iter().all(|key| !said.contains(key)), "{said}");
    let listed = bucket.list("probe", None, Purpose::Claim).await;
    assert!(matches!(listed, Err(ReadError::Denied(_))), "{listed:?}");
    let took = bucket.context().monotonic() - begun;
    assert!(took < Purpose::Claim.allowed(), "a refusal was asked for again for {took:?}");
}

/// The server here shares this machine's clock.
pub(crate) async fn clock(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let clock = StoreClock::new(Context::system());
    let bucket = Bucket::new(server.clocked("operator", &bucket, &clock), Context::system());
    assert_eq!(bucket.get("hosts/a.example.com/1", Purpose::Claim).await, Ok(None));
    let ahead = clock.ahead().expect("an answer has a date");
    assert!(ahead.abs() <= 60, "{ahead} s");
}

const FILE: &str = "shop/0000/0000000000000001-0000000000000001.ltx";

/// A download that goes on after a break asks for the file it began with.
pub(crate) async fn replaced(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let store = server.store("operator", &bucket);
    let key = Path::from(FILE);
    store.put(&key, vec![7; 300].into()).await.unwrap();
    let replica = StoreReplica::new(store.clone(), "shop", Layout::Auto, Resolution::Second);
    let replica = replica.unwrap();
    let listing = replica.listing().await.unwrap();
    let file = listing.files().next().unwrap().clone();
    assert_eq!(file.size, 300);
    let rest: Vec<_> = replica.open(&file, 250).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rest.concat(), [7; 50]);
    assert_eq!(replica.header(&file).await.unwrap(), [7; 100]);
    store.put(&key, vec![8; 300].into()).await.unwrap();
    let other = replica.open(&file, 250).await.map(drop);
    assert!(matches!(other, Err(ReplicaError::Changed { .. })), "{other:?}");
    store.delete(&key).await.unwrap();
    let gone = replica.open(&file, 0).await.map(drop);
    assert!(matches!(gone, Err(ReplicaError::Changed { .. })), "{gone:?}");
}
