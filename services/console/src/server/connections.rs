//! The connection cap: silent connections make room, busy ones are never touched.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

/// Every open connection, oldest first.
///
/// A connection without a request costs nothing to open and a descriptor to keep, so a few
/// hundred silent ones would shut everybody out until their header time is over. At the cap the
/// oldest connection without a request is closed instead; only when all have one is a new
/// connection refused.
pub(super) struct Connections {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, Arc<State>>,
}

#[derive(Default)]
struct State {
    requests: AtomicUsize,
    evict: CancellationToken,
}

/// One connection's place; dropping it gives the place back.
pub(super) struct Connection {
    number: u64,
    state: Arc<State>,
    all: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        Self { max, open: Mutex::default() }
    }

    /// Takes a place, if need be that of the oldest connection without a request.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Arc<Connection>> {
        let mut open = self.open.lock().expect("no holder of the connections panics");
        if open.by_age.len() >= self.max {
            let (&number, idle) = open.by_age.iter().find(|(_, state)| state.is_idle())?;
            idle.evict.cancel();
            open.by_age.remove(&number);
        }
        let number = open.next;
        open.next += 1;
        let state = Arc::<State>::default();
        open.by_age.insert(number, Arc::clone(&state));
        Some(Arc::new(Connection { number, state, all: Arc::clone(self) }))
    }

    pub(super) fn evict_all(&self) {
        let open = self.open.lock().expect("no holder of the connections panics");
        open.by_age.values().for_each(|state| state.evict.cancel());
    }

    pub(super) fn len(&self) -> usize {
        self.open.lock().expect("no holder of the connections panics").by_age.len()
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }
}

impl Connection {
    /// Resolves when this connection has to go.
    pub(super) async fn evicted(&self) {
        self.state.evict.cancelled().await;
    }

    /// Marks a request as being answered until the mark is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.state))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.all.open.lock().expect("no holder of the connections panics");
        open.by_age.remove(&self.number);
    }
}

/// A request that is being answered.
pub(super) struct Busy(Arc<State>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body that keeps its connection busy until it has ended or was dropped.
pub(super) struct Held {
    body: Body,
    _busy: Busy,
}

impl Held {
    pub(super) fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let all = Arc::new(Connections::new(2));
        let oldest = all.enter().unwrap();
        let second = all.enter().unwrap();
        let busy = oldest.busy();
        let _third = all.enter().unwrap();
        assert!(second.state.evict.is_cancelled() && !oldest.state.evict.is_cancelled());
        drop(busy);
        let _fourth = all.enter().unwrap();
        assert!(oldest.state.evict.is_cancelled());
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_busy_house_refuses_and_a_place_comes_back() {
        let all = Arc::new(Connections::new(1));
        let only = all.enter().unwrap();
        let busy = only.busy();
        assert!(all.enter().is_none());
        drop(busy);
        drop(only);
        assert_eq!(all.len(), 0);
        assert!(all.enter().is_some());
    }
}
