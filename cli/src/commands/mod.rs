//! One module for each group of commands.

mod account;
mod choose;
mod listing;
mod query;
mod reading;
mod replica;
mod sql;

use carlos_bucket::Context;

use crate::args::{Command, Db, Replica};
use crate::client::Client;
use crate::config::Config;
use crate::failure::Failure;

/// Runs one client command to its end.
pub async fn run(command: Command, context: Context) -> Result<(), Failure> {
    match command {
        Command::Login(args) => account::login(&args, context).await,
        Command::Logout => account::logout(),
        Command::Apps(args) => listing::apps(&args, &client(context)?).await,
        Command::Instances(args) => listing::instances(&args, &client(context)?).await,
        Command::Db { command: Db::Query(args) } => query::query(args, context).await,
        Command::Replica { command: Replica::Plan(args) } => replica::plan(args, context).await,
        Command::Replica { command: Replica::Restore(args) } => {
            replica::restore(args, context).await
        }
    }
}

fn client(context: Context) -> Result<Client, Failure> {
    Client::new(Config::from_env()?.login()?, context)
}
