//! Landlock: no path but those under the scratch directory.

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
}

/// Binds the calling thread to `scratch`, as far as the running kernel can.
pub(super) fn restrict_to(scratch: &Path) -> Landlocked {
    match ruleset(scratch) {
        Ok(status) => enforced(&status),
        Err(error) => {
            tracing::warn!(%error, "landlock could not be put in force");
            Landlocked { level: Level::None, abi: 0 }
        }
    }
}

fn ruleset(scratch: &Path) -> Result<RestrictionStatus, Box<dyn Error>> {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new(scratch)?, scratch_rights()))?
        .restrict_self()?;
    Ok(status)
}

/// What restoring and reading a database takes: plain files, made, written, read and removed.
/// No directory, link, device, pipe or socket is made, and nothing is executed.
fn scratch_rights() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
}

fn enforced(status: &RestrictionStatus) -> Landlocked {
    let level = match status.ruleset {
        RulesetStatus::FullyEnforced => Level::Full,
        RulesetStatus::PartiallyEnforced => Level::Partial,
        RulesetStatus::NotEnforced => Level::None,
    };
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if level != Level::None => effective_abi,
        _ => ABI::Unsupported,
    };
    Landlocked { level, abi: abi.min(WANTED) as u32 }
}
