//! Targets for what nodes of a mesh read of each other and of the store.

use bytes::BytesMut;
use carlos_protocol::mesh::{
    Descriptor, Generation, Hello, Identity, MeshKey, Metadata, Presence, Record, RecordDecoder,
    Rid, put_record,
};

/// Records of a link, one after the other; what is read is written back to the same bytes.
pub fn mesh_records(data: &[u8]) {
    let whole = RecordDecoder::whole(data).unwrap_or(0);
    let mut at = 0;
    while let Ok(Some((record, size))) = RecordDecoder::cut(&data[at..]) {
        let mut written = BytesMut::new();
        put_record(&record, &mut written);
        assert_eq!(written, data[at..at + size]);
        read_bodies(&record);
        at += size;
    }
    assert!(at <= data.len());
    assert!(at <= whole || whole == 0, "no record ends behind the last whole one");
}

fn read_bodies(record: &Record<'_>) {
    match record {
        Record::Hello(body) => mesh_hellos(body),
        Record::Update(body) => mesh_descriptors(body),
        Record::Message(head, _) => mesh_metadata(head.metadata),
        _ => {}
    }
}

/// The first record of each end.
pub fn mesh_hellos(data: &[u8]) {
    if let Ok(hello) = Hello::from_bytes(data) {
        assert_eq!(hello.to_bytes(), data);
        let _ = hello.expected.refuses(&hello.descriptor);
    }
}

/// Descriptors, from the store and from peers.
pub fn mesh_descriptors(data: &[u8]) {
    if let Ok(node) = Descriptor::from_bytes(data) {
        assert_eq!(node.to_bytes(), data);
        assert!(node.is_same_life(&node));
        for member in &node.members {
            assert!(node.member_index(&member.channel).is_some());
        }
        let _ = node.is_vouched_by(&Identity::new([7; 32]));
    }
}

/// Announcements.
pub fn mesh_presences(data: &[u8]) {
    if let Ok(presence) = Presence::from_bytes(data) {
        assert_eq!(presence.to_bytes(), data);
    }
}

/// Texts beside a payload.
pub fn mesh_metadata(data: &[u8]) {
    if let Ok(metadata) = Metadata::from_bytes(data) {
        assert_eq!(metadata.to_bytes(), data);
        for (key, value) in metadata.iter() {
            assert_eq!(metadata.get(key), Some(value));
        }
    }
}

/// Object keys, routing IDs and the other names.
pub fn mesh_names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = MeshKey::parse(text) {
        assert_eq!(key.to_path(), text);
    }
    if let Ok(rid) = Rid::parse(text) {
        assert_eq!(rid.to_string(), text);
        assert_eq!(Rid::new(rid.as_bytes()), Ok(rid));
    }
    if let Ok(generation) = Generation::parse(text) {
        assert_eq!(generation.to_string(), text);
    }
    if let Ok(identity) = Identity::parse(text) {
        assert_eq!(identity.to_string(), text);
    }
}
