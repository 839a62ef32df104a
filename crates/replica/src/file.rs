//! One file of a replica as a plan names it.

use std::fmt;

use carlos_ltx::TxidRange;

/// Levels 0 to 9 exist; other level directories are never looked at.
pub const LEVELS: u8 = 10;
/// The level that holds snapshots. Those below hold ranges, compacted the more the higher.
pub const SNAPSHOT_LEVEL: u8 = 9;

/// A file to apply: where it stands, what it covers, and how many bytes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedFile {
    /// 0 to 9.
    pub level: u8,
    /// The transactions its name states.
    pub range: TxidRange,
    /// Length in bytes.
    pub size: u64,
}

impl PlannedFile {
    /// The file called `name`, or `None` for a level or name that no replica has.
    #[must_use]
    pub fn from_name(level: u8, name: &str, size: u64) -> Option<Self> {
        let range = TxidRange::from_name(name)?;
        (level < LEVELS).then_some(Self { level, range, size })
    }

    /// `<min>-<max>.ltx`
    #[must_use]
    pub fn name(&self) -> String {
        self.range.name()
    }
}

impl fmt::Display for PlannedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "level {} {}", self.level, self.range.name())
    }
}
