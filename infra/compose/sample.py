"""The sample instance: a shop whose orders come in while you look."""
import os
import sqlite3
import time

ORDERS_EVERY = 5  # seconds, so that two answers differ

with sqlite3.connect(os.environ.get("SHOP", "/shop/shop.db"), isolation_level=None) as shop:
    # Litestream reads the write-ahead log.
    shop.execute("PRAGMA journal_mode = WAL")
    shop.execute("PRAGMA busy_timeout = 5000")
    shop.execute(
        "CREATE TABLE IF NOT EXISTS orders"
        " (id INTEGER PRIMARY KEY, item TEXT NOT NULL, cents INTEGER NOT NULL, at TEXT NOT NULL)"
    )
    items = [("tea", 420), ("kettle", 3900), ("cup", 1150), ("tray", 2200)]
    while True:
        count = shop.execute("SELECT count(*) FROM orders").fetchone()[0]
        item, cents = items[count % len(items)]
        shop.execute(
            "INSERT INTO orders (item, cents, at)"
            " VALUES (?, ?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))",
            (item, cents),
        )
        time.sleep(ORDERS_EVERY)
