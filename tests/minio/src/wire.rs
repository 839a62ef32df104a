//! What one S3 request asks for, told from its outside.

use http::header::IF_NONE_MATCH;
use http::{HeaderMap, Method, Uri};

/// What a request wants of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A put where nothing may be: `If-None-Match: *`.
    Create,
    /// Any other way to change what is there: a put, a copy, a part of an upload.
    Replace,
    Get,
    List,
    Delete,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub kind: Kind,
    pub bucket: String,
    /// The object's key, a listing's prefix, or the body that names what is to be deleted.
    pub key: String,
    /// A listing's `start-after`.
    pub after: String,
}

impl Asked {
    /// Reads a path-style request.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Self {
        let path = decode(uri.path().trim_start_matches('/'));
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        let asked = |kind, key: &str| {
            let (bucket, key) = (bucket.to_owned(), key.to_owned());
            Self { kind, bucket, key, after: value(uri, "start-after") }
        };
        match *method {
            Method::GET if key.is_empty() => asked(Kind::List, &value(uri, "prefix")),
            Method::GET | Method::HEAD => asked(Kind::Get, key),
            Method::DELETE => asked(Kind::Delete, key),
            Method::POST if has(uri, "delete") => {
                asked(Kind::Delete, &String::from_utf8_lossy(body))
            }
            Method::PUT if headers.get(IF_NONE_MATCH).is_some_and(|value| value == "*") => {
                asked(Kind::Create, key)
            }
            _ => asked(Kind::Replace, key),
        }
    }
}

/// The pairs of a query, decoded.
pub(crate) fn query(uri: &Uri) -> impl Iterator<Item = (&str, String)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(name, value)| {
        let value = value.replace('+', " ");
        (name, decode(&value))
    })
}

fn value(uri: &Uri, name: &str) -> String {
    query(uri).find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
}

fn has(uri: &Uri, name: &str) -> bool {
    query(uri).any(|(key, _)| key == name)
}

/// Percent escapes as what they stand for.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escape = (first == b'%').then(|| after.get(..2)).flatten();
        let escape = escape
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escape.unwrap_or(first));
        rest = if escape.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, target: &str, condition: bool) -> Asked {
        let mut headers = HeaderMap::new();
        if condition {
            headers.insert(IF_NONE_MATCH, "*".parse().unwrap());
        }
        Asked::of(&method, &target.parse().unwrap(), &headers, b"<Key>db-reads/x</Key>")
    }

    #[test]
    fn every_way_to_change_something_is_told_apart() {
        let kinds = [
            (Method::PUT, "/b/db-reads/x/picked", true, Kind::Create, "db-reads/x/picked"),
            (Method::PUT, "/b/db-reads/x/picked", false, Kind::Replace, "db-reads/x/picked"),
            (
                Method::PUT,
                "/b/db-reads/x?partNumber=1&uploadId=2",
                false,
                Kind::Replace,
                "db-reads/x",
            ),
            (Method::POST, "/b/db-reads/x?uploads=", false, Kind::Replace, "db-reads/x"),
            (Method::POST, "/b?delete=", false, Kind::Delete, "<Key>db-reads/x</Key>"),
            (Method::DELETE, "/b/db-reads/x", false, Kind::Delete, "db-reads/x"),
            (Method::GET, "/b/a%20b", false, Kind::Get, "a b"),
        ];
        for (method, target, condition, kind, key) in kinds {
            let asked = asked(method, target, condition);
            assert_eq!((asked.kind, asked.key.as_str()), (kind, key), "{target}");
            assert_eq!(asked.bucket, "b");
        }
    }

    #[test]
    fn a_listing_is_known_by_its_prefix_and_where_it_begins() {
        let target =
            "/b/?list-type=2&prefix=db-reads%2Fx%2Fout%2F&start-after=db-reads%2Fx%2Fout%2F1";
        let asked = asked(Method::GET, target, false);
        assert_eq!((asked.kind, asked.key.as_str()), (Kind::List, "db-reads/x/out/"));
        assert_eq!(asked.after, "db-reads/x/out/1");
    }
}
