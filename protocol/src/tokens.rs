//! Bearer tokens: what a person or a service shows the console.
//!
//! The account is in the token, so that the console finds the one record that can know it. The
//! record holds a SHA-256 only: 32 random bytes need no slow hash.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::ids::{Account, Digest, base32};
use crate::{Entropy, draw};

/// Whom a token speaks for. The read door is for persons only (db-forward §9.1).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// A member, `cpt_`.
    Person,
    /// A machine, `cst_`.
    Service,
}

impl TokenKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Person => "cpt_",
            Self::Service => "cst_",
        }
    }
}

/// A token's text: `cpt_<account>_<52 base32 characters>`. Never shown by Debug.
#[derive(Clone)]
pub struct Token {
    kind: TokenKind,
    account: Account,
    text: Zeroizing<String>,
}

/// The text is no token. Nothing of it is repeated.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a token")]
pub struct TokenError;

impl Token {
    /// Draws a fresh token of 256 random bits.
    pub fn generate(entropy: &mut dyn Entropy, kind: TokenKind, account: &Account) -> Self {
        let secret: Zeroizing<[u8; 32]> = Zeroizing::new(draw(entropy));
        let body = Zeroizing::new(base32().encode(secret.as_ref()));
        let text = Zeroizing::new(format!("{}{account}_{}", kind.prefix(), body.as_str()));
        Self { kind, account: account.clone(), text }
    }

    /// Reads a token's text.
    ///
    /// # Errors
    /// [`TokenError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let kinds = [TokenKind::Person, TokenKind::Service];
        let of = |kind: TokenKind| text.strip_prefix(kind.prefix()).map(|rest| (kind, rest));
        let (kind, rest) = kinds.into_iter().find_map(of).ok_or(TokenError)?;
        let (account, secret) = rest.split_once('_').ok_or(TokenError)?;
        let secret = base32().decode(secret.as_bytes()).map_err(|_| TokenError)?;
        if Zeroizing::new(secret).len() != 32 {
            return Err(TokenError);
        }
        let account = Account::parse(account).map_err(|_| TokenError)?;
        Ok(Self { kind, account, text: Zeroizing::new(text.to_owned()) })
    }

    /// Person or service, as the prefix says. The record's own kind decides.
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The account whose record can know the token.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The secret text: for the one place that shows or sends it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What the record holds.
    pub fn hash(&self) -> Digest {
        Digest::of(self.text.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}{}, secret)", self.kind.prefix(), self.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Counter;

    #[test]
    fn a_token_round_trips_and_hides_its_secret() {
        let account = Account::parse("acme-1").expect("label");
        for kind in [TokenKind::Person, TokenKind::Service] {
            let token = Token::generate(&mut Counter(1), kind, &account);
            let read = Token::parse(token.reveal()).expect("own text");
            assert_eq!((read.kind(), read.account()), (kind, &account));
            assert_eq!(read.hash(), token.hash());
            let secret = token.reveal().rsplit('_').next().expect("three parts");
            assert_eq!(secret.len(), 52);
            assert!(!format!("{token:?}").contains(secret));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let account = Account::parse("acme").expect("label");
        let token = Token::generate(&mut Counter(1), TokenKind::Person, &account);
        let good = token.reveal();
        let bad = [
            String::new(),
            good.to_uppercase(),
            good.replace("cpt_", "cxt_"),
            good.replace("acme", "AC ME"),
            good[..good.len() - 1].to_owned(),
            format!("{good}a"),
            format!("{good}\n"),
        ];
        for text in bad {
            assert_eq!(Token::parse(&text).err(), Some(TokenError), "{text:?}");
        }
    }
}
