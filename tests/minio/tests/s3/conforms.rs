//! The laws of `carlos-bucket` on a real server: what holds, and what is found not to.

use std::sync::Arc;

use carlos_bucket::conformance;
use carlos_bucket::probe::{Probed, probe};
use carlos_bucket::scenario::{Ground, Scenario};
use carlos_bucket::{Bucket, Context};
use carlos_tests_minio::deployment::plain_bucket;
use carlos_tests_minio::programs::{Service, run};
use carlos_tests_minio::{Kind, Server};

pub(crate) async fn laws(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let store = server.store("operator", &bucket);
    conformance::all(store, &Context::system()).await.unwrap();
    // Below a prefix the same laws hold.
    let below = server.store("operator", &format!("{bucket}/some/prefix"));
    let below = Bucket::new(below, Context::system());
    conformance::a_create_happens_once(&below).await.unwrap();
    conformance::a_listing_shows_its_folder(&below).await.unwrap();
    conformance::a_serial_is_news_when_bumped(&below).await.unwrap();
}

/// Checksum headers are for Amazon, but a server may be asked to take them.
pub(crate) async fn checksums(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let asked = [("CARLOS_S3_CHECKSUM", "1")];
    let store = server.store_with("operator", &bucket, &asked);
    let bucket = Bucket::new(store, Context::system());
    conformance::a_create_happens_once(&bucket).await.unwrap();
    conformance::a_body_comes_back_exactly(&bucket).await.unwrap();
}

pub(crate) async fn plain(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let store = server.store("operator", &bucket);
    let probed = probe(&Bucket::new(store, Context::system()), "box1").await;
    let Probed::Keeps(report) = probed else { panic!("{probed:?}") };
    assert!(report.conditional_reads, "polling would read whole serials");
    assert_eq!(doctor(server, &bucket).0, Some(0));
}

/// Ceph ignores the condition where a bucket keeps versions, and nothing may run there; servers
/// that keep it are fit for use.
pub(crate) async fn versioned(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    server.admin().set_versioned(&bucket).await;
    let store = server.store("operator", &bucket);
    let probed = probe(&Bucket::new(store, Context::system()), "box1").await;
    if server.kind != Kind::Ceph {
        assert!(matches!(probed, Probed::Keeps(_)), "{probed:?}");
        return;
    }
    let code = "bucket-ignores-condition";
    assert_eq!(probed.code(), code, "{probed:?}");
    let (exit, said) = doctor(server, &bucket);
    assert!(exit != Some(0) && said.contains(code), "{exit:?}: {said}");
    services_refuse(server, &bucket, code).await;
}

fn doctor(server: &Server, bucket: &str) -> (Option<i32>, String) {
    let url = format!("s3://{bucket}");
    let ran =
        run(&["doctor", "--bucket", &url, "--only", "bucket"], &server.environment("operator"));
    (ran.code, ran.stderr)
}

async fn services_refuse(server: &Server, bucket: &str, code: &str) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("s3://{bucket}");
    let own = [("CARLOS_BUCKET", url.as_str()), ("CARLOS_BOX", "box1"), ("CARLOS_REGION", "uk")];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let vars = [server.environment("operator"), own.to_vec()].concat();
    for name in ["agent", "console"] {
        let mut service = Service::start(name, &vars, dir.path(), &format!("{name}.log"));
        let exit = super::t1::eventually("the service ends", || service.ended()).await;
        assert!(exit != 0 && service.log().contains(code), "{exit}: {}", service.log());
    }
}

pub(crate) async fn scenario(server: &'static Server, scenario: Scenario) -> Result<(), String> {
    let bucket = plain_bucket(server).await;
    let store = Arc::clone(&server.store("operator", &bucket));
    let ground = Ground { store, ctx: Context::system() };
    (scenario.run)(ground).await.map_err(|breach| breach.to_string())
}
