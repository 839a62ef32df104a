//! The gate: the worker serves only the connection it was started with.
//!
//! File descriptor 0 must be a connected unix stream socket whose other end belongs to one user,
//! so that the worker can neither be started by hand nor pointed at a file (db-forward §8.3).

use std::fs;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::SocketType;
use rustix::net::sockopt;
use thiserror::Error;

/// Whose connection is accepted when nothing else is configured (db-forward §8.3).
pub const DEFAULT_PEER_USER: &str = "carlos";

/// Where a user's name is looked up. Only this file: the expected user is a static one of the
/// machine, and a lookup over the network would run before the sandbox exists.
const PASSWD: &str = "/etc/passwd";

/// The other end of the connection that passed the gate.
#[derive(Debug)]
pub struct Admitted {
    /// The connection, duplicated from file descriptor 0.
    pub connection: UnixStream,
    /// User id of the process that made the other end.
    pub peer_uid: u32,
}

/// Why standard input is not a connection the worker serves.
#[derive(Debug, Error)]
pub enum GateError {
    /// Not a socket at all: a terminal, a file, a pipe, a device.
    #[error(
        "standard input is not a socket; this program is started with a connection as its \
             standard input and does nothing by hand"
    )]
    NotASocket,
    /// A socket of another family than AF_UNIX.
    #[error("standard input is not a unix socket")]
    NotUnix,
    /// A unix socket that is not a byte stream.
    #[error("standard input is not a stream socket")]
    NotStream,
    /// A stream socket without another end: listening, or never connected.
    #[error("standard input is not connected")]
    NotConnected,
    /// The other end belongs to somebody else.
    #[error("the connection comes from user id {found}, and only user id {wanted} is served")]
    WrongPeer {
        /// The uid the kernel recorded when the connection was made.
        found: u32,
        /// The uid of `--peer-user`.
        wanted: u32,
    },
    /// The kernel would not answer.
    #[error("standard input could not be examined: {0}")]
    Unreadable(#[from] std::io::Error),
}

/// The name given to `--peer-user` is neither a user of this machine nor a user id.
#[derive(Debug, Error)]
#[error("--peer-user {0:?} is neither a user in /etc/passwd nor a user id")]
pub struct UnknownUser(pub String);

/// Resolves `--peer-user`: a user id in decimal, or a name in /etc/passwd.
///
/// # Errors
/// [`UnknownUser`] when it is neither.
pub fn resolve_user(name_or_uid: &str) -> Result<u32, UnknownUser> {
    if let Ok(uid) = name_or_uid.parse() {
        return Ok(uid);
    }
    fs::read_to_string(PASSWD)
        .ok()
        .and_then(|passwd| uid_in(&passwd, name_or_uid))
        .ok_or_else(|| UnknownUser(name_or_uid.to_owned()))
}

/// Admits `stdin` when it is a connected unix stream socket whose peer is `wanted_uid`.
///
/// The connection is duplicated: `stdin` stays open and is never read through.
///
/// # Errors
/// [`GateError`], one variant for each fact that does not hold.
pub fn admit(stdin: BorrowedFd<'_>, wanted_uid: u32) -> Result<Admitted, GateError> {
    require_stream(stdin)?;
    let found = sockopt::socket_peercred(stdin).map_err(std::io::Error::from)?.uid.as_raw();
    if found != wanted_uid {
        return Err(GateError::WrongPeer { found, wanted: wanted_uid });
    }
    let connection = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    // A connection handed over by systemd may carry O_NONBLOCK; everything here blocks.
    connection.set_nonblocking(false)?;
    Ok(Admitted { connection, peer_uid: found })
}

fn require_stream(stdin: BorrowedFd<'_>) -> Result<(), GateError> {
    let kind = match sockopt::socket_type(stdin) {
        Err(Errno::NOTSOCK | Errno::BADF) => return Err(GateError::NotASocket),
        other => other.map_err(std::io::Error::from)?,
    };
    if sockopt::socket_domain(stdin).map_err(std::io::Error::from)? != AddressFamily::UNIX {
        return Err(GateError::NotUnix);
    }
    if kind != SocketType::STREAM {
        return Err(GateError::NotStream);
    }
    // The name itself says nothing; that there is one says that there is another end.
    match rustix::net::getpeername(stdin) {
        Ok(_) => Ok(()),
        Err(Errno::NOTCONN) => Err(GateError::NotConnected),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

fn uid_in(passwd: &str, name: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::net::TcpStream;
    use std::os::unix::net::UnixDatagram;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn own_uid() -> u32 {
        rustix::process::getuid().as_raw()
    }

    #[test]
    fn a_connected_pair_of_the_right_user_passes() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let admitted = admit(ours.as_fd(), own_uid()).unwrap();
        assert_eq!(admitted.peer_uid, own_uid());
    }

    #[test]
    fn another_users_connection_is_refused() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let refusal = admit(ours.as_fd(), own_uid() + 1).unwrap_err();
        assert!(matches!(refusal, GateError::WrongPeer { .. }), "{refusal}");
    }

    #[test]
    fn other_descriptors_are_refused_by_kind() {
        let dir = tempfile::tempdir().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let file = fs::File::create(dir.path().join("f")).unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        for fd in [null.as_fd(), file.as_fd(), pipe.as_fd()] {
            assert!(matches!(admit(fd, own_uid()), Err(GateError::NotASocket)));
        }
        let (datagram, _other) = UnixDatagram::pair().unwrap();
        assert!(matches!(admit(datagram.as_fd(), own_uid()), Err(GateError::NotStream)));
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        assert!(matches!(admit(listener.as_fd(), own_uid()), Err(GateError::NotConnected)));
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert!(matches!(admit(stream.as_fd(), own_uid()), Err(GateError::NotUnix)));
    }

    #[test]
    fn users_resolve_by_number_and_by_name() {
        assert_eq!(resolve_user("62439").unwrap(), 62439);
        assert_eq!(resolve_user("root").unwrap(), 0);
        assert!(resolve_user("no-such-user").is_err());
        assert_eq!(uid_in("a:x:7:7::/:/bin/sh\nab:x:8:8::/:\n", "ab"), Some(8));
        assert_eq!(uid_in("broken\na:x:many:7", "a"), None);
    }
}
