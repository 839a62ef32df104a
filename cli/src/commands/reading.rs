//! One forwarded read, from the request to an answer that checked out (db-forward §5.5 steps 2
//! and 8).

use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::api::ReadBody;
use carlos_protocol::copy;
use carlos_protocol::ids::Region;
use carlos_protocol::limits::{CLIENT_TIME, PICKUP_WINDOW};
use carlos_protocol::lines::Line;
use carlos_protocol::request::OP_QUERY;
use carlos_protocol::result::{ReadResult, State};
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::At;
use reqwest::Response;

use crate::client::{Answer, Client, Lines, LinesError, OpenError, Place, Verified};
use crate::failure::Failure;
use crate::out;

/// Everything one read needs to know.
pub(crate) struct Reading<'a> {
    pub(crate) client: &'a Client,
    pub(crate) context: &'a Context,
    pub(crate) place: &'a Place,
    pub(crate) region: &'a Region,
    /// Sees each line of the response as it comes.
    pub(crate) watch: &'a (dyn Fn(&Line) + Sync),
}

impl Reading<'_> {
    /// Sends the one request and waits for all of its answer.
    ///
    /// # Errors
    /// Everything but a done and verified read, as its sentence.
    pub(crate) async fn run(&self, sql: String, at: At) -> Result<Verified, Failure> {
        let key = ReplyKey::generate(&mut Draw(self.context));
        let body = ReadBody { op: OP_QUERY.to_owned(), sql, at, reply_key: key.public() };
        let _waiting = out::Waiting::start(copy::reading(&self.place.host, self.region).as_str());
        let whole = async {
            let response = match self.client.open_read(self.place, &body).await {
                Ok(response) => response,
                Err(OpenError::Refused(failure)) => return Err(failure),
                Err(OpenError::Lost) => return Err(self.unfinished()),
            };
            let (answer, result) = self.receive(response).await?;
            self.conclude(answer, &key, &result)
        };
        match self.context.timeout(CLIENT_TIME, whole).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unfinished()),
        }
    }

    /// Collects lines up to the result. Nothing after it is read: the sealed summary inside says
    /// what the whole answer is.
    async fn receive(&self, response: Response) -> Result<(Answer, ReadResult), Failure> {
        let opened = self.context.monotonic();
        let mut lines = Lines::new(response.bytes_stream());
        let mut answer = Answer::default();
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) | Err(LinesError::Cut) => return Err(self.ended(&answer, opened)),
                Err(LinesError::Garbage) => return Err(self.bad_answer()),
            };
            (self.watch)(&line);
            match answer.take(line) {
                Ok(Some(result)) => return Ok((answer, result)),
                Ok(None) => {}
                Err(_) => return Err(self.bad_answer()),
            }
        }
    }

    fn conclude(
        &self,
        answer: Answer,
        key: &ReplyKey,
        result: &ReadResult,
    ) -> Result<Verified, Failure> {
        if result.state == State::Done {
            return answer.verify(key, result).map_err(|_| self.bad_answer());
        }
        let summary = match result.sealed.is_empty() {
            true => None,
            false => Some(answer.summary(key, result).map_err(|_| self.bad_answer())?),
        };
        let message = copy::of_result(result, summary.as_ref(), &self.place.host, self.region);
        Err(message.map_or_else(|| self.unfinished(), Failure::from))
    }

    /// A response without a result: nobody took the read, or whoever did never finished.
    fn ended(&self, answer: &Answer, opened: Duration) -> Failure {
        let waited = self.context.monotonic().saturating_sub(opened);
        if !answer.is_picked() && waited >= PICKUP_WINDOW {
            return copy::not_picked(self.region).into();
        }
        self.unfinished()
    }

    fn unfinished(&self) -> Failure {
        copy::unfinished(&self.place.host, self.region).into()
    }

    fn bad_answer(&self) -> Failure {
        copy::bad_answer(self.region).into()
    }
}

/// The process's randomness in the form the protocol asks for.
struct Draw<'a>(&'a Context);

impl carlos_protocol::Entropy for Draw<'_> {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}
