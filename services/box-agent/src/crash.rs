//! Named places at which a test may stop the agent, one after each await of the protocol.
//!
//! Production passes [`NoCrash`]. A test passes a hook whose future never resolves at the chosen
//! point and then drops the agent: everything the agent held in memory is gone, exactly as after
//! a kill, and what the bucket holds is what a restarted agent finds (db-forward §5.3).

use async_trait::async_trait;

/// A numbered point of one read's life on the box. The numbers are stable: scenarios name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// 1: the request is verified, nothing is written.
    Verified,
    /// 2: admission is taken and the jitter is over, nothing is written.
    BeforePicked,
    /// 3: `picked` is known to be this attempt's own.
    PickedOwned,
    /// 4: check A passed and the plan is made.
    Planned,
    /// 5: the reservation has grown to the plan and the worker answered hello.
    WorkerStarted,
    /// 6: every planned byte is in the worker.
    Fed,
    /// 7: the worker holds the restored copy.
    WorkerReady,
    /// 8: check B passed, `run` is not sent yet.
    CheckedAgain,
    /// 9: chunk `seq` is confirmed.
    ChunkConfirmed(u64),
    /// 10: every chunk is confirmed, no result is written.
    BeforeResult,
    /// 11: `result.json` is confirmed, the worker may still be stopping.
    ResultWritten,
    /// 12: the worker has stopped, slot and reservation are still held.
    WorkerStopped,
}

impl CrashPoint {
    /// The point's number in the table above.
    pub fn number(self) -> u8 {
        match self {
            Self::Verified => 1,
            Self::BeforePicked => 2,
            Self::PickedOwned => 3,
            Self::Planned => 4,
            Self::WorkerStarted => 5,
            Self::Fed => 6,
            Self::WorkerReady => 7,
            Self::CheckedAgain => 8,
            Self::ChunkConfirmed(_) => 9,
            Self::BeforeResult => 10,
            Self::ResultWritten => 11,
            Self::WorkerStopped => 12,
        }
    }
}

/// Told of every point as it is passed.
#[async_trait]
pub trait CrashHook: Send + Sync {
    /// Returns when the agent may go on.
    async fn reached(&self, point: CrashPoint);
}

/// Production's hook: every point is passed at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCrash;

#[async_trait]
impl CrashHook for NoCrash {
    async fn reached(&self, _point: CrashPoint) {}
}
