//! The worker's half of the connection that writes: whole frames, from one thread at a time.

use std::io;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::PoisonError;

use rustix::net::SendFlags;

/// Writes frames to the peer.
#[derive(Debug)]
pub struct Voice(Mutex<UnixStream>);

impl Voice {
    /// Writes to `connection`.
    #[must_use]
    pub fn new(connection: UnixStream) -> Self {
        Self(Mutex::new(connection))
    }

    /// Writes one encoded frame, waiting as long as the peer takes.
    ///
    /// # Errors
    /// What the connection says; a peer that left is a broken pipe.
    pub fn say(&self, frame: &[u8]) -> io::Result<()> {
        // A panic in the middle of a write ends the process, so what is poisoned is not used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(frame)
    }

    /// Writes one encoded frame if that needs no waiting: when nobody is in the middle of a frame
    /// and the connection has room. Says whether all of it was written.
    pub fn say_at_once(&self, frame: &[u8]) -> bool {
        let Ok(connection) = self.0.try_lock() else { return false };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(&*connection, frame, flags) == Ok(frame.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_full_connection_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let voice = Voice::new(ours);
        assert!(voice.say_at_once(b"first"));
        let large = vec![0; 64 * 1024];
        while voice.say_at_once(&large) {}
        let mut heard = [0; 5];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"first");
    }

    #[test]
    fn nobody_speaks_into_a_frame() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let voice = Voice::new(ours);
        let speaking = voice.0.lock().unwrap();
        assert!(!voice.say_at_once(b"word"));
        drop(speaking);
        assert!(voice.say_at_once(b"word"));
    }
}
