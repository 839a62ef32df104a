//! What an operator does to buckets themselves, as plain signed requests: the product never needs
//! to, so it has no client for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carlos_bucket::expire::Rule;
use http::Method;
use md5::{Digest as _, Md5};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector as _, HttpRequest, ReqwestConnector};
use serde_json::Value;

use crate::server::UserKeys;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// One user's direct requests.
pub struct Admin {
    endpoint: String,
    credential: AwsCredential,
    client: HttpClient,
}

/// A server's answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Admin {
    pub fn new(endpoint: &str, keys: UserKeys) -> Self {
        // The client's TLS asks for the process's provider even where no TLS is spoken.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = ClientOptions::new().with_allow_http(true);
        let client = ReqwestConnector::default().connect(&options).unwrap();
        let (key_id, secret_key) = (keys.id, keys.secret);
        let credential = AwsCredential { key_id, secret_key, token: None };
        Self { endpoint: endpoint.to_owned(), credential, client }
    }

    pub async fn create_bucket(&self, name: &str) {
        self.done(Method::PUT, name, String::new()).await;
    }

    pub async fn set_policy(&self, bucket: &str, policy: &Value) {
        self.done(Method::PUT, &format!("{bucket}?policy="), policy.to_string()).await;
    }

    pub async fn set_versioned(&self, bucket: &str) {
        let body = format!(
            "<VersioningConfiguration {NAMESPACE}><Status>Enabled</Status>\
                            </VersioningConfiguration>"
        );
        self.done(Method::PUT, &format!("{bucket}?versioning="), body).await;
    }

    /// The store's own deletion, by the rules that a directory store's expiry follows too.
    pub async fn set_lifecycle(&self, bucket: &str, rules: &[Rule]) {
        let rule = |rule: &Rule| {
            let (prefix, days) = (rule.prefix, rule.after.as_secs() / DAY_SECONDS);
            format!(
                "<Rule><ID>{prefix}</ID><Filter><Prefix>{prefix}/</Prefix></Filter>\
                 <Status>Enabled</Status><Expiration><Days>{days}</Days></Expiration></Rule>"
            )
        };
        let rules: String = rules.iter().map(rule).collect();
        let body = format!("<LifecycleConfiguration {NAMESPACE}>{rules}</LifecycleConfiguration>");
        self.done(Method::PUT, &format!("{bucket}?lifecycle="), body).await;
    }

    async fn done(&self, method: Method, target: &str, body: String) {
        let answer = self.ask(method, target, body).await;
        assert!(answer.status < 300, "{target}: {answer:?}");
    }

    /// One signed request.
    pub async fn ask(&self, method: Method, target: &str, body: String) -> Answer {
        let mut request = self.request(method, target, body);
        let signer = AwsAuthorizer::new(&self.credential, "s3", "us-east-1");
        signer.try_authorize(&mut request, None).unwrap();
        self.send(request).await
    }

    /// The same from somebody without keys.
    pub async fn ask_unsigned(&self, method: Method, target: &str, body: String) -> Answer {
        let request = self.request(method, target, body);
        self.send(request).await
    }

    fn request(&self, method: Method, target: &str, body: String) -> HttpRequest {
        let digest = STANDARD.encode(Md5::digest(body.as_bytes()));
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}/{target}", self.endpoint))
            .header("content-length", body.len())
            // Lifecycle rules are refused without.
            .header("content-md5", digest);
        request.body(body.into()).unwrap()
    }

    async fn send(&self, request: HttpRequest) -> Answer {
        let response = self.client.execute(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().bytes().await.unwrap();
        Answer { status, body: String::from_utf8_lossy(&body).into_owned() }
    }
}

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
