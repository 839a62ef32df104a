//! Buckets without objects, over HTTP: a server that keeps the settings it is given, as Amazon's
//! does, and whose clock can be wrong. It takes any keys.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use carlos_bucket::Context;
use http::header::DATE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use md5::{Digest as _, Md5};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a bucket says of a setting that was never made.
const ABSENT: [(&str, &str); 5] = [
    ("lifecycle", "NoSuchLifecycleConfiguration"),
    ("publicAccessBlock", "NoSuchPublicAccessBlockConfiguration"),
    ("ownershipControls", "OwnershipControlsNotFoundError"),
    ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
    ("policy", "NoSuchBucketPolicy"),
];

type Kept = BTreeMap<String, BTreeMap<String, Bytes>>;

/// A server that runs until it is dropped.
pub struct Settings {
    pub endpoint: String,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<()>,
}

impl Settings {
    /// A server on a free port of the loopback address, whose clock is ahead by `seconds`.
    pub async fn start(ahead: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let kept = Arc::<Mutex<Kept>>::default();
        let task = tokio::spawn(accept(listener, Arc::clone(&kept), ahead));
        Self { endpoint, kept, task }
    }

    /// The variables under which programs take it for their server.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [
            ("CARLOS_S3_ENDPOINT", self.endpoint.as_str()),
            ("CARLOS_S3_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "anybody"),
            ("AWS_SECRET_ACCESS_KEY", "anything"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Takes one setting of a bucket away.
    pub fn forget(&self, bucket: &str, setting: &str) {
        let taken = self.kept.lock().unwrap().get_mut(bucket).unwrap().remove(setting);
        assert!(taken.is_some(), "{bucket} has no {setting}");
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, kept: Arc<Mutex<Kept>>, ahead: i64) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let kept = Arc::clone(&kept);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&kept), ahead, request));
            let server = hyper::server::conn::http1::Builder::new();
            // A client that goes away ends its connection, which is no fault of ours.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    kept: Arc<Mutex<Kept>>,
    ahead: i64,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.path().trim_matches('/').to_owned();
    let setting = parts.uri.query().unwrap_or_default();
    let setting = setting.split(['&', '=']).next().unwrap_or_default().to_owned();
    let sound = body.is_empty()
        || parts.headers.get("content-md5").is_some_and(|digest| {
            digest.as_bytes() == STANDARD.encode(Md5::digest(&body)).as_bytes()
        });
    let (status, said) = match sound {
        true => keep(&mut kept.lock().unwrap(), &parts.method, &path, &setting, body),
        // As servers of before the newer checksums do.
        false => error(StatusCode::BAD_REQUEST, "InvalidDigest"),
    };
    let mut response = Response::new(Full::new(said));
    *response.status_mut() = status;
    let now = Context::system().now_unix().saturating_add_signed(ahead);
    let date: SystemTime = UNIX_EPOCH + Duration::from_secs(now);
    let date = httpdate::fmt_http_date(date);
    response.headers_mut().insert(DATE, HeaderValue::try_from(date).unwrap());
    Ok(response)
}

fn keep(
    kept: &mut Kept,
    method: &Method,
    bucket: &str,
    setting: &str,
    body: Bytes,
) -> (StatusCode, Bytes) {
    if bucket.contains('/') || setting == "list-type" {
        return error(StatusCode::FORBIDDEN, "AccessDenied");
    }
    match (method, setting, kept.get_mut(bucket)) {
        (&Method::PUT, "", None) => {
            kept.insert(bucket.to_owned(), BTreeMap::new());
            (StatusCode::OK, Bytes::new())
        }
        (_, _, None) => error(StatusCode::NOT_FOUND, "NoSuchBucket"),
        (&Method::HEAD, ..) => (StatusCode::OK, Bytes::new()),
        (&Method::PUT, setting, Some(settings)) => {
            settings.insert(setting.to_owned(), body);
            (StatusCode::OK, Bytes::new())
        }
        (&Method::GET, setting, Some(settings)) => match settings.get(setting) {
            Some(body) => (StatusCode::OK, body.clone()),
            None if setting == "versioning" => {
                (StatusCode::OK, "<VersioningConfiguration/>".into())
            }
            None => {
                let absent = ABSENT.iter().find(|(name, _)| *name == setting);
                error(StatusCode::NOT_FOUND, absent.map_or("NoSuchKey", |(_, code)| code))
            }
        },
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }
}

fn error(status: StatusCode, code: &str) -> (StatusCode, Bytes) {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    (status, body.into())
}
