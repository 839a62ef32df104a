//! Which console to talk to, and the token for it.
//!
//! `login` writes both to one file only its owner can read. `CARLOS_URL` and `CARLOS_TOKEN` come
//! first, for machines that keep secrets elsewhere.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use carlos_protocol::copy;
use serde::{Deserialize, Serialize};

use crate::client::{Origin, Token};
use crate::failure::Failure;

/// A console and what opens it.
#[derive(Clone, Debug)]
pub struct Login {
    pub origin: Origin,
    pub token: Token,
}

/// Where the login file is, taken from the environment once.
#[derive(Clone, Debug)]
pub struct Config {
    /// `None` on a machine without a home, which may still bring both in its environment.
    dir: Option<PathBuf>,
    url: Option<String>,
    token: Option<Token>,
}

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    /// When `CARLOS_TOKEN` is no token.
    pub fn from_env() -> Result<Self, Failure> {
        Self::from_vars(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The same with any source of variables, so that tests need not change the process's own.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let dir = config_dir(&var);
        let token = var("CARLOS_TOKEN").map(|text| Token::parse(&text)).transpose()?;
        Ok(Self { dir, url: var("CARLOS_URL"), token })
    }

    /// The login in force.
    ///
    /// # Errors
    /// A usage failure when nobody has logged in, or when `CARLOS_URL` names a console that the
    /// stored token is not for: a token goes only where it was meant to go.
    pub fn login(&self) -> Result<Login, Failure> {
        let origin = self.url.as_deref().map(Origin::parse).transpose()?;
        if let (Some(origin), Some(token)) = (&origin, &self.token) {
            return Ok(Login { origin: origin.clone(), token: token.clone() });
        }
        let stored = self.stored()?.ok_or_else(|| Failure::from(copy::not_logged_in()))?;
        let stored_origin = Origin::parse(&stored.url)?;
        if let Some(token) = &self.token {
            return Ok(Login { origin: stored_origin, token: token.clone() });
        }
        if origin.is_some_and(|origin| origin != stored_origin) {
            return Err(Failure::usage(format!(
                "CARLOS_URL is not {stored_origin}, which the stored token is for. set \
                 CARLOS_TOKEN as well, or run carlos login.",
            )));
        }
        Ok(Login { origin: stored_origin, token: Token::parse(&stored.token)? })
    }

    /// Keeps `login` for later commands, readable by this user only.
    pub fn store(&self, login: &Login) -> Result<(), Failure> {
        let stored =
            Stored { url: login.origin.to_string(), token: login.token.expose().to_owned() };
        let text = serde_json::to_vec(&stored).expect("two strings always serialise");
        let file = self.file()?;
        replace_file(&file, &text).map_err(|error| broken("write", &file, &error))
    }

    /// Forgets the login. Returns whether there was one.
    pub fn forget(&self) -> Result<bool, Failure> {
        match fs::remove_file(self.file()?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(broken("remove", &self.file()?, &error)),
        }
    }

    fn stored(&self) -> Result<Option<Stored>, Failure> {
        let file = self.file()?;
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(broken("read", &file, &error)),
        };
        // The parser's message could quote the token, so it is not passed on.
        serde_json::from_slice(&text).map(Some).map_err(|_| {
            Failure::usage(format!("{} is not a login. run carlos login again.", file.display()))
        })
    }

    fn file(&self) -> Result<PathBuf, Failure> {
        self.dir.as_ref().map(|dir| dir.join("login.json")).ok_or_else(|| {
            Failure::usage("there is no home directory. set CARLOS_CONFIG_DIR to a directory.")
        })
    }
}

/// Writes beside the file and renames, so that no reader sees half a login and the secret is never
/// in a file others could open.
fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    create_private_dir(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn broken(verb: &str, file: &Path, error: &io::Error) -> Failure {
    Failure::unexpected(format!("could not {verb} {}: {error}.", file.display()))
}

#[derive(Serialize, Deserialize)]
struct Stored {
    url: String,
    token: String,
}

fn config_dir(var: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(dir) = var("CARLOS_CONFIG_DIR") {
        return Some(PathBuf::from(dir));
    }
    let base = var("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| var("HOME").map(|home| Path::new(&home).join(".config")))
        .or_else(|| var("APPDATA").map(PathBuf::from))?;
    Some(base.join("carlos"))
}

fn create_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "cpt_acme_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn config(dir: &Path, vars: &[(&str, &str)]) -> Config {
        Config::from_vars(|name| {
            if name == "CARLOS_CONFIG_DIR" {
                return Some(dir.display().to_string());
            }
            vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
        .expect("has a directory")
    }

    fn login(url: &str) -> Login {
        Login {
            origin: Origin::parse(url).expect("a good url"),
            token: Token::parse(TOKEN).expect("a good token"),
        }
    }

    #[test]
    fn a_stored_login_comes_back_and_can_be_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = config(&dir.path().join("new"), &[]);
        assert_eq!(config.login().expect_err("none yet").exit, crate::exit::Exit::NotFound);
        config.store(&login("https://console.example.com/")).expect("stores");
        let read = config.login().expect("reads");
        assert_eq!(read.origin.to_string(), "https://console.example.com");
        assert_eq!(read.token.expose(), TOKEN);
        assert!(config.forget().expect("forgets"));
        assert!(!config.forget().expect("is already gone"));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let config = config(&dir.path().join("new"), &[]);
        config.store(&login("https://console.example.com")).expect("stores");
        let mode = |path: &Path| fs::metadata(path).expect("exists").permissions().mode() & 0o777;
        assert_eq!(mode(&config.file().unwrap()), 0o600);
        assert_eq!(mode(config.dir.as_ref().unwrap()), 0o700);
    }

    #[test]
    fn a_machine_without_a_home_brings_both_in_its_environment() {
        let vars = [("CARLOS_URL", "https://a.example.com"), ("CARLOS_TOKEN", TOKEN)];
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let config = Config::from_vars(var).expect("needs no directory yet");
        assert_eq!(config.login().expect("has both").token.expose(), TOKEN);
        let nothing = Config::from_vars(|_| None).expect("needs no directory yet");
        assert_eq!(nothing.login().expect_err("has neither").exit, crate::exit::Exit::Usage);
    }

    #[test]
    fn the_stored_token_goes_only_to_its_own_console() {
        let dir = tempfile::tempdir().expect("a directory");
        config(dir.path(), &[]).store(&login("https://a.example.com")).expect("stores");
        let same = config(dir.path(), &[("CARLOS_URL", "https://a.example.com/")]);
        assert!(same.login().is_ok());
        let other = config(dir.path(), &[("CARLOS_URL", "https://b.example.com")]);
        assert!(other.login().expect_err("refused").sentence.contains("set CARLOS_TOKEN"));
        let both = [("CARLOS_URL", "https://b.example.com"), ("CARLOS_TOKEN", TOKEN)];
        let login = config(dir.path(), &both).login().expect("both are given");
        assert_eq!(login.origin.to_string(), "https://b.example.com");
    }

    #[test]
    fn a_broken_file_does_not_show_its_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = config(dir.path(), &[]);
        fs::write(config.file().unwrap(), format!("{{\"token\":\"{TOKEN}\"")).expect("writes");
        let failure = config.login().expect_err("refused");
        assert!(!format!("{failure:?}").contains("cpt_"), "{failure:?}");
    }
}
