//! The agent's settings, as the environment file that its unit reads.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use carlos_box_agent::AgentConfig;
use carlos_protocol::limits::RESTORED_BYTES;

use crate::failure::Failure;
use crate::out;

/// What of the agent's settings its workers' units repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The largest restored database, in bytes.
    pub(super) restored_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { restored_bytes: RESTORED_BYTES }
    }
}

impl Limits {
    /// Reads `file`. Without it the defaults hold, as for an agent that is told nothing.
    pub(super) fn read(file: &Path) -> Result<Self, Failure> {
        let shown = file.display();
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                out::say(&format!("{shown} does not exist yet: the units have the usual limits."));
                return Ok(Self::default());
            }
            Err(error) => {
                let sentence = format!("could not read {shown}.");
                return Err(Failure::unexpected(sentence).because(error));
            }
        };
        Self::parse(&text).map_err(|why| Failure::usage(format!("{shown}: {why}.")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let variables = variables(text)?;
        // All of it is looked at: units for an agent that cannot start would help nobody.
        let config = AgentConfig::from_env(|name| variables.get(name).cloned());
        let config = config.map_err(|error| error.to_string())?;
        Ok(Self { restored_bytes: config.max_restored })
    }
}

/// The variables of an environment file. Of systemd's syntax this takes what settings need: a
/// variable a line, with quotes around a value or without. The rest is refused, because read
/// differently here and there it would give units with other limits than the agent's.
fn variables(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut variables = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let line_number = number + 1;
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {line_number} is no NAME=VALUE"));
        };
        let value = unquoted(value.trim());
        let value = value.ok_or_else(|| {
            format!("line {line_number}: a value has no backslash and no quotes inside")
        })?;
        variables.insert(name.trim().to_owned(), value.to_owned());
    }
    Ok(variables)
}

fn unquoted(value: &str) -> Option<&str> {
    let inside = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)));
    let value = inside.unwrap_or(value);
    (!value.contains(['"', '\'', '\\'])).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "CARLOS_BOX=box-1\nCARLOS_REGION=uk\n";

    #[test]
    fn limits_come_from_the_agents_own_settings() {
        assert_eq!(Limits::parse(LEAST), Ok(Limits::default()));
        let text = format!("# a box\n\n{LEAST} CARLOS_DB_READ_MAX_BYTES = \"1048576\"\n");
        assert_eq!(Limits::parse(&text), Ok(Limits { restored_bytes: 1 << 20 }));
    }

    #[test]
    fn settings_that_no_agent_starts_with_are_refused() {
        for broken in ["CARLOS_DB_READ_MAX_BYTES=2GiB", "CARLOS_REGION=", "no variable", "A='b\\'"]
        {
            assert!(Limits::parse(&format!("{LEAST}{broken}\n")).is_err(), "{broken}");
        }
    }

    #[test]
    fn quotes_are_taken_off_in_pairs() {
        assert_eq!(unquoted("'a b'"), Some("a b"));
        assert_eq!(unquoted("\"a\""), Some("a"));
        assert_eq!(unquoted("a=b"), Some("a=b"));
        assert_eq!(unquoted("\"a"), None);
        assert_eq!(unquoted("'a'b'"), None);
    }
}
