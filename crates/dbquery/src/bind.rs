//! The values of a statement's parameters, each to its place.

use carlos_protocol::params::{Param, ParamValue};
use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::QueryError;
use crate::guard::Refusal;
use crate::session::Session;

/// Binds every parameter of `statement`. A parameter without a value and a value without a
/// parameter are refused: SQLite would take NULL for the one and say nothing of the other.
pub(crate) fn bind(
    session: &Session,
    statement: &mut Statement<'_>,
    params: &[Param],
) -> Result<(), QueryError> {
    let by_name = params.iter().any(|param| param.name.is_some());
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).map(str::to_owned);
        let value = if by_name { named(params, name) } else { positional(params, index, name) }?;
        let bound = statement.raw_bind_parameter(index, ToSqlOutput::Borrowed(borrowed(value)));
        bound.map_err(|error| session.explain(&error))?;
    }
    match unused(statement, params) {
        Some(name) => Err(Refusal::UnusedValue { name }.into()),
        None => Ok(()),
    }
}

fn named(params: &[Param], name: Option<String>) -> Result<&ParamValue, Refusal> {
    let wanted = name.unwrap_or_else(|| "?".to_owned());
    let param = params.iter().find(|param| given_name(param) == Some(&wanted));
    param.map(|param| &param.value).ok_or(Refusal::Parameter { name: wanted })
}

/// SQLite numbers named parameters, too; which number one has is nothing a person should count.
fn positional(
    params: &[Param],
    index: usize,
    name: Option<String>,
) -> Result<&ParamValue, Refusal> {
    let named = name.as_ref().is_some_and(|name| !name.starts_with('?'));
    let name = name.unwrap_or_else(|| "?".to_owned());
    match params.get(index - 1) {
        Some(_) if named => Err(Refusal::NamedParameter { name }),
        Some(param) => Ok(&param.value),
        None => Err(Refusal::Parameter { name }),
    }
}

/// The first value that no parameter took.
fn unused(statement: &Statement<'_>, params: &[Param]) -> Option<String> {
    let count = statement.parameter_count();
    let names: Vec<_> = (1..=count).map(|index| statement.parameter_name(index)).collect();
    let left = params.iter().enumerate().find(|(index, param)| match given_name(param) {
        Some(name) => !names.contains(&Some(name)),
        None => *index >= count,
    });
    left.map(|(index, param)| {
        given_name(param).map_or_else(|| format!("position {}", index + 1), str::to_owned)
    })
}

fn given_name(param: &Param) -> Option<&str> {
    param.name.as_ref().map(|name| name.as_str())
}

fn borrowed(value: &ParamValue) -> ValueRef<'_> {
    match value {
        ParamValue::Null => ValueRef::Null,
        ParamValue::Int(integer) => ValueRef::Integer(*integer),
        ParamValue::Real(real) => ValueRef::Real(real.get()),
        ParamValue::Text(text) => ValueRef::Text(text.as_bytes()),
        ParamValue::Blob(blob) => ValueRef::Blob(blob),
    }
}
