//! Key files: written once, with nobody else able to read them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use carlos_bucket::Context;
use carlos_protocol::envelope::KeyFile;

use crate::failure::Failure;
use crate::out;

/// Reads a key file.
///
/// # Errors
/// Usage, naming the file and never anything in it.
pub fn read_key(path: &Path) -> Result<KeyFile, Failure> {
    let unusable =
        |why: String| Failure::usage(format!("{} is not usable: {why}.", path.display()));
    let bytes = zeroize::Zeroizing::new(fs::read(path).map_err(|e| unusable(e.to_string()))?);
    KeyFile::from_json(&bytes).map_err(|error| unusable(error.to_string()))
}

/// Creates `path`, which must not exist, readable by its owner only.
///
/// # Errors
/// The system's; an existing file is never replaced, since it may hold the only copy of a key.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub(super) fn make_root(out: &Path, context: &Context) -> Result<(), Failure> {
    let key = KeyFile::generate_root(&mut context.entropy());
    write(out, &key)?;
    out::lines([key.public().to_string()])
}

pub(super) fn make_scoped(
    root: &Path,
    purpose: &str,
    out: &Path,
    context: &Context,
) -> Result<(), Failure> {
    let key = read_key(root)?
        .generate_scoped(&mut context.entropy(), purpose)
        .map_err(|error| Failure::usage(format!("{error}.")))?;
    write(out, &key)?;
    out::lines([key.public().to_string()])
}

fn write(out: &Path, key: &KeyFile) -> Result<(), Failure> {
    write_private(out, &key.to_json())
        .map_err(|error| Failure::usage(format!("could not write {}: {error}.", out.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_private_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root.json");
        make_root(&path, &Context::system()).unwrap();
        let id = read_key(&path).unwrap().id().clone();
        assert!(make_root(&path, &Context::system()).is_err());
        assert_eq!(read_key(&path).unwrap().id(), &id);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_scoped_key_makes_no_further_keys() {
        let dir = tempfile::tempdir().unwrap();
        let (root, scoped) = (dir.path().join("root"), dir.path().join("scoped"));
        let context = Context::system();
        make_root(&root, &context).unwrap();
        make_scoped(&root, "mesh", &scoped, &context).unwrap();
        let refused = make_scoped(&scoped, "mesh", &dir.path().join("x"), &context).unwrap_err();
        assert!(refused.sentence.contains("scoped"));
    }
}
