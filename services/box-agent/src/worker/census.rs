//! How many workers run on this box, asked of whoever starts them (db-forward §5.7).
//!
//! The answer decides what may start beside what, so whatever keeps it from being known is an
//! error. "None" is said only by a list that was read to its end and names none.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::frames::{COUNT_BYTES, COUNT_SUFFIX, Running};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::CountUnknown;

/// Instances of the worker's unit, one for each connection (db-forward §8.3).
const UNITS: &str = "carlos-dbread@*.service";
const UNIT_PREFIX: &str = "carlos-dbread@";

/// A service manager that lists a handful of units in a longer time has other troubles, and a
/// person waits for the read.
const COUNT_WITHIN: Duration = Duration::from_secs(5);

/// Longest list read: some 5,000 units, where three are expected. A longer one is not counted.
const LIST_BYTES: u64 = 1 << 20;

/// What is kept of the words a failing program says.
const WORDS_BYTES: u64 = 512;

/// Where the count comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Census {
    /// The service manager's list of `carlos-dbread@` units, by this `systemctl`: reading it takes
    /// no privilege, only D-Bus.
    Units { systemctl: PathBuf },
    /// The count socket of `carlos-dbread-worker --listen`, where there is no service manager.
    Listener { socket: PathBuf },
}

impl Census {
    /// The system's own `systemctl`, found where a service's programs are.
    pub fn units() -> Self {
        Self::Units { systemctl: PathBuf::from("systemctl") }
    }

    /// That of the listener whose workers' socket is `workers`.
    pub fn listener(workers: &Path) -> Self {
        let mut socket = workers.as_os_str().to_owned();
        socket.push(COUNT_SUFFIX);
        Self::Listener { socket: socket.into() }
    }

    /// Counts the workers that hold scratch: running, starting or stopping.
    pub(super) async fn count(&self, ctx: &Context) -> Result<usize, CountUnknown> {
        let counted = ctx.timeout(COUNT_WITHIN, self.ask()).await;
        counted.map_err(|_| CountUnknown("no answer in time".to_owned()))?
    }

    async fn ask(&self) -> Result<usize, CountUnknown> {
        match self {
            Self::Units { systemctl } => live_units(&list(systemctl.as_ref()).await?),
            Self::Listener { socket } => told(socket).await,
        }
    }
}

async fn told(socket: &Path) -> Result<usize, CountUnknown> {
    let failed = |error: io::Error| CountUnknown(format!("{}: {error}", socket.display()));
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    // One byte more than a count has: a longer answer is none.
    let bytes = read(Some(stream), COUNT_BYTES as u64 + 1).await.map_err(failed)?;
    let count = Running::from_bytes(&bytes);
    let count = count.map_err(|error| CountUnknown(format!("{}: {error}", socket.display())))?;
    usize::try_from(count.running).map_err(|error| CountUnknown(error.to_string()))
}

/// One entry of `systemctl list-units --output=json`; what else it holds is systemd's business.
#[derive(Deserialize)]
struct Unit {
    unit: String,
    active: String,
}

impl Unit {
    /// A unit that has ended, well or not, has given its private `/var/tmp` back. Every other
    /// word, also one of a later systemd, counts.
    fn is_live(&self) -> bool {
        !matches!(self.active.as_str(), "inactive" | "failed")
    }
}

fn live_units(list: &[u8]) -> Result<usize, CountUnknown> {
    let units: Vec<Unit> = serde_json::from_slice(list)
        .map_err(|error| CountUnknown(format!("the list of units is not understood: {error}")))?;
    if let Some(other) = units.iter().find(|unit| !unit.unit.starts_with(UNIT_PREFIX)) {
        let name = other.unit.escape_debug();
        return Err(CountUnknown(format!("the list of units names {name}")));
    }
    Ok(units.iter().filter(|unit| unit.is_live()).count())
}

async fn list(systemctl: &OsStr) -> Result<Vec<u8>, CountUnknown> {
    let failed = |error: io::Error| CountUnknown(format!("systemctl: {error}"));
    let mut child = Command::new(systemctl)
        .args(["list-units", "--all", "--full", "--no-pager", "--output=json", UNITS])
        // Words in no language but C's, and no setting of the agent's.
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let list = read(child.stdout.take(), LIST_BYTES);
    let words = read(child.stderr.take(), WORDS_BYTES);
    let (list, words, status) = tokio::try_join!(list, words, child.wait()).map_err(failed)?;
    if status.success() { Ok(list) } else { Err(refused(status, &words)) }
}

/// Reads to the end or to `most` bytes, whichever comes first; what writes on then fails.
async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn refused(status: ExitStatus, words: &[u8]) -> CountUnknown {
    let words = String::from_utf8_lossy(words);
    let line = words.lines().next().unwrap_or_default();
    CountUnknown(format!("systemctl: {status}: {}", line.escape_debug()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn entry(unit: &str, active: &str) -> String {
        format!(
            r#"{{"unit":"{unit}","load":"loaded","active":"{active}","sub":"x","description":"y"}}"#
        )
    }

    fn count(entries: &[String]) -> Result<usize, CountUnknown> {
        live_units(format!("[{}]", entries.join(",")).as_bytes())
    }

    #[test]
    fn units_that_hold_scratch_count_and_ended_ones_do_not() {
        let states = ["active", "activating", "deactivating", "reloading", "refreshing"];
        for (number, state) in states.into_iter().enumerate() {
            let unit = format!("carlos-dbread@{number}-7-990.service");
            assert_eq!(count(&[entry(&unit, state)]), Ok(1), "{state}");
            assert_eq!(count(&[entry(&unit, state), entry(&unit, "failed")]), Ok(1), "{state}");
        }
        assert_eq!(count(&[entry("carlos-dbread@1-7-990.service", "inactive")]), Ok(0));
        assert_eq!(count(&[]), Ok(0));
    }

    #[test]
    fn what_is_no_list_of_these_units_is_unknown() {
        for text in ["", "{}", "[", "null", "[1]", r#"[{"unit":"carlos-dbread@1.service"}]"#] {
            assert!(live_units(text.as_bytes()).is_err(), "{text}");
        }
        assert!(count(&[entry("ssh.service", "active")]).is_err());
    }

    const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/systemctl");

    /// A `systemctl` that does what `script` says.
    fn fake(dir: &tempfile::TempDir, script: &str) -> Census {
        let systemctl = dir.path().join("systemctl");
        std::os::unix::fs::symlink(FAKE, &systemctl).unwrap();
        fs::write(dir.path().join("script"), script).unwrap();
        Census::Units { systemctl }
    }

    async fn ask(script: &str) -> Result<usize, CountUnknown> {
        let dir = tempfile::tempdir().unwrap();
        fake(&dir, script).count(&Context::system()).await
    }

    #[tokio::test]
    async fn the_list_is_asked_for_by_pattern_and_read_whole() {
        let unit = entry("carlos-dbread@1-7-990.service", "active");
        let script = format!(r#"[ "$1 $6" = "list-units {UNITS}" ] && echo '[{unit}]'"#);
        assert_eq!(ask(&script).await, Ok(1));
        assert_eq!(ask("echo '[]'").await, Ok(0));
    }

    #[tokio::test]
    async fn a_manager_that_cannot_be_asked_is_never_none() {
        let failing = [
            "echo 'Failed to connect to bus: no such file' >&2; exit 1",
            "exit 0",
            "echo '[]'; exit 1",
            "echo '[]'; kill -9 $$",
            "head -c 2000000 /dev/zero",
        ];
        for script in failing {
            assert!(ask(script).await.is_err(), "{script}");
        }
        let Err(CountUnknown(words)) = ask(failing[0]).await else { panic!("it failed") };
        assert!(words.contains("Failed to connect to bus"), "{words}");
        let missing = Census::Units { systemctl: "/no/such/systemctl".into() };
        assert!(missing.count(&Context::system()).await.is_err());
    }

    // Paused time passes the wait at once.
    #[tokio::test(start_paused = true)]
    async fn a_manager_that_hangs_is_unknown_after_its_time() {
        assert_eq!(ask("exec sleep 1000").await, Err(CountUnknown("no answer in time".to_owned())));
    }

    /// What is made of a listener that answers with `answer`.
    async fn answered(answer: &'static [u8]) -> Result<usize, CountUnknown> {
        let dir = tempfile::tempdir().unwrap();
        let workers = dir.path().join("socket");
        let census = Census::listener(&workers);
        let listener = tokio::net::UnixListener::bind(dir.path().join("socket.count")).unwrap();
        let (count, ()) = tokio::join!(async { census.count(&Context::system()).await }, async {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        });
        count
    }

    #[tokio::test]
    async fn a_listener_s_count_is_whole_or_unknown() {
        assert_eq!(answered(br#"{"running":0}"#).await, Ok(0));
        assert_eq!(answered(br#"{"running":3}"#).await, Ok(3));
        let unknown: [&[u8]; 5] =
            [b"", br#"{"running":3"#, br#"{"running":-1}"#, b"0", &[b'9'; 1 << 16]];
        for answer in unknown {
            assert!(answered(answer).await.is_err(), "{:?}", answer.escape_ascii());
        }
        let missing = Census::listener("/no/such/socket".as_ref());
        assert!(missing.count(&Context::system()).await.is_err());
    }
}
