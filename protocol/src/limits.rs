//! Every number of the protocol, each with its reason (db-forward §5.7).

use std::time::Duration;

use crate::seal::SEAL_OVERHEAD;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// How long a box may pick up a read after `issued_at`: a person waits at a terminal.
pub const PICKUP_WINDOW: Duration = Duration::from_secs(60);

/// How far a box's clock may differ from the console's, in both directions.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// When the console stops waiting for `picked`: the window plus the skew, so that a box whose
/// clock runs behind is still seen.
pub const CONSOLE_PICKUP_WAIT: Duration = Duration::from_secs(120);

/// Planning, download and restore together: 2 GiB at the slowest measured relay rate, with room.
pub const RESTORE_TIME: Duration = Duration::from_secs(10 * 60);

/// Wall clock of one query: DBF-7 names it, and a terminal gives up about then.
pub const QUERY_TIME: Duration = Duration::from_secs(5 * 60);

/// The owner's deadline from `picked`: restore, query and output, with five minutes of room.
pub const OWNER_TIME: Duration = Duration::from_secs(20 * 60);

/// What the console grants the owner after its deadline before it answers DBF-12: the owner's last
/// chunk and result may still be on their way.
pub const OWNER_GRACE: Duration = Duration::from_secs(60);

/// The longest a request is held: the pickup wait plus the owner's deadline.
pub const REQUEST_TIME: Duration = Duration::from_secs(22 * 60);

/// The client's own outer bound: one minute more than the console, so that the console's answer
/// wins.
pub const CLIENT_TIME: Duration = Duration::from_secs(23 * 60);

/// Everything the console does before the response's headers: a backhaul waits 30 s for them
/// (db-forward §5.5 step 6).
pub const BEFORE_HEADERS: Duration = Duration::from_secs(20);

/// How long the console reads a request body: a few kilobytes, and a slow sender holds a place.
pub const BODY_READ_TIME: Duration = Duration::from_secs(30);

/// The longest silence on an open response: home routers drop connections that are silent longer.
pub const WAIT_LINE_EVERY: Duration = Duration::from_secs(15);

/// How long one write to the client may stall before the request counts as gone.
pub const WRITE_STALL: Duration = Duration::from_secs(30);

/// How often the console looks for chunks and the result of an open read.
pub const CONSOLE_POLL: Duration = Duration::from_secs(1);

/// How often the owner looks for `cancel`: what Ctrl-C costs a box at most.
pub const CANCEL_POLL: Duration = Duration::from_secs(5);

/// The longest random wait before a box tries to own a read: spreads the race of several boxes.
pub const ELECTION_JITTER: Duration = Duration::from_millis(500);

/// How often a box lists its queue when the serial does not move: a lost bump costs at most this.
pub const QUEUE_SWEEP: Duration = Duration::from_secs(30);

/// How often the readiness probe runs: a broken worker is noticed within it.
pub const PROBE_EVERY: Duration = Duration::from_secs(5 * 60);

/// How long a worker may take to end after its peer has gone: some steps do not look at a flag.
pub const WORKER_EXIT: Duration = Duration::from_secs(5);

/// How often a box writes its status.
pub const STATUS_EVERY: Duration = Duration::from_secs(60);

/// How old a status may be and still count as fresh: two missed writes and some skew.
pub const STATUS_FRESH: Duration = Duration::from_secs(150);

/// A restored database is at most this by default: what a worker's scratch is planned for.
pub const RESTORED_BYTES: u64 = 2 * GIB;

/// What a box keeps free after all reservations, in bytes: the box serves other tenants from the
/// same disk.
pub const DISK_FLOOR_BYTES: u64 = 5 * GIB;

/// What a box keeps free after all reservations, in percent of its disk.
pub const DISK_FLOOR_PERCENT: u64 = 10;

/// The rows of one read, as a row stream: the CLI holds them in memory until they are checked.
pub const OUTPUT_BYTES: u64 = 64 * MIB;

/// A chunk is cut at this size: small enough for steady progress, large enough for few objects.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// A chunk is cut at this age: a slow query still shows progress.
pub const CHUNK_EVERY: Duration = Duration::from_secs(1);

/// The planned files of one pull (db-forward §5.7, measured relay rate).
pub const PULL_BYTES: u64 = 2 * GIB;

/// A pull's chunk: four times a query's, because a pull moves thirty times the bytes.
pub const PULL_CHUNK_BYTES: usize = 1024 * 1024;

/// The highest chunk number a result may name. A pull fills 2,048 chunks by size and can cut one
/// more for every second of the owner's 1,200; the next power of two above their sum.
pub const MAX_CHUNKS: u64 = 4096;

/// Reads a box runs at once: two workers of 512 MiB.
pub const READS_PER_BOX: usize = 2;

/// Connections to the worker socket: the reads, and one kept for the readiness probe.
pub const WORKER_CONNECTIONS: usize = 3;

/// Open reads of one person: a terminal and a script.
pub const READS_PER_PERSON: usize = 2;

/// Open reads of one console: each holds a connection and polls the store every second.
pub const READS_PER_CONSOLE: usize = 16;

/// Requests a token may make in [`REQUEST_BUDGET_WINDOW`]: the db door's budget.
pub const REQUEST_BUDGET: u32 = 600;

/// The window of [`REQUEST_BUDGET`].
pub const REQUEST_BUDGET_WINDOW: Duration = Duration::from_secs(60);

/// A statement: SQL typed by a person is far below it, and it fits every frame when escaped.
pub const SQL_BYTES: usize = 64 * 1024;

/// Parameters of a statement: a form has fewer, and a longer list is data for `json_each(?)`.
pub const PARAMS: usize = 100;

/// The values of all parameters and their names: as much again as the statement.
pub const PARAM_BYTES: usize = SQL_BYTES;

/// The name of a parameter: a long word and its first character.
pub const PARAM_NAME_BYTES: usize = 64;

/// The body of a read request: statement and values with every byte escaped as `\u00xx`, and the
/// rest, with some 80 bytes of field names for each parameter.
pub const READ_BODY_BYTES: usize = 6 * (SQL_BYTES + PARAM_BYTES) + 16 * 1024;

/// A signed payload: as [`READ_BODY_BYTES`], with the request's other fields.
pub const PAYLOAD_BYTES: usize = READ_BODY_BYTES;

/// An envelope: its payload in base64, a key id and a signature.
pub const ENVELOPE_BYTES: usize = PAYLOAD_BYTES.div_ceil(3) * 4 + 512;

/// `picked` and `cancel`: four short fields.
pub const MARKER_BYTES: usize = 1024;

/// A sealed summary opened: one SQL error of [`MESSAGE_BYTES`], escaped, and ten short fields.
pub const SUMMARY_BYTES: usize = 6 * MESSAGE_BYTES + 2048;

/// `result.json`: the sealed summary in base64, and the short fields.
pub const RESULT_BYTES: usize = (SUMMARY_BYTES + SEAL_OVERHEAD).div_ceil(3) * 4 + 2048;

/// SQLite's own error text, or a worker's message: longer ones are cut, a person reads them.
pub const MESSAGE_BYTES: usize = 4096;

/// A record, an edges file or a status. An account of a thousand members stays below it.
pub const RECORD_BYTES: usize = 64 * 1024;

/// A revision of a chain: one record, with who wrote it.
pub const CHAIN_ENTRY_BYTES: usize = RECORD_BYTES + 1024;

/// One frame between agent and worker: the power of two that holds a header of [`PLAN_FILES`].
pub const FRAME_BYTES: usize = 2 * 1024 * 1024;

/// Files in one plan: five hours of one file a second that nobody compacted.
pub const PLAN_FILES: usize = 20_000;

/// One response line: a sealed chunk in base64 and its field names.
pub const LINE_BYTES: usize = (CHUNK_BYTES + SEAL_OVERHEAD).div_ceil(3) * 4 + 256;

/// An e-mail address, as SMTP bounds it.
pub const EMAIL_BYTES: usize = 254;

/// Capabilities in an edges file: one short name for each feature a box can serve.
pub const CAPABILITIES: usize = 64;
