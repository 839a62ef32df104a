//! The restore engine on made-up files: what it accepts, what it refuses, what it leaves behind.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use carlos_ltx::{CHECKSUM_FLAG, DatabaseChecksum, Encoder, Encoding, Header, LtxError};
use carlos_replica::{PlannedFile, Restore, RestoreError, RestoreOptions, Restored, Target};
use carlos_replica::{Txid, TxidRange};
use common::{Fixture, OPTIONS, sha256};
use tempfile::TempDir;

const PAGE: usize = 512;

/// A page with a recognisable content; page 1 is a SQLite header for `commit` pages.
fn page(number: u32, version: u8, commit: u32) -> Vec<u8> {
    let mut page = vec![version; PAGE];
    page[100..104].copy_from_slice(&number.to_be_bytes());
    if number == 1 {
        page[..16].copy_from_slice(b"SQLite format 3\0");
        page[16..18].copy_from_slice(&(PAGE as u16).to_be_bytes());
        page[28..32].copy_from_slice(&commit.to_be_bytes());
    }
    page
}

#[derive(Clone)]
struct File {
    planned: PlannedFile,
    bytes: Vec<u8>,
}

/// A file of the transactions `min..=max`, with page 1 and `pages`, filled with `max`.
fn file(min: u64, max: u64, commit: u32, pages: impl IntoIterator<Item = u32>) -> File {
    let range = TxidRange::new(Txid(min), Txid(max)).unwrap();
    encode(Header::new(PAGE as u32, commit, range, 7), 0, pages)
}

fn encode(header: Header, post: u64, pages: impl IntoIterator<Item = u32>) -> File {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(header, Encoding::Block, &mut bytes).unwrap();
    let version = header.range.max().0 as u8;
    for number in std::iter::once(1).chain(pages) {
        encoder.page(number, &page(number, version, header.commit), &mut bytes).unwrap();
    }
    encoder.finish(post, &mut bytes).unwrap();
    let size = bytes.len() as u64;
    File { planned: PlannedFile { level: 0, range: header.range, size }, bytes }
}

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out.db")
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.dir.path()).unwrap().next().is_none()
    }

    fn apply(&self, files: &[File], options: RestoreOptions) -> Result<Restored, RestoreError> {
        let planned = files.iter().map(|file| file.planned).collect();
        let mut restore = Restore::create(&self.out(), planned, options)?;
        let bytes: Vec<u8> = files.iter().flat_map(|file| file.bytes.clone()).collect();
        // Pieces cross pages and files.
        for piece in bytes.chunks(1000) {
            restore.feed(piece)?;
        }
        restore.finish()
    }

    fn refusal(&self, files: &[File]) -> RestoreError {
        let refusal = self.apply(files, OPTIONS).unwrap_err();
        assert!(self.is_empty(), "nothing may be left: {refusal}");
        refusal
    }
}

#[test]
fn real_files_of_both_encodings_are_applied_in_pieces_of_any_size() {
    for name in ["written-by-0.5.14", "mixed-writers", "page-65536"] {
        let fixture = Fixture::load(name);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let plan = runtime.block_on(fixture.plan(Target::Newest)).unwrap();
        let read = |file: &PlannedFile| {
            let level = fixture.replica_dir().join(format!("ltx/{}", file.level));
            std::fs::read(level.join(file.name())).unwrap()
        };
        let bytes: Vec<u8> = plan.planned().iter().flat_map(read).collect();
        for piece in [1, 7, 4096, bytes.len()] {
            let out = fixture.dir.path().join(format!("{piece}.db"));
            let mut restore = Restore::create(&out, plan.planned(), OPTIONS).unwrap();
            bytes.chunks(piece).for_each(|piece| restore.feed(piece).unwrap());
            restore.finish().unwrap();
            let expected = fixture.expected["newest"]["file_sha256"].as_str();
            assert_eq!(Some(&*sha256(&out)), expected, "{name} in pieces of {piece}");
        }
    }
}

#[test]
fn later_files_win_page_by_page_and_ranges_may_overlap() {
    let bench = Bench::new();
    let files = [file(1, 3, 4, 2..=4), file(2, 5, 5, [3, 5]), file(6, 6, 5, [2])];
    let restored = bench.apply(&files, OPTIONS).unwrap();
    assert_eq!((restored.txid, restored.pages, restored.bytes), (Txid(6), 5, 2560));
    let bytes = std::fs::read(bench.out()).unwrap();
    let versions: Vec<_> = bytes.chunks(PAGE).map(|page| page[200]).collect();
    assert_eq!(versions, [6, 6, 5, 3, 5]);
}

#[test]
fn a_missing_page_is_an_error_and_not_zeros() {
    let bench = Bench::new();
    let files = [file(1, 1, 2, [2]), file(2, 2, 4, [4])];
    assert!(matches!(bench.refusal(&files), RestoreError::Hole { page: 3 }));
}

#[test]
fn a_page_from_before_a_shrink_does_not_come_back() {
    let bench = Bench::new();
    let grown =
        |pages: Vec<u32>| [file(1, 1, 100, 2..=100), file(2, 2, 20, []), file(3, 3, 110, pages)];
    let stale = grown((21..=110).filter(|page| *page != 50).collect());
    assert!(matches!(bench.refusal(&stale), RestoreError::Hole { page: 50 }));
    assert_eq!(bench.apply(&grown((21..=110).collect()), OPTIONS).unwrap().pages, 110);
}

#[test]
fn a_hole_that_a_later_file_fills_or_cuts_off_does_not_matter() {
    let filled = [file(1, 1, 2, [2]), file(2, 2, 4, [4]), file(3, 3, 4, [3])];
    assert!(Bench::new().apply(&filled, OPTIONS).is_ok());
    let cut = [file(1, 1, 2, [2]), file(2, 2, 4, [4]), file(3, 3, 2, [])];
    let bench = Bench::new();
    assert_eq!(bench.apply(&cut, OPTIONS).unwrap().bytes, 1024);
    assert_eq!(std::fs::metadata(bench.out()).unwrap().len(), 1024);
}

#[test]
fn a_database_over_the_limit_is_refused_from_the_header() {
    let bench = Bench::new();
    let files = [file(1, 1, 2, [2]), file(2, 2, 2000, [])];
    let options = RestoreOptions { max_bytes: 2 * 512, ..OPTIONS };
    let refusal = bench.apply(&[file(1, 1, 4, [2, 3, 4])], options).unwrap_err();
    assert!(matches!(refusal, RestoreError::TooLarge { bytes: 2048, limit: 1024, .. }));
    // A count that no files of this size could hold is damage. Within the limit it shows as a hole.
    let refusal = bench.apply(&files, options).unwrap_err();
    assert!(matches!(refusal, RestoreError::PageCount { pages: 2000, .. }), "{refusal}");
    let refusal = bench.apply(&files, OPTIONS).unwrap_err();
    assert!(matches!(refusal, RestoreError::Hole { page: 3 }), "{refusal}");
    // A header alone is enough, and 16 TiB are not tried.
    let range = TxidRange::new(Txid(1), Txid(1)).unwrap();
    let header = Header::new(65_536, u32::MAX, range, 0).encode();
    let planned = PlannedFile { level: 9, range, size: 1000 };
    let mut restore = Restore::create(&bench.out(), vec![planned], OPTIONS).unwrap();
    let refusal = restore.feed(&header).unwrap_err();
    assert!(matches!(refusal, RestoreError::PageCount { pages: u32::MAX, .. }), "{refusal}");
    assert!(matches!(restore.feed(&[0]), Err(RestoreError::AlreadyFailed)));
    drop(restore);
    assert!(bench.is_empty());
}

#[test]
fn headers_must_be_the_planned_files() {
    let bench = Bench::new();
    let first = file(1, 1, 2, [2]);
    let mut renamed = file(2, 2, 2, [2]);
    renamed.planned.range = TxidRange::new(Txid(2), Txid(3)).unwrap();
    let refusal = bench.refusal(&[first.clone(), renamed]);
    assert!(matches!(refusal, RestoreError::NameDiffers { .. }));
    let beyond = bench.refusal(&[first.clone(), file(3, 3, 2, [])]);
    assert!(matches!(beyond, RestoreError::NotInSequence { reached: Txid(1), .. }));
    let within = bench.refusal(&[file(1, 4, 2, [2]), file(3, 4, 2, [])]);
    assert!(matches!(within, RestoreError::NotInSequence { reached: Txid(4), .. }));
    let not_first = bench.refusal(&[file(2, 2, 2, [2])]);
    assert!(matches!(not_first, RestoreError::NotInSequence { reached: Txid::NONE, .. }));
}

#[test]
fn other_page_sizes_and_deletions_are_refused() {
    let bench = Bench::new();
    let first = file(1, 1, 2, [2]);
    let range = TxidRange::new(Txid(2), Txid(2)).unwrap();
    let mut other = file(2, 2, 2, []);
    other.bytes[..100].copy_from_slice(&Header::new(1024, 2, range, 0).encode());
    let refusal = bench.refusal(&[first.clone(), other.clone()]);
    assert!(matches!(refusal, RestoreError::PageSizeDiffers { page_size: 1024, .. }));
    other.bytes[..100].copy_from_slice(&Header::new(512, 0, range, 0).encode());
    assert!(matches!(bench.refusal(&[first, other]), RestoreError::ZeroCommit { .. }));
}

#[test]
fn what_is_no_sqlite_database_is_refused() {
    let bench = Bench::new();
    let range = TxidRange::new(Txid(1), Txid(1)).unwrap();
    let mut bytes = Vec::new();
    let header = Header::new(PAGE as u32, 1, range, 0);
    let mut encoder = Encoder::new(header, Encoding::Block, &mut bytes).unwrap();
    encoder.page(1, &page(1, 0, 2), &mut bytes).unwrap();
    encoder.finish(0, &mut bytes).unwrap();
    let planned = PlannedFile { level: 0, range, size: bytes.len() as u64 };
    let refusal = bench.refusal(&[File { planned, bytes }]);
    assert!(matches!(refusal, RestoreError::PageOne(_)), "{refusal}");
}

#[test]
fn too_few_and_too_many_bytes_are_refused() {
    let bench = Bench::new();
    let only = file(1, 1, 2, [2]);
    let planned = vec![only.planned];
    let mut restore = Restore::create(&bench.out(), planned.clone(), OPTIONS).unwrap();
    restore.feed(&only.bytes[..only.bytes.len() - 3]).unwrap();
    assert_eq!(restore.missing_in_file(), 3);
    assert!(matches!(restore.finish(), Err(RestoreError::Unfinished { missing: 3, .. })));
    let mut restore = Restore::create(&bench.out(), planned, OPTIONS).unwrap();
    restore.feed(&only.bytes).unwrap();
    assert!(matches!(restore.feed(&[0]), Err(RestoreError::TooManyBytes)));
    assert!(matches!(restore.finish(), Err(RestoreError::AlreadyFailed)));
    // A planned size that cuts the file, and one that the file does not fill.
    let mut short = only.clone();
    short.planned.size -= 1;
    assert!(matches!(
        bench.refusal(&[short]),
        RestoreError::Damaged { cause: LtxError::Truncated { .. }, .. }
    ));
    assert!(matches!(bench.refusal(&[]), RestoreError::NothingPlanned));
}

#[test]
fn an_existing_file_is_never_touched() {
    let bench = Bench::new();
    std::fs::write(bench.out(), b"mine").unwrap();
    let refusal = bench.apply(&[file(1, 1, 2, [2])], OPTIONS).unwrap_err();
    assert!(matches!(refusal, RestoreError::OutputExists { .. }));
    assert_eq!(std::fs::read(bench.out()).unwrap(), b"mine");
}

#[test]
fn a_killed_restores_leftover_does_not_block_the_next() {
    let bench = Bench::new();
    let files = [file(1, 1, 2, [2])];
    let planned = vec![files[0].planned];
    std::mem::forget(Restore::create(&bench.out(), planned, OPTIONS).unwrap());
    let durable = RestoreOptions { durable: true, ..OPTIONS };
    assert!(bench.apply(&files, durable).is_ok());
    assert!(bench.out().exists());
}

/// Three files that track database checksums, the last with `last_post` or the right value.
fn tracked(last_post: Option<u64>, middle_pre: Option<u64>) -> Vec<File> {
    let state = |pages: &[(u32, u8, u32)]| {
        let mut sum = DatabaseChecksum::default();
        pages.iter().for_each(|(n, version, commit)| sum.toggle(*n, &page(*n, *version, *commit)));
        sum.value()
    };
    let posts = [
        state(&[(1, 1, 2), (2, 1, 2)]),
        state(&[(1, 2, 3), (2, 1, 2), (3, 2, 3)]),
        state(&[(1, 3, 2), (2, 3, 2)]),
    ];
    let header = |txid: u64, commit, pre_apply| {
        let range = TxidRange::new(Txid(txid), Txid(txid)).unwrap();
        Header { flags: 0, pre_apply, ..Header::new(PAGE as u32, commit, range, 0) }
    };
    vec![
        encode(header(1, 2, 0), posts[0], [2]),
        encode(header(2, 3, middle_pre.unwrap_or(posts[0])), posts[1], [3]),
        encode(header(3, 2, posts[1]), last_post.unwrap_or(posts[2]), [2]),
    ]
}

#[test]
fn database_checksums_are_followed_from_file_to_file_and_at_the_end() {
    let bench = Bench::new();
    let chain = bench.refusal(&tracked(None, Some(CHECKSUM_FLAG | 5)));
    assert!(matches!(chain, RestoreError::ChecksumChain { .. }));
    let end = bench.refusal(&tracked(Some(CHECKSUM_FLAG | 5), None));
    assert!(matches!(end, RestoreError::DatabaseChecksum { .. }));
    assert_eq!(bench.apply(&tracked(None, None), OPTIONS).unwrap().pages, 2);
}

#[test]
fn a_restore_into_an_open_file_keeps_its_name_and_empties_it_when_it_fails() {
    let bench = Bench::new();
    let files = [file(1, 1, 2, [2]), file(2, 2, 3, [3])];
    let planned: Vec<_> = files.iter().map(|file| file.planned).collect();
    let open = || {
        std::fs::write(bench.out(), b"what lay there before, longer than a header").unwrap();
        std::fs::File::options().read(true).write(true).open(bench.out()).unwrap()
    };
    let mut restore = Restore::into_file(open(), planned.clone(), OPTIONS).unwrap();
    files.iter().for_each(|file| restore.feed(&file.bytes).unwrap());
    restore.finish().unwrap();
    let restored = std::fs::read(bench.out()).unwrap();
    assert_eq!(restored, [page(1, 2, 3), page(2, 1, 2), page(3, 2, 3)].concat());
    let mut broken = Restore::into_file(open(), planned, OPTIONS).unwrap();
    broken.feed(&files[0].bytes).unwrap();
    drop(broken);
    assert_eq!(std::fs::read(bench.out()).unwrap(), b"");
}
