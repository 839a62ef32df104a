//! `carlos system`: what root asks for on a box (db-forward §8.3).

mod install;
mod settings;
mod units;

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::failure::Failure;
use crate::out;
use crate::system::install::Place;
use crate::system::settings::Limits;
use crate::system::units::Rendered;

/// Write the systemd units of this box, and have the workers' socket listen.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub struct InstallUnits {
    /// Print the files instead of writing them. Needs no root.
    #[arg(long)]
    pub dry_run: bool,
    /// Write below this directory, for an image that is being built, and start nothing.
    #[arg(long, value_name = "DIR", value_parser = clap::value_parser!(PathBuf))]
    pub root: Option<PathBuf>,
    /// The agent's settings, whose limits the units repeat.
    #[arg(long, value_name = "FILE", default_value = units::AGENT_SETTINGS)]
    pub settings: PathBuf,
}

const EXAMPLES: &str = "\
The units expect this program at /opt/carlos/carlos and settings, one NAME=VALUE a line, in
/etc/carlos/agent.env and /etc/carlos/console.env. Run this again after changing a limit there.

Examples:
  sudo /opt/carlos/carlos system install-units
  sudo systemctl enable --now carlos-agent.service
  carlos system install-units --dry-run";

/// Brings the units of this machine, or of a directory, to what the settings ask for.
///
/// # Errors
/// [`Failure`] names the setting, file or command that stood in the way. What was written stays,
/// and running it again goes on from there.
pub fn install_units(args: &InstallUnits) -> Result<(), Failure> {
    let place = Place::new(args.root.as_deref());
    let limits = Limits::read(&place.path(&args.settings))?;
    let files = units::render(&limits);
    if args.dry_run {
        return out::lines(files.iter().flat_map(shown));
    }
    place.require()?;
    let changed = place.write(&files)?;
    place.apply(&changed)
}

/// A file as `--dry-run` prints it: its path as a comment, then its lines.
fn shown(file: &Rendered) -> Vec<String> {
    let heading = format!("# ==> {}", file.path);
    std::iter::once(heading).chain(file.text.lines().map(str::to_owned)).collect()
}
