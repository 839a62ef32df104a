//! What a read holds on the box: its slot, its reservation and its worker (db-forward §5.3, J5).

use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::result::Code;

use super::ending::Ending;
use crate::admission::{NotAdmitted, ReadSlot, Reservation};
use crate::worker::hold::WorkerHold;

/// How often a second attempt looks whether the box's workers are all accounted for.
const RECOUNT: Duration = Duration::from_millis(250);

/// Dropped only when the worker has stopped. The order of the fields is the order of release.
pub(crate) struct Hold {
    pub(crate) worker: WorkerHold,
    reservation: Option<Reservation>,
    _slot: ReadSlot,
}

impl Hold {
    pub(crate) fn new(worker: WorkerHold, slot: ReadSlot, reservation: Reservation) -> Self {
        Self { worker, reservation: Some(reservation), _slot: slot }
    }

    /// Grows the attempt's reservation to what its plan needs.
    pub(crate) fn grow(&self, bytes: u64) -> Result<(), Ending> {
        let grown = self.reservation.as_ref().ok_or(NotAdmitted::NoRoom);
        grown.and_then(|held| held.grow(bytes)).map_err(|_| Ending::failed(Code::NoRoom))
    }

    /// Prepares a second attempt: the first worker stops, its reservation goes with it, and a
    /// fresh one is taken once no worker is unaccounted for (db-forward §5.7, plan review 10).
    /// The caller's restore time bounds the wait.
    pub(crate) async fn start_over(&mut self, ctx: &Context) -> Result<(), Ending> {
        self.worker.stop().await;
        self.reservation = None;
        loop {
            let count = self.worker.count().await;
            match self.worker.admission().reserve_again(count) {
                Ok(reservation) => {
                    self.reservation = Some(reservation);
                    return Ok(());
                }
                Err(NotAdmitted::NoRoom) => return Err(Ending::failed(Code::NoRoom)),
                Err(_) => ctx.sleep(RECOUNT).await,
            }
        }
    }
}
