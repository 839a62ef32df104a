//! Whether a bucket keeps old versions.

use carlos_bucket::{BucketSettings, SettingsError};

use super::xml::{Element, NotXml};

/// What a bucket does with what is replaced or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioning {
    /// It is gone.
    Off,
    /// It becomes an old version.
    On,
    /// It is gone, and what became an old version before is still there.
    Suspended,
}

/// Why it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersioningError {
    /// There was no answer.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The answer was none.
    #[error("the bucket's versioning cannot be read: {0}")]
    NotXml(#[from] NotXml),
}

/// Asks a bucket. A server that does not know of versions keeps none.
///
/// # Errors
/// [`VersioningError`] when it is not known.
pub async fn read(settings: &BucketSettings) -> Result<Versioning, VersioningError> {
    match settings.read("versioning").await {
        Ok(Some(text)) => Ok(parse(&text)?),
        Ok(None) | Err(SettingsError::Unsupported(_)) => Ok(Versioning::Off),
        Err(error) => Err(error.into()),
    }
}

fn parse(text: &str) -> Result<Versioning, NotXml> {
    let document = Element::parse(text)?;
    match (document.name.as_str(), document.text_of("Status")) {
        ("VersioningConfiguration", None | Some("")) => Ok(Versioning::Off),
        ("VersioningConfiguration", Some("Enabled")) => Ok(Versioning::On),
        ("VersioningConfiguration", Some("Suspended")) => Ok(Versioning::Suspended),
        _ => Err(NotXml),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_servers_write_it() {
        let document = |inside: &str| {
            let open =
                "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
            parse(&format!("{open}{inside}</VersioningConfiguration>"))
        };
        assert_eq!(document(""), Ok(Versioning::Off));
        assert_eq!(document("<Status>Enabled</Status>"), Ok(Versioning::On));
        let suspended = "<MfaDelete>Disabled</MfaDelete><Status>Suspended</Status>";
        assert_eq!(document(suspended), Ok(Versioning::Suspended));
        assert_eq!(document("<Status>maybe</Status>"), Err(NotXml));
        assert_eq!(parse("<VersioningConfiguration/>"), Ok(Versioning::Off));
        assert_eq!(parse("<Error><Code>x</Code></Error>"), Err(NotXml));
    }
}
