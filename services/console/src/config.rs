//! What a console is told at start.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use carlos_metrics::Endpoint;
use carlos_protocol::{
    envelope::{KeyFile, KeyKind},
    ids::Region,
    limits,
};

use crate::{metrics::Metrics, timings::Timings};

/// Connections held at once: sixteen reads, and room for short requests of a few hundred people.
/// Each is a descriptor and some buffers, and the usual limit is 1,024 descriptors.
pub const MAX_CONNECTIONS: usize = 512;

/// How one console is set up.
#[derive(Clone)]
pub struct ConsoleConfig {
    /// The region this console stands in.
    pub region: Region,
    /// Whether reads are forwarded at all (`CARLOS_DB_FORWARD`, db-forward §11.1).
    pub forward: bool,
    /// The key that signs requests. Without one, or with a scoped one, nothing is forwarded.
    pub key: Option<KeyFile>,
    /// How long the console waits for what.
    pub timings: Timings,
    /// Connections held at once.
    pub max_connections: usize,
    /// Reads one person may have open.
    pub reads_per_person: usize,
    /// Reads the console holds open.
    pub reads_in_all: usize,
    /// Requests of one token in a minute.
    pub requests_per_minute: u32,
    /// What this console counts; whoever serves the numbers keeps a clone.
    pub metrics: Arc<Metrics>,
    /// Where they are served (`CARLOS_METRICS_LISTEN`); nowhere unless it is set.
    pub metrics_at: Option<Endpoint>,
}

impl ConsoleConfig {
    /// A console of `region` that forwards nothing, with the specification's limits and times.
    pub fn new(region: Region) -> Self {
        Self {
            region,
            forward: false,
            key: None,
            timings: Timings::default(),
            max_connections: MAX_CONNECTIONS,
            reads_per_person: limits::READS_PER_PERSON,
            reads_in_all: limits::READS_PER_CONSOLE,
            requests_per_minute: limits::REQUEST_BUDGET,
            metrics: Arc::default(),
            metrics_at: None,
        }
    }

    /// This console, forwarding reads that `key` signs.
    pub fn forwarding(self, key: KeyFile) -> Self {
        Self { forward: true, key: Some(key), ..self }
    }

    /// Reads the console's part of the environment through `var`:
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `CARLOS_REGION` | required: the console's own region |
    /// | `CARLOS_DB_FORWARD` | `1` forwards reads; `0`, or nothing, does not |
    /// | `CARLOS_ROOT_KEY_FILE` | the key file that signs requests |
    /// | `CARLOS_METRICS_LISTEN` | a loopback address and port for `GET /metrics` |
    /// | `CARLOS_METRICS_ALLOW_REMOTE` | `1` allows another address there |
    ///
    /// # Errors
    /// [`ConfigError`] names the variable and what is wrong with it.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let region = required(&var, "CARLOS_REGION")?;
        let forward = switch(&var, "CARLOS_DB_FORWARD")?;
        let key = var("CARLOS_ROOT_KEY_FILE").map(|path| read_key(path.into())).transpose()?;
        let metrics_at = Endpoint::from_env(var).map_err(|error| ConfigError::Unusable {
            name: error.variable(),
            why: error.to_string(),
        })?;
        Ok(Self { forward, key, metrics_at, ..Self::new(region) })
    }

    /// Why a console that is told to forward reads forwards none. It serves everything else, so
    /// this is for its log and not for its end (db-forward §5.5).
    pub fn mute(&self) -> Option<&'static str> {
        match &self.key {
            _ if !self.forward => None,
            None => Some("CARLOS_ROOT_KEY_FILE is not set"),
            Some(key) if key.kind() != KeyKind::Root => {
                Some("CARLOS_ROOT_KEY_FILE holds a scoped key, and only a root key signs requests")
            }
            Some(_) => None,
        }
    }

    /// The key that can sign requests, if reads are forwarded. A scoped key cannot sign envelopes,
    /// so a console that holds only one forwards nothing (db-forward §5.5).
    pub(crate) fn signer(&self) -> Option<Arc<KeyFile>> {
        let key = self.key.as_ref().filter(|key| self.forward && key.kind() == KeyKind::Root)?;
        Some(Arc::new(key.clone()))
    }
}

/// A variable of the environment that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The variable is not there.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// The variable's text is not of its form.
    #[error("{name} is not usable: {why}")]
    Unusable {
        /// The variable.
        name: &'static str,
        /// What is wrong, without its value.
        why: String,
    },
}

/// Reads one required variable of the environment.
///
/// # Errors
/// [`ConfigError`] when it is missing or not of its form.
pub fn required<T: FromStr<Err: std::fmt::Display>>(
    var: impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<T, ConfigError> {
    let text = var(name).ok_or(ConfigError::Missing(name))?;
    text.parse().map_err(|why: T::Err| ConfigError::Unusable { name, why: why.to_string() })
}

/// A switch with another word in it is a slip, and would be off without anybody knowing.
fn switch(var: impl Fn(&str) -> Option<String>, name: &'static str) -> Result<bool, ConfigError> {
    match var(name).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(ConfigError::Unusable { name, why: "neither 0 nor 1".to_owned() }),
    }
}

fn read_key(path: PathBuf) -> Result<KeyFile, ConfigError> {
    let unusable = |why: String| ConfigError::Unusable { name: "CARLOS_ROOT_KEY_FILE", why };
    let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    KeyFile::from_json(&bytes).map_err(|error| unusable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
    }

    #[test]
    fn forwarding_is_off_unless_the_switch_says_one() {
        let off = ConsoleConfig::from_env(env(&[("CARLOS_REGION", "ie")])).unwrap();
        assert!(!off.forward && off.signer().is_none());
        let zero = env(&[("CARLOS_REGION", "ie"), ("CARLOS_DB_FORWARD", "0")]);
        assert!(!ConsoleConfig::from_env(zero).unwrap().forward);
        let on = env(&[("CARLOS_REGION", "ie"), ("CARLOS_DB_FORWARD", "1")]);
        assert!(ConsoleConfig::from_env(on).unwrap().forward);
        let yes = env(&[("CARLOS_REGION", "ie"), ("CARLOS_DB_FORWARD", "yes")]);
        let refused = ConsoleConfig::from_env(yes).err().unwrap().to_string();
        assert_eq!(refused, "CARLOS_DB_FORWARD is not usable: neither 0 nor 1");
    }

    #[test]
    fn a_console_that_cannot_sign_says_why_it_forwards_nothing() {
        let off = ConsoleConfig::new("ie".parse().unwrap());
        assert_eq!(off.mute(), None);
        let keyless = ConsoleConfig { forward: true, ..off.clone() };
        assert_eq!(keyless.mute(), Some("CARLOS_ROOT_KEY_FILE is not set"));
        let mut entropy = carlos_bucket::Context::system().entropy();
        let root = KeyFile::generate_root(&mut entropy);
        let scoped = root.generate_scoped(&mut entropy, "mesh").unwrap();
        assert!(off.clone().forwarding(scoped).mute().unwrap().contains("scoped"));
        assert_eq!(off.forwarding(root).mute(), None);
    }

    #[test]
    fn a_bad_variable_is_named() {
        let missing = ConsoleConfig::from_env(env(&[])).err().unwrap();
        assert_eq!(missing.to_string(), "CARLOS_REGION is not set");
        let bad = ConsoleConfig::from_env(env(&[("CARLOS_REGION", "No Region")])).err().unwrap();
        assert!(bad.to_string().starts_with("CARLOS_REGION is not usable"));
    }
}
