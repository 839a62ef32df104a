//! The values of a statement's parameters: exact, bounded, and with one spelling each.
//!
//! They travel beside the statement in the read's body, in the signed request and in the worker's
//! `Run`. A statement without parameters carries no field at all, so its bytes are what they were
//! before there were parameters.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base64_text;
use crate::limits::{PARAM_BYTES, PARAM_NAME_BYTES, PARAMS};

/// The values of one statement: all by position or all by name, at most [`PARAMS`] of them with
/// [`PARAM_BYTES`] together.
#[derive(Clone, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Vec<Param>")]
pub struct Params(Vec<Param>);

/// One value, and which parameter it is for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// The parameter's name; absent for a value by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ParamName>,
    /// Its value.
    pub value: ParamValue,
}

/// A value, as SQLite knows its types.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ParamValue {
    /// SQL NULL.
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A double.
    Real(Real),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(#[serde(with = "base64_text")] Vec<u8>),
}

/// A finite double, written as the 16 hex digits of its bits: decimal forms have several spellings.
#[derive(Clone, Copy, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Real(f64);

/// The name of a parameter as the statement writes it: `:`, `@` or `$`, then ASCII letters, digits
/// and underscores.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ParamName(String);

/// Why values are not those of one statement.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ParamsError {
    /// A name that no parameter has.
    #[error("{0} is not the name of a parameter")]
    BadName(String),
    /// A number that is none, or not one spelling of one.
    #[error("not the 16 hex digits of a finite number")]
    BadReal,
    /// Two values for one parameter.
    #[error("there are two values for {0}")]
    Duplicate(ParamName),
    /// Some by name and some by position: which is which would be a matter of counting.
    #[error("give all values by position or all by name")]
    Mixed,
    /// More than [`PARAM_BYTES`].
    #[error("the values are {0} bytes long together, where at most {PARAM_BYTES} are allowed")]
    TooLong(usize),
    /// More than [`PARAMS`].
    #[error("there are {0} values, where at most {PARAMS} are allowed")]
    TooMany(usize),
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: usize = self.0.iter().map(Param::weight).sum();
        write!(f, "<{} values, {bytes} bytes>", self.0.len())
    }
}

impl fmt::Debug for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Int(_) => f.write_str("Int"),
            Self::Real(real) => real.fmt(f),
            Self::Text(text) => write!(f, "Text(<{} bytes>)", text.len()),
            Self::Blob(blob) => write!(f, "Blob(<{} bytes>)", blob.len()),
        }
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Real")
    }
}

impl Params {
    /// Checks values against every bound.
    ///
    /// # Errors
    /// [`ParamsError`], the first that applies.
    pub fn new(params: Vec<Param>) -> Result<Self, ParamsError> {
        if params.len() > PARAMS {
            return Err(ParamsError::TooMany(params.len()));
        }
        let bytes = params.iter().map(Param::weight).sum();
        if bytes > PARAM_BYTES {
            return Err(ParamsError::TooLong(bytes));
        }
        let mut names = BTreeSet::new();
        for name in params.iter().filter_map(|param| param.name.as_ref()) {
            if !names.insert(name) {
                return Err(ParamsError::Duplicate(name.clone()));
            }
        }
        if !names.is_empty() && names.len() < params.len() {
            return Err(ParamsError::Mixed);
        }
        Ok(Self(params))
    }

    /// In the order given.
    pub fn as_slice(&self) -> &[Param] {
        &self.0
    }

    /// There is nothing to bind.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether JSON carries every text unchanged, as for a statement (db-forward §10, DBF-32).
    pub fn are_sendable(&self) -> bool {
        self.0.iter().all(|param| match &param.value {
            ParamValue::Text(text) => !text.contains(char::REPLACEMENT_CHARACTER),
            _ => true,
        })
    }
}

impl TryFrom<Vec<Param>> for Params {
    type Error = ParamsError;

    fn try_from(params: Vec<Param>) -> Result<Self, ParamsError> {
        Self::new(params)
    }
}

impl Param {
    /// A value by position.
    pub fn positional(value: ParamValue) -> Self {
        Self { name: None, value }
    }

    /// A value by name.
    pub fn named(name: ParamName, value: ParamValue) -> Self {
        Self { name: Some(name), value }
    }

    /// Its bytes as [`PARAM_BYTES`] counts them.
    fn weight(&self) -> usize {
        let value = match &self.value {
            ParamValue::Null | ParamValue::Int(_) | ParamValue::Real(_) => 8,
            ParamValue::Text(text) => text.len(),
            ParamValue::Blob(blob) => blob.len(),
        };
        self.name.as_ref().map_or(0, |name| name.0.len()) + value
    }
}

impl Real {
    /// A finite number; `None` for what SQLite keeps no place for or JSON no word.
    pub fn new(real: f64) -> Option<Self> {
        real.is_finite().then_some(Self(real))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// No NaN is among them.
impl Eq for Real {}

impl From<Real> for String {
    fn from(real: Real) -> Self {
        format!("{:016x}", real.0.to_bits())
    }
}

impl TryFrom<String> for Real {
    type Error = ParamsError;

    fn try_from(text: String) -> Result<Self, ParamsError> {
        let bits = u64::from_str_radix(&text, 16).map_err(|_| ParamsError::BadReal)?;
        let real = Self::new(f64::from_bits(bits)).ok_or(ParamsError::BadReal)?;
        if String::from(real) == text { Ok(real) } else { Err(ParamsError::BadReal) }
    }
}

impl ParamName {
    /// Reads a name with its first character.
    ///
    /// # Errors
    /// [`ParamsError::BadName`].
    pub fn parse(text: &str) -> Result<Self, ParamsError> {
        let word = text.strip_prefix([':', '@', '$']).unwrap_or_default();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if word.is_empty() || text.len() > PARAM_NAME_BYTES || !word.chars().all(is_word) {
            return Err(ParamsError::BadName(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name with its first character.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ParamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ParamName> for String {
    fn from(name: ParamName) -> Self {
        name.0
    }
}

impl TryFrom<String> for ParamName {
    type Error = ParamsError;

    fn try_from(text: String) -> Result<Self, ParamsError> {
        Self::parse(&text)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::canon;

    /// The values that take the most room as JSON.
    pub(crate) fn longest_params() -> Params {
        let share = PARAM_BYTES / PARAMS;
        let param = |number| {
            let name = ParamName::parse(&format!(":p{number}")).expect("a name");
            let text = "\u{1}".repeat(share - name.0.len());
            Param::named(name, ParamValue::Text(text))
        };
        Params::new((0..PARAMS).map(param).collect()).expect("within bounds")
    }

    fn text(text: impl Into<String>) -> Param {
        Param::positional(ParamValue::Text(text.into()))
    }

    fn named(name: &str) -> Param {
        Param::named(ParamName::parse(name).expect("a name"), ParamValue::Null)
    }

    #[test]
    fn every_type_has_one_spelling() {
        let params = Params::new(vec![
            text("a\0"),
            Param::positional(ParamValue::Null),
            Param::positional(ParamValue::Int(i64::MIN)),
            Param::positional(ParamValue::Real(Real(-1.5))),
            Param::positional(ParamValue::Blob(vec![0, 255])),
        ]);
        let json = [
            r#"[{"value":{"text":"a\u0000"}},{"value":"null"},"#,
            r#"{"value":{"int":-9223372036854775808}},{"value":{"real":"bff8000000000000"}},"#,
            r#"{"value":{"blob":"AP8="}}]"#,
        ]
        .concat();
        let params = params.expect("within bounds");
        assert_eq!(String::from_utf8(canon::encode(&params)).expect("JSON"), json);
        assert_eq!(canon::decode::<Params>(json.as_bytes(), 1024), Ok(params));
        for bad in
            ["7ff0000000000000", "fff8000000000000", "0", "3FF8000000000000", "+ff800000000000"]
        {
            assert_eq!(Real::try_from(bad.to_owned()), Err(ParamsError::BadReal), "{bad}");
        }
    }

    #[test]
    fn values_stand_by_position_or_by_name() {
        assert!(Params::new(vec![named(":a"), named("@a"), named("$a")]).is_ok());
        let twice = Params::new(vec![named(":a"), named(":a")]);
        assert!(matches!(twice, Err(ParamsError::Duplicate(_))));
        assert_eq!(Params::new(vec![named(":a"), text("")]), Err(ParamsError::Mixed));
        for bad in ["", ":", "a", ":a b", ":é", ":a=", "?1", &format!(":{}", "x".repeat(64))] {
            assert!(ParamName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn count_and_bytes_are_bounded() {
        assert!(Params::new(vec![text(""); PARAMS]).is_ok());
        let many = Params::new(vec![text(""); PARAMS + 1]);
        assert_eq!(many, Err(ParamsError::TooMany(PARAMS + 1)));
        assert!(Params::new(vec![text("x".repeat(PARAM_BYTES))]).is_ok());
        let long = Params::new(vec![text("x".repeat(PARAM_BYTES - 7)), named(":a")]);
        assert_eq!(long, Err(ParamsError::TooLong(PARAM_BYTES + 3)));
        let json = canon::encode(&vec![text(""); PARAMS + 1]);
        assert!(canon::decode_loose::<Params>(&json, json.len()).is_err());
    }

    #[test]
    fn text_that_json_would_rewrite_is_known() {
        let sendable = |value| Params::new(vec![text(value)]).expect("small").are_sendable();
        assert!(sendable("é\0") && !sendable("a\u{fffd}"));
    }

    #[test]
    fn debug_holds_no_value() {
        let values = [
            ParamValue::Null,
            ParamValue::Int(4_242),
            ParamValue::Real(Real(424.2)),
            ParamValue::Text("4242".into()),
            ParamValue::Blob(vec![42; 2]),
        ];
        let params = values.map(Param::positional).to_vec();
        let text = format!("{params:?} {:?}", Params::new(params.clone()).expect("small"));
        assert!(!text.contains("42"), "{text}");
        assert!(text.ends_with("<5 values, 30 bytes>"), "{text}");
    }
}
