//! The worker's output into chunks (db-forward §5.4, §5.5 step 5, §5.6).

use std::time::Duration;

use carlos_protocol::frames::{Frame, Outcome, Status};
use carlos_protocol::result::Code;

use super::Read;
use super::chunker::{Chunker, Totals};
use super::chunks::Chunks;
use super::ending::Ending;
use crate::crash::CrashPoint;
use crate::worker::talk::{Talk, TalkError};

impl Read<'_> {
    /// Takes the worker's output to its end. Every chunk is confirmed when this returns `Ok`.
    pub(super) async fn stream(&self, mut talk: Talk) -> Result<(), Ending> {
        let mut chunks = Chunks::new(
            &self.agent.ports.bucket,
            self.request.id,
            &self.request.reply_key,
            &self.progress,
        );
        let mut chunker = Chunker::new();
        let status = self.pump(&mut talk, &mut chunker, &mut chunks).await?;
        if status.outcome != Outcome::Done {
            return Err(self.worker_ended(&status));
        }
        let (last, totals) = chunker.finish();
        self.note_totals(&status, totals)?;
        chunks.put(&last, true);
        while chunks.is_waiting() {
            self.passed(chunks.next_confirmed().await?).await;
        }
        Ok(())
    }

    async fn passed(&self, seq: Option<u64>) {
        if let Some(seq) = seq {
            self.reached(CrashPoint::ChunkConfirmed(seq)).await;
        }
    }

    async fn pump(
        &self,
        talk: &mut Talk,
        chunker: &mut Chunker,
        chunks: &mut Chunks<'_>,
    ) -> Result<Status, Ending> {
        loop {
            let room = chunks.has_room();
            let due = chunker.due().filter(|_| chunks.may_be_partial());
            tokio::select! {
                biased;
                seq = chunks.next_confirmed(), if chunks.is_waiting() => {
                    self.passed(seq?).await;
                }
                () = self.sleep_until(due), if room && due.is_some() => {
                    if let Some(rows) = chunker.take() {
                        chunks.put(&rows, false);
                    }
                }
                frame = talk.listener.next(), if room => match frame {
                    Ok(Frame::Output(bytes)) => self.cut(chunker, chunks, &bytes)?,
                    Ok(Frame::Status(status)) => return Ok(status),
                    Ok(_) => return Err(self.lost(&TalkError::OutOfTurn)),
                    Err(error) => return Err(self.lost(&error)),
                },
            }
        }
    }

    fn cut(
        &self,
        chunker: &mut Chunker,
        chunks: &mut Chunks<'_>,
        bytes: &[u8],
    ) -> Result<(), Ending> {
        let full = chunker.push(self.ctx().monotonic(), bytes);
        for rows in full.map_err(|_| Ending::failed(Code::OutputCap))? {
            chunks.put(&rows, false);
        }
        Ok(())
    }

    /// What the agent counted must be what the worker says it wrote.
    fn note_totals(&self, status: &Status, totals: Totals) -> Result<(), Ending> {
        if status.bytes != totals.bytes || status.sha256 != totals.sha256 {
            tracing::error!(id = %self.request.id, "a worker's totals are not those of its output");
            return Err(Ending::interrupted());
        }
        let mut summary = self.progress.summary();
        (summary.rows, summary.bytes) = (status.rows, totals.bytes);
        summary.sha256.0 = Some(totals.sha256);
        Ok(())
    }

    async fn sleep_until(&self, due: Option<Duration>) {
        let due = due.unwrap_or_default();
        self.ctx().sleep(due.saturating_sub(self.ctx().monotonic())).await;
    }
}
