//! Where a console is, and what may be sent there.

use std::fmt;

use carlos_protocol::copy;
use reqwest::Url;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// A console's address: scheme, host and port.
///
/// It is https, or plain http to this machine itself, because every request carries a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(Url);

impl Origin {
    /// Reads an address as a person types it.
    ///
    /// # Errors
    /// A usage failure for anything but `https://host[:port]` or loopback `http://host[:port]`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let url = Url::parse(text).map_err(|_| Self::refused("is not a web address"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Self::refused("must not carry a user name or password"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(Self::refused("must be a host alone, without a path"));
        }
        match url.scheme() {
            "https" if url.host().is_some() => Ok(Self(url)),
            "http" if is_loopback(&url) => Ok(Self(url)),
            "http" => Err(copy::token_needs_https(url.origin().ascii_serialization()).into()),
            _ => Err(Self::refused("must start with https://")),
        }
    }

    /// Whether requests go unencrypted, which is possible within this machine only.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// The address of `path`, which begins with a slash, on the console.
    #[must_use]
    pub fn at(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(path);
        url
    }

    /// The address itself is left out: it may hold a password someone typed into it.
    fn refused(why: &str) -> Failure {
        Failure::usage(format!("the console's address {why}."))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// What opens the console: a bearer token, shown to nobody.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Takes a token as pasted, without the line break around it.
    ///
    /// # Errors
    /// A usage failure when the text cannot be a token at all. Whether it is a good one, only the
    /// console knows.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let text = text.trim();
        let plausible = (1..=MAX_TOKEN).contains(&text.len());
        if !plausible || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Failure::usage("that is not a token."));
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// The token's text, for the request header and the login file only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}

/// Four times the length of the longest token a console makes; a file given by mistake is longer.
const MAX_TOKEN: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn https_anywhere_and_http_only_here() {
        for good in [
            "https://console.example.com",
            "https://10.0.0.1:8443/",
            "http://127.0.0.1:8080",
            "http://127.3.2.1",
            "http://[::1]:9000",
            "http://localhost:3000/",
        ] {
            assert!(Origin::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://console.example.com",
            "http://10.0.0.1",
            "http://localhost.example.com",
            "http://[::ffff:127.0.0.1]",
            "http://0.0.0.0",
            "ftp://localhost",
            "file:///etc",
            "console.example.com",
            "https://console.example.com/path",
            "https://console.example.com/?q",
            "",
        ] {
            assert_eq!(Origin::parse(bad).expect_err(bad).exit, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        let refused = Origin::parse("https://me:hunter2@console.example.com").expect_err("refused");
        assert!(!refused.sentence.contains("hunter2"));
    }

    #[test]
    fn a_path_cannot_leave_the_console() {
        let origin = Origin::parse("https://console.example.com").expect("good");
        let url = origin.at("//evil.example.com/a?b#c");
        assert_eq!(url.host_str(), Some("console.example.com"));
        assert_eq!((url.query(), url.fragment()), (None, None));
    }

    #[test]
    fn a_token_never_shows() {
        let token = Token::parse(" cpt_acme_secret\n").expect("plausible");
        assert_eq!(token.expose(), "cpt_acme_secret");
        assert!(!format!("{token:?}").contains("secret"));
        for bad in ["", "two words", "a\nb", &"x".repeat(513), "tök"] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
    }
}
