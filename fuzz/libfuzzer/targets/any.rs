//! Runs the target that `CARLOS_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use carlos_fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("CARLOS_FUZZ_TARGET").expect("CARLOS_FUZZ_TARGET names a target");
    target(&name).expect("CARLOS_FUZZ_TARGET is a target's name")
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
