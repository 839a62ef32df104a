//! Database files whose pages lie: every LTX checksum is right, and SQLite is what reads them.

use std::ops::Range;

use carlos_protocol::frames::Outcome;

use crate::Case;
use crate::support::Replica;

const BROKEN: &[Outcome] = &[Outcome::CheckFailed];
/// Damage that the whole-file check may find, or that no answer depends on.
const BROKEN_OR_DONE: &[Outcome] = &[Outcome::CheckFailed, Outcome::Done];

const PAGE: usize = 4096;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = trees();
    cases.extend(freelists());
    cases.extend(headers());
    cases.extend(noise());
    cases
}

/// A table of several levels, an index, overflow pages, and free pages.
fn sound() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source.db");
    let source = rusqlite::Connection::open(&path).unwrap();
    source
        .execute_batch(
            "PRAGMA page_size=4096; CREATE TABLE t(id INTEGER PRIMARY KEY, a); \
             CREATE INDEX i ON t(a); CREATE TABLE gone(a); \
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT 4000) \
             INSERT INTO t SELECT x, hex(x*7919) FROM n; \
             INSERT INTO t VALUES (9000, hex(zeroblob(9000))); \
             INSERT INTO gone SELECT hex(zeroblob(1000)) FROM t LIMIT 200; DROP TABLE gone;",
        )
        .unwrap();
    drop(source);
    std::fs::read(path).unwrap()
}

/// The sound image with one change, read as a whole and through its index.
fn bent(name: &'static str, right: &'static [Outcome], change: impl FnOnce(&mut [u8])) -> Case {
    let mut image = sound();
    change(&mut image);
    let sql = "SELECT count(*), max(length(a)), (SELECT count(*) FROM t WHERE a > '5') FROM t";
    Case::new(name, Replica::of_file(&image), sql, right)
}

fn page(number: usize) -> Range<usize> {
    (number - 1) * PAGE..number * PAGE
}

/// The first page of a kind of b-tree: 5 is a table's inner page, 13 a table's leaf.
fn first_of(image: &[u8], kind: u8) -> usize {
    (2..=image.len() / PAGE).find(|&number| image[page(number)][0] == kind).unwrap()
}

fn put(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn trees() -> Vec<Case> {
    vec![
        bent("an inner page that is its own child", BROKEN, |image| {
            let inner = first_of(image, 5);
            let right = page(inner).start + 8;
            put(image, right, u32::try_from(inner).unwrap());
        }),
        bent("an inner page whose child is page 0", BROKEN, |image| {
            let at = page(first_of(image, 5)).start + 8;
            put(image, at, 0);
        }),
        bent("an inner page whose child is far away", BROKEN, |image| {
            let at = page(first_of(image, 5)).start + 8;
            put(image, at, u32::MAX);
        }),
        bent("a leaf with 65,535 cells", BROKEN, |image| {
            let at = page(first_of(image, 13)).start + 3;
            image[at..at + 2].fill(0xff);
        }),
        bent("a leaf whose cells all start at one place", BROKEN, |image| {
            let at = page(first_of(image, 13)).start + 8;
            for cell in 1..40 {
                image.copy_within(at..at + 2, at + cell * 2);
            }
        }),
        bent("a leaf whose cells are endless numbers", BROKEN, |image| {
            let range = page(first_of(image, 13));
            image[range.end - 2000..range.end].fill(0xff);
        }),
        bent("an index page in a table's place", BROKEN, |image| {
            let at = page(first_of(image, 13)).start;
            image[at] = 10;
        }),
        bent("a page of no kind", BROKEN, |image| {
            let at = page(first_of(image, 13)).start;
            image[at] = 77;
        }),
    ]
}

fn freelists() -> Vec<Case> {
    let trunk = |image: &[u8]| u32::from_be_bytes(image[32..36].try_into().unwrap()) as usize;
    vec![
        bent("a freelist that goes round", BROKEN, |image| {
            let first = trunk(image);
            put(image, page(first).start, u32::try_from(first).unwrap());
        }),
        bent("a freelist of the tree's own pages", BROKEN, |image| {
            let at = page(trunk(image)).start + 8;
            put(image, at, 2);
        }),
        bent("a freelist that counts four thousand million", BROKEN, |image| {
            put(image, 36, u32::MAX);
        }),
        bent("a trunk with more leaves than room", BROKEN, |image| {
            let at = page(trunk(image)).start + 4;
            put(image, at, u32::MAX);
        }),
    ]
}

fn headers() -> Vec<Case> {
    vec![
        bent("a schema of another format", BROKEN, |image| put(image, 44, 99)),
        bent("text of no encoding", BROKEN_OR_DONE, |image| put(image, 56, 9)),
        bent("a file that needs a newer writer", BROKEN_OR_DONE, |image| image[18] = 9),
        bent("a file that needs a newer reader", BROKEN, |image| image[19] = 9),
        bent("payload fractions that are not", BROKEN, |image| image[21] = 1),
        bent("reserved space of a whole page", BROKEN, |image| image[20] = 255),
        bent("a vacuum map that is not there", BROKEN, |image| put(image, 52, 7)),
    ]
}

/// Bytes thrown at random places of the trees, by a fixed seed.
fn noise() -> Vec<Case> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut cases = Vec::new();
    for _ in 0..24 {
        cases.push(bent(
            "noise",
            &[Outcome::CheckFailed, Outcome::Done, Outcome::SqlError],
            |image| {
                for _ in 0..12 {
                    let at = PAGE + next(image.len() - PAGE);
                    image[at] = u8::try_from(next(256)).unwrap();
                }
            },
        ));
    }
    cases
}
