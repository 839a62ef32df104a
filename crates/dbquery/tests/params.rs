//! Values reach their parameters with their types, and nothing is ever NULL by omission.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use carlos_dbquery::rows::{OwnedValue, Reader};
use carlos_dbquery::{Limits, Query, QueryError, Refusal, run};
use carlos_protocol::params::{Param, ParamName, ParamValue, Real};
use common::{Fixture, stop};
use proptest::prelude::*;

fn text(text: &str) -> Param {
    Param::positional(ParamValue::Text(text.to_owned()))
}

fn named(name: &str, value: ParamValue) -> Param {
    Param::named(ParamName::parse(name).unwrap(), value)
}

/// The only row of `sql` with `params`.
fn ask(fixture: &Fixture, sql: &str, params: &[Param]) -> Result<Vec<OwnedValue>, QueryError> {
    let mut stream = Vec::new();
    run(&fixture.db, Query { sql, params }, &Limits::default(), &mut stream, &stop())?;
    let (mut reader, mut row) = (Reader::open(&stream).unwrap(), Vec::new());
    assert!(reader.read_row(&mut row).unwrap(), "{sql}");
    Ok(row.into_iter().map(|value| value.into_owned()).collect())
}

fn refused(fixture: &Fixture, sql: &str, params: &[Param]) -> Refusal {
    match ask(fixture, sql, params) {
        Err(QueryError::Refused(refusal)) => refusal,
        other => panic!("{sql}: {other:?}"),
    }
}

#[test]
fn values_find_their_rows_by_index_and_by_type() {
    let fixture = Fixture::new();
    let one = [OwnedValue::Integer(1)];
    let by_name = "SELECT id FROM parent WHERE name = ?1 AND id IN (SELECT ?2)";
    let params = [text("ann"), Param::positional(ParamValue::Int(1))];
    assert_eq!(ask(&fixture, by_name, &params).unwrap(), one);
    let sql = "SELECT count(*) FROM kinds WHERE value IS $value OR value IS @value";
    let blob = named("$value", ParamValue::Blob(vec![0, 255]));
    let params = [named("@value", ParamValue::Null), blob];
    assert_eq!(ask(&fixture, sql, &params).unwrap(), [OwnedValue::Integer(2)]);
}

#[test]
fn sql_in_a_value_is_a_text() {
    let fixture = Fixture::new();
    let sly = "' OR 1 = 1; --\0\u{1b}";
    let found = ask(&fixture, "SELECT ?, count(*) FROM parent WHERE name = ?1", &[text(sly)]);
    assert_eq!(found.unwrap(), [OwnedValue::Text(sly.into()), OwnedValue::Integer(0)]);
}

#[test]
fn every_parameter_has_a_value_and_every_value_a_parameter() {
    let fixture = Fixture::new();
    let parameter = |name: &str| Refusal::Parameter { name: name.to_owned() };
    let unused = |name: &str| Refusal::UnusedValue { name: name.to_owned() };
    let null = || ParamValue::Null;
    let cases: [(&str, Vec<Param>, Refusal); 8] = [
        ("SELECT ?, ?", vec![text("")], parameter("?")),
        ("SELECT ?2", vec![text("")], parameter("?2")),
        ("SELECT :a, :b", vec![named(":a", null())], parameter(":b")),
        ("SELECT ?", vec![named(":a", null())], parameter("?")),
        ("SELECT :a", vec![named("@a", null())], parameter(":a")),
        ("SELECT 1", vec![text("")], unused("position 1")),
        ("SELECT ?", vec![text(""), text("")], unused("position 2")),
        ("SELECT :a", vec![named(":a", null()), named(":c", null())], unused(":c")),
    ];
    for (sql, params, refusal) in cases {
        assert_eq!(refused(&fixture, sql, &params), refusal, "{sql}");
    }
    let name = ":a".to_owned();
    let counted = refused(&fixture, "SELECT :a", &[text("")]);
    assert_eq!(counted, Refusal::NamedParameter { name });
}

#[test]
fn as_many_as_may_be_sent_can_be_bound() {
    let fixture = Fixture::new();
    let most = carlos_protocol::limits::PARAMS;
    let sql = format!("SELECT {}", vec!["?"; most].join(", "));
    assert_eq!(ask(&fixture, &sql, &vec![text("x"); most]).unwrap().len(), most);
}

fn value() -> impl Strategy<Value = ParamValue> {
    prop_oneof![
        Just(ParamValue::Null),
        any::<i64>().prop_map(ParamValue::Int),
        any::<f64>().prop_filter_map("finite", Real::new).prop_map(ParamValue::Real),
        any::<String>().prop_map(ParamValue::Text),
        any::<Vec<u8>>().prop_map(ParamValue::Blob),
    ]
}

fn owned(value: &ParamValue) -> OwnedValue {
    match value {
        ParamValue::Null => OwnedValue::Null,
        ParamValue::Int(integer) => OwnedValue::Integer(*integer),
        ParamValue::Real(real) => OwnedValue::Real(real.get()),
        ParamValue::Text(text) => OwnedValue::Text(text.clone().into_bytes()),
        ParamValue::Blob(blob) => OwnedValue::Blob(blob.clone()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_value_comes_back_as_itself(values in proptest::collection::vec(value(), 1..8)) {
        let fixture = Fixture::new();
        let sql = format!("SELECT {}", vec!["?"; values.len()].join(", "));
        let params: Vec<Param> = values.iter().cloned().map(Param::positional).collect();
        let wanted: Vec<OwnedValue> = values.iter().map(owned).collect();
        prop_assert_eq!(ask(&fixture, &sql, &params).unwrap(), wanted);
    }
}
