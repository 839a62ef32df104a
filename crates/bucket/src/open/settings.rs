//! What an S3 bucket itself is set to: the one kind of question that the store's library does not
//! ask. A plain signed request, so that every build can ask it.

use std::time::Duration;

use bytes::BytesMut;
use futures::TryStreamExt;
use http::{Method, Request, StatusCode};
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpRequestBody, HttpResponse, ReqwestConnector,
};

use super::clock::StoreClock;
use super::s3::{self, Place};
use super::{Environment, OpenError, failure};
use crate::Context;

/// A setting is small and asked for by a person who waits.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A thousand lifecycle rules, the most that S3 takes, are a third of this.
const MAX_ANSWER: usize = 1 << 20;

/// Where an `s3://` URL and the environment say that a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The bucket's name.
    pub bucket: String,
    /// What comes before every key, without slashes at its ends; mostly empty.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The server's URL, unless it is Amazon's own in the region.
    pub endpoint: Option<String>,
    /// Whether the server is Amazon's.
    pub amazon: bool,
}

/// Reads the settings of one bucket.
#[derive(Clone)]
pub struct BucketSettings {
    address: Address,
    credentials: AwsCredentialProvider,
    client: HttpClient,
    ctx: Context,
}

/// Why a setting could not be read. No variant repeats what a server wrote but its error code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// These keys may not ask.
    #[error("these keys may not read the bucket's {0}")]
    Denied(&'static str),
    /// The server has no such setting.
    #[error("the server does not know of a bucket's {0}")]
    Unsupported(&'static str),
    /// Another answer, with its status and error code.
    #[error("asked for the bucket's {0}, the server answered {1} {2}")]
    Answered(&'static str, u16, String),
    /// No whole answer in time.
    #[error("asked for the bucket's {0}, the server gave no answer: {1}")]
    Silent(&'static str, String),
}

impl std::fmt::Debug for BucketSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The credentials' own text would show the key's id.
        write!(f, "BucketSettings({})", self.address.bucket)
    }
}

/// Where the bucket of an `s3://` URL is, by the same variables as
/// [`open_store`](crate::open_store); `None` for stores of other kinds.
///
/// # Errors
/// [`OpenError`] with a sentence for a person, without any secret.
pub fn s3_address(
    url: &str,
    var: impl Fn(&str) -> Option<String>,
) -> Result<Option<Address>, OpenError> {
    let Some(rest) = url.strip_prefix("s3://") else { return Ok(None) };
    Ok(Some(Address::of(&Place::read(rest, Environment(&var))?)))
}

/// A reader of the settings of the bucket that an `s3://` URL names, with the keys that
/// [`open_store_with`](crate::open_store_with) would use; `None` for stores of other kinds.
///
/// # Errors
/// [`OpenError`] with a sentence for a person, without any secret.
pub fn open_settings(
    url: &str,
    var: impl Fn(&str) -> Option<String>,
    clock: &StoreClock,
) -> Result<Option<BucketSettings>, OpenError> {
    let Some(rest) = url.strip_prefix("s3://") else { return Ok(None) };
    let (place, store) = s3::client(rest, Environment(&var), Some(clock))?;
    let client = ReqwestConnector::default()
        .connect(&place.client_options())
        .map_err(|error| s3::S3Error::Client(error.to_string()))?;
    let (address, credentials) = (Address::of(&place), store.credentials().clone());
    Ok(Some(BucketSettings { address, credentials, client, ctx: clock.context().clone() }))
}

impl Address {
    fn of(place: &Place) -> Self {
        Self {
            bucket: place.bucket.clone(),
            prefix: place.prefix.to_string(),
            region: place.region.clone(),
            endpoint: place.endpoint.as_ref().map(|endpoint| endpoint.url.clone()),
            amazon: place.is_amazon(),
        }
    }

    fn url(&self, setting: &str) -> String {
        let (bucket, region) = (&self.bucket, &self.region);
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/{bucket}?{setting}="),
            // A dot in the name does not fit the certificate of Amazon's hosts.
            None if bucket.contains('.') => {
                format!("https://s3.{region}.amazonaws.com/{bucket}?{setting}=")
            }
            None => format!("https://{bucket}.s3.{region}.amazonaws.com/?{setting}="),
        }
    }
}

impl BucketSettings {
    /// Where the bucket is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The XML of one setting, such as `lifecycle`; `None` where it was never made.
    ///
    /// # Errors
    /// [`SettingsError`], which never holds what the server wrote but its error code.
    pub async fn read(&self, setting: &'static str) -> Result<Option<String>, SettingsError> {
        let silent = |said: String| SettingsError::Silent(setting, said);
        let asked = self.ctx.timeout(ANSWER_TIME, self.ask(setting)).await;
        let (status, body) =
            asked.map_err(|_| silent("it took too long".into()))?.map_err(silent)?;
        if status.is_success() {
            return Ok(Some(body));
        }
        let code = failure::code(&body).unwrap_or_default();
        match (status, code.as_str()) {
            (StatusCode::NOT_FOUND, "NoSuchBucket") => {
                Err(SettingsError::Answered(setting, 404, code))
            }
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (StatusCode::FORBIDDEN, "" | "AccessDenied") => Err(SettingsError::Denied(setting)),
            (StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED, _) => {
                Err(SettingsError::Unsupported(setting))
            }
            (status, _) => Err(SettingsError::Answered(setting, status.as_u16(), code)),
        }
    }

    async fn ask(&self, setting: &str) -> Result<(StatusCode, String), String> {
        let credential = self.credentials.get_credential().await.map_err(|error| {
            // What a platform answers about its keys is not for repeating.
            failure::plain("credentials", error).to_string()
        })?;
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(self.address.url(setting))
            .body(HttpRequestBody::empty())
            .map_err(|error| error.to_string())?;
        AwsAuthorizer::new(&credential, "s3", &self.address.region)
            .try_authorize(&mut request, None)
            .map_err(|error| failure::plain(setting, error).to_string())?;
        let response =
            self.client.execute(request).await.map_err(|error| failure::innermost(&error))?;
        Ok((response.status(), bounded(response).await?))
    }
}

async fn bounded(response: HttpResponse) -> Result<String, String> {
    let mut body = BytesMut::new();
    let mut parts = response.into_body().bytes_stream();
    while let Some(part) = parts.try_next().await.map_err(|error| failure::innermost(&error))? {
        if body.len() + part.len() > MAX_ANSWER {
            return Err("the answer is far too long".into());
        }
        body.extend_from_slice(&part);
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, endpoint: &str) -> Address {
        let var = |name: &str| match name {
            "CARLOS_S3_ENDPOINT" => Some(endpoint.to_owned()),
            "CARLOS_S3_REGION" => Some("eu-west-2".to_owned()),
            _ => None,
        };
        s3_address(url, var).expect("a good URL").expect("an S3 store")
    }

    #[test]
    fn a_setting_is_asked_for_where_the_objects_are() {
        let local = address("s3://b/p/q", "http://127.0.0.1:9000/");
        assert_eq!(local.url("lifecycle"), "http://127.0.0.1:9000/b?lifecycle=");
        assert_eq!((local.prefix.as_str(), local.amazon), ("p/q", false));
        let amazon = address("s3://b", "");
        assert_eq!(amazon.url("policy"), "https://b.s3.eu-west-2.amazonaws.com/?policy=");
        let dotted = address("s3://b.c?region=us-west-2", "");
        assert_eq!(dotted.url("policy"), "https://s3.us-west-2.amazonaws.com/b.c?policy=");
        assert!(amazon.amazon && dotted.region == "us-west-2");
    }

    #[test]
    fn other_stores_have_no_such_settings() {
        assert_eq!(s3_address("file:///tmp", |_| None).expect("no error"), None);
        let clock = StoreClock::new(Context::system());
        assert!(open_settings("memory://", |_| None, &clock).expect("no error").is_none());
    }
}
