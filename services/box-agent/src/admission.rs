//! What this box may take on: two reads, one probe, and the disk they may fill (db-forward §5.7).
//!
//! Every count and every reservation lives in one table under one mutex. A guard gives its share
//! back when it is dropped, and its owner drops it only when its worker has stopped (J5).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use carlos_protocol::limits::DISK_FLOOR_BYTES;
use thiserror::Error;

use crate::disk::DiskSpace;
use crate::worker::WorkerHost;

/// How much disk admission keeps out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFloors {
    /// Bytes reserved for a read before its plan is known.
    pub reserve: u64,
    /// Bytes that stay free once every reservation is used up.
    pub keep_bytes: u64,
    /// Percent of the file system that stays free as well, 0 to 100.
    pub keep_percent: u8,
}

impl DiskFloors {
    /// The specification's numbers: 5 GiB reserved, 5 GiB and 10 % kept free (db-forward §5.7).
    pub const PRODUCTION: Self =
        Self { reserve: DISK_FLOOR_BYTES, keep_bytes: DISK_FLOOR_BYTES, keep_percent: 10 };

    /// A developer's laptop: small copies, and a disk that may be nearly full.
    pub const DEVELOPMENT: Self = Self { reserve: 64 << 20, keep_bytes: 64 << 20, keep_percent: 0 };
}

/// Why a read or a probe may not start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum NotAdmitted {
    #[error("every read slot is taken")]
    Busy,
    #[error("a worker this agent did not start is still running")]
    Orphans,
    #[error("the number of running workers cannot be told")]
    Unknown,
    #[error("the disk would not keep its floor")]
    NoRoom,
}

/// The table of slots, workers and reservations. One per agent.
pub(crate) struct Admission {
    slots: usize,
    floors: DiskFloors,
    disk: Arc<dyn DiskSpace>,
    table: Mutex<Table>,
    /// The last count failed, and that was said.
    uncounted: AtomicBool,
}

/// The workers that run on this box, against this agent's own. Taken just before what it admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// `None`: nobody can tell, which is never "none" (db-forward §5.7).
    running: Option<usize>,
    /// Own workers when the count began. One that began since may not be in it.
    own: usize,
}

#[derive(Default)]
struct Table {
    reads: usize,
    probing: bool,
    workers: usize,
    next_key: u64,
    reserved: BTreeMap<u64, u64>,
}

impl Admission {
    pub(crate) fn new(slots: usize, floors: DiskFloors, disk: Arc<dyn DiskSpace>) -> Arc<Self> {
        let (table, uncounted) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { slots, floors, disk, table, uncounted })
    }

    /// Counts the workers that run on this box, whoever started them.
    pub(crate) async fn count(&self, host: &dyn WorkerHost) -> Count {
        let own = self.table().workers;
        let counted = host.running().await;
        let failed = counted.is_err();
        let said = self.uncounted.swap(failed, Ordering::Relaxed);
        match &counted {
            Err(error) if !said => {
                tracing::warn!(%error, "no read and no probe until workers can be counted");
            }
            Ok(_) if said => tracing::info!("workers can be counted again"),
            _ => {}
        }
        Count { running: counted.ok(), own }
    }

    /// Takes a read slot and the floor reservation.
    pub(crate) fn admit_read(
        self: &Arc<Self>,
        count: Count,
    ) -> Result<(ReadSlot, Reservation), NotAdmitted> {
        let mut table = self.table();
        if table.reads >= self.slots {
            return Err(NotAdmitted::Busy);
        }
        table.refuse_orphans(count)?;
        let key = self.reserve(&mut table)?;
        table.reads += 1;
        drop(table);
        Ok((ReadSlot(self.clone()), Reservation { admission: self.clone(), key }))
    }

    /// Takes the one probe's place. A probe writes nothing, so it reserves no disk.
    pub(crate) fn admit_probe(self: &Arc<Self>, count: Count) -> Result<ProbeSlot, NotAdmitted> {
        let mut table = self.table();
        if table.probing {
            return Err(NotAdmitted::Busy);
        }
        table.refuse_orphans(count)?;
        table.probing = true;
        drop(table);
        Ok(ProbeSlot(self.clone()))
    }

    /// A second attempt's own reservation, from the floor (db-forward §5.7, plan review 10).
    pub(crate) fn reserve_again(
        self: &Arc<Self>,
        count: Count,
    ) -> Result<Reservation, NotAdmitted> {
        let mut table = self.table();
        table.refuse_orphans(count)?;
        let key = self.reserve(&mut table)?;
        drop(table);
        Ok(Reservation { admission: self.clone(), key })
    }

    /// Counts a worker as this agent's own, from before it starts until it has stopped.
    pub(crate) fn own_worker(self: &Arc<Self>) -> OwnWorker {
        self.table().workers += 1;
        OwnWorker(self.clone())
    }

    /// Reads that hold a slot now.
    pub(crate) fn held(&self) -> usize {
        self.table().reads
    }

    /// Whether a read slot is free. A hint that saves requests: `admit_read` decides.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.table().reads < self.slots
    }

    fn reserve(&self, table: &mut Table) -> Result<u64, NotAdmitted> {
        let key = table.next_key;
        if !self.fits(table, key, self.floors.reserve) {
            return Err(NotAdmitted::NoRoom);
        }
        table.next_key += 1;
        table.reserved.insert(key, self.floors.reserve);
        Ok(key)
    }

    // An unreadable file system has no room: it cannot show that it keeps its floor.
    fn fits(&self, table: &Table, key: u64, bytes: u64) -> bool {
        let Ok(space) = self.disk.space() else { return false };
        let others = table.reserved.iter().filter(|(other, _)| **other != key);
        let others = others.fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let percent = u128::from(space.total) * u128::from(self.floors.keep_percent) / 100;
        let keep = u128::from(self.floors.keep_bytes).max(percent);
        u128::from(space.free) >= keep + u128::from(others) + u128::from(bytes)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nothing panics while it holds the admission table")
    }
}

impl Table {
    // A worker nobody here started holds scratch of unknown size, so nothing starts beside it.
    fn refuse_orphans(&self, count: Count) -> Result<(), NotAdmitted> {
        match count.running {
            None => Err(NotAdmitted::Unknown),
            Some(running) if running > count.own.min(self.workers) => Err(NotAdmitted::Orphans),
            Some(_) => Ok(()),
        }
    }
}

/// One of the box's read slots.
pub(crate) struct ReadSlot(Arc<Admission>);

impl Drop for ReadSlot {
    fn drop(&mut self) {
        self.0.table().reads -= 1;
    }
}

/// The place of the one probe.
pub(crate) struct ProbeSlot(Arc<Admission>);

impl Drop for ProbeSlot {
    fn drop(&mut self) {
        self.0.table().probing = false;
    }
}

/// A worker this agent answers for.
pub(crate) struct OwnWorker(Arc<Admission>);

impl Drop for OwnWorker {
    fn drop(&mut self) {
        self.0.table().workers -= 1;
    }
}

/// Disk set aside for one attempt of one read.
pub(crate) struct Reservation {
    admission: Arc<Admission>,
    key: u64,
}

impl Reservation {
    /// Grows to `bytes`, never below what is already reserved.
    pub(crate) fn grow(&self, bytes: u64) -> Result<(), NotAdmitted> {
        let mut table = self.admission.table();
        let held = table.reserved.get(&self.key).copied().unwrap_or_default();
        let wanted = bytes.max(held);
        if !self.admission.fits(&table, self.key, wanted) {
            return Err(NotAdmitted::NoRoom);
        }
        table.reserved.insert(self.key, wanted);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.admission.table().reserved.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicU64;

    use carlos_protocol::limits::READS_PER_BOX;

    use super::*;
    use crate::disk::Space;

    struct FixedDisk {
        free: AtomicU64,
        total: u64,
    }

    impl DiskSpace for FixedDisk {
        fn space(&self) -> io::Result<Space> {
            Ok(Space { free: self.free.load(Ordering::Relaxed), total: self.total })
        }
    }

    struct BrokenDisk;

    impl DiskSpace for BrokenDisk {
        fn space(&self) -> io::Result<Space> {
            Err(io::Error::other("no such file system"))
        }
    }

    const FLOORS: DiskFloors = DiskFloors { reserve: 10, keep_bytes: 20, keep_percent: 10 };

    fn table(free: u64, total: u64) -> Arc<Admission> {
        Admission::new(READS_PER_BOX, FLOORS, Arc::new(FixedDisk { free: free.into(), total }))
    }

    fn count(running: usize, own: usize) -> Count {
        Count { running: Some(running), own }
    }

    #[test]
    fn two_reads_and_one_probe_run_side_by_side() {
        let admission = table(1_000, 1_000);
        let first = admission.admit_read(count(0, 0)).expect("the first read fits");
        let _second = admission.admit_read(count(0, 0)).expect("the second read fits");
        assert_eq!(admission.admit_read(count(0, 0)).err(), Some(NotAdmitted::Busy));
        let probe = admission.admit_probe(count(0, 0)).expect("a busy box still probes");
        assert_eq!(admission.admit_probe(count(0, 0)).err(), Some(NotAdmitted::Busy));
        drop((first, probe));
        assert!(admission.admit_read(count(0, 0)).is_ok());
        assert!(admission.admit_probe(count(0, 0)).is_ok());
    }

    #[test]
    fn t12_a_worker_nobody_here_started_blocks_reads_probes_and_retries() {
        let admission = table(1_000, 1_000);
        let own = admission.own_worker();
        assert!(admission.admit_read(count(1, 1)).is_ok());
        assert_eq!(admission.admit_read(count(2, 1)).err(), Some(NotAdmitted::Orphans));
        assert_eq!(admission.admit_probe(count(2, 1)).err(), Some(NotAdmitted::Orphans));
        assert_eq!(admission.reserve_again(count(2, 1)).err(), Some(NotAdmitted::Orphans));
        // The own worker began after the count: what was counted is another.
        assert_eq!(admission.admit_read(count(1, 0)).err(), Some(NotAdmitted::Orphans));
        drop(own);
        assert_eq!(admission.admit_read(count(1, 1)).err(), Some(NotAdmitted::Orphans));
        let unknown = Count { running: None, own: 0 };
        assert_eq!(admission.admit_read(unknown).err(), Some(NotAdmitted::Unknown));
    }

    #[test]
    fn t12_a_read_grows_only_into_what_the_others_and_the_floor_leave() {
        let admission = table(100, 100);
        let (_slot, first) = admission.admit_read(count(0, 0)).expect("10 + 20 of 100");
        let (_other, second) = admission.admit_read(count(0, 0)).expect("20 + 20 of 100");
        assert_eq!(first.grow(70), Ok(()));
        assert_eq!(second.grow(11), Err(NotAdmitted::NoRoom));
        drop(first);
        assert_eq!(second.grow(80), Ok(()));
        assert_eq!(second.grow(81), Err(NotAdmitted::NoRoom));
    }

    #[test]
    fn t12_a_reservation_never_shrinks() {
        let admission = table(100, 100);
        let (_slot, first) = admission.admit_read(count(0, 0)).expect("fits");
        first.grow(60).expect("60 + 20 of 100");
        first.grow(1).expect("still 60");
        let (_other, second) = admission.admit_read(count(0, 0)).expect("10 + 60 + 20 of 100");
        assert_eq!(second.grow(21), Err(NotAdmitted::NoRoom));
        assert_eq!(second.grow(20), Ok(()));
    }

    #[test]
    fn t12_the_kept_share_is_the_larger_of_bytes_and_percent() {
        assert!(table(30, 200).admit_read(count(0, 0)).is_ok());
        assert_eq!(table(30, 210).admit_read(count(0, 0)).err(), Some(NotAdmitted::NoRoom));
        assert_eq!(table(29, 100).admit_read(count(0, 0)).err(), Some(NotAdmitted::NoRoom));
    }

    #[test]
    fn a_disk_that_cannot_be_measured_has_no_room() {
        let admission = Admission::new(READS_PER_BOX, FLOORS, Arc::new(BrokenDisk));
        assert_eq!(admission.admit_read(count(0, 0)).err(), Some(NotAdmitted::NoRoom));
        assert_eq!(admission.table().reads, 0);
    }

    proptest::proptest! {
        // Whatever the order of takes, growths and releases, what is reserved plus the floor
        // never exceeds what was free, and everything returns when every guard is gone.
        #[test]
        fn reservations_never_eat_the_floor(
            steps in proptest::collection::vec((0_u8..4, 0_u64..200), 1..60),
        ) {
            let admission = table(300, 400);
            let mut held: Vec<(Option<ReadSlot>, Reservation)> = Vec::new();
            for (what, size) in steps {
                match what {
                    0 => {
                        let admitted = admission.admit_read(count(0, 0)).ok();
                        held.extend(admitted.map(|(slot, room)| (Some(slot), room)));
                    }
                    1 => held.extend(admission.reserve_again(count(0, 0)).ok().map(|r| (None, r))),
                    2 => drop(held.pop()),
                    _ => {
                        let _grown = held.first().map(|(_, reservation)| reservation.grow(size));
                    }
                }
                let reserved: u64 = admission.table().reserved.values().sum();
                proptest::prop_assert!(reserved + 40 <= 300);
                proptest::prop_assert!(admission.table().reads <= READS_PER_BOX);
            }
            held.clear();
            proptest::prop_assert_eq!(admission.table().reserved.len(), 0);
            proptest::prop_assert_eq!(admission.table().reads, 0);
        }
    }
}
