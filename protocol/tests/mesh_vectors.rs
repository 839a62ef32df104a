//! The bytes of a mesh against vectors that `vectors/make.py` computed without this code.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::BytesMut;
use carlos_protocol::mesh::{
    Descriptor, Hello, MeshKey, MeshName, Presence, RecordDecoder, Rid, put_record,
};
use data_encoding::HEXLOWER;
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/mesh.json")).expect("JSON")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect("a text")
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().expect("a list")
}

fn unhex(value: &Value) -> Vec<u8> {
    HEXLOWER.decode(text(value, "hex").as_bytes()).expect("hex")
}

#[test]
fn names_are_encoded_in_keys() {
    let vectors = vectors();
    for case in list(&vectors, "segments") {
        let name = MeshName::parse(text(case, "name")).expect("a name");
        assert_eq!(name.key_segment(), text(case, "segment"));
    }
    for key in list(&vectors, "keys") {
        let path = key.as_str().expect("a text");
        assert_eq!(MeshKey::parse(path).expect("a key").to_path(), path);
    }
    for case in list(&vectors, "rids") {
        let rid = Rid::new(&unhex(case)).expect("an id");
        assert_eq!(rid.to_string(), text(case, "text"));
        assert_eq!(Rid::parse(text(case, "text")), Ok(rid));
    }
}

#[test]
fn bodies_are_canonical() {
    let vectors = vectors();
    let descriptor = text(&vectors, "descriptor").as_bytes();
    assert_eq!(Descriptor::from_bytes(descriptor).expect("one").to_bytes(), descriptor);
    let hello = text(&vectors, "hello").as_bytes();
    assert_eq!(Hello::from_bytes(hello).expect("one").to_bytes(), hello);
    let presence = text(&vectors, "presence").as_bytes();
    assert_eq!(Presence::from_bytes(presence).expect("one").to_bytes(), presence);
}

#[test]
fn records_have_their_bytes() {
    for case in list(&vectors(), "records") {
        let bytes = unhex(case);
        let cut = RecordDecoder::cut(&bytes).expect("a record");
        let (record, size) = cut.expect("a whole one");
        assert_eq!(size, bytes.len(), "{}", text(case, "name"));
        let mut written = BytesMut::new();
        put_record(&record, &mut written);
        assert_eq!(written, bytes, "{}", text(case, "name"));
    }
}
