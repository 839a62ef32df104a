//! One read, from the election to the worker's end (db-forward §5.5 steps 4 and 5, §8.2).

mod bracket;
mod chunker;
mod chunks;
mod ending;
mod hold;
mod restore;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::{Context, Outcome, Purpose};
use carlos_protocol::ids::Nonce;
use carlos_protocol::keys::Key;
use carlos_protocol::limits::{
    CLOCK_SKEW, CONSOLE_PICKUP_WAIT, ELECTION_JITTER, OWNER_GRACE, OWNER_TIME, RESTORE_TIME,
};
use carlos_protocol::picked::Picked;
use carlos_protocol::request::{ReadRequest, check_age};
use carlos_protocol::result::{ReadResult, State};
use carlos_protocol::time::Seconds;

use self::bracket::Bracket;
pub(crate) use self::ending::Ending;
use self::ending::Progress;
use self::hold::Hold;
use crate::admission::{ReadSlot, Reservation};
use crate::agent::Agent;
use crate::crash::CrashPoint;
use crate::elect::{self, Owner};
use crate::stop;
use crate::worker::hold::WorkerHold;

/// Pause between two tries of a result whose create ended unclear.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A verified request that admission has room for.
pub(crate) struct Candidate {
    pub(crate) request: ReadRequest,
    pub(crate) slot: ReadSlot,
    pub(crate) reservation: Reservation,
}

/// Stands for election and, when the read is this attempt's own, runs it to its result. Gives
/// back slot and reservation only when the worker has stopped (J5).
pub(crate) async fn run(agent: Arc<Agent>, candidate: Candidate) {
    let Candidate { request, slot, reservation } = candidate;
    let deadline = match stand(&agent, &request).await {
        Stood::Elected(deadline) => deadline,
        Stood::Out => return,
        Stood::Unclear(picked, deadline) => {
            // It runs nothing, so it holds nothing.
            drop((slot, reservation));
            return end_if_late(&agent, &request, &picked, deadline).await;
        }
    };
    let workers = Arc::clone(&agent.ports.workers);
    let worker = WorkerHold::new(agent.ctx().clone(), Arc::clone(&agent.admission), workers);
    let mut hold = Hold::new(worker, slot, reservation);
    let read = Read::new(&agent, &request, deadline);
    let ending = tokio::select! {
        biased;
        stop = stop::watch(&agent.ports.bucket, request.id, deadline, &agent.end_now) => {
            Ending::from(stop)
        }
        ending = read.conduct(&mut hold) => ending,
    };
    read.write_result(&ending).await;
    agent.metrics.ended(&ending);
    if ending.state == State::Done {
        // Its person looks at the answer now, and then asks again.
        agent.alarm.ring();
    }
    hold.worker.stop().await;
    read.reached(CrashPoint::WorkerStopped).await;
}

/// What came of standing for election. Deadlines are the owner's, on the monotonic clock.
enum Stood {
    Elected(Duration),
    Out,
    /// Whether the `picked` given here exists, now or later, is not known.
    Unclear(Picked, Duration),
}

/// The last steps before `picked`, and the election.
async fn stand(agent: &Agent, request: &ReadRequest) -> Stood {
    let ctx = agent.ctx();
    agent.ports.crash.reached(CrashPoint::Verified).await;
    ctx.sleep(ctx.jitter(ELECTION_JITTER)).await;
    if agent.draining.is_cancelled() {
        return Stood::Out;
    }
    agent.ports.crash.reached(CrashPoint::BeforePicked).await;
    // Verified once already. A host that was suspended since would claim, and run, a read whose
    // window closed long ago (db-forward §5.5, §5.9).
    if check_age(request.issued_at, ctx.now_unix()).is_err() {
        tracing::info!(id = %request.id, "the window closed before the read was claimed");
        return Stood::Out;
    }
    let deadline = ctx.monotonic() + OWNER_TIME;
    let picked = Picked {
        box_name: agent.config.box_name.clone(),
        boot: agent.boot.clone(),
        nonce: Nonce::mint(&mut ctx.entropy()),
        deadline: Seconds::new(ctx.now_unix() + OWNER_TIME.as_secs()),
    };
    let owner = elect::own(&agent.ports.bucket, request.id, &picked).await;
    agent.metrics.elected(owner, request, ctx.now_unix_ms());
    match owner {
        Owner::Own => agent.alarm.ring(),
        Owner::Other => return Stood::Out,
        Owner::Unknown => return Stood::Unclear(picked, deadline),
    }
    tracing::info!(id = %request.id, host = %request.host, "this box owns a read");
    agent.ports.crash.reached(CrashPoint::PickedOwned).await;
    Stood::Elected(deadline)
}

/// Ends a read whose `picked` turns out to be this attempt's after all. By then the read is not
/// run any more, and without a result its console would wait out the owner's deadline: 21 minutes
/// for a DBF-12 that can be said at once. A console that has seen no `picked` stops waiting two
/// minutes after `issued_at`, so nobody looks for one that lands later.
async fn end_if_late(agent: &Agent, request: &ReadRequest, picked: &Picked, deadline: Duration) {
    let ctx = agent.ctx();
    let waited_for =
        (request.issued_at.unix() + CONSOLE_PICKUP_WAIT.as_secs()).saturating_sub(ctx.now_unix());
    let until = ctx.monotonic() + Duration::from_secs(waited_for) + CLOCK_SKEW;
    let landed = tokio::select! {
        biased;
        () = agent.end_now.cancelled() => false,
        landed = elect::landed_late(&agent.ports.bucket, request.id, picked, until) => landed,
    };
    if landed {
        tracing::warn!(id = %request.id, "picked landed late: the read ends");
        Read::new(agent, request, deadline).write_result(&Ending::interrupted()).await;
    }
}

/// A read that this agent owns.
struct Read<'a> {
    agent: &'a Agent,
    request: &'a ReadRequest,
    deadline: Duration,
    restore_by: Duration,
    started: Seconds,
    progress: Progress,
}

impl<'a> Read<'a> {
    fn new(agent: &'a Agent, request: &'a ReadRequest, deadline: Duration) -> Self {
        let restore_by = agent.ctx().monotonic() + RESTORE_TIME;
        let started = Seconds::new(agent.ctx().now_unix());
        Self { agent, request, deadline, restore_by, started, progress: Progress::default() }
    }

    fn ctx(&self) -> &Context {
        self.agent.ctx()
    }

    fn bracket(&self) -> Bracket<'_> {
        Bracket {
            bucket: &self.agent.ports.bucket,
            box_name: &self.agent.config.box_name,
            region: &self.agent.config.region,
            request: self.request,
        }
    }

    async fn reached(&self, point: CrashPoint) {
        self.agent.ports.crash.reached(point).await;
    }

    async fn conduct(&self, hold: &mut Hold) -> Ending {
        match self.try_conduct(hold).await {
            Ok(()) => Ending::done(),
            Err(ending) => ending,
        }
    }

    async fn try_conduct(&self, hold: &mut Hold) -> Result<(), Ending> {
        let left = self.restore_by.saturating_sub(self.ctx().monotonic());
        let restored = self.ctx().timeout(left, self.restore(hold)).await;
        let mut talk = restored.map_err(|_| Ending::interrupted())??;
        // Check B: the last byte has been read, and no output exists yet.
        self.bracket().check().await?;
        self.reached(CrashPoint::CheckedAgain).await;
        self.say_run(&mut talk).await?;
        self.stream(talk).await
    }

    /// Writes `result.json`, last of all. It names chunks that are confirmed and no others.
    async fn write_result(&self, ending: &Ending) {
        self.reached(CrashPoint::BeforeResult).await;
        let key = Key::Result(self.request.id).to_path();
        let body = Bytes::from(self.result(ending).to_bytes());
        let until = self.deadline + OWNER_GRACE;
        loop {
            let outcome = self.agent.ports.bucket.create(&key, body.clone(), Purpose::Result).await;
            match outcome {
                Outcome::Created | Outcome::AlreadyMine => break,
                Outcome::TakenBy(_) => {
                    tracing::error!(id = %self.request.id, "somebody else wrote the result");
                    break;
                }
                Outcome::Unknown(cause) => {
                    tracing::warn!(id = %self.request.id, %cause, "the result is not confirmed");
                }
            }
            // After a cancel nobody reads it; after the console's grace neither.
            if ending.state == State::Cancelled || self.ctx().monotonic() + AGAIN_AFTER >= until {
                break;
            }
            self.ctx().sleep(AGAIN_AFTER).await;
        }
        let (state, code) = (ending.state, &ending.code);
        tracing::info!(id = %self.request.id, ?state, %code, "a read has ended");
        self.reached(CrashPoint::ResultWritten).await;
    }

    fn result(&self, ending: &Ending) -> ReadResult {
        let summary = self.progress.summary().clone();
        let mut entropy = self.ctx().entropy();
        ReadResult {
            state: ending.state,
            code: ending.code.clone(),
            box_name: self.agent.config.box_name.clone(),
            last_seq: self.progress.confirmed(),
            started: self.started,
            ended: Seconds::new(self.ctx().now_unix()),
            sealed: summary.seal(&mut entropy, &self.request.reply_key, self.request.id),
        }
    }
}
