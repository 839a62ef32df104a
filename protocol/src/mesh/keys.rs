//! Object keys of a mesh (decision 1).

use std::fmt;

use super::names::{MeshName, Rid};
use crate::ids::Revision;
use crate::keys::KeyError;

/// The longest key segment of a mesh name: see [`MeshName::key_segment`].
const SEGMENT_CHARS: usize = 120;

/// One object of a mesh. The mesh is its [key segment](MeshName::key_segment): a long name cannot
/// be read back from it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MeshKey {
    /// `mesh/nodes/<m>/<rid>/<rev>`: a revision of a node's descriptor.
    Node(String, Rid, Revision),
    /// `presence/mesh/<m>/<unix minute>/<rid>.<rev>`: an announcement.
    Presence(String, u64, Rid, Revision),
    /// `control/serial/mesh/<m>`: moves when a node announces something new.
    Serial(String),
}

impl MeshKey {
    /// The descriptor revision of a node.
    pub fn node(mesh: &MeshName, rid: &Rid, revision: Revision) -> Self {
        Self::Node(mesh.key_segment(), rid.clone(), revision)
    }

    /// The announcement of a node's revision in a minute.
    pub fn presence(mesh: &MeshName, minute: u64, rid: &Rid, revision: Revision) -> Self {
        Self::Presence(mesh.key_segment(), minute, rid.clone(), revision)
    }

    /// The object's name.
    pub fn to_path(&self) -> String {
        self.to_string()
    }

    /// Reads a name; every key has exactly one.
    ///
    /// # Errors
    /// [`KeyError`] for a name this protocol does not write.
    pub fn parse(path: &str) -> Result<Self, KeyError> {
        parse(path).ok_or(KeyError)
    }
}

/// The serial of a mesh.
pub fn serial_key(mesh: &MeshName) -> String {
    MeshKey::Serial(mesh.key_segment()).to_path()
}

/// Where the announcements of one minute live; ends in `/`.
pub fn presence_prefix(mesh: &MeshName, minute: u64) -> String {
    format!("presence/mesh/{}/{minute}/", mesh.key_segment())
}

/// Where a node's descriptor revisions live; ends in `/`.
pub fn nodes_prefix(mesh: &MeshName, rid: &Rid) -> String {
    format!("mesh/nodes/{}/{rid}/", mesh.key_segment())
}

impl fmt::Display for MeshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(mesh, rid, revision) => write!(f, "mesh/nodes/{mesh}/{rid}/{revision}"),
            Self::Presence(mesh, minute, rid, revision) => {
                write!(f, "presence/mesh/{mesh}/{minute}/{rid}.{revision}")
            }
            Self::Serial(mesh) => write!(f, "control/serial/mesh/{mesh}"),
        }
    }
}

fn parse(path: &str) -> Option<MeshKey> {
    let parts: Vec<&str> = path.splitn(6, '/').collect();
    match parts.as_slice() {
        ["mesh", "nodes", mesh, rid, revision] => {
            Some(MeshKey::Node(segment(mesh)?, key_rid(rid)?, revision.parse().ok()?))
        }
        ["presence", "mesh", mesh, minute, entry] => {
            // From the right: routing IDs hold dots.
            let (rid, revision) = entry.rsplit_once('.')?;
            let (mesh, minute) = (segment(mesh)?, plain_decimal(minute)?);
            Some(MeshKey::Presence(mesh, minute, key_rid(rid)?, revision.parse().ok()?))
        }
        ["control", "serial", "mesh", mesh] => Some(MeshKey::Serial(segment(mesh)?)),
        _ => None,
    }
}

fn segment(text: &str) -> Option<String> {
    let fits = (1..=SEGMENT_CHARS).contains(&text.len());
    let base32 = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'));
    (fits && base32).then(|| text.to_owned())
}

fn key_rid(text: &str) -> Option<Rid> {
    Rid::parse(text).ok().filter(Rid::is_key_safe)
}

fn plain_decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mesh() -> MeshName {
        MeshName::parse("game-mesh").expect("a name")
    }

    #[test]
    fn keys_look_like_this() {
        let rid = Rid::parse("eu.1-x").expect("an id");
        let (node, seen) = (
            MeshKey::node(&mesh(), &rid, Revision::FIRST),
            MeshKey::presence(&mesh(), 29_877_660, &rid, Revision::FIRST),
        );
        assert_eq!(node.to_path(), "mesh/nodes/m5qw2zjnnvsxg2a/eu.1-x/00000000000000000001");
        let path = "presence/mesh/m5qw2zjnnvsxg2a/29877660/eu.1-x.00000000000000000001";
        assert_eq!(seen.to_path(), path);
        assert!(node.to_path().starts_with(&nodes_prefix(&mesh(), &rid)));
        assert!(path.starts_with(&presence_prefix(&mesh(), 29_877_660)));
        assert_eq!(serial_key(&mesh()), "control/serial/mesh/m5qw2zjnnvsxg2a");
    }

    #[test]
    fn other_names_are_no_keys() {
        let rev = "00000000000000000001";
        for bad in [
            format!("mesh/nodes/M5/x/{rev}"),
            format!("mesh/nodes/m5/../{rev}"),
            format!("mesh/nodes/m5/a%20b/{rev}"),
            format!("mesh/nodes/m5/x/{rev}/y"),
            "mesh/nodes/m5/x/1".to_owned(),
            format!("presence/mesh/m5/007/x.{rev}"),
            format!("presence/mesh/m5/7/{rev}"),
            "control/serial/mesh/".to_owned(),
            "control/serial/mesh/m5/x".to_owned(),
        ] {
            assert_eq!(MeshKey::parse(&bad), Err(KeyError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_key_round_trips(
            rid in "[A-Za-z0-9._-]{1,40}", minute: u64, revision in 1_u64.., kind in 0..3,
        ) {
            let (Ok(rid), Some(revision)) = (Rid::parse(&rid), Revision::new(revision)) else {
                return Ok(());
            };
            let key = match kind {
                0 => MeshKey::node(&mesh(), &rid, revision),
                1 => MeshKey::presence(&mesh(), minute, &rid, revision),
                _ => MeshKey::Serial(mesh().key_segment()),
            };
            if rid.is_key_safe() {
                prop_assert_eq!(MeshKey::parse(&key.to_path()), Ok(key));
            }
        }

        #[test]
        fn foreign_paths_never_panic(path in "(mesh|presence|control)/[a-z0-9./%]{0,30}") {
            if let Ok(key) = MeshKey::parse(&path) {
                prop_assert_eq!(key.to_path(), path);
            }
        }
    }
}
