//! What an operator does to the records of a deployment: each a new revision of a chain, written
//! only if nobody else changed the record meanwhile.

use carlos_bucket::{Append, Bucket, Cause, Chain, ChainError, Context, Head, Purpose, ReadError};
use carlos_protocol::ids::{Account, IdError, Principal};
use carlos_protocol::keys;
use carlos_protocol::records::{self, AccountRecord, Member, TokenRecord};
use carlos_protocol::time::Seconds;
use carlos_protocol::tokens::{Token, TokenKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A record that other writers change faster than this many rounds is not edited by hand.
const ROUNDS: usize = 8;

/// Who the chains name as the writer.
const OPERATOR: &str = "operator";

/// The longest e-mail address there is (RFC 5321: 64 + 1 + 255, less the brackets).
const EMAIL_MAX: usize = 254;

/// Why an operator's change was not made.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("{what} {name} exists already")]
    Exists { what: &'static str, name: String },
    #[error("there is no {what} {name}")]
    Absent { what: &'static str, name: String },
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Name(#[from] IdError),
    #[error("the bucket could not be read: {0}")]
    Read(#[from] ReadError),
    #[error("{name} in the bucket could not be read: {cause}")]
    Record { name: String, cause: ChainError },
    #[error("{name} in the bucket is not a record of this version")]
    Foreign { name: String },
    #[error("somebody else keeps changing {name}. try again.")]
    Contended { name: String },
    #[error(
        "it is not known whether the change to {name} was made ({cause}). look, then try again."
    )]
    Unknown { name: String, cause: Cause },
}

impl AdminError {
    pub(super) fn absent(what: &'static str, name: impl ToString) -> Self {
        Self::Absent { what, name: name.to_string() }
    }

    pub(super) fn exists(what: &'static str, name: impl ToString) -> Self {
        Self::Exists { what, name: name.to_string() }
    }
}

/// An operator at work on one deployment bucket.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(super) bucket: Bucket,
}

impl Operator {
    /// An operator with the operator's rights on `bucket`.
    #[must_use]
    pub fn new(bucket: Bucket) -> Self {
        Self { bucket }
    }

    /// Opens an account without members.
    pub async fn create_account(&self, account: &Account) -> Result<(), AdminError> {
        self.edit(&keys::account_chain(account), |found| match found {
            Some(_) => Err(AdminError::exists("account", account)),
            None => Ok(AccountRecord {
                v: records::VERSION,
                account: account.clone(),
                members: Vec::new(),
            }),
        })
        .await
        .map(drop)
    }

    /// Every account's name.
    pub async fn accounts(&self) -> Result<Vec<Account>, AdminError> {
        let children = self.bucket.children(keys::ACCOUNTS, Purpose::Sweep).await?;
        Ok(children.names(keys::ACCOUNTS).collect())
    }

    /// The account's record.
    pub async fn account(&self, account: &Account) -> Result<AccountRecord, AdminError> {
        self.read(&keys::account_chain(account))
            .await?
            .ok_or_else(|| AdminError::absent("account", account))
    }

    /// Makes `email` a member. A member whose tokens come from another account (`home`) finds this
    /// one when listing apps, because `home` then names it.
    pub async fn add_member(
        &self,
        account: &Account,
        email: &str,
        home: Option<&Account>,
    ) -> Result<(), AdminError> {
        check_email(email)?;
        self.edit_account(account, |record| {
            if record.has_member(email) {
                return Err(AdminError::exists("member", email));
            }
            record.members.push(Member {
                email: email.to_owned(),
                tokens: Vec::new(),
                also: Vec::new(),
            });
            Ok(())
        })
        .await?;
        let Some(home) = home else { return Ok(()) };
        self.edit_account(home, |record| {
            let member = member_of(record, email)?;
            if !member.also.contains(account) {
                member.also.push(account.clone());
            }
            Ok(())
        })
        .await
    }

    /// Ends a membership, and with it the member's tokens of this account.
    pub async fn remove_member(&self, account: &Account, email: &str) -> Result<(), AdminError> {
        self.edit_account(account, |record| {
            let before = record.members.len();
            record.members.retain(|member| member.email != email);
            if record.members.len() == before {
                return Err(AdminError::absent("member", email));
            }
            Ok(())
        })
        .await
    }

    /// Gives `email` a new token of `account`. Its text is returned here and kept nowhere.
    pub async fn create_token(
        &self,
        account: &Account,
        email: &str,
        kind: TokenKind,
        expires: Option<Seconds>,
    ) -> Result<Token, AdminError> {
        let token = Token::generate(&mut self.context().entropy(), kind, account);
        let record = TokenRecord { kind, sha256: token.hash(), expires };
        self.edit_account(account, |found| {
            member_of(found, email)?.tokens.push(record.clone());
            Ok(())
        })
        .await?;
        Ok(token)
    }

    /// Ends the one token whose hash begins with `prefix`.
    pub async fn revoke_token(&self, account: &Account, prefix: &str) -> Result<(), AdminError> {
        let begins = |token: &TokenRecord| token.sha256.to_string().starts_with(prefix);
        self.edit_account(account, |record| {
            let tokens = record.members.iter().flat_map(|member| &member.tokens);
            match tokens.filter(|token| begins(token)).count() {
                0 => return Err(AdminError::absent("token", prefix)),
                1 => {}
                _ => return Err(AdminError::Refused(format!("more than one token is {prefix}.."))),
            }
            for member in &mut record.members {
                member.tokens.retain(|token| !begins(token));
            }
            Ok(())
        })
        .await
    }

    async fn edit_account(
        &self,
        account: &Account,
        change: impl Fn(&mut AccountRecord) -> Result<(), AdminError>,
    ) -> Result<(), AdminError> {
        self.edit(&keys::account_chain(account), |found| {
            let mut record = found.ok_or_else(|| AdminError::absent("account", account))?;
            change(&mut record)?;
            Ok(record)
        })
        .await
        .map(drop)
    }

    /// Reads the head of a chain.
    pub(super) async fn read<T>(&self, name: &str) -> Result<Option<T>, AdminError>
    where
        T: Serialize + DeserializeOwned,
    {
        let head = self.chain(name).head(Purpose::Claim).await;
        let head = head.map_err(|cause| AdminError::Record { name: name.into(), cause })?;
        head.map(|head| decode(name, &head)).transpose()
    }

    /// Appends what `change` makes of the head, and makes it again when somebody was faster.
    pub(super) async fn edit<T>(
        &self,
        name: &str,
        change: impl Fn(Option<T>) -> Result<T, AdminError>,
    ) -> Result<T, AdminError>
    where
        T: Serialize + DeserializeOwned,
    {
        let chain = self.chain(name);
        for _ in 0..ROUNDS {
            let head = chain.head(Purpose::Claim).await;
            let head = head.map_err(|cause| AdminError::Record { name: name.into(), cause })?;
            let revision = head.as_ref().map(|head| head.revision);
            let record = change(head.map(|head| decode(name, &head)).transpose()?)?;
            match chain.append(revision, &records::encode(&record), Purpose::Claim).await {
                Append::Written(_) | Append::Unchanged(_) => return Ok(record),
                Append::Conflict(_) => {}
                Append::Unknown(cause) => {
                    return Err(AdminError::Unknown { name: name.into(), cause });
                }
            }
        }
        Err(AdminError::Contended { name: name.into() })
    }

    pub(super) fn context(&self) -> &Context {
        self.bucket.context()
    }

    /// The operator's clock, unix seconds.
    pub(crate) fn now_unix(&self) -> u64 {
        self.context().now_unix()
    }

    pub(super) fn principal() -> Principal {
        Principal::parse(OPERATOR).expect("the constant is a principal")
    }

    fn chain(&self, name: &str) -> Chain {
        Chain::new(self.bucket.clone(), name, Self::principal())
    }
}

fn decode<T: Serialize + DeserializeOwned>(name: &str, head: &Head) -> Result<T, AdminError> {
    records::decode(&head.content).map_err(|_| AdminError::Foreign { name: name.into() })
}

fn member_of<'a>(record: &'a mut AccountRecord, email: &str) -> Result<&'a mut Member, AdminError> {
    record
        .members
        .iter_mut()
        .find(|member| member.email == email)
        .ok_or_else(|| AdminError::absent("member", email))
}

fn check_email(email: &str) -> Result<(), AdminError> {
    let sound = email.len() <= EMAIL_MAX
        && email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
        && !email.contains(|c: char| c.is_whitespace() || c.is_control());
    match sound {
        true => Ok(()),
        false => Err(AdminError::Refused("that is not an e-mail address".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    fn operator() -> Operator {
        Operator::new(Bucket::new(Arc::new(InMemory::new()), Context::system()))
    }

    fn account(name: &str) -> Account {
        Account::parse(name).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_kept_as_its_hash_and_can_be_revoked() {
        let (operator, acme) = (operator(), account("acme"));
        operator.create_account(&acme).await.unwrap();
        operator.add_member(&acme, "a@example.com", None).await.unwrap();
        let token =
            operator.create_token(&acme, "a@example.com", TokenKind::Person, None).await.unwrap();
        let record = operator.account(&acme).await.unwrap();
        assert!(record.holder(&token, 0).is_some());
        let text = String::from_utf8(records::encode(&record)).unwrap();
        assert!(!text.contains(token.reveal()));
        let prefix = token.hash().prefix();
        operator.revoke_token(&acme, &prefix).await.unwrap();
        assert!(operator.account(&acme).await.unwrap().holder(&token, 0).is_none());
        assert!(operator.revoke_token(&acme, &prefix).await.is_err());
    }

    #[tokio::test]
    async fn a_guest_finds_the_other_account_through_their_home() {
        let (operator, home, other) = (operator(), account("home"), account("other"));
        for name in [&home, &other] {
            operator.create_account(name).await.unwrap();
        }
        operator.add_member(&home, "a@example.com", None).await.unwrap();
        operator.add_member(&other, "a@example.com", Some(&home)).await.unwrap();
        let record = operator.account(&home).await.unwrap();
        assert_eq!(record.members[0].also, vec![other.clone()]);
        operator.remove_member(&other, "a@example.com").await.unwrap();
        assert!(!operator.account(&other).await.unwrap().has_member("a@example.com"));
    }

    #[tokio::test]
    async fn what_is_there_is_not_made_twice_and_what_is_not_is_named() {
        let (operator, acme) = (operator(), account("acme"));
        operator.create_account(&acme).await.unwrap();
        let again = operator.create_account(&acme).await.unwrap_err();
        assert_eq!(again.to_string(), "account acme exists already");
        let absent = operator.add_member(&account("b"), "a@example.com", None).await.unwrap_err();
        assert_eq!(absent.to_string(), "there is no account b");
        for email in ["", "a", "@", "a@", "a b@c", "a@b\n"] {
            assert!(operator.add_member(&acme, email, None).await.is_err(), "{email:?}");
        }
        assert_eq!(operator.accounts().await.unwrap(), vec![acme]);
    }

    #[tokio::test]
    async fn two_operators_lose_no_change() {
        let (operator, acme) = (operator(), account("acme"));
        operator.create_account(&acme).await.unwrap();
        let add = |n: usize| {
            let (operator, acme) = (operator.clone(), acme.clone());
            async move { operator.add_member(&acme, &format!("{n}@example.com"), None).await }
        };
        let (a, b, c) = tokio::join!(add(1), add(2), add(3));
        for added in [a, b, c] {
            added.unwrap();
        }
        assert_eq!(operator.account(&acme).await.unwrap().members.len(), 3);
    }
}
