//! Variables that the infrastructure sets are ones the programs read, and docs/deploy.md names
//! them: a misspelt one would be ignored without a word.

use std::collections::BTreeSet;
use std::fs;

use carlos_tests_infra::{files, root, text};

/// Every name in `text` that begins as the project's variables do.
fn variables(text: &str) -> BTreeSet<String> {
    let part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !part(character));
    let ours =
        words.filter(|word| word.strip_prefix("CARLOS_").is_some_and(|rest| !rest.is_empty()));
    ours.map(str::to_owned).collect()
}

/// Those that a Rust file of the programs holds as a whole string.
fn read_by_programs() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in ["cli/src", "services", "crates/bucket/src", "crates/metrics/src"] {
        for path in files(&root().join(folder), &[".rs"]) {
            let source = fs::read_to_string(&path).expect("a file that was listed");
            let quoted = |name: &String| source.contains(&format!("\"{name}\""));
            found.extend(variables(&source).into_iter().filter(quoted));
        }
    }
    found
}

fn set_by_infrastructure() -> BTreeSet<String> {
    let compose = variables(&text("docker-compose.yml"));
    let scripts = ["agent.sh", "cli.sh", "setup.sh"];
    let scripts = scripts.map(|name| variables(&text(&format!("infra/compose/{name}"))));
    let terraform = variables(&text("infra/terraform/modules/roles/outputs.tf"));
    let unit = variables(&text("infra/systemd/carlos-agent.service"));
    let scripts = scripts.into_iter().flatten();
    compose.into_iter().chain(scripts).chain(terraform).chain(unit).collect()
}

#[test]
fn programs_read_what_the_infrastructure_sets() {
    let set = set_by_infrastructure();
    assert!(set.len() >= 15, "{set:?}");
    let unread: Vec<_> = set.difference(&read_by_programs()).cloned().collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn the_documentation_names_variables_that_exist() {
    let documented = variables(&text("docs/deploy.md"));
    let unread: Vec<_> = documented.difference(&read_by_programs()).cloned().collect();
    assert!(unread.is_empty(), "{unread:?}");
    let missing: Vec<_> = set_by_infrastructure().difference(&documented).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
}
