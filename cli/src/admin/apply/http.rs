//! The SDK's requests over the HTTP client that everything else here uses, so that there is one
//! stack of HTTP and TLS.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;

type Times = (Option<Duration>, Option<Duration>);
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Makes a connector for each pair of time limits, and keeps it: looking for a machine's own keys
/// gives up sooner than a request to the store.
#[derive(Clone, Debug, Default)]
pub(super) struct OneStack {
    connectors: Arc<Mutex<HashMap<Times, SharedHttpConnector>>>,
}

impl HttpClient for OneStack {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let times = (settings.connect_timeout(), settings.read_timeout());
        let mut known = self.connectors.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .entry(times)
            .or_insert_with(|| SharedHttpConnector::new(Connector::new(times)))
            .clone()
    }
}

#[derive(Debug)]
struct Connector {
    client: Option<reqwest::Client>,
}

impl Connector {
    fn new((connect, read): Times) -> Self {
        // The client's TLS asks for the process's provider; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder();
        if let Some(connect) = connect {
            builder = builder.connect_timeout(connect);
        }
        if let Some(read) = read {
            builder = builder.read_timeout(read);
        }
        // A redirect would be followed without a signature for where it leads.
        let builder = builder.redirect(reqwest::redirect::Policy::none());
        Self { client: builder.build().ok() }
    }
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.client.clone();
        HttpConnectorFuture::new(async move {
            let client = client.ok_or_else(|| {
                ConnectorError::other("no HTTP client can be set up".into(), None)
            })?;
            send(&client, request).await.map_err(|error| match error.downcast::<reqwest::Error>() {
                Ok(error) if error.is_timeout() => ConnectorError::timeout(error),
                Ok(error) => ConnectorError::io(error),
                Err(error) => ConnectorError::user(error),
            })
        })
    }
}

async fn send(client: &reqwest::Client, request: HttpRequest) -> Result<HttpResponse, Error> {
    let (parts, body) = request.try_into_http1x()?.into_parts();
    // Settings are small documents in memory; nothing here streams.
    let body = body.bytes().ok_or("a body that is not in memory")?.to_vec();
    let request = reqwest::Request::try_from(http::Request::from_parts(parts, body))?;
    let response = client.execute(request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut answer = http::Response::new(SdkBody::from(response.bytes().await?));
    (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
    Ok(answer.try_into()?)
}
