//! From environment variables to a running agent's configuration and ports: what this program's
//! `main` and `carlos agent` share.
//!
//! | variable | meaning | when unset |
//! |---|---|---|
//! | `CARLOS_BOX` | the box's name | an error |
//! | `CARLOS_REGION` | the region it stands in | an error |
//! | `CARLOS_BUCKET` | URL of the deployment bucket | an error |
//! | `CARLOS_HIBERNATE_BUCKET` | URL of the region's data bucket | serves no reads |
//! | `CARLOS_HIBERNATE_PREFIX` | prefix of the replicas in it | the bucket's root |
//! | `CARLOS_RELEASE_PUBKEY` | root public keys, separated by commas | serves no reads |
//! | `CARLOS_DB_READS` | `0` withdraws the box from reads | serves reads |
//! | `CARLOS_HOST_CLAIM` | set on a host-claim box, which serves no reads | serves reads |
//! | `CARLOS_DB_READ_MAX_BYTES` | largest restored database | 2 GiB |
//! | `CARLOS_DB_READ_DISK_FLOOR_BYTES` | reserved for a read, and kept free | 5 GiB |
//! | `CARLOS_DB_READ_DISK_FLOOR_PERCENT` | kept free of the disk | 10 |
//! | `CARLOS_DB_READ_SANDBOX` | walls a worker must report: `full` or `inner` | `full` |
//! | `CARLOS_DB_READ_SCRATCH` | where workers make their scratch | `/var/tmp` |
//! | `CARLOS_METRICS_LISTEN` | loopback address and port for `GET /metrics` | no metrics |
//! | `CARLOS_METRICS_ALLOW_REMOTE` | `1` allows another address there | loopback only |
//! | `CARLOS_DB_READ_PROBE_SECONDS` | how often readiness is probed, at least | 300 |
//! | `CARLOS_DB_READ_SOCKET` | socket that starts a worker for each connection | child processes |
//! | `CARLOS_DB_READ_COUNT` | who counts its workers: `units` or `listener` | `units` |

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carlos_bucket::{Bucket, Context, OpenError, open_store};
use carlos_replica::Resolution;
use thiserror::Error;

#[cfg(target_os = "linux")]
use crate::config::unusable;
use crate::config::{AgentConfig, ConfigError, Env};
use crate::disk::FolderDisk;
use crate::ports::Ports;
use crate::replicas::{Replicas, StoreReplicas};
use crate::worker::WorkerHost;
#[cfg(target_os = "linux")]
use crate::worker::{
    census::Census,
    child::{ChildWorkerHost, WorkerCommand},
    socket::SocketWorkerHost,
};

const BUCKET: &str = "CARLOS_BUCKET";
const DATA_BUCKET: &str = "CARLOS_HIBERNATE_BUCKET";
const DATA_PREFIX: &str = "CARLOS_HIBERNATE_PREFIX";
const SCRATCH: &str = "CARLOS_DB_READ_SCRATCH";
#[cfg(target_os = "linux")]
const SOCKET: &str = "CARLOS_DB_READ_SOCKET";
#[cfg(target_os = "linux")]
const COUNT: &str = "CARLOS_DB_READ_COUNT";

/// On disk on Debian 13, where `/tmp` is memory (db-forward §8.3).
const DEFAULT_SCRATCH: &str = "/var/tmp";

/// Everything the environment says about an agent, before anything is opened.
#[derive(Clone, Debug)]
pub struct Environment {
    pub config: AgentConfig,
    /// Where workers make their scratch directories.
    pub scratch: PathBuf,
    /// The socket that starts a worker for each connection, and who counts them; without one,
    /// workers are children.
    #[cfg(target_os = "linux")]
    pub socket: Option<(PathBuf, Census)>,
    bucket: String,
    data: Option<DataBucket>,
}

#[derive(Clone, Debug)]
struct DataBucket {
    url: String,
    prefix: String,
}

/// What the environment names cannot be opened.
#[derive(Debug, Error)]
pub enum OpenFailure {
    #[error("{name}: {source}")]
    Store { name: &'static str, source: OpenError },
    #[error("{SCRATCH}: workers cannot restore copies in {}: {source}", directory.display())]
    Scratch { directory: PathBuf, source: io::Error },
}

impl Environment {
    /// Reads the variables; `var` gives a variable's value.
    ///
    /// # Errors
    /// [`ConfigError`] for the first one that is needed and missing, or not readable.
    pub fn read(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let config = AgentConfig::from_env(&var)?;
        let env = Env(&var);
        let prefix = env.get(DATA_PREFIX).unwrap_or_default();
        Ok(Self {
            config,
            scratch: env.get(SCRATCH).unwrap_or_else(|| DEFAULT_SCRATCH.to_owned()).into(),
            #[cfg(target_os = "linux")]
            socket: socket(&env)?,
            bucket: env.need(BUCKET)?,
            data: env.get(DATA_BUCKET).map(|url| DataBucket { url, prefix }),
        })
    }

    /// What starts this box's workers: the configured socket, or else this process, whose children
    /// they are, as `child` says.
    #[cfg(target_os = "linux")]
    pub fn workers(&self, ctx: &Context, child: WorkerCommand) -> Arc<dyn WorkerHost> {
        let Some((socket, census)) = self.socket.clone() else {
            let child = child.max_restored(self.config.max_restored);
            return Arc::new(ChildWorkerHost::new(ctx.clone(), child, self.scratch.clone()));
        };
        Arc::new(SocketWorkerHost::new(ctx.clone(), socket, census))
    }

    /// Opens the stores and puts the ports together; `workers` starts this box's workers.
    ///
    /// # Errors
    /// [`OpenFailure`] names the variable whose store or directory cannot be used.
    pub fn open(&self, ctx: &Context, workers: Arc<dyn WorkerHost>) -> Result<Ports, OpenFailure> {
        check_scratch(&self.scratch)?;
        let store = open(BUCKET, &self.bucket)?;
        let replicas = self.data.as_ref().map(DataBucket::open).transpose()?;
        let disk = Arc::new(FolderDisk(self.scratch.clone()));
        Ok(Ports::new(Bucket::new(store, ctx.clone()), replicas, workers, disk))
    }
}

/// A count without a socket would be nobody's, so it is a slip and not left unread.
#[cfg(target_os = "linux")]
fn socket<F: Fn(&str) -> Option<String>>(
    env: &Env<'_, F>,
) -> Result<Option<(PathBuf, Census)>, ConfigError> {
    let socket = env.get(SOCKET).map(PathBuf::from);
    match (socket, env.get(COUNT).as_deref()) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConfigError::Missing(SOCKET)),
        (Some(socket), None | Some("units")) => Ok(Some((socket, Census::units()))),
        (Some(socket), Some("listener")) => {
            let census = Census::listener(&socket);
            Ok(Some((socket, census)))
        }
        (Some(_), Some(_)) => Err(unusable(COUNT, "neither units nor listener")),
    }
}

impl DataBucket {
    fn open(&self) -> Result<Arc<dyn Replicas>, OpenFailure> {
        let store = open(DATA_BUCKET, &self.url)?;
        // A directory knows its files' times exactly; S3's listings have whole seconds (§3).
        let resolution = match self.url.starts_with("file:") {
            true => Resolution::Full,
            false => Resolution::Second,
        };
        Ok(Arc::new(StoreReplicas::new(store, &self.prefix, resolution)))
    }
}

fn open(name: &'static str, url: &str) -> Result<Arc<dyn object_store::ObjectStore>, OpenFailure> {
    open_store(url).map_err(|source| OpenFailure::Store { name, source })
}

/// A directory that is missing now is a slip in the settings; one that vanishes later is found by
/// admission. It need not be the agent's to read: workers behind a socket have their own.
fn check_scratch(directory: &Path) -> Result<(), OpenFailure> {
    let usable = std::fs::metadata(directory).and_then(|found| match found.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    usable.map_err(|source| OpenFailure::Scratch { directory: directory.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, ConfigError> {
        Environment::read(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_bucket_is_needed_and_the_data_bucket_is_not() {
        let base = [("CARLOS_BOX", "box-1"), ("CARLOS_REGION", "uk")];
        assert_eq!(read(&base).err(), Some(ConfigError::Missing(BUCKET)));
        let with_bucket = [base[0], base[1], (BUCKET, "memory://")];
        let environment = read(&with_bucket).expect("complete");
        assert!(environment.data.is_none());
        assert_eq!(environment.scratch, PathBuf::from("/var/tmp"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_socket_comes_with_who_counts_its_workers() {
        let base = [("CARLOS_BOX", "box-1"), ("CARLOS_REGION", "uk"), (BUCKET, "memory://")];
        let with = |more: &[(&str, &str)]| read(&[&base[..], more].concat());
        let socket = |more: &[(&str, &str)]| with(more).expect("usable").socket;
        let path = PathBuf::from("/run/w");
        assert_eq!(socket(&[]), None);
        let units = Some((path.clone(), Census::units()));
        assert_eq!(socket(&[(SOCKET, "/run/w")]), units);
        assert_eq!(socket(&[(SOCKET, "/run/w"), (COUNT, "units")]), units);
        let listener = Census::Listener { socket: "/run/w.count".into() };
        assert_eq!(socket(&[(SOCKET, "/run/w"), (COUNT, "listener")]), Some((path, listener)));
        assert!(with(&[(SOCKET, "/run/w"), (COUNT, "none")]).is_err());
        assert_eq!(with(&[(COUNT, "listener")]).err(), Some(ConfigError::Missing(SOCKET)));
    }

    #[test]
    fn a_scratch_that_is_not_there_is_named_with_its_setting() {
        let missing = check_scratch(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(missing.contains(SCRATCH) && missing.contains("/nowhere/at/all"), "{missing}");
        assert!(check_scratch(Path::new("/dev/null")).is_err());
        assert!(check_scratch(&std::env::temp_dir()).is_ok());
    }
}
