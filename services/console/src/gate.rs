//! Who may pass, in the db door's order (db-forward §5.5 step 3): a person, a member, the request
//! budget, the configuration, the record, the class rail, pooled, fleet.

use std::sync::Arc;

use crate::{console::Console, records::LookupError, refusal::Refusal};
use axum::http::{HeaderMap, header};
use carlos_protocol::{
    envelope::KeyFile,
    ids::{Account, App, Digest, Host},
    records::{HostRecord, class_refusal},
    tokens::{Token, TokenKind},
};

/// Somebody whose token checked out just now.
pub(crate) struct Person {
    /// The member's address: what counts, audit rows and requests know a person by.
    pub(crate) email: String,
    /// The account whose record holds the token; the person is a member of it.
    pub(crate) home: Account,
    /// Accounts the home record says the person may be a member of: a hint for listings.
    pub(crate) also: Vec<Account>,
    token: Digest,
}

/// An instance that this person may read, as far as the record goes.
pub(crate) struct Door {
    pub(crate) record: Arc<HostRecord>,
    signer: Option<Arc<KeyFile>>,
}

impl Door {
    /// The residency sentence when nothing is forwarded from here, DBF-10 while the instance moves.
    ///
    /// The configuration is a fact of start-up; it is answered only here because its sentence names
    /// what the record says.
    pub(crate) fn check_forwarding(&self) -> Result<Arc<KeyFile>, Refusal> {
        let Some(signer) = &self.signer else {
            return Err(Refusal::Residency(Arc::clone(&self.record)));
        };
        match self.record.moving {
            Some(_) => Err(Refusal::Moving(Arc::clone(&self.record))),
            None => Ok(Arc::clone(signer)),
        }
    }
}

impl Console {
    /// The person behind the request's token.
    pub(crate) async fn person(&self, headers: &HeaderMap) -> Result<Person, Refusal> {
        let token = bearer(headers).ok_or(Refusal::Unauthenticated)?;
        let home = token.account().clone();
        self.admit(&token)?;
        let record = self.records.account(&home).await?;
        let now = self.context().now_unix();
        let holder = record.as_ref().and_then(|record| record.holder(&token, now));
        let Some((member, known)) = holder else {
            self.strangers.forget(&token.hash());
            return Err(Refusal::Unauthenticated);
        };
        self.strangers.remember(&known.sha256);
        if known.kind != TokenKind::Person {
            return Err(Refusal::ServiceToken);
        }
        let (email, also) = (member.email.clone(), member.also.clone());
        Ok(Person { email, home, also, token: known.sha256 })
    }

    /// Whether the bucket may be asked who the token belongs to.
    fn admit(&self, token: &Token) -> Result<(), Refusal> {
        let account_is_known = self.records.knows(token.account());
        let now = self.context().monotonic();
        let admitted = self.strangers.admit(&token.hash(), account_is_known, now);
        admitted.map_err(|exhausted| Refusal::Budget(exhausted.retry_after))
    }

    /// Charges one request to the person's token.
    pub(crate) fn charge(&self, person: &Person) -> Result<(), Refusal> {
        let now = self.context().monotonic();
        self.budget.charge(&person.token, now).map_err(|spent| Refusal::Budget(spent.retry_after))
    }

    /// Whether the account's own record lists the person: nothing else makes a member.
    pub(crate) async fn is_member(
        &self,
        person: &Person,
        account: &Account,
    ) -> Result<bool, LookupError> {
        if *account == person.home {
            return Ok(true);
        }
        let record = self.records.account(account).await?;
        Ok(record.is_some_and(|record| record.has_member(&person.email)))
    }

    /// The account's name, once the person is a member of it and the budget allows the request.
    /// An unknown account, a foreign one and a name that is none are one and the same answer.
    pub(crate) async fn member_of(
        &self,
        person: &Person,
        account: &str,
    ) -> Result<Account, Refusal> {
        let account = Account::parse(account).map_err(|_| Refusal::NotFound)?;
        if !self.is_member(person, &account).await? {
            return Err(Refusal::NotFound);
        }
        self.charge(person)?;
        Ok(account)
    }

    /// The whole gate for one instance's database.
    pub(crate) async fn door(
        &self,
        person: &Person,
        (account, app, host): (String, String, String),
    ) -> Result<Door, Refusal> {
        let account = self.member_of(person, &account).await?;
        let signer = self.signer.clone();
        let app = App::parse(&app).map_err(|_| Refusal::NotFound)?;
        let host = Host::parse(&host).map_err(|_| Refusal::NotFound)?;
        let record = self.records.host(&host).await?.ok_or(Refusal::NotFound)?;
        let record = Arc::new(record);
        if record.account != account || record.app != app || record.deleted {
            return Err(Refusal::NotFound);
        }
        if let Some(refusal) = class_refusal(&record) {
            return Err(Refusal::Class(refusal, record));
        }
        Ok(Door { record, signer })
    }
}

fn bearer(headers: &HeaderMap) -> Option<Token> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    Token::parse(token.trim()).ok()
}
