//! What the agent is told about its box. The environment's names are db-forward's (§5.7, §7.1).

use std::time::Duration;

use carlos_bucket::Pace;
use carlos_metrics::Endpoint;
use carlos_protocol::envelope::RootKeys;
use carlos_protocol::ids::{BoxName, Region};
use carlos_protocol::limits::{PROBE_EVERY, READS_PER_BOX, RESTORED_BYTES};
use thiserror::Error;

use crate::admission::DiskFloors;
use crate::walls::Walls;

/// What draining grants the reads a box holds before it ends them: a query's restore is usually
/// over by then, and it leaves room below the 90 s systemd grants a stopping unit.
const DRAIN_GRACE: Duration = Duration::from_secs(45);

/// What reads that did not finish then have to write `interrupted` and to see their workers end:
/// a worker takes up to 6 s, a slow store's result the rest.
const DRAIN_END: Duration = Duration::from_secs(20);

/// A setting that is missing or cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{0} is not set")]
    Missing(&'static str),
    #[error("{name} is not usable: {reason}")]
    Unusable { name: &'static str, reason: String },
}

/// How a stopping agent treats the reads it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// How long held reads may still finish.
    pub grace: Duration,
    /// How long reads that did not finish have to write `interrupted`.
    pub end: Duration,
}

impl Draining {
    /// A person has pressed Ctrl-C and waits: short reads finish, others end.
    pub const DEVELOPMENT: Self =
        Self { grace: Duration::from_secs(2), end: Duration::from_secs(8) };
}

impl Default for Draining {
    fn default() -> Self {
        Self { grace: DRAIN_GRACE, end: DRAIN_END }
    }
}

/// Everything the agent is configured with.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub box_name: BoxName,
    pub region: Region,
    /// The root public keys whose envelopes this box accepts; empty serves no reads.
    pub roots: RootKeys,
    /// False withdraws this box from reads (`CARLOS_DB_READS=0`).
    pub reads: bool,
    /// A host-claim box serves no forwarded reads (db-forward §6, §7.1).
    pub host_claim: bool,
    /// The largest restored database this box reads, in bytes (`CARLOS_DB_READ_MAX_BYTES`).
    pub max_restored: u64,
    /// Reads at once. The environment cannot change it: the unit's limits are for two and a probe
    /// (db-forward §5.7, §8.3). Tests whose workers are no processes take more.
    pub slots: usize,
    pub floors: DiskFloors,
    /// The least a worker must report in force; one that reports less is refused.
    pub sandbox: Walls,
    pub draining: Draining,
    /// How often readiness is probed while it holds (`CARLOS_DB_READ_PROBE_SECONDS`).
    pub probe_every: Duration,
    /// How often the queue is looked at. Tests, whose bucket costs nothing, look oftener.
    pub pace: Pace,
    /// Where its numbers are served (`CARLOS_METRICS_LISTEN`); nowhere unless it is set.
    pub metrics_at: Option<Endpoint>,
}

impl AgentConfig {
    /// Production's defaults.
    pub fn new(box_name: BoxName, region: Region, roots: RootKeys) -> Self {
        Self {
            box_name,
            region,
            roots,
            reads: true,
            host_claim: false,
            max_restored: RESTORED_BYTES,
            slots: READS_PER_BOX,
            floors: DiskFloors::PRODUCTION,
            sandbox: Walls::full(),
            draining: Draining::default(),
            probe_every: PROBE_EVERY,
            pace: Pace::default(),
            metrics_at: None,
        }
    }

    /// A developer's machine: small floors, and only the walls a worker builds around itself.
    pub fn development(box_name: BoxName, region: Region, roots: RootKeys) -> Self {
        Self {
            floors: DiskFloors::DEVELOPMENT,
            sandbox: Walls::platform(),
            draining: Draining::DEVELOPMENT,
            ..Self::new(box_name, region, roots)
        }
    }

    /// The configuration that the environment describes. `var` gives a variable's value.
    ///
    /// # Errors
    /// [`ConfigError`] for the first variable that is needed and missing, or not readable.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Env(&var);
        let roots = match env.get(PUBLIC_KEYS) {
            Some(text) => RootKeys::parse(&text).map_err(|error| unusable(PUBLIC_KEYS, error))?,
            None => RootKeys::default(),
        };
        let mut config = Self::new(env.parse(BOX)?, env.parse(REGION)?, roots);
        config.reads = env.get(READS).as_deref() != Some("0");
        config.host_claim = env.get(HOST_CLAIM).is_some();
        config.max_restored = env.number(MAX_BYTES)?.unwrap_or(RESTORED_BYTES);
        if let Some(bytes) = env.number(DISK_FLOOR)? {
            config.floors = DiskFloors { reserve: bytes, keep_bytes: bytes, ..config.floors };
        }
        if let Some(percent) = env.number(DISK_PERCENT)? {
            let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
            config.floors.keep_percent =
                percent.ok_or_else(|| unusable(DISK_PERCENT, "not a number from 0 to 100"))?;
        }
        config.probe_every = env.probe_every()?;
        config.metrics_at =
            Endpoint::from_env(&var).map_err(|error| unusable(error.variable(), error))?;
        if let Some(walls) = env.get(SANDBOX) {
            config.sandbox = walls.parse().map_err(|error| unusable(SANDBOX, error))?;
        }
        Ok(config)
    }
}

const BOX: &str = "CARLOS_BOX";
const REGION: &str = "CARLOS_REGION";
const PUBLIC_KEYS: &str = "CARLOS_RELEASE_PUBKEY";
const READS: &str = "CARLOS_DB_READS";
const HOST_CLAIM: &str = "CARLOS_HOST_CLAIM";
const MAX_BYTES: &str = "CARLOS_DB_READ_MAX_BYTES";
const DISK_FLOOR: &str = "CARLOS_DB_READ_DISK_FLOOR_BYTES";
const DISK_PERCENT: &str = "CARLOS_DB_READ_DISK_FLOOR_PERCENT";
const SANDBOX: &str = "CARLOS_DB_READ_SANDBOX";
const PROBE_SECONDS: &str = "CARLOS_DB_READ_PROBE_SECONDS";

/// Variables by name; an empty value counts as unset, as in a unit's `Environment=NAME=`.
pub(crate) struct Env<'a, F>(pub(crate) &'a F);

impl<F: Fn(&str) -> Option<String>> Env<'_, F> {
    pub(crate) fn get(&self, name: &'static str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn need(&self, name: &'static str) -> Result<String, ConfigError> {
        self.get(name).ok_or(ConfigError::Missing(name))
    }

    fn parse<T: std::str::FromStr<Err: ToString>>(
        &self,
        name: &'static str,
    ) -> Result<T, ConfigError> {
        self.need(name)?.parse().map_err(|error: T::Err| unusable(name, error))
    }

    /// Never rarer than specified; oftener costs a short-lived process each time.
    fn probe_every(&self) -> Result<Duration, ConfigError> {
        let most = PROBE_EVERY.as_secs();
        match self.number(PROBE_SECONDS)? {
            None => Ok(PROBE_EVERY),
            Some(seconds) if (1..=most).contains(&seconds) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(unusable(PROBE_SECONDS, format!("not a number from 1 to {most}"))),
        }
    }

    fn number(&self, name: &'static str) -> Result<Option<u64>, ConfigError> {
        let parsed = self.get(name).map(|text| text.parse());
        parsed.transpose().map_err(|error| unusable(name, error))
    }
}

pub(crate) fn unusable(name: &'static str, reason: impl ToString) -> ConfigError {
    ConfigError::Unusable { name, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<AgentConfig, ConfigError> {
        let base = [(BOX, "box-1"), (REGION, "uk")];
        let mut all: Vec<(&str, &str)> = pairs.to_vec();
        all.extend(base);
        AgentConfig::from_env(|name| {
            all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_specified_numbers_are_the_defaults() {
        let config = from(&[]).expect("box and region are enough");
        assert_eq!(config.floors, DiskFloors::PRODUCTION);
        assert_eq!(config.max_restored, 2 << 30);
        assert!(config.reads && !config.host_claim && config.roots.is_empty());
        assert_eq!(config.sandbox, Walls::full());
    }

    #[test]
    fn each_variable_is_read() {
        let config = from(&[
            (READS, "0"),
            (HOST_CLAIM, "1"),
            (MAX_BYTES, "1024"),
            (DISK_FLOOR, "67108864"),
            (DISK_PERCENT, "0"),
            (SANDBOX, "inner"),
        ]);
        let config = config.expect("all are usable");
        assert!(!config.reads && config.host_claim);
        assert_eq!(config.max_restored, 1024);
        assert_eq!(config.floors, DiskFloors::DEVELOPMENT);
        assert_eq!(config.sandbox, Walls::inner());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let bad = [
            (REGION, "UK"),
            (PUBLIC_KEYS, "not a key"),
            (MAX_BYTES, "2GiB"),
            (DISK_PERCENT, "101"),
            (PROBE_SECONDS, "0"),
            (PROBE_SECONDS, "301"),
            (SANDBOX, "none"),
        ];
        for (name, value) in bad {
            let Err(ConfigError::Unusable { name: named, .. }) = from(&[(name, value)]) else {
                panic!("{name}={value} was accepted");
            };
            assert_eq!(named, name);
        }
        assert_eq!(from(&[(REGION, "")]).err(), Some(ConfigError::Missing(REGION)));
    }
}
