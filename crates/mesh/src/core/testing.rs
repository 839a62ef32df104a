//! Descriptors, hellos and dice for the tests of this folder.

use carlos_protocol::Entropy;
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{
    CAPABILITY, Descriptor, Expected, Generation, Hello, LinkId, Member, MeshName, NodeState,
    ObjectRole, Rid, VERSION, Weight,
};

/// Equal seeds draw equal bytes.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Entropy for Dice {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

/// A node of a plaintext mesh that serves `match`.
pub(crate) fn descriptor(name: &str) -> Descriptor {
    weighted(name, 100, 1)
}

/// The same with a weight and a revision.
pub(crate) fn weighted(name: &str, weight: i64, revision: u64) -> Descriptor {
    let weight = Weight::new(weight).expect("in range");
    Descriptor {
        v: 1,
        mesh: MeshName::parse("game-mesh").expect("a name"),
        rid: Rid::parse(name).expect("an id"),
        generation: Generation::new(7).expect("not zero"),
        revision: Revision::new(revision).expect("not zero"),
        endpoint: format!("{name}.example:7001"),
        identity: None,
        trust: "bucket".to_owned(),
        vouch: String::new(),
        role: ObjectRole::None,
        members: vec![Member { channel: "match".parse().expect("a name"), weight }],
        state: NodeState::Serving,
    }
}

/// What a node says first, when it expects nobody in particular.
pub(crate) fn hello_of(node: &Descriptor) -> Hello {
    Hello {
        v: VERSION,
        capabilities: vec![CAPABILITY.to_owned()],
        mesh: node.mesh.clone(),
        link: LinkId::new(77),
        replaces: None,
        expected: Expected::default(),
        window: 1_000,
        descriptor: node.clone(),
    }
}
