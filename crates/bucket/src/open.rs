//! From a URL and the environment to a store: the one place where a store's client is set up.

mod clock;
mod failure;
mod profile;
mod s3;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use crate::layer::Inner;

pub use clock::StoreClock;
pub use profile::ProfileError;
pub use s3::S3Error;
pub use settings::{Address, BucketSettings, SettingsError, open_settings, s3_address};

/// Why a URL gives no store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `file:` without an absolute path.
    #[error("{0} names no absolute directory; write file:///path/to/directory")]
    NotAbsolute(String),
    /// The scheme is known and its client is not part of this build.
    #[error("{0}:// stores are not part of this build; use s3://bucket or file:///path")]
    NotInThisBuild(String),
    /// The scheme is not known.
    #[error("{0} is not a store; use s3://bucket, file:///path/to/directory or memory://")]
    UnknownScheme(String),
    /// The directory cannot be made or entered.
    #[error("cannot use the directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A directory that has to be there is not.
    #[error("there is no directory {0}")]
    NoDirectory(PathBuf),
    /// The directory's name is one that the store's library cannot hold.
    #[error("cannot use the directory {path}: {source}")]
    Store {
        /// The directory.
        path: PathBuf,
        /// What the library says.
        source: object_store::Error,
    },
    /// An S3 bucket cannot be used as it is described.
    #[error(transparent)]
    S3(#[from] S3Error),
}

/// Opens a store by its URL and this process's environment: `s3://bucket` or `s3://bucket/prefix`,
/// `file:///directory` (made when missing), or `memory://` (a new, empty store each time).
///
/// A file URL's path may hold percent escapes or the characters themselves, `?` and `#` included:
/// a directory has no query. [`file_url`] writes one that reads back to the same directory.
///
/// For S3, these variables count:
///
/// | variable | meaning |
/// |---|---|
/// | `CARLOS_S3_ENDPOINT` | the server's URL; without it, Amazon's in the region |
/// | `CARLOS_S3_REGION` | the region; else `AWS_REGION`, else `AWS_DEFAULT_REGION` |
/// | `CARLOS_S3_ALLOW_HTTP` | `1` allows plain http to a machine other than this one |
/// | `CARLOS_S3_CHECKSUM` | `1` or `0`: SHA-256 checksum headers, usually for Amazon only |
/// | `AWS_ACCESS_KEY_ID` ... | keys; else a web identity, `AWS_PROFILE`, the platform's |
///
/// `s3://bucket?region=...&endpoint=...` says for one bucket what the environment says for all, for
/// a process whose buckets lie in two regions. Buckets on other servers than Amazon's are named in
/// the path of a request. Opening sends nothing.
///
/// # Errors
/// [`OpenError`] with a sentence for a person, without any secret.
pub fn open_store(url: &str) -> Result<Inner, OpenError> {
    open_store_with(url, |name| std::env::var(name).ok(), None)
}

/// As [`open_store`], for a store that is in use already: a directory that is not there is an error
/// and is not made, since a slip in its path would otherwise look like an empty store.
///
/// # Errors
/// [`OpenError`] with a sentence for a person, without any secret.
pub fn open_existing(url: &str) -> Result<Inner, OpenError> {
    if let Some(path) = url.strip_prefix("file://").filter(|path| path.starts_with('/')) {
        let path = unescape(path);
        if !path.is_dir() {
            return Err(OpenError::NoDirectory(path));
        }
    }
    open_store(url)
}

/// As [`open_store`], with variables from `var` instead of the process, and with a clock that the
/// store's answers set.
///
/// # Errors
/// [`OpenError`] with a sentence for a person, without any secret.
pub fn open_store_with(
    url: &str,
    var: impl Fn(&str) -> Option<String>,
    clock: Option<&StoreClock>,
) -> Result<Inner, OpenError> {
    match url.split_once("://") {
        Some(("memory", "" | "/")) => Ok(Arc::new(InMemory::new())),
        Some(("file", path)) if path.starts_with('/') => open_directory(&unescape(path)),
        Some(("file", _)) => Err(OpenError::NotAbsolute(url.to_owned())),
        Some(("s3", rest)) => Ok(s3::open(rest, Environment(&var), clock)?),
        Some((scheme @ ("gs" | "az"), _)) => Err(OpenError::NotInThisBuild(scheme.to_owned())),
        // The rest of the text may hold credentials; a scheme does not.
        Some((scheme, _)) => Err(OpenError::UnknownScheme(format!("{scheme}://"))),
        None => Err(OpenError::UnknownScheme("a name without a scheme".to_owned())),
    }
}

/// The URL under which [`open_store`] opens the absolute directory `path`.
pub fn file_url(path: &Path) -> String {
    let escaped = path.as_os_str().as_encoded_bytes().iter().map(|&byte| match byte {
        b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    });
    std::iter::once("file://".to_owned()).chain(escaped).collect()
}

/// Variables by name; an empty value counts as unset, as in a unit's `Environment=NAME=`.
#[derive(Clone, Copy)]
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn get(self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }
}

fn open_directory(path: &Path) -> Result<Inner, OpenError> {
    let path = path.to_owned();
    if let Err(source) = std::fs::create_dir_all(&path) {
        return Err(OpenError::Directory { path, source });
    }
    match LocalFileSystem::new_with_prefix(&path) {
        // Expired reads leave empty folders, which would slow every later listing.
        Ok(store) => Ok(Arc::new(store.with_automatic_cleanup(true))),
        Err(source) => Err(OpenError::Store { path, source }),
    }
}

/// Resolves percent escapes; anything that is not one stands for itself.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at..at + 3).and_then(escaped_byte);
        plain.push(escape.unwrap_or(bytes[at]));
        at += if escape.is_some() { 3 } else { 1 };
    }
    path_from(plain)
}

fn escaped_byte(escape: &[u8]) -> Option<u8> {
    let digits =
        escape.strip_prefix(b"%").filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(unix)]
fn path_from(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(not(unix))]
fn path_from(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStore, ObjectStoreExt};

    use super::*;

    const ODD: [&str; 9] = [
        "plain",
        "with space",
        "100%",
        "a%20b",
        "hash#1",
        "what?",
        "naïve-日本",
        "semi;colon&amp",
        "back\\slash",
    ];

    #[tokio::test]
    async fn directories_of_any_name_are_made_and_used() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ODD {
            let root = dir.path().join(name).join("deep");
            let store = open_store(&file_url(&root)).expect(name);
            let key = object_store::path::Path::from("db-reads/x/picked");
            store.put(&key, "body".into()).await.expect(name);
            assert!(root.join("db-reads/x/picked").is_file(), "{name}");
            let listed: Vec<_> =
                futures::TryStreamExt::try_collect(store.list(None)).await.expect(name);
            assert_eq!(listed.len(), 1, "{name}");
            assert_eq!(listed[0].location, key);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_written_url_reads_back(path in "/[^\\x00]{0,40}") {
            let url = file_url(Path::new(&path));
            let text = url.strip_prefix("file://").expect("its scheme");
            proptest::prop_assert!(text.is_ascii() && !text.contains(['#', '?', ' ']));
            let read = unescape(text);
            proptest::prop_assert_eq!(read.as_path(), Path::new(&path));
        }

        #[test]
        fn any_text_is_a_path(text in ".{0,40}") {
            let _ = unescape(&text);
        }
    }

    #[test]
    fn a_url_written_by_hand_names_what_it_shows() {
        assert_eq!(unescape("/a b/ü"), Path::new("/a b/ü"));
        assert_eq!(unescape("/a%20b/%C3%BC"), Path::new("/a b/ü"));
        assert_eq!(unescape("/100%/%zz/%+1"), Path::new("/100%/%zz/%+1"));
    }

    #[test]
    fn a_store_in_use_is_not_made_by_a_slip() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = dir.path().join("no such");
        let refused = open_existing(&file_url(&missing)).expect_err("is not there").to_string();
        assert!(refused.ends_with("/no such") && !missing.exists(), "{refused}");
        assert!(open_existing(&file_url(dir.path())).is_ok());
        assert!(open_existing("file://relative").is_err() && open_existing("memory://").is_ok());
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let sentence = |url: &str| open_store(url).expect_err(url).to_string();
        assert!(sentence("gs://bucket/prefix").contains("not part of this build"));
        assert!(sentence("s3://").contains("names no bucket"));
        assert!(sentence("file://relative/dir").contains("no absolute directory"));
        assert!(sentence("https://user:secret@host").contains("https:// is not a store"));
        assert!(!sentence("https://user:secret@host").contains("secret"));
        assert!(sentence("/just/a/path").contains("without a scheme"));
        assert!(sentence("file:///dev/null/below").contains("/dev/null/below"));
    }
}
