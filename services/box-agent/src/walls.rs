//! The walls around a worker that this box demands (db-forward §8.3). Some a worker builds around
//! itself, some only a unit or a container can; a worker that reports less is not served with.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use carlos_protocol::frames::{Rlimits, Sandbox};
use carlos_protocol::limits::RESTORED_BYTES;
use thiserror::Error;

/// The Landlock version a worker must report: the first that exists. Later ones add nothing that
/// the system call filter does not take away as well.
const LEAST_LANDLOCK: u32 = 1;

/// Memory of a worker's own at most: the unit's `MemoryMax=512M` (db-forward §8.3).
const DATA_BYTES: u64 = 512 << 20;

/// Open files at most. A worker needs ten; the usual limit of a process is 1,024.
const OPEN_FILES: u64 = 256;

/// One thing that must hold around a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wall {
    Network,
    Data,
    Configuration,
    User,
    NoNewPrivileges,
    Capabilities,
    NoDump,
    Limits,
    Landlock,
    /// Landlock where the kernel has it.
    OfferedLandlock,
    Seccomp,
}

/// Only a unit or a container puts these up.
const OUTER: [Wall; 4] = [Wall::Network, Wall::Data, Wall::Configuration, Wall::User];

/// A worker puts these up itself, on every kernel that is supported.
const INNER: [Wall; 5] =
    [Wall::NoNewPrivileges, Wall::Capabilities, Wall::NoDump, Wall::Limits, Wall::Seccomp];

/// Every wall by the name that configurations use.
const NAMES: [(&str, Wall); 11] = [
    ("network", Wall::Network),
    ("data", Wall::Data),
    ("config", Wall::Configuration),
    ("user", Wall::User),
    ("no-new-privs", Wall::NoNewPrivileges),
    ("no-capabilities", Wall::Capabilities),
    ("no-dump", Wall::NoDump),
    ("limits", Wall::Limits),
    ("landlock", Wall::Landlock),
    ("landlock-if-any", Wall::OfferedLandlock),
    ("seccomp", Wall::Seccomp),
];

impl Wall {
    /// Whether `report` shows it. `own_uid` is the agent's user, `file_bytes` the largest file a
    /// worker may write.
    fn stands(self, report: &Sandbox, own_uid: u32, file_bytes: u64) -> bool {
        match self {
            Self::Network => report.loopback_only,
            Self::Data => report.data_empty,
            Self::Configuration => report.config_hidden,
            Self::User => report.uid != own_uid && report.uid != 0,
            Self::NoNewPrivileges => report.no_new_privileges,
            Self::Capabilities => report.no_capabilities,
            Self::NoDump => report.no_dump,
            Self::Limits => hold(&report.limits, file_bytes),
            Self::Landlock => report.landlock_abi >= LEAST_LANDLOCK,
            Self::OfferedLandlock => report.landlock_offered == 0 || report.landlock_abi > 0,
            Self::Seccomp => report.seccomp,
        }
    }

    /// What to do where it is missing.
    fn advice(self) -> &'static str {
        match self {
            _ if OUTER.contains(&self) => NO_UNIT,
            Self::Limits => NO_LIMITS,
            _ => NO_KERNEL,
        }
    }
}

/// In words, as an operator reads it.
impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "a network without any device but loopback",
            Self::Data => "an empty /data",
            Self::Configuration => "a closed /etc/carlos",
            Self::User => "a user of its own",
            Self::NoNewPrivileges => "no_new_privs",
            Self::Capabilities => "the loss of capabilities",
            Self::NoDump => "a memory that nobody can dump",
            Self::Limits => "limits on memory, files and core dumps",
            Self::Landlock | Self::OfferedLandlock => "Landlock",
            Self::Seccomp => "a system call filter",
        })
    }
}

const NO_UNIT: &str = "run workers under the unit carlos-dbread@.service, or set \
                       CARLOS_DB_READ_SANDBOX=inner where the walls that a worker builds around \
                       itself are enough";

const NO_LIMITS: &str = "the worker's --max-bytes must not exceed CARLOS_DB_READ_MAX_BYTES: write \
                         the units again";

const NO_KERNEL: &str =
    "the kernel, or what filters this container's system calls, has to allow it";

fn hold(limits: &Rlimits, file_bytes: u64) -> bool {
    limits.core == 0
        && limits.data <= DATA_BYTES
        && limits.file <= file_bytes.max(RESTORED_BYTES)
        && limits.open <= OPEN_FILES
}

/// A wall that is demanded and does not stand.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the worker's sandbox lacks {0}: {advice}", advice = .0.advice())]
pub(crate) struct Missing(pub(crate) Wall);

/// A set of walls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walls(BTreeSet<Wall>);

impl Walls {
    /// Both the walls around a worker and its own: a box's.
    pub fn full() -> Self {
        OUTER.into_iter().chain(Self::inner().0).collect()
    }

    /// Those a worker builds around itself: where nothing is around it.
    pub fn inner() -> Self {
        INNER.into_iter().chain([Wall::Landlock]).collect()
    }

    /// Those of `inner` that this machine's kernel has: a developer's.
    pub fn platform() -> Self {
        INNER.into_iter().chain([Wall::OfferedLandlock]).collect()
    }

    /// No wall at all: for workers that are no processes.
    pub fn none() -> Self {
        Self::default()
    }

    /// Holds a worker's report against the set.
    pub(crate) fn check(
        &self,
        report: &Sandbox,
        own_uid: u32,
        file_bytes: u64,
    ) -> Result<(), Missing> {
        let missing = self.0.iter().find(|wall| !wall.stands(report, own_uid, file_bytes));
        missing.map_or(Ok(()), |wall| Err(Missing(*wall)))
    }
}

impl FromIterator<Wall> for Walls {
    fn from_iter<T: IntoIterator<Item = Wall>>(walls: T) -> Self {
        Self(walls.into_iter().collect())
    }
}

/// Words that name no set of walls.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is neither full, inner, nor the name of a wall")]
pub struct UnknownWall(String);

/// `full`, `inner` or the name of a wall, or several of them with commas between.
impl FromStr for Walls {
    type Err = UnknownWall;

    fn from_str(text: &str) -> Result<Self, UnknownWall> {
        let mut walls = Self::none();
        for word in text.split(',').map(str::trim) {
            let found = match word {
                "full" => Self::full(),
                "inner" => Self::inner(),
                name => wall(name).into_iter().collect(),
            };
            if found.0.is_empty() {
                return Err(UnknownWall(word.to_owned()));
            }
            walls.0.extend(found.0);
        }
        Ok(walls)
    }
}

fn wall(name: &str) -> Option<Wall> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, wall)| *wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_UID: u32 = 990;

    fn strong() -> Sandbox {
        Sandbox {
            loopback_only: true,
            data_empty: true,
            config_hidden: true,
            uid: 62_439,
            no_new_privileges: true,
            no_capabilities: true,
            no_dump: true,
            limits: Rlimits { core: 0, data: 480 << 20, file: 2 << 30, open: 64 },
            landlock_abi: 1,
            landlock_offered: 1,
            seccomp: true,
        }
    }

    fn check(walls: &Walls, report: &Sandbox) -> Result<(), Missing> {
        walls.check(report, OWN_UID, 1 << 20)
    }

    type Take = fn(&mut Sandbox);

    /// Reports that lack one thing each, and the wall it is part of.
    const LACKING: [(Wall, Take); 14] = [
        (Wall::Network, |s| s.loopback_only = false),
        (Wall::Data, |s| s.data_empty = false),
        (Wall::Configuration, |s| s.config_hidden = false),
        (Wall::User, |s| s.uid = OWN_UID),
        (Wall::User, |s| s.uid = 0),
        (Wall::NoNewPrivileges, |s| s.no_new_privileges = false),
        (Wall::Capabilities, |s| s.no_capabilities = false),
        (Wall::NoDump, |s| s.no_dump = false),
        (Wall::Limits, |s| s.limits.core = 1),
        (Wall::Limits, |s| s.limits.data = (512 << 20) + 1),
        (Wall::Limits, |s| s.limits.file = (2 << 30) + 1),
        (Wall::Limits, |s| s.limits.open = 1024),
        (Wall::Landlock, |s| s.landlock_abi = 0),
        (Wall::Seccomp, |s| s.seccomp = false),
    ];

    #[test]
    fn a_worker_must_report_every_wall_that_is_demanded() {
        assert_eq!(check(&Walls::full(), &strong()), Ok(()));
        for (wall, take) in LACKING {
            let mut less = strong();
            take(&mut less);
            assert_eq!(check(&Walls::full(), &less), Err(Missing(wall)), "{less:?}");
            let outer = OUTER.contains(&wall);
            assert_eq!(check(&Walls::inner(), &less).is_ok(), outer, "{less:?}");
            assert_eq!(check(&Walls::none(), &less), Ok(()));
        }
    }

    #[test]
    fn a_worker_that_reports_nothing_is_refused_by_every_demand() {
        for walls in [Walls::full(), Walls::inner(), Walls::platform()] {
            assert!(check(&walls, &Sandbox::default()).is_err());
        }
    }

    #[test]
    fn a_developer_s_kernel_without_landlock_will_do_and_one_that_has_it_must_use_it() {
        let without = Sandbox { landlock_abi: 0, landlock_offered: 0, ..strong() };
        assert_eq!(check(&Walls::platform(), &without), Ok(()));
        assert_eq!(check(&Walls::inner(), &without), Err(Missing(Wall::Landlock)));
        let unused = Sandbox { landlock_abi: 0, landlock_offered: 7, ..strong() };
        assert_eq!(check(&Walls::platform(), &unused), Err(Missing(Wall::OfferedLandlock)));
    }

    #[test]
    fn a_larger_database_needs_a_larger_file() {
        let large = Sandbox { limits: Rlimits { file: 4 << 30, ..strong().limits }, ..strong() };
        assert_eq!(check(&Walls::full(), &large), Err(Missing(Wall::Limits)));
        assert_eq!(Walls::full().check(&large, OWN_UID, 4 << 30), Ok(()));
    }

    #[test]
    fn sets_and_single_walls_are_named() {
        assert_eq!("full".parse(), Ok(Walls::full()));
        assert_eq!("inner".parse(), Ok(Walls::inner()));
        let all = NAMES.map(|(name, _)| name).join(",");
        let every: Walls = NAMES.iter().map(|(_, wall)| *wall).collect();
        assert_eq!(all.parse(), Ok(every));
        let named: Walls = "inner, network".parse().expect("both are known");
        let missing = Sandbox { loopback_only: false, ..strong() };
        assert_eq!(check(&named, &missing), Err(Missing(Wall::Network)));
        for text in ["", "none", "full,", "Full", "inner network"] {
            assert!(text.parse::<Walls>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let told = Missing(Wall::Network).to_string();
        assert!(told.contains("loopback") && told.contains("carlos-dbread@.service"), "{told}");
        assert!(Missing(Wall::Limits).to_string().contains("--max-bytes"));
        assert!(Missing(Wall::Seccomp).to_string().contains("kernel"));
    }
}
