//! The sample shop: what `carlos demo` reads and `carlos dev` serves when no `--db` is given.

use std::path::Path;

use rusqlite::{Connection, params};

/// Enough rows for joins and groups to mean something, few enough to build in an instant.
const CUSTOMERS: i64 = 200;
const ORDERS: i64 = 1_000;
const PRODUCTS: [(&str, i64); 8] = [
    ("espresso beans", 1_450),
    ("filter papers", 390),
    ("grinder", 8_900),
    ("kettle", 5_400),
    ("milk jug", 1_250),
    ("scale", 3_300),
    ("tasting set", 2_700),
    ("travel cup", 1_950),
];
const TOWNS: [&str; 5] = ["Bristol", "Cardiff", "Leeds", "London", "Perth"];

const SCHEMA: &str = "
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL);
    CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, pence INTEGER NOT NULL);
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY,
        customer_id INTEGER NOT NULL REFERENCES customers (id),
        product_id INTEGER NOT NULL REFERENCES products (id),
        quantity INTEGER NOT NULL,
        placed_at TEXT NOT NULL
    );
    CREATE INDEX orders_by_customer ON orders (customer_id);
    CREATE VIEW revenue AS
        SELECT c.town, count(*) AS orders, sum(o.quantity * p.pence) AS pence
        FROM orders o
        JOIN customers c ON c.id = o.customer_id
        JOIN products p ON p.id = o.product_id
        GROUP BY c.town;
";

/// The statement that `carlos demo` forwards.
pub(crate) const QUERY: &str =
    "SELECT town, orders, printf('%.2f', pence / 100.0) AS pounds FROM revenue ORDER BY pence DESC";

/// Creates the sample at `path`. The rows are the same on every machine.
///
/// # Errors
/// SQLite's own, for instance when `path` cannot be written.
pub(crate) fn create(path: &Path) -> rusqlite::Result<()> {
    let mut db = Connection::open(path)?;
    // The journal that a replicated database has in production.
    db.pragma_update(None, "journal_mode", "wal")?;
    let tx = db.transaction()?;
    tx.execute_batch(SCHEMA)?;
    fill_customers(&tx)?;
    fill_products(&tx)?;
    fill_orders(&tx)?;
    tx.commit()
}

fn fill_customers(db: &Connection) -> rusqlite::Result<()> {
    let mut insert = db.prepare("INSERT INTO customers (name, town) VALUES (?1, ?2)")?;
    for n in 0..CUSTOMERS {
        let town = TOWNS[spread(n, 0, TOWNS.len() as i64) as usize];
        insert.execute(params![format!("customer {:03}", n + 1), town])?;
    }
    Ok(())
}

fn fill_products(db: &Connection) -> rusqlite::Result<()> {
    let mut insert = db.prepare("INSERT INTO products (name, pence) VALUES (?1, ?2)")?;
    for (name, pence) in PRODUCTS {
        insert.execute(params![name, pence])?;
    }
    Ok(())
}

fn fill_orders(db: &Connection) -> rusqlite::Result<()> {
    let mut insert = db.prepare(
        "INSERT INTO orders (customer_id, product_id, quantity, placed_at)
         VALUES (?1, ?2, ?3, datetime('2026-01-01', ?4))",
    )?;
    for n in 0..ORDERS {
        let customer = 1 + spread(n, 1, CUSTOMERS);
        let product = 1 + spread(n, 2, PRODUCTS.len() as i64);
        let minutes = format!("+{} minutes", n * 397);
        insert.execute(params![customer, product, 1 + spread(n, 3, 4), minutes])?;
    }
    Ok(())
}

/// A fixed mix of `n`, so that the sample looks uneven and is the same everywhere.
fn spread(n: i64, salt: i64, modulus: i64) -> i64 {
    let mixed = (n + 1).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(salt * 1_442_695);
    (mixed >> 33).rem_euclid(modulus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_answers_its_own_query() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        create(&path).unwrap();
        let db = Connection::open(&path).unwrap();
        let towns: Vec<String> = db
            .prepare(QUERY)
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(towns.len(), TOWNS.len());
        let total: i64 =
            db.query_row("SELECT sum(orders) FROM revenue", [], |row| row.get(0)).unwrap();
        assert_eq!(total, ORDERS);
    }
}
