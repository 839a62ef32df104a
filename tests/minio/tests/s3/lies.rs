//! Servers that lie about put-if-absent, over HTTP: each is refused by its own code by the probe,
//! by `carlos doctor`, and by every service at its start. An honest one is not.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use carlos_bucket::probe::probe;
use carlos_bucket::{Bucket, Context, open_store_with};
use carlos_tests_minio::programs::{Service, run};
use carlos_tests_minio::toy::{Manner, Toy};

use super::t1::eventually;

/// Real windows are some milliseconds, and as many requests fall into them on a quiet machine. This
/// one also holds those of a busy one.
const WINDOW: Duration = Duration::from_millis(100);

/// How long a service is watched that is to go on.
const WATCHED: Duration = Duration::from_secs(1);

pub(crate) async fn a_window() {
    refused(Manner::ChecksThenActs(WINDOW), "bucket-many-winners").await;
}

pub(crate) async fn an_ignored_condition() {
    refused(Manner::IgnoresCondition, "bucket-ignores-condition").await;
}

pub(crate) async fn refused_free_names() {
    refused(Manner::RefusesFreeNames, "bucket-refuses-free-names").await;
}

/// What the other three are measured against: nothing but the lie makes them refused.
pub(crate) async fn an_honest_server() {
    let toy = Toy::start(Manner::Honest).await;
    assert_eq!(code(&toy).await, "bucket-ok");
    let doctor = run(&["doctor", "--only", "bucket"], &toy.environment());
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    let dir = tempfile::tempdir().unwrap();
    let mut services = services(&toy, dir.path());
    Context::system().sleep(WATCHED).await;
    for service in &mut services {
        assert_eq!(service.ended(), None, "{}", service.log());
    }
}

async fn refused(manner: Manner, expected: &str) {
    let toy = Toy::start(manner).await;
    assert_eq!(code(&toy).await, expected);
    let doctor = run(&["doctor", "--only", "bucket"], &toy.environment());
    assert!(doctor.code != Some(0) && doctor.stderr.contains(expected), "{doctor:?}");
    let dir = tempfile::tempdir().unwrap();
    for mut service in services(&toy, dir.path()) {
        let exit = eventually("the service ends", || service.ended()).await;
        assert!(exit != 0 && service.log().contains(expected), "{exit}: {}", service.log());
    }
}

async fn code(toy: &Toy) -> &'static str {
    let vars = toy.environment();
    let var = |name: &str| vars.iter().find(|(key, _)| key == name).map(|(_, v)| v.clone());
    let store = open_store_with("s3://toy", var, None).unwrap();
    probe(&Bucket::new(store, Context::system()), "tests").await.code()
}

/// A console and an agent on this server.
fn services(toy: &Toy, dir: &Path) -> [Service; 2] {
    // Free now; the console takes it at once.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let more = [("CARLOS_REGION", "uk"), ("CARLOS_BOX", "box-uk"), ("CARLOS_LISTEN", &listen)];
    let more = more.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let vars = [toy.environment(), more.to_vec()].concat();
    ["console", "agent"].map(|name| Service::start(name, &vars, dir, &format!("{name}.log")))
}
