//! The command line: what can be asked, with help that shows it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use carlos_dbquery::Format as RowFormat;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::admin::Admin;
use crate::commands::{Doctor, ParamArgs};
use crate::stack::demo::Demo;
use crate::stack::dev::Dev;
use crate::when::parse_duration;

/// Query the database of an app, wherever its data lives.
#[derive(Debug, Parser)]
#[command(name = "carlos", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Remember a console and the token that opens it.
    Login(Login),
    /// Forget the console and its token.
    Logout,
    /// List the apps you can read.
    Apps(Apps),
    /// List the instances of an app, with the region each keeps its data in.
    Instances(Instances),
    /// Read an app's database.
    Db {
        #[command(subcommand)]
        command: Db,
    },
    /// Look into a replica you have direct access to.
    Replica {
        #[command(subcommand)]
        command: Replica,
    },
    Demo(Demo),
    Dev(Dev),
    Admin(Admin),
    Doctor(Doctor),
    /// Run the console that people's commands talk to. Its settings are environment variables.
    #[command(after_help = CONSOLE_SETTINGS)]
    Console,
    /// Run the agent that serves reads on a box. Its settings are environment variables.
    #[command(after_help = AGENT_SETTINGS)]
    Agent,
    /// What the platform starts by itself.
    System {
        #[command(subcommand)]
        command: System,
    },
}

#[derive(Debug, Subcommand)]
pub enum System {
    #[cfg(target_os = "linux")]
    InstallUnits(crate::system::InstallUnits),
    /// Decode and query one copy, in a sandbox. systemd or an agent starts it; you never do.
    DbWorker {
        /// The worker's own options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = LOGIN_EXAMPLES)]
pub struct Login {
    /// The console's address, such as `https://console.example.com`.
    pub url: String,
    /// Read the token from this file instead of the terminal or stdin.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct Apps {
    /// Print one JSON object instead of one app per line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Instances {
    /// The app: `shop`, or `account/shop` when more than one account has a shop.
    #[arg(value_name = "APP")]
    pub app: String,
    /// Print one JSON object instead of tab-separated lines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Db {
    /// Run one read-only SQL statement on a copy of the database.
    Query(Query),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = QUERY_EXAMPLES)]
pub struct Query {
    /// The app: `shop`, or `account/shop` when more than one account has a shop.
    #[arg(value_name = "APP")]
    pub app: String,
    /// The instance to read, when the app has more than one.
    #[arg(long, value_name = "HOST")]
    pub instance: Option<String>,
    /// Read the database as it was at this time: `2026-10-07T14:00:00Z`, or `-15m` for a quarter
    /// of an hour ago.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How to print the rows. The default is a table on a terminal and TSV anywhere else.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub params: ParamArgs,
    /// Write the rows to this file instead of stdout, once all of them have checked out.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file of --output if there is one.
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Give up after this long: `45s`, `15m`, `1h30m`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// Read the SQL from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    pub file: Option<PathBuf>,
    /// The SQL statement, or `-` to read it from stdin.
    #[arg(value_name = "SQL", required_unless_present = "file", allow_hyphen_values = true)]
    pub sql: Option<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns, for reading.
    Table,
    /// Tab-separated values, for other programs.
    Tsv,
    /// One JSON array of objects.
    Json,
    /// Comma-separated values as RFC 4180 has them, for spreadsheets and loaders.
    Csv,
    /// A JSON object a line, and a last line with the count and digest of all.
    Ndjson,
}

impl From<Format> for RowFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Tsv => Self::Tsv,
            Format::Json => Self::Json,
            Format::Csv => Self::Csv,
            Format::Ndjson => Self::Ndjson,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Replica {
    /// Show which files would restore the database, without reading their pages.
    Plan(ReplicaPlan),
    /// Restore the database into a file.
    Restore(ReplicaRestore),
    /// List everything that stands there, named for what it is.
    #[command(after_help = LS_EXAMPLES)]
    Ls(ReplicaLook),
    /// Read and check every byte of every file.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(ReplicaLook),
}

#[derive(Debug, ClapArgs)]
pub struct ReplicaLook {
    /// Where the replica is: `s3://bucket/prefix` or `file:///path/to/replica`.
    pub url: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct ReplicaPlan {
    /// Where the replica is: `s3://bucket/prefix` or `file:///path/to/replica`.
    pub url: String,
    /// As of this time, instead of the newest.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = RESTORE_EXAMPLES)]
pub struct ReplicaRestore {
    /// Where the replica is: `s3://bucket/prefix` or `file:///path/to/replica`.
    pub url: String,
    /// The file to create. It must not exist yet.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// As of this time, instead of the newest.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  carlos login https://console.example.com
  carlos apps
  carlos db query shop 'SELECT count(*) FROM orders'

Data goes to stdout, everything else to stderr. docs/cli.md lists the exit codes.";

const CONSOLE_SETTINGS: &str = "\
Settings:
  CARLOS_BUCKET         the deployment bucket: s3://bucket or file:///path/to/directory
  CARLOS_S3_ENDPOINT    the server of s3:// buckets, unless it is AWS (docs/cli.md: Stores)
  CARLOS_REGION         the region this console stands in
  CARLOS_DB_FORWARD     1 forwards reads to other regions (default 0)
  CARLOS_ROOT_KEY_FILE  the key that signs forwarded reads, made by carlos admin keys root
  CARLOS_LISTEN         address and port (default 127.0.0.1:8080)
  CARLOS_METRICS_LISTEN a loopback address and port for GET /metrics (default none)
  CARLOS_LOG            what to log (default info)";

const AGENT_SETTINGS: &str = "\
Settings:
  CARLOS_BUCKET             the deployment bucket: s3://bucket or file:///path/to/directory
  CARLOS_S3_ENDPOINT        the server of s3:// buckets, unless it is AWS (docs/cli.md: Stores)
  CARLOS_BOX                this box's name
  CARLOS_REGION             the region whose replicas it reads
  CARLOS_RELEASE_PUBKEY     the public keys it takes requests from: base64, separated by commas
  CARLOS_HIBERNATE_BUCKET   the region's data bucket
  CARLOS_HIBERNATE_PREFIX   where in it the replicas are: each in <prefix>/<host>
  CARLOS_DB_READS           0 withdraws this box from reads
  CARLOS_DB_READ_SANDBOX    full (default) demands workers in a unit of their own; inner takes the
                            walls that a worker builds itself, and is what this command needs
  CARLOS_DB_READ_MAX_BYTES  the largest database it restores, in digits (default 2147483648)
  CARLOS_DB_READ_SCRATCH    where workers restore copies; must exist (default /var/tmp)
  CARLOS_METRICS_LISTEN     a loopback address and port for GET /metrics (default none)
  CARLOS_LOG                what to log (default info)";

const LOGIN_EXAMPLES: &str = "\
The token is asked for on the terminal, or read from stdin or --token-file. It is never an
argument, because every process on a machine can read another's arguments.

Examples:
  carlos login https://console.example.com
  carlos login https://console.example.com --token-file ./token
  pass show carlos | carlos login https://console.example.com";

const QUERY_EXAMPLES: &str = "\
Examples:
  carlos db query shop 'SELECT count(*) FROM orders'
  carlos db query acme/shop --instance shop.example.com 'SELECT * FROM orders LIMIT 10'
  carlos db query shop --at -15m --format json 'SELECT * FROM carts'
  carlos db query shop --at 2026-10-07T14:00:00Z --file report.sql > report.tsv
  carlos db query shop 'SELECT * FROM orders WHERE sku = ?' --param pen
  carlos db query shop --output orders.csv --format csv 'SELECT * FROM orders'
  echo 'SELECT 1' | carlos db query shop -";

const LS_EXAMPLES: &str = "\
Prints level, name, size and time of each transaction file, separated by tabs. What else stands
there, the newest state and how far back --at reaches are said on stderr.

Examples:
  carlos replica ls s3://backups/shop
  carlos replica ls file:///backups/shop --json";

const VERIFY_EXAMPLES: &str = "\
Prints for each level, separated by tabs: level, files, bytes, first and last transaction, gaps, and
the transaction that it leads to from the best snapshot. Ends with 14 when a file is damaged or the
newest state cannot be restored; --json prints its report even then.

Examples:
  carlos replica verify s3://backups/shop
  carlos replica verify file:///backups/shop --json";

const RESTORE_EXAMPLES: &str = "\
Examples:
  carlos replica restore s3://backups/shop --out shop.db
  carlos replica restore file:///backups/shop --out shop.db --at 2026-10-07T14:00:00Z --json";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_is_documented() {
        let doc = include_str!("../../docs/cli.md");
        for command in Args::command().get_subcommands() {
            let name = format!("carlos {}", command.get_name());
            assert!(doc.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_relative_time_is_not_taken_for_a_flag() {
        let args = Args::try_parse_from(["carlos", "db", "query", "shop", "--at", "-15m", "-"]);
        let Command::Db { command: Db::Query(query) } = args.expect("parses").command else {
            panic!("not a query");
        };
        assert_eq!(query.at.as_deref(), Some("-15m"));
        assert_eq!(query.sql, Some(OsString::from("-")));
    }

    #[test]
    fn sql_comes_from_one_place() {
        for line in [&["shop"][..], &["shop", "--file", "f", "SELECT 1"]] {
            let words = ["carlos", "db", "query"].iter().chain(line);
            let refused = Args::try_parse_from(words).expect_err("refused");
            assert_eq!(refused.exit_code(), 2);
        }
    }
}
