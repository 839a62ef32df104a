//! One forwarded read, from the request to an answer that checked out (db-forward §5.5 steps 2
//! and 8).

use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::api::ReadBody;
use carlos_protocol::copy;
use carlos_protocol::ids::Region;
use carlos_protocol::limits::{CLIENT_TIME, PICKUP_WINDOW};
use carlos_protocol::lines::Line;
use carlos_protocol::params::Params;
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
    pub(crate) async fn run(
        &self,
        sql: String,
        params: Params,
        at: At,
    ) -> Result<Verified, Failure> {
        let key = ReplyKey::generate(&mut Draw(self.context));
        let (op, reply_key) = (OP_QUERY.to_owned(), key.public());
        let body = ReadBody { op, sql, params, at, reply_key };
        let whole = async {
            let response = match self.client.open_read(self.place, &body).await {
                Ok(response) => response,
                Err(OpenError::Refused(failure)) => return Err(failure),
                Err(OpenError::Lost) => return Err(self.unfinished()),
            };
            let message = copy::reading(&self.place.host, self.region);
            let _waiting = out::Waiting::start(message.as_str());
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

#[cfg(test)]
mod tests {
    use carlos_protocol::ids::{Account, App, BoxName, Host, ReadId};

    use super::*;
    use crate::client::{Origin, Token};
    use crate::config::Login;
    use crate::exit::Exit;

    /// How a response ends whose lines were `lines`, `after` a time without a result.
    async fn ended(lines: Vec<Line>, after: Duration) -> Failure {
        let context = Context::simulated(1, 1_792_659_600_000);
        let origin = Origin::parse("http://127.0.0.1:1").unwrap();
        let login = Login { origin, token: Token::parse("cpt_acme_a").unwrap() };
        let client = Client::new(login, context.clone()).unwrap();
        let place = Place {
            account: Account::parse("acme").unwrap(),
            app: App::parse("shop").unwrap(),
            host: Host::parse("shop.example.com").unwrap(),
        };
        let region = Region::parse("uk").unwrap();
        let reading = Reading {
            client: &client,
            context: &context,
            place: &place,
            region: &region,
            watch: &|_| (),
        };
        let mut answer = Answer::default();
        for line in lines {
            assert_eq!(answer.take(line), Ok(None));
        }
        let opened = context.monotonic();
        context.sleep(after).await;
        reading.ended(&answer, opened)
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_nobody_took_is_told_from_one_nobody_finished() {
        let admitted = || Line::Admitted(ReadId::from_bytes([7; 16]));
        let picked = || Line::Picked(BoxName::parse("uk-1").unwrap());
        let window = PICKUP_WINDOW;
        let waited_out = ended(vec![admitted()], window).await;
        assert_eq!((waited_out.exit, waited_out.id.as_deref()), (Exit::NoServer, Some("DBF-3")));
        let cut_early = ended(vec![admitted()], window / 2).await;
        assert_eq!((cut_early.exit, cut_early.id.as_deref()), (Exit::Unfinished, Some("DBF-12")));
        let taken = ended(vec![admitted(), picked()], window * 20).await;
        assert_eq!((taken.exit, taken.id.as_deref()), (Exit::Unfinished, Some("DBF-12")));
    }
}
