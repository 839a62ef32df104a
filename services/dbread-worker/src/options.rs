//! The worker's command line.

use std::ffi::OsString;
use std::path::PathBuf;

use carlos_protocol::limits;
use thiserror::Error;

use crate::gate;
use crate::scratch;

/// What `--help` prints, and what follows a usage error.
pub const USAGE: &str = "\
usage: carlos-dbread-worker [--peer-user NAME|UID] [--scratch DIR] [--max-bytes N] [--listen PATH]

Reads one replica and runs one query for the peer that is connected to standard input.
It is started by carlos-dbread.socket or by the box agent, never by hand.
`carlos system db-worker` is the same program.

  --peer-user NAME|UID  whose connection is served (default: carlos)
  --scratch DIR         where the private scratch directory is made (default: /var/tmp)
  --max-bytes N         largest restored database in bytes (default: 2147483648)
  --listen PATH         without systemd: starts such a worker for each connection to this socket,
                        three at most, and tells how many run on PATH.count";

/// Where and for whom a worker works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// User name or id that the connection's other end must have.
    pub peer_user: String,
    /// Directory under which the scratch directory is made.
    pub scratch_root: PathBuf,
    /// Largest restored database, in bytes; a header can ask for less.
    pub max_bytes: u64,
    /// The socket on which to start a worker for each connection, in place of being one.
    pub listen: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            peer_user: gate::DEFAULT_PEER_USER.to_owned(),
            scratch_root: PathBuf::from(scratch::DEFAULT_ROOT),
            max_bytes: limits::RESTORED_BYTES,
            listen: None,
        }
    }
}

/// An argument that is not understood, or a request for the help text.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UsageError {
    /// `--help`.
    #[error("help")]
    Help,
    /// An option without its value.
    #[error("{0} needs a value")]
    MissingValue(&'static str),
    /// A value that does not fit its option.
    #[error("{0} does not take {1:?}")]
    BadValue(&'static str, OsString),
    /// Something else.
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
}

impl Options {
    /// Reads arguments, without the program's name.
    ///
    /// # Errors
    /// [`UsageError`] for the first argument that is not understood.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--peer-user") => options.peer_user = text("--peer-user", args.next())?,
                Some("--scratch") => options.scratch_root = path("--scratch", args.next())?,
                Some("--listen") => options.listen = Some(path("--listen", args.next())?),
                Some("--max-bytes") => options.max_bytes = number("--max-bytes", args.next())?,
                Some("--help" | "-h") => return Err(UsageError::Help),
                _ => return Err(UsageError::Unknown(arg)),
            }
        }
        Ok(options)
    }
}

fn path(name: &'static str, value: Option<OsString>) -> Result<PathBuf, UsageError> {
    value.map(PathBuf::from).ok_or(UsageError::MissingValue(name))
}

fn text(name: &'static str, value: Option<OsString>) -> Result<String, UsageError> {
    let value = value.ok_or(UsageError::MissingValue(name))?;
    value.into_string().map_err(|value| UsageError::BadValue(name, value))
}

fn number(name: &'static str, value: Option<OsString>) -> Result<u64, UsageError> {
    let value = text(name, value)?;
    value.parse().map_err(|_| UsageError::BadValue(name, value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, UsageError> {
        Options::parse(args.iter().map(OsString::from))
    }

    #[test]
    fn defaults_are_the_boxs() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.peer_user, "carlos");
        assert_eq!(options.scratch_root, PathBuf::from("/var/tmp"));
        assert_eq!(options.max_bytes, 2 << 30);
    }

    #[test]
    fn every_option_is_read() {
        let args = ["--peer-user", "7", "--scratch", "/s", "--max-bytes", "9", "--listen", "/l"];
        let wanted = Options {
            peer_user: "7".to_owned(),
            scratch_root: PathBuf::from("/s"),
            max_bytes: 9,
            listen: Some(PathBuf::from("/l")),
        };
        assert_eq!(parse(&args).unwrap(), wanted);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(parse(&["--scratch"]), Err(UsageError::MissingValue("--scratch")));
        assert_eq!(
            parse(&["--max-bytes", "-1"]),
            Err(UsageError::BadValue("--max-bytes", "-1".into()))
        );
        assert_eq!(parse(&["query"]), Err(UsageError::Unknown("query".into())));
        assert_eq!(parse(&["--help"]), Err(UsageError::Help));
    }
}
