//! A person's own keys: the shared credentials file that S3 tools have in common.

use std::path::PathBuf;

use super::Environment;

/// Beyond this a file is not one that people write keys into.
const MAX_FILE: u64 = 1 << 20;

/// Why a profile gives no keys.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The profile asked for is not in the file.
    #[error("{path} has no profile {name}")]
    Absent {
        /// The file.
        path: PathBuf,
        /// The profile.
        name: String,
    },
    /// The profile holds something else than keys, such as a role or a sign-on.
    #[error(
        "the profile {name} in {path} holds no keys; export them as AWS_ACCESS_KEY_ID, \
             AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
    )]
    NoKeys {
        /// The file.
        path: PathBuf,
        /// The profile.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// The keys of one profile.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

/// The keys of `AWS_PROFILE`, or of the default profile where there is one. `None` when nobody
/// asked for a profile and there is none.
pub(super) fn keys(env: Environment<'_>) -> Result<Option<Keys>, ProfileError> {
    let asked = env.get("AWS_PROFILE");
    let Some(path) = path(env) else { return Ok(None) };
    let name = asked.clone().unwrap_or_else(|| "default".to_owned());
    let text = match read(&path) {
        Ok(text) => text,
        Err(_) if asked.is_none() => return Ok(None),
        Err(source) => return Err(ProfileError::Unreadable { path, source }),
    };
    match section(&text, &name) {
        Some(lines) => found(&lines).ok_or(ProfileError::NoKeys { path, name }).map(Some),
        None if asked.is_none() => Ok(None),
        None => Err(ProfileError::Absent { path, name }),
    }
}

fn path(env: Environment<'_>) -> Option<PathBuf> {
    let home = || env.get("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
    env.get("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(home)
}

fn read(path: &PathBuf) -> std::io::Result<String> {
    if std::fs::metadata(path)?.len() > MAX_FILE {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    std::fs::read_to_string(path)
}

/// The `name = value` lines of one section.
fn section(text: &str, name: &str) -> Option<Vec<(String, String)>> {
    let header = |line: &str| {
        let inner = line.trim().strip_prefix('[')?.strip_suffix(']')?;
        Some(inner.trim().to_owned())
    };
    let mut lines = text.lines();
    lines.find(|line| header(line).as_deref() == Some(name))?;
    let own = lines.take_while(|line| header(line).is_none());
    let pair = |line: &str| {
        let (key, value) = line.split_once('=').filter(|_| !line.starts_with(['#', ';']))?;
        Some((key.trim().to_lowercase(), value.trim().to_owned()))
    };
    Some(own.filter_map(pair).collect())
}

fn found(lines: &[(String, String)]) -> Option<Keys> {
    let value = |name: &str| {
        let (_, value) = lines.iter().find(|(key, value)| key == name && !value.is_empty())?;
        Some(value.clone())
    };
    let (id, secret) = (value("aws_access_key_id")?, value("aws_secret_access_key")?);
    Some(Keys { id, secret, token: value("aws_session_token") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=B=\n\n\
                        [work]\naws_access_key_id=C\naws_secret_access_key=D\n\
                        aws_session_token = E\n[role]\nrole_arn = arn:x\n";

    fn from(vars: &[(&str, &str)]) -> Result<Option<Keys>, ProfileError> {
        let var = |name: &str| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        keys(Environment(&var))
    }

    fn ids(keys: Option<Keys>) -> Option<(String, String, Option<String>)> {
        keys.map(|keys| (keys.id, keys.secret, keys.token))
    }

    #[test]
    fn keys_are_found_by_profile() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("credentials");
        std::fs::write(&file, FILE).expect("a file");
        let file = ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().expect("UTF-8"));
        let default = from(&[file]).expect("readable");
        assert_eq!(ids(default), Some(("A".into(), "B=".into(), None)));
        let work = from(&[file, ("AWS_PROFILE", "work")]).expect("readable");
        assert_eq!(ids(work), Some(("C".into(), "D".into(), Some("E".into()))));
        let role = from(&[file, ("AWS_PROFILE", "role")]);
        assert!(matches!(role, Err(ProfileError::NoKeys { .. })));
        let other = from(&[file, ("AWS_PROFILE", "other")]);
        assert!(matches!(other, Err(ProfileError::Absent { .. })));
    }

    #[test]
    fn a_missing_file_matters_only_to_who_asks_for_a_profile() {
        let none = ("HOME", "/nonexistent");
        assert!(matches!(from(&[none]), Ok(None)));
        assert!(matches!(from(&[]), Ok(None)));
        let asked = from(&[none, ("AWS_PROFILE", "work")]);
        assert!(matches!(asked, Err(ProfileError::Unreadable { .. })));
    }
}
