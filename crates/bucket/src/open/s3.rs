//! S3 and the servers that speak like it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::Uri;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    ClientOptions, CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, RetryConfig,
};

use super::Environment;
use super::clock::StoreClock;
use super::failure::plain;
use super::profile::{self, ProfileError};
use crate::layer::Inner;

/// A connection that is not there by then is tried anew by whoever asked, within its own deadline.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Silence that ends a request. Requests as a whole have no time limit here: each purpose has its
/// own in the layer above, and a replica's snapshot may stream for minutes.
const SILENCE: Duration = Duration::from_secs(15);

/// S3 closes a connection that idles for some twenty seconds; using one of those costs a failed
/// request. The longest pause between an agent's polls is far shorter.
const IDLE_TIME: Duration = Duration::from_secs(15);

/// Kept open for the next burst: 32 racers of a probe, some chunks, and the polls beside them.
const IDLE_CONNECTIONS: usize = 48;

/// Any server that is not Amazon's takes this region unless it is told another.
const USUAL_REGION: &str = "us-east-1";

/// Where the library's credential chain looks in the environment.
const CREDENTIALS: [(&str, AmazonS3ConfigKey); 8] = [
    ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", AmazonS3ConfigKey::WebIdentityTokenFile),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
    ("AWS_ENDPOINT_URL_STS", AmazonS3ConfigKey::StsEndpoint),
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT", AmazonS3ConfigKey::MetadataEndpoint),
];

/// Keys that a container's platform hands out; only looked for where nothing else gives any.
const CONTAINER: [(&str, AmazonS3ConfigKey); 3] = [
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", AmazonS3ConfigKey::ContainerCredentialsRelativeUri),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", AmazonS3ConfigKey::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", AmazonS3ConfigKey::ContainerAuthorizationTokenFile),
];

/// Why an `s3://` URL and its environment give no store. No variant repeats a value that could
/// hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    /// No bucket, or a name that cannot be one.
    #[error("s3:// names no bucket; write s3://bucket or s3://bucket/prefix")]
    NoBucket,
    /// The prefix cannot begin a key.
    #[error("the prefix after s3://{0}/ cannot begin a key")]
    BadPrefix(String),
    /// A parameter after `?` is unknown or has no value.
    #[error("an s3:// URL takes ?region=... and ?endpoint=... only")]
    BadParameter,
    /// The endpoint is no URL of a server.
    #[error("{0} is not the URL of a server, such as https://s3.example.com")]
    BadEndpoint(&'static str),
    /// Signed requests in the clear to another machine can be read and changed on the way.
    #[error("{0} is plain http to another machine; use https, or set CARLOS_S3_ALLOW_HTTP=1")]
    PlainHttp(&'static str),
    /// A switch has a value that it does not know.
    #[error("{0} is neither 0 nor 1")]
    NotASwitch(&'static str),
    /// Amazon's servers are found by region.
    #[error("no region: set CARLOS_S3_REGION, or CARLOS_S3_ENDPOINT for another server than AWS")]
    NoRegion,
    /// Nothing gives keys for a server that has no platform to hand them out.
    #[error("no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")]
    NoKeys,
    /// Half a pair of keys.
    #[error("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are only of use together")]
    HalfAPair,
    /// The profile that was asked for gives no keys.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The library refuses the settings.
    #[error("the S3 client cannot be set up: {0}")]
    Client(String),
}

/// What an `s3://` URL and the environment say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: String,
    pub(super) prefix: Path,
    pub(super) region: String,
    pub(super) endpoint: Option<Endpoint>,
    checksums: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) url: String,
    plain_http: bool,
    amazon: bool,
}

/// Opens the bucket that the text after `s3://` names.
pub(super) fn open(
    rest: &str,
    env: Environment<'_>,
    clock: Option<&StoreClock>,
) -> Result<Inner, S3Error> {
    let (place, client) = client(rest, env, clock)?;
    let store = PlainStore { client, name: place.bucket };
    match place.prefix.as_ref() {
        "" => Ok(Arc::new(store)),
        _ => Ok(Arc::new(PrefixStore::new(store, place.prefix))),
    }
}

/// The library's client, with where its bucket is.
pub(super) fn client(
    rest: &str,
    env: Environment<'_>,
    clock: Option<&StoreClock>,
) -> Result<(Place, AmazonS3), S3Error> {
    let place = Place::read(rest, env)?;
    let builder = credentials(place.builder(), &place, env)?;
    let builder = match clock {
        Some(clock) => builder.with_http_connector(clock.clone()),
        None => builder,
    };
    // The library's TLS asks for the process's provider; a second installation changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = builder.build().map_err(|error| S3Error::Client(error.to_string()))?;
    Ok((place, client))
}

impl Place {
    pub(super) fn read(rest: &str, env: Environment<'_>) -> Result<Self, S3Error> {
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
        let name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(name) {
            return Err(S3Error::NoBucket);
        }
        let own = Parameters::read(query)?;
        let endpoint = Endpoint::read(own.endpoint, env)?;
        let is_amazon = endpoint.as_ref().is_none_or(|endpoint| endpoint.amazon);
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix_path(bucket, prefix)?,
            region: region(own.region, is_amazon, env)?,
            endpoint,
            checksums: switch(env, "CARLOS_S3_CHECKSUM")?.unwrap_or(is_amazon),
        })
    }

    pub(super) fn is_amazon(&self) -> bool {
        self.endpoint.as_ref().is_none_or(|endpoint| endpoint.amazon)
    }

    pub(super) fn client_options(&self) -> ClientOptions {
        let plain_http = self.endpoint.as_ref().is_some_and(|endpoint| endpoint.plain_http);
        client_options().with_allow_http(plain_http)
    }

    fn builder(&self) -> AmazonS3Builder {
        let builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_client_options(self.client_options())
            // A landed create that the library sends again comes back as somebody else's.
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            // One request of the core protocol per object, which every server knows.
            .with_disable_bulk_delete(true);
        let builder = match &self.endpoint {
            Some(endpoint) => builder.with_endpoint(&endpoint.url),
            // A dot in the name does not fit the certificate of Amazon's hosts.
            None => builder.with_virtual_hosted_style_request(!self.bucket.contains('.')),
        };
        if self.checksums { builder.with_checksum_algorithm(Checksum::SHA256) } else { builder }
    }
}

fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIME)
        .with_read_timeout(SILENCE)
        .with_pool_idle_timeout(IDLE_TIME)
        .with_pool_max_idle_per_host(IDLE_CONNECTIONS)
}

/// Keys from the environment; else a web identity; else a profile's keys; else what the platform
/// hands out to a container or a machine.
fn credentials(
    builder: AmazonS3Builder,
    place: &Place,
    env: Environment<'_>,
) -> Result<AmazonS3Builder, S3Error> {
    let has = |name: &str| env.get(name).is_some();
    let (id, secret) = (has("AWS_ACCESS_KEY_ID"), has("AWS_SECRET_ACCESS_KEY"));
    if id != secret {
        return Err(S3Error::HalfAPair);
    }
    let builder = with_all(builder, &CREDENTIALS, env);
    if id || has("AWS_WEB_IDENTITY_TOKEN_FILE") && has("AWS_ROLE_ARN") {
        return Ok(builder);
    }
    if let Some(keys) = profile::keys(env)? {
        let builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret);
        return Ok(match keys.token {
            Some(token) => builder.with_token(token),
            None => builder,
        });
    }
    let container = CONTAINER.iter().any(|(name, _)| has(name));
    if !place.is_amazon() && !container {
        return Err(S3Error::NoKeys);
    }
    Ok(with_all(builder, &CONTAINER, env))
}

fn with_all(
    builder: AmazonS3Builder,
    names: &[(&'static str, AmazonS3ConfigKey)],
    env: Environment<'_>,
) -> AmazonS3Builder {
    names.iter().fold(builder, |builder, (name, key)| match env.get(name) {
        Some(value) => builder.with_config(*key, value),
        None => builder,
    })
}

fn prefix_path(bucket: &str, prefix: &str) -> Result<Path, S3Error> {
    let segments: Vec<_> = prefix.split('/').filter(|segment| !segment.is_empty()).collect();
    Path::parse(segments.join("/")).map_err(|_| S3Error::BadPrefix(bucket.to_owned()))
}

fn region(own: Option<&str>, is_amazon: bool, env: Environment<'_>) -> Result<String, S3Error> {
    let named = ["CARLOS_S3_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"];
    let named = || named.iter().find_map(|name| env.get(name));
    match own.map(str::to_owned).or_else(named) {
        Some(region) => Ok(region),
        None if is_amazon => Err(S3Error::NoRegion),
        None => Ok(USUAL_REGION.to_owned()),
    }
}

fn switch(env: Environment<'_>, name: &'static str) -> Result<Option<bool>, S3Error> {
    match env.get(name).as_deref() {
        None => Ok(None),
        Some("0") => Ok(Some(false)),
        Some("1") => Ok(Some(true)),
        Some(_) => Err(S3Error::NotASwitch(name)),
    }
}

/// What a URL says for its own bucket only, where one process uses buckets of two regions.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters<'a> {
    region: Option<&'a str>,
    endpoint: Option<&'a str>,
}

impl<'a> Parameters<'a> {
    fn read(query: &'a str) -> Result<Self, S3Error> {
        let mut own = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("region", value)) if !value.is_empty() => own.region = Some(value),
                Some(("endpoint", value)) if !value.is_empty() => own.endpoint = Some(value),
                _ => return Err(S3Error::BadParameter),
            }
        }
        Ok(own)
    }
}

impl Endpoint {
    fn read(own: Option<&str>, env: Environment<'_>) -> Result<Option<Self>, S3Error> {
        let (name, url) = match (own, env.get(ENDPOINT)) {
            (Some(own), _) => ("the URL's endpoint", own.to_owned()),
            (None, Some(url)) => (ENDPOINT, url),
            (None, None) => return Ok(None),
        };
        let endpoint = Self::parse(&url).ok_or(S3Error::BadEndpoint(name))?;
        let allowed = switch(env, "CARLOS_S3_ALLOW_HTTP")? == Some(true) || is_loopback(&url);
        if endpoint.plain_http && !allowed {
            return Err(S3Error::PlainHttp(name));
        }
        Ok(Some(endpoint))
    }

    /// A scheme, a host, perhaps a port; no name and password, which would end up in logs.
    fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.trim_end_matches('/').parse().ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let only_a_host = !authority.as_str().contains('@') && uri.query().is_none();
        if !only_a_host || !matches!(scheme, "http" | "https") {
            return None;
        }
        let amazon = [".amazonaws.com", ".amazonaws.com.cn"];
        let amazon = amazon.iter().any(|domain| authority.host().ends_with(domain));
        let url = url.trim_end_matches('/').to_owned();
        Some(Self { url, plain_http: scheme == "http", amazon })
    }
}

const ENDPOINT: &str = "CARLOS_S3_ENDPOINT";

fn is_loopback(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The library's client with every error made plain.
struct PlainStore {
    client: AmazonS3,
    name: String,
}

impl fmt::Debug for PlainStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own text would show the key's id.
        write!(f, "S3({})", self.name)
    }
}

impl fmt::Display for PlainStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.name)
    }
}

#[async_trait]
impl ObjectStore for PlainStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let put = self.client.put_opts(location, payload, opts).await;
        put.map_err(|error| plain(location.as_ref(), error))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.client.put_multipart_opts(location, opts).await;
        let upload = upload.map_err(|error| plain(location.as_ref(), error))?;
        Ok(Box::new(PlainUpload { upload, at: location.to_string() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let at = location.to_string();
        let found = self.client.get_opts(location, options).await;
        let mut found = found.map_err(|error| plain(&at, error))?;
        if let GetResultPayload::Stream(body) = found.payload {
            let body = body.map_err(move |error| plain(&at, error)).boxed();
            found.payload = GetResultPayload::Stream(body);
        }
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let deleted = self.client.delete_stream(locations);
        deleted.map_err(|error| plain("a deletion", error)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let at = prefix.map(ToString::to_string).unwrap_or_default();
        self.client.list(prefix).map_err(move |error| plain(&at, error)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let at = prefix.map(ToString::to_string).unwrap_or_default();
        let listed = self.client.list_with_offset(prefix, offset);
        listed.map_err(move |error| plain(&at, error)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let at = prefix.map(Path::as_ref).unwrap_or_default();
        let listed = self.client.list_with_delimiter(prefix).await;
        listed.map_err(|error| plain(at, error))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let copied = self.client.copy_opts(from, to, options).await;
        copied.map_err(|error| plain(to.as_ref(), error))
    }
}

#[derive(Debug)]
struct PlainUpload {
    upload: Box<dyn MultipartUpload>,
    at: String,
}

#[async_trait]
impl MultipartUpload for PlainUpload {
    fn put_part(&mut self, data: PutPayload) -> object_store::UploadPart {
        let (part, at) = (self.upload.put_part(data), self.at.clone());
        Box::pin(async move { part.await.map_err(|error| plain(&at, error)) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.upload.complete().await.map_err(|error| plain(&self.at, error))
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await.map_err(|error| plain(&self.at, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [(&str, &str); 2] =
        [("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "hush")];

    fn with<T>(vars: &[(&str, &str)], ask: impl FnOnce(Environment<'_>) -> T) -> T {
        let var = |name: &str| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        ask(Environment(&var))
    }

    fn place(rest: &str, vars: &[(&str, &str)]) -> Result<Place, S3Error> {
        with(vars, |env| Place::read(rest, env))
    }

    fn sentence(rest: &str, vars: &[(&str, &str)]) -> String {
        with(vars, |env| open(rest, env, None)).expect_err(rest).to_string()
    }

    const LOCAL: (&str, &str) = (ENDPOINT, "http://127.0.0.1:9000/");

    #[test]
    fn amazon_needs_a_region_and_gets_checksums() {
        assert!(matches!(place("b", &[]), Err(S3Error::NoRegion)));
        let amazon = place("b/p//q/", &[("AWS_REGION", "eu-west-2")]).expect("complete");
        assert_eq!((amazon.bucket.as_str(), amazon.prefix.as_ref()), ("b", "p/q"));
        assert!(amazon.endpoint.is_none() && amazon.checksums);
        let private = (ENDPOINT, "https://bucket.vpce-1.s3.eu-west-2.vpce.amazonaws.com");
        assert!(matches!(place("b", &[private]), Err(S3Error::NoRegion)));
    }

    #[test]
    fn another_server_gets_no_checksums_unless_asked() {
        let local = place("b", &[LOCAL]).expect("complete");
        assert_eq!((local.region.as_str(), local.checksums), (USUAL_REGION, false));
        assert_eq!(local.endpoint.expect("given").url, "http://127.0.0.1:9000");
        let asked = place("b", &[LOCAL, ("CARLOS_S3_CHECKSUM", "1")]).expect("complete");
        assert!(asked.checksums);
        let unclear = place("b", &[LOCAL, ("CARLOS_S3_CHECKSUM", "yes")]);
        assert!(matches!(unclear, Err(S3Error::NotASwitch("CARLOS_S3_CHECKSUM"))));
    }

    #[test]
    fn a_url_s_own_words_go_first() {
        let vars = [LOCAL, ("CARLOS_S3_REGION", "eu-west-1"), ("AWS_REGION", "us-west-2")];
        assert_eq!(place("b", &vars).expect("complete").region, "eu-west-1");
        let own = place("b?region=eu-west-2&endpoint=https://s3.example.com", &vars);
        let own = own.expect("complete");
        assert_eq!(own.region, "eu-west-2");
        assert_eq!(own.endpoint.expect("given").url, "https://s3.example.com");
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        for near in ["http://localhost:9000", "http://127.0.0.1:1", "http://[::1]:9000"] {
            assert!(place("b", &[(ENDPOINT, near)]).is_ok(), "{near}");
        }
        let far = (ENDPOINT, "http://minio:9000");
        assert!(matches!(place("b", &[far]), Err(S3Error::PlainHttp(ENDPOINT))));
        assert!(place("b", &[far, ("CARLOS_S3_ALLOW_HTTP", "1")]).is_ok());
        for tricky in ["http://localhost.example.com", "http://127.0.0.1.example.com"] {
            assert!(matches!(place("b", &[(ENDPOINT, tricky)]), Err(S3Error::PlainHttp(_))));
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_without_secrets() {
        assert!(sentence("", &[]).contains("names no bucket"));
        assert!(sentence("b c", &[]).contains("names no bucket"));
        assert!(sentence("b?versionId=3", &[LOCAL]).contains("?region="));
        assert!(sentence("b/../c", &[LOCAL]).contains("cannot begin a key"));
        let secret = (ENDPOINT, "https://me:hush@s3.example.com");
        let said = sentence("b", &[secret]);
        assert!(said.contains(ENDPOINT) && !said.contains("hush"), "{said}");
        assert!(sentence("b", &[LOCAL, KEYS[0]]).contains("only of use together"));
        assert!(sentence("b", &[LOCAL, ("HOME", "/nonexistent")]).contains("no keys"));
    }

    #[tokio::test]
    async fn nothing_shown_of_a_store_holds_its_keys() {
        let vars = [LOCAL, KEYS[0], KEYS[1], ("AWS_SESSION_TOKEN", "hush-too")];
        let store = with(&vars, |env| open("b/p", env, None)).expect("complete");
        let shown = format!("{store} {store:?}");
        assert!(!shown.contains("hush") && !shown.contains("AKIAEXAMPLE"), "{shown}");
        // Port 9 is nobody's: the failure is the connection's.
        let dead = [(ENDPOINT, "http://127.0.0.1:9"), KEYS[0], KEYS[1]];
        let store = with(&dead, |env| open("b", env, None)).expect("complete");
        let failed = store.get_opts(&Path::from("k"), GetOptions::default()).await;
        let failed = format!("{:?}", failed.expect_err("nobody answers"));
        assert!(failed.contains("onnection refused") && !failed.contains("hush"), "{failed}");
    }
}
