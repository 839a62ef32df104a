//! The directory of an embedded stack: its buckets, its key, its token.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carlos_bucket::{Context, OpenError, file_url, open_store};
use carlos_protocol::envelope::KeyFile;
use carlos_protocol::ids::{App, Region};
use carlos_protocol::tokens::Token;
use object_store::ObjectStore;
use zeroize::Zeroizing;

use crate::admin::write_private;

/// Why a directory cannot hold a stack.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("another carlos dev runs in {0}")]
    Locked(PathBuf),
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("{0} is not a key file; move it away to have a new key made")]
    Key(PathBuf),
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// A directory that one running stack owns.
pub(crate) struct Home {
    root: PathBuf,
    /// Held for as long as the stack runs; the system lets go of it however the process ends.
    _lock: File,
}

impl Home {
    /// Takes `root`, which is made if it does not exist.
    pub(crate) fn take(root: &Path) -> Result<Self, HomeError> {
        let failed = |cause| HomeError::Io { path: root.to_path_buf(), cause };
        make_private_dir(root).map_err(failed)?;
        // Stores and workers are given whole paths.
        let root = root.canonicalize().map_err(failed)?;
        let path = root.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|cause| HomeError::Io { path, cause })?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(HomeError::Locked(root)),
            Err(TryLockError::Error(cause)) => Err(HomeError::Io { path: root, cause }),
        }
    }

    /// The deployment bucket.
    pub(crate) fn deployment(&self) -> Result<Arc<dyn ObjectStore>, HomeError> {
        Ok(open_store(&file_url(&self.root.join("deployment")))?)
    }

    /// The data bucket of one region.
    pub(crate) fn data(&self, region: &Region) -> Result<Arc<dyn ObjectStore>, HomeError> {
        Ok(open_store(&file_url(&self.root.join(format!("data-{region}"))))?)
    }

    /// The directories of all buckets.
    pub(crate) fn buckets(&self, regions: &[Region]) -> Vec<PathBuf> {
        let data = regions.iter().map(|region| self.root.join(format!("data-{region}")));
        std::iter::once(self.root.join("deployment")).chain(data).collect()
    }

    /// A directory for the workers' scratch on one box.
    pub(crate) fn scratch(&self, region: &Region) -> Result<PathBuf, HomeError> {
        self.folder(&format!("scratch-{region}"))
    }

    /// Where the private copy of a replicated database goes.
    pub(crate) fn copy(&self) -> Result<PathBuf, HomeError> {
        Ok(self.folder("copies")?.join("source.db"))
    }

    /// Where the sample database goes.
    pub(crate) fn sample(&self) -> PathBuf {
        self.root.join("shop.db")
    }

    /// Gives the name `app` to `database`; false when another file has it. A name keeps its file,
    /// since what was replicated under it is that file's history.
    pub(crate) fn claim(&self, app: &App, database: &Path) -> Result<bool, HomeError> {
        let path = self.folder("names")?.join(app.as_str());
        let failed = |cause| HomeError::Io { path: path.clone(), cause };
        let database = database.canonicalize().map_err(failed)?;
        let named = database.as_os_str().as_encoded_bytes();
        match write_private(&path, named) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                Ok(fs::read(&path).map_err(failed)? == named)
            }
            written => written.map(|()| true).map_err(failed),
        }
    }

    /// The root key, made at the first start.
    pub(crate) fn key(&self, context: &Context) -> Result<KeyFile, HomeError> {
        let path = self.root.join("root-key.json");
        if let Some(bytes) = read_secret(&path)? {
            return KeyFile::from_json(&bytes).map_err(|_| HomeError::Key(path));
        }
        let key = KeyFile::generate_root(&mut context.entropy());
        write_private(&path, &key.to_json()).map_err(|cause| HomeError::Io { path, cause })?;
        Ok(key)
    }

    /// The token of an earlier start, if there is one.
    pub(crate) fn token(&self) -> Result<Option<Token>, HomeError> {
        let bytes = read_secret(&self.root.join("token"))?;
        let text = bytes.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        Ok(text.and_then(|text| Token::parse(text.trim()).ok()))
    }

    /// Keeps the token for the next start, and for `--token-file`.
    pub(crate) fn keep_token(&self, token: &Token) -> Result<(), HomeError> {
        let path = self.root.join("token");
        let failed = |cause| HomeError::Io { path: path.clone(), cause };
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(cause)),
            _ => {}
        }
        write_private(&path, token.reveal().as_bytes()).map_err(failed)
    }

    fn folder(&self, name: &str) -> Result<PathBuf, HomeError> {
        let path = self.root.join(name);
        make_private_dir(&path).map_err(|cause| HomeError::Io { path: path.clone(), cause })?;
        Ok(path)
    }
}

/// The directory holds a key, a token and copies of databases.
fn make_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

fn read_secret(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, HomeError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(HomeError::Io { path: path.to_path_buf(), cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_stack_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Home::take(dir.path()).unwrap();
        assert!(matches!(Home::take(dir.path()), Err(HomeError::Locked(_))));
        drop(first);
        Home::take(dir.path()).unwrap();
    }

    #[test]
    fn a_name_stays_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::take(dir.path()).unwrap();
        let (one, other) = (dir.path().join("1"), dir.path().join("2"));
        fs::write(&one, "").unwrap();
        fs::write(&other, "").unwrap();
        let app = App::parse("shop").unwrap();
        assert!(home.claim(&app, &one).unwrap());
        assert!(home.claim(&app, &one).unwrap());
        assert!(!home.claim(&app, &other).unwrap());
    }

    #[test]
    fn the_key_outlives_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::take(dir.path()).unwrap();
        let first = home.key(&Context::system()).unwrap();
        let second = home.key(&Context::system()).unwrap();
        assert_eq!(first.id(), second.id());
    }
}
