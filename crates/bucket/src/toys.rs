//! Stores that lie, each in a way that a real product was seen to. The bucket probe must catch
//! every one of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, Result,
};

use crate::Context;
use crate::layer::{Inner, Layer, Layered};
use crate::verdict::HttpStatus;

/// How a toy store lies about put-if-absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    /// Looks first and writes after, up to this much later (versitygw#2288, rustfs#1659).
    ChecksThenActs(Duration),
    /// Accepts the header and replaces (mountx#19, incus#3651, versioned buckets of Ceph).
    IgnoresHeader,
    /// Answers 412 for a name that is free (rustfs#1610).
    RefusesFreeNames,
    /// Says 200 and replaces, with this probability (minio#21603 without read quorum).
    SometimesReplaces(f64),
}

/// A store that lies; see [`Liar::wrap`].
pub struct Liar {
    lie: Lie,
    ctx: Context,
}

impl Liar {
    /// `inner`, lying.
    pub fn wrap(inner: Inner, ctx: &Context, lie: Lie) -> Arc<dyn ObjectStore> {
        Layered::new(inner, Arc::new(Self { lie, ctx: ctx.node("liar") }))
    }

    async fn check_then_act(
        &self,
        window: Duration,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
    ) -> Result<PutResult> {
        if inner.head(key).await.is_ok() {
            return Err(exists(key));
        }
        self.ctx.sleep(self.ctx.jitter(window)).await;
        inner.put(key, body).await
    }
}

#[async_trait]
impl Layer for Liar {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if options.mode != PutMode::Create {
            return inner.put_opts(key, body, options).await;
        }
        match self.lie {
            Lie::ChecksThenActs(window) => self.check_then_act(window, inner, key, body).await,
            Lie::IgnoresHeader => inner.put(key, body).await,
            Lie::RefusesFreeNames => Err(exists(key)),
            Lie::SometimesReplaces(odds) if self.ctx.chance(odds) => inner.put(key, body).await,
            Lie::SometimesReplaces(_) => inner.put_opts(key, body, options).await,
        }
    }
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Liar({:?})", self.lie)
    }
}

fn exists(key: &Path) -> Error {
    Error::Precondition { path: key.to_string(), source: Box::new(HttpStatus(412)) }
}
