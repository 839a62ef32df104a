//! Landlock: no path but that of the one file a worker restores to.

use std::error::Error;
use std::path::Path;

use landlock::ABI;
use landlock::Access;
use landlock::AccessFs;
use landlock::AccessNet;
use landlock::BitFlags;
use landlock::LandlockStatus;
use landlock::PathBeneath;
use landlock::PathFd;
use landlock::RestrictionStatus;
use landlock::Ruleset;
use landlock::RulesetAttr;
use landlock::RulesetCreatedAttr;
use landlock::RulesetStatus;
use landlock::Scope;

use super::report::Level;

/// The version whose every right is asked for. The sixth (Linux 6.12) is the last that adds one
/// the system call filter does not already cover: signals to processes outside.
const WANTED: ABI = ABI::V6;

/// What the kernel made of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landlocked {
    pub(super) level: Level,
    /// Version of Landlock whose rights are enforced: at most [`WANTED`], 0 for none.
    pub(super) abi: u32,
    /// Version the kernel offers, also above [`WANTED`]; 0 when it has none or hides it.
    pub(super) offered: u32,
}

/// Binds the calling thread to `database`, as far as the running kernel can.
pub(super) fn restrict_to(database: &Path) -> Landlocked {
    match ruleset(database) {
        Ok(status) => enforced(&status),
        Err(error) => {
            tracing::warn!(%error, "landlock could not be put in force");
            // What went wrong was not its absence.
            Landlocked { level: Level::None, abi: 0, offered: WANTED as u32 }
        }
    }
}

fn ruleset(database: &Path) -> Result<RestrictionStatus, Box<dyn Error>> {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new(database)?, database_rights()))?
        .restrict_self()?;
    Ok(status)
}

/// What restoring and reading a database takes. Nothing is made, renamed or removed.
fn database_rights() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate
}

fn enforced(status: &RestrictionStatus) -> Landlocked {
    let level = match status.ruleset {
        RulesetStatus::FullyEnforced => Level::Full,
        RulesetStatus::PartiallyEnforced => Level::Partial,
        RulesetStatus::NotEnforced => Level::None,
    };
    let offered = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
        _ => ABI::Unsupported,
    };
    let abi = if level == Level::None { ABI::Unsupported } else { offered.min(WANTED) };
    Landlocked { level, abi: abi as u32, offered: offered as u32 }
}
