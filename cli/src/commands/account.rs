//! `carlos login` and `carlos logout`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use carlos_bucket::Context;
use zeroize::Zeroizing;

use crate::args::Login as Args;
use crate::client::{Client, Origin, Token};
use crate::config::{Config, Login};
use crate::failure::Failure;
use crate::out;

/// Asks for a token, tries it, and only then keeps it.
pub(super) async fn login(args: &Args, context: Context) -> Result<(), Failure> {
    let config = Config::from_env()?;
    let origin = Origin::parse(&args.url)?;
    let token = read_token(args.token_file.as_deref(), &origin, &context).await?;
    let login = Login { origin, token };
    let client = Client::new(login.clone(), context)?;
    let apps = client.apps().await?.apps.len();
    config.store(&login)?;
    out::say(&format!("logged in to {}. you can read {}.", login.origin, counted(apps)));
    Ok(())
}

pub(super) fn logout() -> Result<(), Failure> {
    let was_logged_in = Config::from_env()?.forget()?;
    out::say(if was_logged_in { "logged out." } else { "you were not logged in." });
    Ok(())
}

async fn read_token(
    file: Option<&Path>,
    origin: &Origin,
    context: &Context,
) -> Result<Token, Failure> {
    let text = match file {
        Some(path) => read_file(path),
        None => out::secret(&format!("token for {origin}: "), context).await,
    };
    let unreadable = |error| Failure::usage("could not read the token.").because(error);
    Token::parse(&text.map_err(unreadable)?)
}

fn read_file(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    File::open(path)?.take(MAX_TOKEN_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn counted(apps: usize) -> String {
    match apps {
        1 => "1 app".to_owned(),
        _ => format!("{apps} apps"),
    }
}

/// A token is well under this; a file named by mistake is not read whole.
const MAX_TOKEN_FILE: u64 = 4096;
