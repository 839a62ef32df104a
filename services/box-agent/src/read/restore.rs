//! From the record to a worker that holds the restored copy (db-forward §8.2, steps 1 and 2).

use std::time::Duration;

use bytes::Bytes;
use carlos_protocol::frames::{Frame, Header, PlannedFile, Ready, Run, Status, WorkerLimits};
use carlos_protocol::ids::{Host, Txid};
use carlos_protocol::limits::{OUTPUT_BYTES, PLAN_FILES, QUERY_TIME, RESTORE_TIME};
use carlos_protocol::result::Code;
use carlos_protocol::time::{At, Millis};
use carlos_replica::plan::{MAX_PLAN_FILES, ReplanError};
use carlos_replica::{
    Download, Header as LtxHeader, Listing, Plan, PlanError, ReadError, ReplicaReader, Rereading,
    Target, listing_for, plan,
};
use tokio::sync::mpsc;

use super::Read;
use super::ending::Ending;
use super::hold::Hold;
use crate::crash::CrashPoint;
use crate::replicas::timed::Timed;
use crate::worker::talk::{Listener, Speaker, Talk, TalkError};

/// SQLite's pages, sorts and temporary tables: half of the unit's 512 MiB (db-forward §8.3), the
/// other half is for the restore's page map and the frames on their way.
const HEAP_BYTES: u64 = 256 << 20;

/// Bytes of a planned file in one frame; the worker holds one frame.
const PIECE: usize = 256 << 10;

/// Pieces read while the worker still takes those before: the store and the worker then wait for
/// each other only when one of them is slower for good.
const PIECES_AHEAD: usize = 4;

// A longer chain has no plan, which ends the read as any unsound chain does (db-forward §8.2).
const _: () = assert!(MAX_PLAN_FILES <= PLAN_FILES, "a worker takes every plan there is");

/// Tries of one listing or header before the store counts as unreadable, and the pause between.
const TRIES: u32 = 3;
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A worker that refuses its input says why and closes; the reason may still be on its way when
/// the agent's write fails.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why one attempt gave no copy.
enum Trouble {
    /// A planned file vanished or was replaced: worth a second attempt, once.
    Changed,
    End(Ending),
}

impl From<Ending> for Trouble {
    fn from(ending: Ending) -> Self {
        Self::End(ending)
    }
}

impl Read<'_> {
    /// Check A, plan, download, restore; once more when the replica changed under it.
    pub(super) async fn restore(&self, hold: &mut Hold) -> Result<Talk, Ending> {
        let host = self.bracket().check().await?;
        let replica = self.replica(&host)?;
        let target = target(self.request.at);
        let listing = self.listing(&replica, target).await?;
        let first = plan(&listing, target, replica.resolution());
        let first = first.map_err(|error| self.no_plan(&error))?;
        match self.attempt(hold, &replica, &first).await {
            Ok(talk) => return Ok(talk),
            Err(Trouble::End(ending)) => return Err(ending),
            Err(Trouble::Changed) => {}
        }
        tracing::info!(id = %self.request.id, "the replica changed while it was read; once more");
        hold.start_over(self.ctx()).await?;
        self.bracket().check().await?;
        let listing = self.listing(&replica, target).await?;
        let second = Rereading::new(&first, target, replica.resolution()).replan(&listing);
        let second = second.map_err(|error| self.no_second_plan(&error))?;
        match self.attempt(hold, &replica, &second).await {
            Ok(talk) => Ok(talk),
            Err(Trouble::End(ending)) => Err(ending),
            Err(Trouble::Changed) => Err(Ending::failed(Code::ChangedTwice)),
        }
    }

    async fn attempt(
        &self,
        hold: &mut Hold,
        replica: &dyn ReplicaReader,
        plan: &Plan,
    ) -> Result<Talk, Trouble> {
        let restored = self.measure(replica, plan).await?;
        hold.grow(plan.bytes().saturating_add(restored))?;
        self.reached(CrashPoint::Planned).await;
        let mut talk = self.start(hold).await?;
        self.reached(CrashPoint::WorkerStarted).await;
        self.send(&mut talk, replica, plan).await?;
        self.reached(CrashPoint::Fed).await;
        let ready = self.ready(&mut talk.listener).await?;
        if ready.txid.0 != plan.txid().0 || ready.restored_bytes() != restored {
            tracing::error!(id = %self.request.id, "a worker restored something else");
            return Err(Ending::interrupted().into());
        }
        self.note_copy(&ready);
        self.reached(CrashPoint::WorkerReady).await;
        Ok(talk)
    }

    /// The restored size, from the last planned file's header, before any byte moves.
    async fn measure(&self, replica: &dyn ReplicaReader, plan: &Plan) -> Result<u64, Trouble> {
        let mut failures = 0;
        let bytes = loop {
            match replica.header(plan.last()).await {
                Ok(bytes) => break bytes,
                Err(error) => self.again(error, &mut failures).await?,
            }
        };
        let header = LtxHeader::decode(&bytes).map_err(|error| self.unsound(&error))?;
        let restored = plan.restored_bytes(&header).map_err(|error| self.unsound(&error))?;
        let cap = self.agent.config.max_restored;
        {
            let mut summary = self.progress.summary();
            (summary.restored_bytes, summary.cap_bytes) = (restored, cap);
            summary.coarser = plan.coarser().is_some();
        }
        if restored > cap { Err(Ending::failed(Code::TooLarge).into()) } else { Ok(restored) }
    }

    async fn start(&self, hold: &mut Hold) -> Result<Talk, Ending> {
        let started = match hold.worker.start().await {
            Ok(connection) => {
                let talk = Talk::open(self.ctx(), connection, &self.agent.config).await;
                talk.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        started.map_err(|error| {
            tracing::error!(id = %self.request.id, error, "a read's worker failed to start");
            self.agent.probe_again.notify_one();
            Ending::interrupted()
        })
    }

    async fn send(
        &self,
        talk: &mut Talk,
        replica: &dyn ReplicaReader,
        plan: &Plan,
    ) -> Result<(), Trouble> {
        let Talk { listener, speaker } = talk;
        // A worker speaks before `ready` only to end.
        let sent = tokio::select! {
            biased;
            early = listener.next() => return Err(self.early(early).into()),
            sent = self.feed(speaker, replica, plan) => sent,
        };
        match sent {
            Ok(()) => Ok(()),
            Err(FeedError::Replica(ReadError::Changed { .. })) => Err(Trouble::Changed),
            Err(FeedError::Replica(error)) => Err(self.unreadable(&error).into()),
            Err(FeedError::Worker(error)) => {
                tracing::warn!(id = %self.request.id, %error, "a worker took no more input");
                let last = self.ctx().timeout(LAST_WORDS, listener.next()).await;
                Err(self.early(last.unwrap_or(Err(TalkError::Silent))).into())
            }
        }
    }

    async fn feed(
        &self,
        speaker: &mut Speaker,
        replica: &dyn ReplicaReader,
        plan: &Plan,
    ) -> Result<(), FeedError> {
        speaker.say(&Frame::Header(self.header(plan))).await.map_err(FeedError::Worker)?;
        let (pieces, mut arrived) = mpsc::channel::<Bytes>(PIECES_AHEAD);
        let read = async move {
            let mut download = Download::new(replica, plan.files());
            while let Some(bytes) = download.next().await.map_err(FeedError::Replica)? {
                if pieces.send(bytes).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        let write = async move {
            while let Some(bytes) = arrived.recv().await {
                for piece in bytes.chunks(PIECE) {
                    speaker.file_data(piece).await.map_err(FeedError::Worker)?;
                }
            }
            Ok(())
        };
        tokio::try_join!(read, write).map(|_| ())
    }

    fn header(&self, plan: &Plan) -> Header {
        let files = plan.files().iter().map(|file| PlannedFile {
            level: file.level,
            name: file.range.name(),
            size: file.size,
        });
        let limits = WorkerLimits {
            restored_bytes: self.agent.config.max_restored,
            output_bytes: OUTPUT_BYTES,
            restore_ms: millis(RESTORE_TIME),
            query_ms: millis(QUERY_TIME),
            heap_bytes: HEAP_BYTES,
        };
        Header { files: files.collect(), target: Txid(plan.txid().0), limits }
    }

    async fn ready(&self, listener: &mut Listener) -> Result<Ready, Ending> {
        match listener.next().await {
            Ok(Frame::Ready(ready)) => Ok(ready),
            other => Err(self.early(other)),
        }
    }

    /// Tells the worker to run the member's statement. Only check B allows it.
    pub(super) async fn say_run(&self, talk: &mut Talk) -> Result<(), Ending> {
        let (sql, params) = (self.request.sql.clone(), self.request.params.clone());
        let run = Frame::Run(Run { sql, params });
        talk.speaker.say(&run).await.map_err(|error| self.lost(&error))
    }

    fn replica(&self, host: &Host) -> Result<Timed, Ending> {
        let replicas = self.agent.ports.replicas.as_ref().ok_or_else(Ending::interrupted)?;
        let replica = replicas.replica(host).map_err(|error| {
            tracing::error!(%error, "no replica can be named");
            Ending::interrupted()
        })?;
        Ok(Timed::new(replica, self.ctx().clone()))
    }

    async fn listing(
        &self,
        replica: &dyn ReplicaReader,
        target: Target,
    ) -> Result<Listing, Ending> {
        let mut failures = 0;
        loop {
            let error = match listing_for(replica, target).await {
                Ok(listing) => return Ok(listing),
                Err(error) => error,
            };
            match self.again(error, &mut failures).await {
                Ok(()) => {}
                Err(Trouble::End(ending)) => return Err(ending),
                // Files come and go faster than their headers can be looked at.
                Err(Trouble::Changed) => return Err(Ending::failed(Code::ChangedTwice)),
            }
        }
    }

    /// Waits before another try, or says what the failure means for the read.
    async fn again(&self, error: ReadError, failures: &mut u32) -> Result<(), Trouble> {
        *failures += 1;
        match error {
            ReadError::Changed { .. } => Err(Trouble::Changed),
            ReadError::Store { .. } if *failures < TRIES => {
                self.ctx().sleep(AGAIN_AFTER).await;
                Ok(())
            }
            error => Err(self.unreadable(&error).into()),
        }
    }

    fn no_plan(&self, error: &PlanError) -> Ending {
        tracing::info!(id = %self.request.id, %error, "the replica has no plan");
        match error {
            PlanError::NothingReplicated => Ending::failed(Code::NothingReplicated),
            PlanError::HistoryGone { oldest_ms } => {
                let oldest = u64::try_from(*oldest_ms).unwrap_or_default();
                self.progress.summary().oldest = Some(Millis::new(oldest));
                Ending::failed(Code::HistoryGone)
            }
            _ => Ending::failed(Code::CheckFailed),
        }
    }

    fn no_second_plan(&self, error: &ReplanError) -> Ending {
        match error {
            ReplanError::ChangedTwice => Ending::failed(Code::ChangedTwice),
            ReplanError::Plan(error) => self.no_plan(error),
        }
    }

    fn unreadable(&self, error: &ReadError) -> Ending {
        tracing::warn!(id = %self.request.id, %error, "the replica cannot be read");
        match error {
            ReadError::OldReplica | ReadError::TooManyFiles { .. } => {
                Ending::failed(Code::CheckFailed)
            }
            _ => Ending::interrupted(),
        }
    }

    fn unsound(&self, error: &dyn std::error::Error) -> Ending {
        tracing::warn!(id = %self.request.id, %error, "the last planned file is not sound");
        Ending::failed(Code::CheckFailed)
    }

    /// What a worker's frame before its time, or its silence, means.
    fn early(&self, frame: Result<Frame, TalkError>) -> Ending {
        match frame {
            Ok(Frame::Status(status)) => self.worker_ended(&status),
            Ok(_) => self.lost(&TalkError::OutOfTurn),
            Err(error) => self.lost(&error),
        }
    }

    pub(super) fn lost(&self, error: &TalkError) -> Ending {
        tracing::warn!(id = %self.request.id, %error, "a worker was lost");
        Ending::interrupted()
    }

    /// A status other than "done", as the end of the read.
    pub(super) fn worker_ended(&self, status: &Status) -> Ending {
        let (id, outcome) = (self.request.id, status.outcome);
        let code = outcome.code();
        // The text may quote the member's data: it goes into the sealed summary, not the log.
        tracing::info!(%id, ?outcome, "a worker ended the read");
        match code {
            Code::None => Ending::interrupted(),
            Code::SqlError => {
                self.progress.summary().sql_error.clone_from(&status.message);
                Ending::failed(code)
            }
            _ => Ending::failed(code),
        }
    }

    fn note_copy(&self, ready: &Ready) {
        let mut summary = self.progress.summary();
        (summary.txid, summary.time) = (ready.txid, Some(ready.time));
    }
}

enum FeedError {
    Replica(ReadError),
    Worker(TalkError),
}

fn target(at: At) -> Target {
    match at {
        At::Newest => Target::Newest,
        At::Time(time) => Target::Before(i64::try_from(time.unix_ms()).unwrap_or(i64::MAX)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
