//! `carlos admin`: accounts, tokens, instances, boxes and keys of a deployment, straight on its
//! bucket with an operator's rights.

mod apply;
pub mod grants;
mod instances;
mod keyfiles;
pub mod lifecycle;
mod operator;
mod policies;
pub mod state;
pub mod versioning;
mod xml;

use std::path::PathBuf;
use std::time::Duration;

use carlos_bucket::{Bucket, Context, OpenError, open_existing, open_store};
use carlos_protocol::ids::{Account, App, BoxName, Class, Host, Region};
use carlos_protocol::records::class_refusal;
use carlos_protocol::time::Seconds;
use carlos_protocol::tokens::TokenKind;
use clap::{Args, Subcommand};

pub use self::instances::{KnownBox, NewInstance};
pub use self::keyfiles::{read_key, write_private};
pub use self::operator::{AdminError, Operator};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::out;
use crate::when::parse_duration;

/// Manage a deployment's records with an operator's rights on its bucket.
#[derive(Debug, Args)]
pub struct Admin {
    /// The deployment bucket: `s3://bucket` or `file:///path/to/directory`.
    #[arg(long, env = "CARLOS_BUCKET", value_name = "URL", global = true)]
    bucket: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Open and list accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Add people to an account and take them out.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Issue and revoke the tokens that open the console.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Create, move and delete instances.
    #[command(subcommand)]
    Instance(InstanceCommand),
    /// The servers that can serve reads.
    #[command(subcommand)]
    Box(BoxCommand),
    /// Make the keys that sign requests.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Print the policies that give each service its rights on the buckets, and no more.
    Policies(policies::Policies),
    /// Bring the deployment's buckets to the state that Terraform's modules give them.
    Apply(apply::Apply),
}

#[derive(Debug, Subcommand)]
enum AccountCommand {
    /// Open an account. In a directory that is not there yet, this makes it.
    Create {
        /// Its name: lower-case letters, digits and hyphens.
        account: Account,
    },
    /// List the accounts.
    List,
}

#[derive(Debug, Subcommand)]
enum MemberCommand {
    /// Make EMAIL a member of ACCOUNT.
    Add {
        /// The account whose apps the person may read.
        account: Account,
        /// The person, as the activity log names them.
        email: String,
        /// The account that issues this person's tokens, when it is another one.
        #[arg(long, value_name = "ACCOUNT")]
        home: Option<Account>,
    },
    /// List the members of ACCOUNT.
    List {
        /// The account.
        account: Account,
    },
    /// End EMAIL's membership and every token of it.
    Remove {
        /// The account to leave.
        account: Account,
        /// The member.
        email: String,
    },
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Issue a token for a member. It is printed once and kept nowhere.
    Create {
        /// The account that issues it.
        account: Account,
        /// A member of that account.
        email: String,
        /// For a machine. Database reads are for people and refuse it.
        #[arg(long)]
        service: bool,
        /// End the token after this long: `30d`.
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        expires_in: Option<Duration>,
    },
    /// List the tokens of ACCOUNT by the beginning of their hash.
    List {
        /// The account that issued them.
        account: Account,
    },
    /// End the token whose hash begins with HASH.
    Revoke {
        /// The account that issued it.
        account: Account,
        /// The beginning of its hash, as `token list` prints it: at least 8 hex digits.
        #[arg(value_parser = hash_prefix)]
        hash: String,
    },
}

#[derive(Debug, Subcommand)]
enum InstanceCommand {
    /// Give a free host to an app.
    Create {
        /// The instance's host name, which is also its replica's directory.
        host: Host,
        /// The account that owns it.
        #[arg(long)]
        account: Account,
        /// The app it is an instance of.
        #[arg(long)]
        app: App,
        /// The region that keeps its data.
        #[arg(long)]
        region: Region,
        /// What kind of instance it is. `sleeping` and `standard` keep a replica and can be read;
        /// any other is recorded and cannot be.
        #[arg(long, default_value = "sleeping")]
        class: Class,
    },
    /// List the instances of ACCOUNT.
    List {
        /// The account that owns them.
        account: Account,
    },
    /// Mark an instance as moving to a region; nobody can read it until the move has ended.
    Move {
        /// The instance.
        host: Host,
        /// The region it moves to.
        #[arg(long)]
        to: Region,
    },
    /// End a move: the data is now where the move went.
    EndMove {
        /// The instance.
        host: Host,
    },
    /// Delete an instance. Its name becomes free.
    Delete {
        /// The instance.
        host: Host,
    },
}

#[derive(Debug, Subcommand)]
enum BoxCommand {
    /// Make a box known and print the environment for its agent.
    Create {
        /// The box's name: lower-case letters, digits and hyphens.
        name: BoxName,
        /// The region whose replicas it reads.
        #[arg(long)]
        region: Region,
        /// A key file whose public half the box shall accept requests from.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// List the boxes with what they can serve.
    List,
    /// Forget a box that is gone for good.
    Remove {
        /// The box.
        name: BoxName,
    },
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Make a root key. Consoles sign with the file; boxes accept the public half it prints.
    Root {
        /// The file to create, which must not exist.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Make a key that the root certifies for one purpose. It cannot sign requests.
    Scoped {
        /// The root key's file.
        #[arg(long, value_name = "FILE")]
        root: PathBuf,
        /// What the key is for, in one word.
        #[arg(long)]
        purpose: String,
        /// The file to create, which must not exist.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the public half of a key file.
    Public {
        /// The key file.
        file: PathBuf,
    },
}

/// Runs one admin command.
pub(crate) async fn run(admin: Admin, context: Context) -> Result<(), Failure> {
    let Admin { bucket, command } = admin;
    if let Command::Keys(command) = command {
        return keys(command, &context);
    }
    let url = bucket.ok_or_else(|| {
        Failure::usage("say which bucket: --bucket s3://bucket, or CARLOS_BUCKET.")
    })?;
    match command {
        Command::Policies(args) => policies::print(&url, args),
        Command::Apply(args) => apply::apply(&url, args).await,
        command => on_records(command, &url, context).await,
    }
}

async fn on_records(command: Command, url: &str, context: Context) -> Result<(), Failure> {
    // An account comes before everything else in a new bucket, so a directory may begin with one.
    let opened = match command {
        Command::Account(AccountCommand::Create { .. }) => open_store(url),
        _ => open_existing(url),
    };
    let operator = Operator::new(Bucket::new(opened.map_err(|error| not_opened(&error))?, context));
    match command {
        Command::Account(command) => account(command, &operator).await,
        Command::Member(command) => member(command, &operator).await,
        Command::Token(command) => token(command, &operator).await,
        Command::Instance(command) => instance(command, &operator).await,
        Command::Box(command) => a_box(command, &operator, url).await,
        Command::Keys(_) | Command::Policies(_) | Command::Apply(_) => {
            unreachable!("handled before the bucket was opened")
        }
    }
}

fn not_opened(error: &OpenError) -> Failure {
    let way_out = match error {
        OpenError::NoDirectory(_) => " carlos admin account create makes a new one.",
        _ => "",
    };
    Failure::usage(format!("{error}.{way_out}"))
}

async fn account(command: AccountCommand, operator: &Operator) -> Result<(), Failure> {
    match command {
        AccountCommand::Create { account } => {
            operator.create_account(&account).await?;
            out::say(&format!("account {account} is open."));
            Ok(())
        }
        AccountCommand::List => {
            out::lines(operator.accounts().await?.into_iter().map(String::from))
        }
    }
}

async fn member(command: MemberCommand, operator: &Operator) -> Result<(), Failure> {
    match command {
        MemberCommand::Add { account, email, home } => {
            operator.add_member(&account, &email, home.as_ref()).await?;
            out::say(&format!("{email} is a member of {account}."));
            Ok(())
        }
        MemberCommand::List { account } => {
            let record = operator.account(&account).await?;
            out::lines(record.members.into_iter().map(|member| member.email))
        }
        MemberCommand::Remove { account, email } => {
            operator.remove_member(&account, &email).await?;
            out::say(&format!("{email} is no longer a member of {account}."));
            Ok(())
        }
    }
}

async fn token(command: TokenCommand, operator: &Operator) -> Result<(), Failure> {
    match command {
        TokenCommand::Create { account, email, service, expires_in } => {
            let kind = if service { TokenKind::Service } else { TokenKind::Person };
            let now = operator.context().now_unix();
            let expires = expires_in.map(|wait| Seconds::new(now.saturating_add(wait.as_secs())));
            let token = operator.create_token(&account, &email, kind, expires).await?;
            out::lines([token.reveal().to_owned()])
        }
        TokenCommand::List { account } => {
            let record = operator.account(&account).await?;
            let line = |email: &str, token: &carlos_protocol::records::TokenRecord| {
                let ends = token.expires.map_or_else(|| "never".to_owned(), |at| at.to_string());
                format!("{}\t{email}\t{:?}\t{ends}", token.sha256.prefix(), token.kind)
            };
            out::lines(record.members.iter().flat_map(|member| {
                member.tokens.iter().map(move |token| line(&member.email, token))
            }))
        }
        TokenCommand::Revoke { account, hash } => {
            operator.revoke_token(&account, &hash).await?;
            out::say("the token is revoked.");
            Ok(())
        }
    }
}

async fn instance(command: InstanceCommand, operator: &Operator) -> Result<(), Failure> {
    match command {
        InstanceCommand::Create { host, account, app, region, class } => {
            let new = NewInstance { account, app, host, region, class };
            let record = operator.create_instance(new).await?;
            out::say(&format!("{} keeps its data in {}.", record.host, record.region));
            if class_refusal(&record).is_some() {
                let class = &record.class;
                out::say(&format!("its class {class} keeps no replica, so it cannot be read."));
            }
        }
        InstanceCommand::List { account } => {
            let records = operator.instances(&account).await?;
            return out::lines(records.into_iter().map(|record| {
                let moving = record.moving.map_or_else(String::new, |to| format!("\tto {}", to.to));
                let (host, app) = (record.host, record.app);
                format!("{host}\t{app}\t{}\t{}{moving}", record.region, record.class)
            }));
        }
        InstanceCommand::Move { host, to } => {
            operator.begin_move(&host, &to).await?;
            out::say(&format!("{host} is moving to {to}."));
        }
        InstanceCommand::EndMove { host } => {
            operator.end_move(&host).await?;
            out::say(&format!("the move of {host} has ended."));
        }
        InstanceCommand::Delete { host } => {
            operator.delete_instance(&host).await?;
            out::say(&format!("{host} is deleted. its name is free."));
        }
    }
    Ok(())
}

async fn a_box(command: BoxCommand, operator: &Operator, url: &str) -> Result<(), Failure> {
    match command {
        BoxCommand::Create { name, region, key } => {
            let key = key.as_deref().map(read_key).transpose()?;
            operator.create_box(&name, &region).await?;
            let pubkey = key.map_or_else(
                || "# CARLOS_RELEASE_PUBKEY=the public half of the consoles' root key".to_owned(),
                |key| format!("CARLOS_RELEASE_PUBKEY={}", key.public()),
            );
            out::lines([
                format!("CARLOS_BUCKET={url}"),
                format!("CARLOS_BOX={name}"),
                format!("CARLOS_REGION={region}"),
                pubkey,
                format!("# CARLOS_HIBERNATE_BUCKET=the bucket of {region}'s replicas"),
            ])
        }
        BoxCommand::List => {
            let now = operator.context().now_unix();
            out::lines(operator.boxes().await?.into_iter().map(|known| box_line(&known, now)))
        }
        BoxCommand::Remove { name } => {
            operator.remove_box(&name).await?;
            out::say(&format!("{name} is forgotten."));
            Ok(())
        }
    }
}

/// `token list` prints 16 digits; 8 tell the tokens of an account apart, and one mistyped digit
/// should not end somebody's access.
const HASH_PREFIX_DIGITS: usize = 8;

fn hash_prefix(text: &str) -> Result<String, String> {
    let hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    match hex && text.len() >= HASH_PREFIX_DIGITS {
        true => Ok(text.to_owned()),
        false => Err(format!("write at least {HASH_PREFIX_DIGITS} lower-case hex digits")),
    }
}

fn box_line(known: &KnownBox, now_unix: u64) -> String {
    let region = known.edges.as_ref().map_or("-", |edges| edges.region.as_str());
    let serves = known.edges.as_ref().map_or_else(String::new, |edges| {
        edges.capabilities.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(",")
    });
    let seen = known.status.as_ref().map_or_else(
        || "never seen".to_owned(),
        |status| format!("seen {} s ago", now_unix.saturating_sub(status.time_unix)),
    );
    format!("{}\t{region}\t{serves}\t{seen}", known.name)
}

fn keys(command: KeysCommand, context: &Context) -> Result<(), Failure> {
    match command {
        KeysCommand::Root { out } => keyfiles::make_root(&out, context),
        KeysCommand::Scoped { root, purpose, out } => {
            keyfiles::make_scoped(&root, &purpose, &out, context)
        }
        KeysCommand::Public { file } => out::lines([read_key(&file)?.public().to_string()]),
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let exit = match &error {
            AdminError::Absent { .. } => Exit::NotFound,
            AdminError::Exists { .. } | AdminError::Refused(_) | AdminError::Name(_) => Exit::Usage,
            _ => Exit::Unexpected,
        };
        let sentence = error.to_string();
        Self::new(exit, if sentence.ends_with('.') { sentence } else { format!("{sentence}.") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_by_enough_of_its_hash() {
        assert_eq!(hash_prefix("0123abcd"), Ok("0123abcd".to_owned()));
        for bad in ["", "a", "0123abc", "0123ABCD", "0123abcg", "zzzzzzzz"] {
            assert!(hash_prefix(bad).is_err(), "{bad:?}");
        }
    }
}
