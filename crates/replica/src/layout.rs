//! Where a replica's files stand under its prefix. Litestream has two ways.

use object_store::path::Path;

use crate::TxidRange;

/// How level directories are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Whichever has files; [`Layout::S3`] is looked at first.
    #[default]
    Auto,
    /// `ltx/9/`: directories, SFTP, GCS, Azure, WebDAV.
    File,
    /// `0009/`: S3 and OSS.
    S3,
}

/// Where Litestream 0.3 kept its files, which are not LTX.
pub(crate) const GENERATIONS: &str = "generations";

impl Layout {
    /// The directory of a level. Undecided means S3, the layout of the product's own buckets.
    pub(crate) fn level(self, prefix: &Path, level: u8) -> Path {
        let directory = match self {
            Self::File => prefix.clone().join("ltx"),
            Self::Auto | Self::S3 => prefix.clone(),
        };
        directory.join(self.level_name(level))
    }

    /// The last segment of a level's directory.
    pub(crate) fn level_name(self, level: u8) -> String {
        match self {
            Self::File => level.to_string(),
            Self::Auto | Self::S3 => format!("{level:04x}"),
        }
    }

    /// The key of a file.
    pub(crate) fn key(self, prefix: &Path, level: u8, range: TxidRange) -> Path {
        self.level(prefix, level).join(range.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Txid;

    #[test]
    fn both_layouts_spell_keys_as_litestream_does() {
        let prefix = Path::parse("hib/shop.example.com").unwrap();
        let range = TxidRange::new(Txid(1), Txid(0x13)).unwrap();
        assert_eq!(
            Layout::S3.key(&prefix, 9, range).as_ref(),
            "hib/shop.example.com/0009/0000000000000001-0000000000000013.ltx"
        );
        assert_eq!(
            Layout::File.key(&prefix, 0, range).as_ref(),
            "hib/shop.example.com/ltx/0/0000000000000001-0000000000000013.ltx"
        );
    }
}
