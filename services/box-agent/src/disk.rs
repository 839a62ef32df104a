//! How much room the workers' file system has.

use std::io;
use std::path::PathBuf;

/// Bytes free to an unprivileged process, and the size of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free: u64,
    pub total: u64,
}

/// Where admission learns about free space.
pub trait DiskSpace: Send + Sync {
    fn space(&self) -> io::Result<Space>;
}

/// The file system that holds a folder.
#[derive(Clone, Debug)]
pub struct FolderDisk(pub PathBuf);

impl DiskSpace for FolderDisk {
    #[cfg(target_os = "linux")]
    fn space(&self) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(&self.0)?;
        // f_bavail, not f_bfree: the worker cannot use what is kept back for root.
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(Space { free, total: stat.f_blocks.saturating_mul(stat.f_frsize) })
    }

    #[cfg(not(target_os = "linux"))]
    fn space(&self) -> io::Result<Space> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "workers run on Linux only"))
    }
}
