//! A store that lists in random order, as a directory may. Code that leans on the order of a
//! listing fails here instead of on somebody's file system.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, Result};

use crate::Context;
use crate::layer::{Inner, Layer, Layered, list_inner};

/// Shuffles every listing; see [`Shuffled::wrap`].
pub struct Shuffled {
    ctx: Context,
}

impl Shuffled {
    /// `inner` with its listings shuffled, the order drawn from the context's seed.
    pub fn wrap(inner: Inner, ctx: &Context) -> Arc<dyn ObjectStore> {
        Layered::new(inner, Arc::new(Self { ctx: ctx.node("shuffled") }))
    }
}

#[async_trait]
impl Layer for Shuffled {
    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let mut metas = list_inner(inner, prefix, after).await?;
        for last in (1..metas.len()).rev() {
            metas.swap(last, self.ctx.below(last + 1));
        }
        Ok(metas)
    }
}

impl fmt::Debug for Shuffled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shuffled")
    }
}
