//! What a header may ask for, and what it gets: never more than the protocol's own limits.

use std::time::Duration;

use carlos_dbquery::HEAP_BYTES;
use carlos_dbquery::Limits;
use carlos_protocol::frames::Header;
use carlos_protocol::limits;
use carlos_replica::PlannedFile;

/// A header that does not hold, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadHeader(pub(super) &'static str);

/// One read's bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Bytes of the restored database.
    pub(super) restored_bytes: u64,
    /// Receiving, restoring and the integrity check.
    pub(super) restore_time: Duration,
    /// The query. Temporary tables and sorts live in SQLite's heap and count there.
    pub(super) query: Limits,
}

impl Bounds {
    /// Reads the bounds of `header`, clamped to the protocol's and to `max_bytes`.
    ///
    /// # Errors
    /// [`BadHeader`] when a bound is zero: nothing could be answered under it.
    pub(super) fn of(header: &Header, max_bytes: u64) -> Result<Self, BadHeader> {
        let asked = header.limits;
        let parts = [
            asked.restored_bytes,
            asked.output_bytes,
            asked.restore_ms,
            asked.query_ms,
            asked.heap_bytes,
        ];
        if parts.contains(&0) {
            return Err(BadHeader("a limit of zero"));
        }
        Ok(Self {
            restored_bytes: asked.restored_bytes.min(max_bytes),
            restore_time: Duration::from_millis(asked.restore_ms).min(limits::RESTORE_TIME),
            query: Limits {
                output: asked.output_bytes.min(limits::OUTPUT_BYTES),
                time: Duration::from_millis(asked.query_ms).min(limits::QUERY_TIME),
                heap: asked.heap_bytes.min(HEAP_BYTES),
            },
        })
    }
}

/// The planned files as the restore engine takes them.
///
/// # Errors
/// [`BadHeader`] for no file, an empty one, a name that no replica has, a sum that is no number,
/// or a plan that does not end at the target.
pub(super) fn files(header: &Header) -> Result<Vec<PlannedFile>, BadHeader> {
    if header.total_bytes().is_none() {
        return Err(BadHeader("the files' sizes have no sum"));
    }
    let planned = header.files.iter().map(|file| {
        let named = PlannedFile::from_name(file.level, &file.name, file.size);
        let named = named.ok_or(BadHeader("a file that no replica has"))?;
        if file.size == 0 { Err(BadHeader("an empty file")) } else { Ok(named) }
    });
    let planned = planned.collect::<Result<Vec<_>, _>>()?;
    let last = planned.last().ok_or(BadHeader("no files"))?;
    if last.range.max().0 != header.target.0 {
        return Err(BadHeader("the last file does not end at the target"));
    }
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use carlos_protocol::frames;
    use carlos_protocol::frames::WorkerLimits;
    use carlos_protocol::ids::Txid;

    use super::*;

    fn header() -> Header {
        let limits = WorkerLimits {
            restored_bytes: u64::MAX,
            output_bytes: u64::MAX,
            restore_ms: u64::MAX,
            query_ms: u64::MAX,
            heap_bytes: u64::MAX,
        };
        let name = "0000000000000001-0000000000000007.ltx".to_owned();
        let file = frames::PlannedFile { level: 9, name, size: 100 };
        Header { files: vec![file], target: Txid(7), limits }
    }

    #[test]
    fn a_header_gets_at_most_the_protocols_limits() {
        let bounds = Bounds::of(&header(), 4096).unwrap();
        assert_eq!(bounds.restored_bytes, 4096);
        assert_eq!(bounds.restore_time, limits::RESTORE_TIME);
        assert_eq!(bounds.query, Limits::default());
    }

    #[test]
    fn a_header_may_ask_for_less() {
        let mut header = header();
        header.limits.heap_bytes = 1 << 20;
        assert_eq!(Bounds::of(&header, 4096).unwrap().query.heap, 1 << 20);
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        let mut header = header();
        header.limits.query_ms = 0;
        assert_eq!(Bounds::of(&header, 4096), Err(BadHeader("a limit of zero")));
    }

    #[test]
    fn a_plan_that_does_not_hold_is_refused() {
        type Break = fn(&mut Header);
        let broken: [(Break, &str); 6] = [
            (|h| h.files.clear(), "no files"),
            (|h| h.files[0].size = 0, "an empty file"),
            (|h| h.files[0].name = "../../etc/passwd".to_owned(), "a file that no replica has"),
            (|h| h.files[0].level = 10, "a file that no replica has"),
            (|h| h.target = Txid(8), "the last file does not end at the target"),
            (
                |h| {
                    h.files[0].size = u64::MAX;
                    h.files.push(h.files[0].clone());
                },
                "the files' sizes have no sum",
            ),
        ];
        assert_eq!(files(&header()).unwrap().len(), 1);
        for (break_it, what) in broken {
            let mut header = header();
            break_it(&mut header);
            assert_eq!(files(&header), Err(BadHeader(what)));
        }
    }
}
