//! Where numbers may be asked for: nowhere, unless an address is named, and then on this machine.

use std::net::SocketAddr;

/// The address, such as `127.0.0.1:9464`. Unset or empty: there is none.
pub const LISTEN: &str = "CARLOS_METRICS_LISTEN";

/// `1` allows an address that other machines reach.
pub const ALLOW_REMOTE: &str = "CARLOS_METRICS_ALLOW_REMOTE";

/// An address to answer `GET /metrics` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Loopback, unless the environment allowed another.
    pub address: SocketAddr,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The text is no address.
    #[error("not an address and a port, such as 127.0.0.1:9464")]
    NoAddress,
    /// Other machines would reach it: the numbers tell how much is read, and by whom nothing, but
    /// nothing protects them.
    #[error(
        "other machines may reach {0}; name a loopback address, or set {ALLOW_REMOTE} to 1 where \
         a firewall or a private network protects it"
    )]
    Remote(SocketAddr),
    /// A switch that is neither on nor off.
    #[error("neither 0 nor 1")]
    NoSwitch,
}

impl EndpointError {
    /// The variable that is wrong.
    pub const fn variable(&self) -> &'static str {
        match self {
            Self::NoAddress | Self::Remote(_) => LISTEN,
            Self::NoSwitch => ALLOW_REMOTE,
        }
    }
}

impl Endpoint {
    /// Reads both variables; `var` gives a variable's value.
    ///
    /// # Errors
    /// [`EndpointError`] for an address that cannot or must not be used.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, EndpointError> {
        let remote = match var(ALLOW_REMOTE).as_deref() {
            None | Some("" | "0") => false,
            Some("1") => true,
            Some(_) => return Err(EndpointError::NoSwitch),
        };
        let Some(text) = var(LISTEN).filter(|text| !text.is_empty()) else { return Ok(None) };
        let address: SocketAddr = text.parse().map_err(|_| EndpointError::NoAddress)?;
        match remote || address.ip().is_loopback() {
            true => Ok(Some(Self { address })),
            false => Err(EndpointError::Remote(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(listen: &str, remote: &str) -> Result<Option<Endpoint>, EndpointError> {
        Endpoint::from_env(|name| match name {
            LISTEN => Some(listen.to_owned()),
            _ => Some(remote.to_owned()),
        })
    }

    #[test]
    fn there_is_none_unless_one_is_named() {
        assert_eq!(Endpoint::from_env(|_| None), Ok(None));
        assert_eq!(read("", ""), Ok(None));
    }

    #[test]
    fn loopback_is_all_that_is_allowed_without_a_word() {
        for own in ["127.0.0.1:9464", "127.9.9.9:1", "[::1]:9464"] {
            assert_eq!(read(own, "0").unwrap().unwrap().address.to_string(), own);
        }
        for other in ["0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464", "[::ffff:10.0.0.1]:1"] {
            let address = other.parse().unwrap();
            assert_eq!(read(other, ""), Err(EndpointError::Remote(address)), "{other}");
            assert_eq!(read(other, "1"), Ok(Some(Endpoint { address })), "{other}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for text in ["9464", "localhost:9464", "127.0.0.1", "127.0.0.1:99999"] {
            assert_eq!(read(text, "1"), Err(EndpointError::NoAddress), "{text}");
        }
        assert_eq!(read("127.0.0.1:1", "yes"), Err(EndpointError::NoSwitch));
    }
}
