//! Every wait of the console in one place; tests shorten them, production takes the default.

use std::time::Duration;

use carlos_protocol::limits;

/// How long the console waits for what. The default holds the numbers of db-forward §5.5 and §5.7.
#[derive(Clone, Debug)]
pub struct Timings {
    /// From accept, or the end of the last answer, to the end of a request's headers. db-forward
    /// §5.2 names 10 s; it is also what a silent connection costs at most.
    pub headers: Duration,
    /// Reading a request's body. A statement is a few kilobytes, so 30 s is a very slow link.
    pub body: Duration,
    /// All of the console's own work before the response headers: backhaul gives up at 30 s (§5.5).
    pub before_headers: Duration,
    /// From `issued_at` until the console stops waiting for an owner: 60 s and 60 s of skew (§5.7).
    pub pickup: Duration,
    /// The longest an owner may work, whatever deadline it wrote (§5.7).
    pub owner: Duration,
    /// What the console waits beyond the owner's deadline (§5.7).
    pub grace: Duration,
    /// The longest any request is held, from `issued_at`: a client gives up a minute later (§5.7).
    pub request: Duration,
    /// Between two looks for an owner. An idle box polls every 2 s, so half a second adds little.
    pub picked_poll: Duration,
    /// Between two looks for output: about once a second (§5.5 step 6).
    pub output_poll: Duration,
    /// The longest silence on an open response; home routers drop quieter connections (§5.2).
    pub wait_line: Duration,
    /// A write that makes no progress for this long ends the request as a stalled client (§5.5).
    pub write_stall: Duration,
    /// What the one best-effort cancel may take after a request ended.
    pub cancel: Duration,
    /// What open connections and reads get to end in once the process was told to stop.
    pub shutdown: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            headers: Duration::from_secs(10),
            body: limits::BODY_READ_TIME,
            before_headers: limits::BEFORE_HEADERS,
            pickup: limits::CONSOLE_PICKUP_WAIT,
            owner: limits::OWNER_TIME,
            grace: limits::OWNER_GRACE,
            request: limits::REQUEST_TIME,
            picked_poll: Duration::from_millis(500),
            output_poll: limits::CONSOLE_POLL,
            wait_line: limits::WAIT_LINE_EVERY,
            write_stall: limits::WRITE_STALL,
            cancel: Duration::from_secs(5),
            shutdown: Duration::from_secs(10),
        }
    }
}
