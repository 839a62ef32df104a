//! What a console is told at start.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use carlos_protocol::{
    envelope::{KeyFile, KeyKind},
    ids::Region,
    limits,
};

use crate::timings::Timings;

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
}

impl ConsoleConfig {
    /// A console of `region` that forwards nothing, with the seed's limits and times.
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
    /// | `CARLOS_DB_FORWARD` | `1` forwards reads; anything else, or nothing, does not |
    /// | `CARLOS_ROOT_KEY_FILE` | the key file that signs requests |
    ///
    /// # Errors
    /// [`ConfigError`] names the variable and what is wrong with it.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let region = required(&var, "CARLOS_REGION")?;
        let forward = var("CARLOS_DB_FORWARD").as_deref() == Some("1");
        let key = var("CARLOS_ROOT_KEY_FILE").map(|path| read_key(path.into())).transpose()?;
        Ok(Self { forward, key, ..Self::new(region) })
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
    }

    #[test]
    fn a_bad_variable_is_named() {
        let missing = ConsoleConfig::from_env(env(&[])).err().unwrap();
        assert_eq!(missing.to_string(), "CARLOS_REGION is not set");
        let bad = ConsoleConfig::from_env(env(&[("CARLOS_REGION", "No Region")])).err().unwrap();
        assert!(bad.to_string().starts_with("CARLOS_REGION is not usable"));
    }
}
