//! What is asked, and what the answer must be: the source's own rows through the same SQLite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carlos_dbquery::{Limits, Stop};

/// The shop's database in every run.
pub(crate) const SHOP: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, price REAL);
    INSERT INTO orders VALUES (1, 'kettle', 39.5), (2, 'grinder', 120), (3, 'milk jug', NULL);";

/// A statement that only one read of a run asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The number that no other read's statement holds.
    pub number: usize,
    pub kind: Kind,
}

/// What a statement comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A few rows: one chunk.
    Small,
    /// Three frames of output: several chunks when the worker is slow.
    Large,
    /// SQLite refuses it.
    Wrong,
}

impl Statement {
    /// The SQL, which begins with the read's number.
    pub fn sql(&self) -> String {
        let number = self.number;
        match self.kind {
            Kind::Small => format!("SELECT {number} AS read, id, item, price FROM orders"),
            Kind::Large => format!(
                "SELECT {number} AS read, a.id, b.id, zeroblob(16000) FROM orders a, orders b"
            ),
            Kind::Wrong => format!("SELECT {number} AS read, size FROM orders"),
        }
    }

    /// The number of the read that asked this SQL.
    pub fn number_in(sql: &str) -> Option<usize> {
        sql.strip_prefix("SELECT ")?.split_once(' ')?.0.parse().ok()
    }
}

/// Knows the answers.
pub struct Expected {
    source: PathBuf,
}

impl Expected {
    pub(crate) fn of(source: &Path) -> Self {
        Self { source: source.to_owned() }
    }

    /// The row stream that `sql` gives on the source itself; `None` when SQLite refuses it.
    pub fn rows(&self, sql: &str) -> Option<Vec<u8>> {
        let mut rows = Vec::new();
        let stop = Stop::new(|| Duration::ZERO);
        carlos_dbquery::run(&self.source, sql, &Limits::default(), &mut rows, &stop).ok()?;
        Some(rows)
    }
}
