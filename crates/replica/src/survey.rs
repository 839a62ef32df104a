//! Everything that stands under a replica's prefix, named for what it is.

use std::collections::BTreeMap;

use carlos_ltx::{Foreign, TxidRange};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};
use serde::Serialize;

use crate::layout::GENERATIONS;
use crate::store::{MAX_LEVEL_FILES, StoreReplica, failure};
use crate::{LEVELS, Layout, Listing, ReadError, ReplicaFile};

/// Objects of unknown name whose first bytes are looked at. They are rare; a prefix full of them
/// is not a replica's, and a few tell what it is.
const MAX_SNIFFED: usize = 16;
/// More than any kind's mark needs.
const SNIFFED_BYTES: u64 = 32;

/// What a prefix holds.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The layout in use; `None` when there is no transaction file.
    pub layout: Option<Layout>,
    /// The transaction files in that layout.
    pub listing: Listing,
    /// All other objects, by kind.
    pub others: Vec<Others>,
}

/// Objects of one kind that are no transaction files of the replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Others {
    /// What they are, as a phrase.
    pub kind: String,
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The key of one of them.
    pub example: String,
}

/// What an object is, by its key.
enum Place {
    Transactions(Layout, u8, TxidRange),
    Named(&'static str),
    Unknown,
}

impl StoreReplica {
    /// Lists everything under the prefix, whatever it is. Ordinary reads do not need this.
    ///
    /// # Errors
    /// As every listing.
    pub async fn survey(&self) -> Result<Survey, ReadError> {
        let mut found = Found::default();
        let mut listed = self.store().list(Some(self.prefix()));
        while let Some(object) =
            listed.try_next().await.map_err(|error| failure(self.prefix(), error))?
        {
            found.add(self.prefix(), object);
            if found.count > MAX_LEVEL_FILES {
                return Err(ReadError::TooManyFiles { level: 0, limit: MAX_LEVEL_FILES });
            }
        }
        drop(listed);
        for object in std::mem::take(&mut found.unknown) {
            let kind = self.kind_of(&object, found.sniffed).await?;
            found.sniffed += 1;
            found.add_other(kind, &object);
        }
        let survey = found.into_survey(self.wanted_layout());
        if let Some(layout) = survey.layout {
            self.found_layout(layout);
        }
        Ok(survey)
    }

    /// Tells an object by its first bytes. One that vanished meanwhile is no matter.
    async fn kind_of(&self, object: &ObjectMeta, sniffed: usize) -> Result<String, ReadError> {
        if sniffed >= MAX_SNIFFED {
            return Ok("of unknown name".to_owned());
        }
        if object.size == 0 {
            return Ok(format!("of unknown name: {}", Foreign::Empty));
        }
        let len = SNIFFED_BYTES.min(object.size);
        let start = match self.store().get_range(&object.location, 0..len).await {
            Ok(start) => start,
            Err(object_store::Error::NotFound { .. }) => return Ok("gone meanwhile".to_owned()),
            Err(error) => return Err(failure(&object.location, error)),
        };
        if start.starts_with(b"LTX") {
            return Ok("an LTX file where no transaction file belongs".to_owned());
        }
        Ok(format!("of unknown name: {}", Foreign::sniff(&start)))
    }
}

#[derive(Default)]
struct Found {
    s3: Vec<(ReplicaFile, Path)>,
    file: Vec<(ReplicaFile, Path)>,
    unknown: Vec<ObjectMeta>,
    others: BTreeMap<String, Others>,
    count: usize,
    sniffed: usize,
}

impl Found {
    fn add(&mut self, prefix: &Path, object: ObjectMeta) {
        self.count += 1;
        match place(prefix, &object.location) {
            Place::Transactions(layout, level, range) => {
                let created_ms = object.last_modified.timestamp_millis();
                let tag = object.e_tag.clone();
                let file = ReplicaFile { level, range, size: object.size, created_ms, tag };
                let files = if layout == Layout::S3 { &mut self.s3 } else { &mut self.file };
                files.push((file, object.location));
            }
            Place::Named(kind) => self.add_other(kind.to_owned(), &object),
            Place::Unknown => self.unknown.push(object),
        }
    }

    fn add_other(&mut self, kind: String, object: &ObjectMeta) {
        self.count_other(kind, object.size, &object.location);
    }

    fn count_other(&mut self, kind: String, size: u64, key: &Path) {
        let example = key.to_string();
        let new = Others { kind: kind.clone(), count: 0, bytes: 0, example };
        let others = self.others.entry(kind).or_insert(new);
        others.count += 1;
        others.bytes = others.bytes.saturating_add(size);
    }

    /// The layout that a read would take, and the files of the other one as what they are.
    fn into_survey(mut self, wanted: Layout) -> Survey {
        let s3 = match wanted {
            Layout::Auto => !self.s3.is_empty(),
            wanted => wanted == Layout::S3,
        };
        let (s3_files, file_files) = (std::mem::take(&mut self.s3), std::mem::take(&mut self.file));
        let (files, aside) = if s3 { (s3_files, file_files) } else { (file_files, s3_files) };
        for (file, key) in &aside {
            let kind = "transaction files in the other layout, which a read leaves alone";
            self.count_other(kind.to_owned(), file.size, key);
        }
        let layout = if s3 { Layout::S3 } else { Layout::File };
        Survey {
            layout: (!files.is_empty()).then_some(layout),
            listing: Listing::new(files.into_iter().map(|(file, _)| file)),
            others: self.others.into_values().collect(),
        }
    }
}

fn place(prefix: &Path, key: &Path) -> Place {
    let Some(parts) = key.prefix_match(prefix) else {
        return Place::Unknown;
    };
    let parts: Vec<_> = parts.collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        ["ltx", level, name] => in_level(Layout::File, level, name),
        [GENERATIONS, ..] => Place::Named("Litestream 0.3 (generations), which is not LTX"),
        ["lock.json"] => Place::Named("Litestream's lease"),
        [level, name] => in_level(Layout::S3, level, name),
        _ => Place::Unknown,
    }
}

fn in_level(layout: Layout, spelled: &str, name: &str) -> Place {
    let level = (0..LEVELS).find(|level| layout.level_name(*level) == spelled);
    match (level, TxidRange::from_name(name)) {
        (Some(level), Some(range)) => Place::Transactions(layout, level, range),
        (Some(_), None) if name.ends_with(".tmp") => Place::Named("left over from an upload"),
        _ => Place::Unknown,
    }
}
