//! Reads the tree's infrastructure files for the tests beside this.

use std::fs;
use std::path::{Path, PathBuf};

use hcl::structure::BlockLabel;
use hcl::{Block, Body, Expression};
use serde_json::Value;

/// The top of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the tree.
///
/// # Panics
/// When there is no such file.
#[must_use]
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a file of the tree")
}

/// Asks a JSON file of the tree to hold `wanted`. With `CARLOS_WRITE_INFRA=1` in the environment it
/// is written anew first.
///
/// # Panics
/// When it holds something else.
pub fn hold(path: &str, wanted: &Value) {
    let file = root().join(path);
    if std::env::var_os("CARLOS_WRITE_INFRA").is_some() {
        let shown = serde_json::to_string_pretty(wanted).expect("a value is JSON");
        fs::write(&file, shown + "\n").expect("a writable tree");
    }
    let said = fs::read_to_string(&file).unwrap_or_default();
    let said: Value = serde_json::from_str(&said).unwrap_or_default();
    assert_eq!(&said, wanted, "run with CARLOS_WRITE_INFRA=1: {path}");
}

/// Every file below `folder` whose name ends in one of `endings`; Terraform's own folders are not
/// of the tree.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the tree") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    found
}

/// A Terraform file of the tree, parsed.
///
/// # Panics
/// When it is not HCL.
#[must_use]
pub fn terraform(path: &str) -> Body {
    hcl::parse(&text(path)).expect("Terraform's language")
}

/// The blocks of one kind, in order; a `dynamic` block counts as the kind it makes, with its
/// `content` as the body.
#[must_use]
pub fn blocks(body: &Body, kind: &str) -> Vec<Body> {
    body.blocks().filter_map(|block| plain(block, kind)).collect()
}

fn plain(block: &Block, kind: &str) -> Option<Body> {
    match block.identifier() {
        "dynamic" if label(block, 0) == kind => {
            block.body().blocks().find(|inner| inner.identifier() == "content")
        }
        found if found == kind => Some(block),
        _ => None,
    }
    .map(|block| block.body().clone())
}

/// The block with this kind and these labels.
#[must_use]
pub fn block(body: &Body, kind: &str, labels: &[&str]) -> Option<Body> {
    let has = |block: &&Block| {
        block.identifier() == kind
            && labels.iter().enumerate().all(|(place, text)| label(block, place) == *text)
    };
    body.blocks().find(has).map(|block| block.body().clone())
}

fn label(block: &Block, place: usize) -> &str {
    block.labels().get(place).map_or("", BlockLabel::as_str)
}

/// The value of an argument.
#[must_use]
pub fn argument(body: &Body, name: &str) -> Option<Expression> {
    body.attributes().find(|one| one.key() == name).map(|one| one.expr().clone())
}
