//! The console's HTTP doors: paths, bodies and errors (db-forward §5.5, §9.1).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::canon::{self, CanonError};
use crate::copy::Message;
use crate::ids::{Account, App, Class, Host, Region};
use crate::limits::READ_BODY_BYTES;
use crate::params::Params;
use crate::redacted::Redacted;
use crate::seal::ReplyPublic;
use crate::time::At;

/// `GET`: the apps a person can see.
pub const APPS_PATH: &str = "/api/cli/apps";

/// The largest answer a client reads from a door that is not a read: a thousand instances.
pub const ANSWER_BYTES: usize = 1024 * 1024;

/// `GET`: an app's instances.
pub fn instances_path(account: &Account, app: &App) -> String {
    format!("{APPS_PATH}/{account}/{app}/instances")
}

/// `GET`: the list door of an instance's database.
pub fn db_path(account: &Account, app: &App, host: &Host) -> String {
    format!("{APPS_PATH}/{account}/{app}/db/{host}")
}

/// `POST`: a forwarded read.
pub fn reads_path(account: &Account, app: &App, host: &Host) -> String {
    format!("{}/reads", db_path(account, app, host))
}

/// The answer of [`APPS_PATH`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Apps {
    /// Sorted by account, then app.
    pub apps: Vec<AppRef>,
}

/// One app.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct AppRef {
    /// The owner.
    pub account: Account,
    /// The app.
    pub app: App,
}

/// The answer of [`instances_path`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Instances {
    /// Sorted by host.
    pub instances: Vec<Instance>,
}

/// One instance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Instance {
    /// Its name.
    pub host: Host,
    /// Where its data lives.
    pub region: Region,
    /// How it runs.
    pub class: Class,
}

/// The body of a read request.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBody {
    /// What to do; [`crate::request::OP_QUERY`].
    pub op: String,
    /// The statement.
    pub sql: String,
    /// The values of its parameters.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
    /// The copy wanted.
    pub at: At,
    /// Whom to seal the answer for.
    pub reply_key: ReplyPublic,
}

impl fmt::Debug for ReadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBody")
            .field("op", &self.op)
            .field("sql", &Redacted(&self.sql))
            .field("params", &self.params)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl ReadBody {
    /// The body's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads a body; whitespace and field order are the client's business.
    ///
    /// # Errors
    /// [`CanonError::TooLarge`] above [`READ_BODY_BYTES`], [`CanonError::Malformed`] otherwise.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        canon::decode_loose(bytes, READ_BODY_BYTES)
    }
}

/// The body of every answer that is not a success. Fields of later versions are left out of
/// account by a reader.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ErrorBody {
    /// A sentence for a person.
    pub error: String,
    /// The sentence's id; absent where a byte-identical older answer is due (db-forward §9.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The forward marker: 1 when the read can be forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<u32>,
    /// With the marker: where the data lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// With the marker: what can be forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ops: Option<Vec<String>>,
}

impl ErrorBody {
    /// A sentence with its id.
    pub fn coded(message: &Message) -> Self {
        let code = Some(message.id().to_owned());
        Self { error: message.to_string(), code, ..Self::default() }
    }

    /// A sentence alone, as consoles without forwarding answer.
    pub fn bare(message: &Message) -> Self {
        Self { error: message.to_string(), ..Self::default() }
    }

    /// The forward marker: an old client prints the sentence, a new one forwards.
    pub fn forward(message: &Message, region: Region, ops: &[&str]) -> Self {
        Self {
            error: message.to_string(),
            forward: Some(1),
            region: Some(region),
            forward_ops: Some(ops.iter().map(|&op| op.to_owned()).collect()),
            ..Self::default()
        }
    }

    /// Where to forward `op`, when the answer carries the marker and names the operation.
    pub fn forwards(&self, op: &str) -> Option<&Region> {
        let named = self.forward_ops.iter().flatten().any(|known| known == op);
        self.region.as_ref().filter(|_| self.forward == Some(1) && named)
    }

    /// The body's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`CanonError`], for example for a proxy's HTML.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        canon::decode_loose(bytes, ANSWER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy;
    use crate::params::tests::longest_params;
    use crate::seal::ReplyKey;
    use crate::testing::Counter;

    #[test]
    fn the_forward_marker_is_additive() {
        let region = Region::parse("uk").expect("label");
        let message = copy::update_to_forward("shop.example.com", "uk");
        let body = ErrorBody::forward(&message, region.clone(), &["query"]);
        let text = String::from_utf8(body.to_bytes()).expect("JSON");
        assert!(text.ends_with(r#","forward":1,"region":"uk","forward_ops":["query"]}"#), "{text}");
        let read = ErrorBody::from_bytes(text.as_bytes()).expect("own bytes");
        assert_eq!(read.forwards("query"), Some(&region));
        assert_eq!(read.forwards("pull"), None);
        assert_eq!(ErrorBody::bare(&message).forwards("query"), None);
    }

    #[test]
    fn a_bare_sentence_has_one_field() {
        let bytes = ErrorBody::bare(&copy::stopped()).to_bytes();
        assert_eq!(bytes, br#"{"error":"stopped"}"#);
    }

    #[test]
    fn later_fields_of_an_error_are_left_out_of_account() {
        let body = ErrorBody::from_bytes(br#"{"error":"x","later":{}}"#).expect("lenient");
        assert_eq!(body.error, "x");
    }

    #[test]
    fn a_read_body_is_bounded_and_strict() {
        let reply_key = ReplyKey::generate(&mut Counter(1)).public();
        let body = |sql: String, params: Params| ReadBody {
            op: "query".into(),
            sql,
            params,
            at: At::Newest,
            reply_key,
        };
        let longest = body("\u{1}".repeat(crate::limits::SQL_BYTES), longest_params());
        assert_eq!(ReadBody::from_bytes(&longest.to_bytes()), Ok(longest));
        let bare = body("SELECT 1".into(), Params::default()).to_bytes();
        assert!(!String::from_utf8(bare).expect("JSON").contains("params"));
        let huge = vec![b' '; READ_BODY_BYTES + 1];
        assert!(matches!(ReadBody::from_bytes(&huge), Err(CanonError::TooLarge { .. })));
        assert!(ReadBody::from_bytes(br#"{"op":"query"}"#).is_err());
    }

    #[test]
    fn paths_hold_names_that_need_no_escaping() {
        let (account, app) = (Account::parse("acme"), App::parse("shop"));
        let host = Host::parse("shop.example.com").expect("host");
        let path = reads_path(&account.expect("label"), &app.expect("label"), &host);
        assert_eq!(path, "/api/cli/apps/acme/shop/db/shop.example.com/reads");
    }
}
