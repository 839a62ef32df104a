//! Accounts and instances, read from their chains so that a change counts at the next request.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use bytes::Bytes;
use carlos_bucket::{Bucket, Chain, ChainError, Purpose};
use carlos_protocol::{
    ids::{Account, Host, Principal},
    keys,
    records::{self, AccountRecord, HostRecord, VERSION},
};

/// Chains whose heads are remembered, each at most 64 KiB: the accounts and instances in use. A
/// remembered head costs one GET of its successor, another one a listing first.
const MAX_CHAINS: usize = 512;

/// Reads records. A head is remembered, but its successor is asked for each time, so that a token
/// taken away or an instance moved is seen by the very next request.
pub(crate) struct Records {
    bucket: Bucket,
    reader: Principal,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    chains: HashMap<String, Remembered>,
    uses: u64,
}

struct Remembered {
    chain: Chain,
    last_use: u64,
}

/// Why a record is not there to judge by. Already in the log, with the chain's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupError {
    /// The chain's head is no record that this console can read.
    Garbled,
    /// The bucket gave no answer.
    Unanswered,
}

impl Records {
    pub(crate) fn new(bucket: Bucket) -> Self {
        let reader = "console".parse().expect("a plain label is a principal");
        Self { bucket, reader, memory: Mutex::default() }
    }

    /// The account's record, or `None` when there is no such account.
    pub(crate) async fn account(
        &self,
        name: &Account,
    ) -> Result<Option<AccountRecord>, LookupError> {
        let chain = keys::account_chain(name);
        let Some(content) = self.content(&chain).await? else { return Ok(None) };
        match records::decode::<AccountRecord>(&content) {
            Ok(record) if record.v == VERSION && record.account == *name => Ok(Some(record)),
            _ => Err(unreadable(&chain)),
        }
    }

    /// Whether the account is known to exist, without asking the bucket.
    pub(crate) fn knows(&self, name: &Account) -> bool {
        self.memory().chains.contains_key(&keys::account_chain(name))
    }

    /// The instance's record, or `None` when the host never had one.
    pub(crate) async fn host(&self, name: &Host) -> Result<Option<HostRecord>, LookupError> {
        let chain = keys::host_chain(name);
        let Some(content) = self.content(&chain).await? else { return Ok(None) };
        match records::decode::<HostRecord>(&content) {
            Ok(record) if record.v == VERSION && record.host == *name => Ok(Some(record)),
            _ => Err(unreadable(&chain)),
        }
    }

    async fn content(&self, name: &str) -> Result<Option<Bytes>, LookupError> {
        let chain = self.chain(name);
        match chain.head(Purpose::Claim).await {
            Ok(None) => Ok(None),
            Ok(Some(head)) => {
                self.memory().remember(name, chain);
                Ok(Some(head.content))
            }
            Err(ChainError::Malformed(_)) => Err(unreadable(name)),
            Err(error) => {
                tracing::warn!(name, %error, "a record could not be read");
                Err(LookupError::Unanswered)
            }
        }
    }

    fn chain(&self, name: &str) -> Chain {
        let remembered = self.memory().chains.get(name).map(|known| known.chain.clone());
        remembered.unwrap_or_else(|| Chain::new(self.bucket.clone(), name, self.reader.clone()))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no holder of the records panics")
    }
}

impl Memory {
    /// Only chains that exist get here, so that names somebody made up push nothing out.
    fn remember(&mut self, name: &str, chain: Chain) {
        self.uses += 1;
        let last_use = self.uses;
        if self.chains.len() >= MAX_CHAINS && !self.chains.contains_key(name) {
            let oldest = self.chains.iter().min_by_key(|(_, known)| known.last_use);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.chains.remove(&oldest);
            }
        }
        self.chains.insert(name.to_owned(), Remembered { chain, last_use });
    }
}

fn unreadable(chain: &str) -> LookupError {
    tracing::error!(chain, "the head of a chain is not a record of this version");
    LookupError::Garbled
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carlos_bucket::Context;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn the_memory_is_bounded_and_keeps_what_is_used() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let bucket = Bucket::new(Arc::new(InMemory::new()), Context::system());
        let records = Records::new(bucket);
        let mut memory = records.memory.lock().unwrap();
        let chain = |name: &str| Chain::new(records.bucket.clone(), name, records.reader.clone());
        for n in 0..MAX_CHAINS * 2 {
            memory.remember("kept", chain("kept"));
            let name = n.to_string();
            memory.remember(&name, chain(&name));
        }
        assert_eq!(memory.chains.len(), MAX_CHAINS);
        assert!(memory.chains.contains_key("kept"));
    }
}
