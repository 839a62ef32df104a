//! `carlos dev`: the whole stack in one terminal, until Ctrl-C.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use carlos_bucket::Context;
use carlos_protocol::ids::Region;
use clap::Args;

use super::home::HomeError;
use super::replicator::ReplicateError;
use super::{Options, Stack, StackError, own_worker};
use crate::commands::services;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::out;

/// Run console, agents and workers on a local directory, with a replica of your own database.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Dev {
    /// Where everything is kept. The default is a directory of its own in your data directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The SQLite file to replicate. It is opened read-only and never changed; without it a
    /// sample shop is made.
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// The regions: the console stands in the first, the data lives in the last.
    #[arg(long, value_name = "REGIONS", value_delimiter = ',', default_value = "ie,uk")]
    regions: Vec<Region>,
    /// The console's port on 127.0.0.1; 0 takes a free one. The default is 7280, or a free one when
    /// that is taken.
    #[arg(long)]
    port: Option<u16>,
}

/// The same at every start where it can be, so that a shell keeps its `CARLOS_URL`.
const PORT: u16 = 7280;

const EXAMPLES: &str = "\
Examples:
  carlos dev
  carlos dev --db shop.db
  carlos dev --db shop.db --dir ./dev --port 8080";

/// Runs until `interrupted` ends, then stops every part.
pub(crate) async fn run(
    dev: Dev,
    context: Context,
    interrupted: impl Future<Output = ()>,
) -> Result<(), Failure> {
    services::log_to_stderr("warn");
    let options = options(dev)?;
    let starting = Stack::start(options, context);
    tokio::pin!(interrupted);
    let stack = tokio::select! {
        biased;
        () = &mut interrupted => return Err(Failure::new(Exit::Stopped, "stopped")),
        stack = starting => stack?,
    };
    for line in greeting(&stack) {
        out::say(&line);
    }
    interrupted.await;
    out::say("stopping.");
    stack.stop().await;
    Ok(())
}

fn options(dev: Dev) -> Result<Options, Failure> {
    if let Some(db) = dev.db.as_ref().filter(|db| !db.is_file()) {
        return Err(Failure::usage(format!("{} is not a file.", db.display())));
    }
    let ports = dev.port.map_or_else(|| vec![PORT, 0], |port| vec![port]);
    Ok(Options {
        dir: dev.dir.map_or_else(default_dir, Ok)?,
        db: dev.db,
        regions: dev.regions,
        listen: ports.into_iter().map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect(),
        worker: own_worker()?,
    })
}

/// `$XDG_DATA_HOME/carlos/dev`, or its default below the home directory.
fn default_dir() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("carlos").join("dev"))
        .ok_or_else(|| Failure::usage("say where to keep the data: --dir DIR."))
}

/// What a person pastes into a second terminal. The token is theirs and this machine's: the
/// console listens on loopback only.
fn greeting(stack: &Stack) -> Vec<String> {
    let Stack { url, app, host, region, .. } = stack;
    let carlos = command();
    vec![
        format!("{app} is {host}. its data lives in {region}. the console is {url}."),
        String::new(),
        "in another terminal:".to_owned(),
        String::new(),
        format!("  export CARLOS_URL={url} CARLOS_TOKEN={}", stack.token.reveal()),
        format!("  {carlos} db query {app} 'SELECT name FROM sqlite_schema'"),
        String::new(),
        "Ctrl-C stops everything.".to_owned(),
    ]
}

/// What a shell calls this program: its path, unless it is found by its name.
fn command() -> String {
    let Ok(program) = std::env::current_exe() else { return "carlos".to_owned() };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join("carlos"));
    let is_this = |path: std::path::PathBuf| path.canonicalize().is_ok_and(|path| path == program);
    match found.into_iter().find(|path| path.is_file()).is_some_and(is_this) {
        true => "carlos".to_owned(),
        false => quoted(&program.display().to_string()),
    }
}

/// `text` as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

impl From<StackError> for Failure {
    fn from(error: StackError) -> Self {
        match error {
            StackError::Admin(error) => error.into(),
            // What the person named cannot be used; everything else is this machine's trouble.
            StackError::Listen { .. }
            | StackError::Regions(_)
            | StackError::Names
            | StackError::Replicate(ReplicateError::Source(_))
            | StackError::Home(HomeError::Locked(_) | HomeError::Key(_)) => {
                Self::usage(format!("{error}."))
            }
            other => Self::unexpected(format!("{other}.")),
        }
    }
}
