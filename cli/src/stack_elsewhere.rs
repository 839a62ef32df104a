//! What stands in for the embedded stack where it cannot run: its workers' sandbox is Linux's own.

use crate::exit::Exit;
use crate::failure::Failure;

pub mod demo {
    use carlos_bucket::Context;

    use crate::failure::Failure;

    /// Watch one forwarded read from start to end (Linux only).
    #[derive(Debug, clap::Args)]
    pub struct Demo {}

    pub(crate) async fn run(_: Demo, _: Context) -> Result<(), Failure> {
        Err(super::linux_only("demo"))
    }
}

pub mod dev {
    use carlos_bucket::Context;

    use crate::failure::Failure;

    /// Run the whole stack in one terminal (Linux only).
    #[derive(Debug, clap::Args)]
    pub struct Dev {}

    pub(crate) async fn run(
        _: Dev,
        _: Context,
        _: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        Err(super::linux_only("dev"))
    }
}

fn linux_only(command: &str) -> Failure {
    let why = "because its workers' sandbox is Linux's own";
    Failure::new(Exit::Unexpected, format!("carlos {command} runs on Linux only, {why}."))
}
