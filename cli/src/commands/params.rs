//! The values of a query's parameters, as typed on the command line.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carlos_protocol::copy::{self, Message};
use carlos_protocol::ids::Region;
use carlos_protocol::params::{Param, ParamName, ParamValue, Params, Real};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde_json::Value;

use crate::failure::Failure;

/// `--param` and `--param-json` in the order in which they were given.
#[derive(Clone, Debug, Default)]
pub struct ParamArgs(Vec<Given>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    form: Form,
    value: OsString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// What follows is a text.
    Text,
    /// What follows is one JSON value.
    Json,
}

impl Form {
    const ALL: [Self; 2] = [Self::Text, Self::Json];

    fn id(self) -> &'static str {
        match self {
            Self::Text => "param",
            Self::Json => "param-json",
        }
    }

    fn arg(self) -> Arg {
        let (value, help) = match self {
            Self::Text => (
                "[:NAME=]TEXT",
                "Give the next parameter of the SQL this text, or the parameter of this name. \
                 Whatever follows the `=` is taken as it is",
            ),
            Self::Json => (
                "[:NAME=]JSON",
                "The same with a type: `42`, `1.5`, `null`, `\"text\"` or `{\"$blob\":\"base64\"}`",
            ),
        };
        Arg::new(self.id())
            .long(self.id())
            .value_name(value)
            .help(help)
            .action(ArgAction::Append)
            .allow_hyphen_values(true)
            .value_parser(value_parser!(OsString))
    }
}

impl Args for ParamArgs {
    fn augment_args(command: Command) -> Command {
        command.args(Form::ALL.map(Form::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ParamArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = Form::ALL.into_iter().flat_map(|form| {
            let values = matches.get_many::<OsString>(form.id()).into_iter().flatten();
            let indices = matches.indices_of(form.id()).into_iter().flatten();
            indices.zip(values).map(move |(at, value)| (at, Given { form, value: value.clone() }))
        });
        let mut given: Vec<_> = given.collect();
        given.sort_by_key(|(at, _)| *at);
        self.0 = given.into_iter().map(|(_, given)| given).collect();
        Ok(())
    }
}

/// Values that may still not be sendable: the sentence for that names the region, which is only
/// known later.
#[derive(Debug)]
pub(super) enum Read {
    Params(Params),
    NotText,
}

impl Read {
    /// The values, if JSON carries them unchanged (db-forward §10, DBF-32).
    pub(super) fn sendable(self, region: &Region) -> Result<Params, Message> {
        match self {
            Self::Params(params) if params.are_sendable() => Ok(params),
            _ => Err(copy::not_sendable(region)),
        }
    }
}

/// Reads all values.
pub(super) fn read(args: &ParamArgs) -> Result<Read, Failure> {
    let mut params = Vec::new();
    for Given { form, value } in &args.0 {
        let Some(text) = value.to_str() else { return Ok(Read::NotText) };
        params.push(param(*form, text)?);
    }
    let params = Params::new(params);
    params.map(Read::Params).map_err(|error| Failure::usage(format!("{error}.")))
}

fn param(form: Form, text: &str) -> Result<Param, Failure> {
    let (name, text) = split_name(form, text)?;
    let value = match form {
        Form::Text => ParamValue::Text(text.to_owned()),
        Form::Json => json(text).ok_or_else(|| bad_json(text))?,
    };
    Ok(Param { name, value })
}

/// A value that begins like a name has to be one: a mistyped name must not become a text.
fn split_name(form: Form, text: &str) -> Result<(Option<ParamName>, &str), Failure> {
    if !text.starts_with([':', '@', '$']) {
        return Ok((None, text));
    }
    let named = text.split_once('=').and_then(|(name, value)| {
        let name = ParamName::parse(name).ok()?;
        Some((Some(name), value))
    });
    named.ok_or_else(|| {
        Failure::usage(format!(
            "--{} {text} does not begin with a name and an equals sign, such as :id=. a text that \
             itself begins with one of : @ $ needs a name, or --param-json and quotes.",
            form.id()
        ))
    })
}

/// One JSON value as SQLite's: numbers keep the type they are written with. JSON's true and false
/// have no counterpart.
fn json(text: &str) -> Option<ParamValue> {
    match serde_json::from_str(text).ok()? {
        Value::Null => Some(ParamValue::Null),
        // From the text itself: the parsed number may be the neighbour of the one written.
        Value::Number(_) => number(text.trim()),
        Value::String(text) => Some(ParamValue::Text(text)),
        Value::Object(object) if object.len() == 1 => {
            let blob = object.get("$blob")?.as_str()?;
            STANDARD.decode(blob).ok().map(ParamValue::Blob)
        }
        Value::Object(_) | Value::Array(_) | Value::Bool(_) => None,
    }
}

fn number(text: &str) -> Option<ParamValue> {
    if text.contains(['.', 'e', 'E']) {
        return Real::new(text.parse().ok()?).map(ParamValue::Real);
    }
    text.parse().ok().map(ParamValue::Int)
}

fn bad_json(text: &str) -> Failure {
    Failure::usage(format!(
        "--param-json does not take {text}. it takes null, a string, a number (a whole one of at \
         most 64 bits) or {{\"$blob\":\"base64\"}}.",
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        params: ParamArgs,
    }

    fn read(words: &[&str]) -> Result<Vec<Param>, String> {
        let line = Line::try_parse_from(["x"].iter().chain(words)).expect("parses");
        match super::read(&line.params) {
            Ok(Read::Params(params)) => Ok(params.as_slice().to_vec()),
            Ok(Read::NotText) => Err("not text".to_owned()),
            Err(failure) => Err(failure.sentence),
        }
    }

    fn values(words: &[&str]) -> Vec<ParamValue> {
        read(words).expect("reads").into_iter().map(|param| param.value).collect()
    }

    #[test]
    fn both_forms_keep_the_order_of_the_line() {
        let line =
            ["--param", "a", "--param-json", "1", "--param=-1", "--param-json=1.0", "--param", ""];
        let text = |text: &str| ParamValue::Text(text.to_owned());
        let real = ParamValue::Real(Real::new(1.0).expect("finite"));
        assert_eq!(values(&line), [text("a"), ParamValue::Int(1), text("-1"), real, text("")]);
    }

    #[test]
    fn what_follows_a_name_is_taken_as_it_is() {
        let params = read(&["--param", ":q=@a=b", "--param-json", "$n= null "]).expect("reads");
        let name = |name| ParamName::parse(name).expect("a name");
        let text = ParamValue::Text("@a=b".to_owned());
        let expected = [Param::named(name(":q"), text), Param::named(name("$n"), ParamValue::Null)];
        assert_eq!(params, expected);
        for sly in [":a b=1", "@someone", "$", ":=1"] {
            assert!(read(&["--param", sly]).unwrap_err().contains("does not begin"), "{sly}");
        }
        assert_eq!(values(&["--param-json", "\"@a\""]), [ParamValue::Text("@a".to_owned())]);
    }

    #[test]
    fn json_values_have_sqlites_types() {
        let json = |text| read(&["--param-json", text]);
        let value = |text| values(&["--param-json", text]).remove(0);
        assert_eq!(value("-9223372036854775808"), ParamValue::Int(i64::MIN));
        let exact = Real::new(8.533_063_4e-5).expect("finite");
        assert_eq!(value("8.5330634e-5"), ParamValue::Real(exact));
        assert_eq!(value(r#"{"$blob":"AP8="}"#), ParamValue::Blob(vec![0, 255]));
        for bad in
            ["", "x", "true", "[1]", "9223372036854775808", "1e999", r#"{"$blob":"A"}"#, "{}"]
        {
            assert!(json(bad).unwrap_err().contains("does not take"), "{bad}");
        }
    }

    #[test]
    fn values_that_do_not_go_together_are_refused() {
        let mixed = read(&["--param", "a", "--param", ":b=c"]).unwrap_err();
        assert_eq!(mixed, "give all values by position or all by name.");
        assert!(read(&["--param", ":b=1", "--param", ":b=2"]).unwrap_err().contains("two values"));
    }
}
