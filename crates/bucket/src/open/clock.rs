//! The store's clock: every answer of an S3 server has a date, which all processes of a deployment
//! share, whatever their own clocks say.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use http::header::DATE;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::Context;

/// How this machine's clock stands to the store's. Clones share what they have seen.
#[derive(Clone, Debug)]
pub struct StoreClock {
    ctx: Context,
    ahead: Arc<OnceLock<AtomicI64>>,
}

impl StoreClock {
    /// A clock that has seen no answer yet and compares with `ctx`.
    pub fn new(ctx: Context) -> Self {
        Self { ctx, ahead: Arc::default() }
    }

    /// Seconds by which this machine was ahead of the store at the last answer, negative when it
    /// was behind; exact to a second or two. `None` before the first answer, and for stores that
    /// have no clock of their own.
    pub fn ahead(&self) -> Option<i64> {
        self.ahead.get().map(|ahead| ahead.load(Ordering::Relaxed))
    }

    /// The clock it compares with.
    pub(super) fn context(&self) -> &Context {
        &self.ctx
    }

    fn note(&self, date: &str) {
        let Ok(date) = httpdate::parse_http_date(date) else { return };
        let Ok(since) = date.duration_since(UNIX_EPOCH) else { return };
        let ahead = self.ctx.now_unix().cast_signed() - since.as_secs().cast_signed();
        self.ahead.get_or_init(AtomicI64::default).store(ahead, Ordering::Relaxed);
    }
}

/// Makes the library's usual client and looks at the dates of its answers.
#[async_trait]
impl HttpConnector for StoreClock {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Dated { client, clock: self.clone() }))
    }
}

#[derive(Debug)]
struct Dated {
    client: HttpClient,
    clock: StoreClock,
}

#[async_trait]
impl HttpService for Dated {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.client.execute(request).await?;
        if let Some(Ok(date)) = response.headers().get(DATE).map(|date| date.to_str()) {
            self.clock.note(date);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 9 October 2026, 08:00:00.
    const NOW_MS: u64 = 1_791_532_800_000;

    #[tokio::test(start_paused = true)]
    async fn the_last_answer_counts_and_nonsense_does_not() {
        let clock = StoreClock::new(Context::simulated(1, NOW_MS));
        assert_eq!(clock.ahead(), None);
        clock.note("yesterday");
        assert_eq!(clock.ahead(), None);
        clock.note("Fri, 09 Oct 2026 07:59:30 GMT");
        assert_eq!(clock.ahead(), Some(30));
        clock.clone().note("Fri, 09 Oct 2026 08:15:00 GMT");
        assert_eq!(clock.ahead(), Some(-900));
    }
}
