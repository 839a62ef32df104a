//! Names for a person's own file: the app is called after it.

use std::path::Path;

use carlos_protocol::ids::{App, Host};

/// What a file without a usable name is called.
const FALLBACK: &str = "db";
/// Room for a suffix within a label of 63 characters.
const LONGEST: usize = 40;

/// The names for `file`, the likeliest first: its stem in the letters that a name may have, and
/// then with a number, for files of one name in different folders.
pub(super) fn apps_for(file: &Path) -> impl Iterator<Item = App> + use<> {
    let first = app_for(file);
    let numbered = first.clone();
    let others = (2..).map(move |n: u32| {
        App::parse(&format!("{numbered}-{n}")).expect("a short label and a number make a label")
    });
    std::iter::once(first).chain(others)
}

fn app_for(file: &Path) -> App {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let name: String = stem.chars().map(plain).take(LONGEST).collect();
    let name = name.trim_matches('-');
    App::parse(if name.is_empty() { FALLBACK } else { name }).expect("only letters of a label")
}

/// The host of that app's one instance.
pub(super) fn host_for(app: &App) -> Host {
    Host::parse(&format!("{app}.dev.local")).expect("a label before two labels is a host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_gets_a_name() {
        for (file, name) in [
            ("/tmp/shop.db", "shop"),
            ("My Shop.sqlite3", "my-shop"),
            ("données.db", "donn-es"),
            ("--.db", "db"),
            (".hidden", "hidden"),
            ("日本.db", "db"),
        ] {
            let app = app_for(Path::new(file));
            assert_eq!(app.as_str(), name, "{file}");
            host_for(&app);
        }
        let mut names = apps_for(Path::new(&"x".repeat(300)));
        assert_ne!(names.next(), names.next());
    }
}
