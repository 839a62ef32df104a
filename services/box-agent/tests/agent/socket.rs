//! Workers behind a socket: real unix sockets, with a listener in the place of the service manager
//! and a script in that of `systemctl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carlos_box_agent::{Census, SocketWorkerHost, WorkerHost, WorkerLink};
use carlos_bucket::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Longer than a few counts take on a busy machine.
const A_WHILE: Duration = Duration::from_millis(700);

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/systemctl");

/// A service manager: its socket, and the list that its `systemctl` prints.
struct Manager {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(FAKE, dir.path().join("systemctl")).unwrap();
        fs::write(dir.path().join("script"), r#"exec cat "${0%/*}/list""#).unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let manager = Self { dir, listener };
        manager.lists(&[]);
        manager
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn host(&self) -> SocketWorkerHost {
        self.host_at(&self.path("socket"))
    }

    fn host_at(&self, socket: &Path) -> SocketWorkerHost {
        let census = Census::Units { systemctl: self.path("systemctl") };
        SocketWorkerHost::new(Context::system(), socket.to_owned(), census)
    }

    /// What is listed from now on: the states of units.
    fn lists(&self, states: &[&str]) {
        let unit = |(number, state): (usize, &&str)| {
            format!(r#"{{"unit":"carlos-dbread@{number}-7-990.service","active":"{state}"}}"#)
        };
        let units: Vec<String> = states.iter().enumerate().map(unit).collect();
        self.write_list(&format!("[{}]", units.join(",")));
    }

    /// Renamed into place, so that no count reads half a list.
    fn write_list(&self, list: &str) {
        fs::write(self.path("next"), list).unwrap();
        fs::rename(self.path("next"), self.path("list")).unwrap();
    }

    fn stops_answering(&self) {
        fs::remove_file(self.path("list")).unwrap();
    }

    /// Accepts a connection and answers on it, as a worker that has started.
    async fn serve(&self, link: &mut WorkerLink) -> UnixStream {
        let (mut worker, _) = self.listener.accept().await.unwrap();
        worker.write_all(b"hello\n").await.unwrap();
        let mut heard = [0; 6];
        link.reader.read_exact(&mut heard).await.unwrap();
        worker
    }
}

/// Closes a link as its read does, and waits for the worker's end.
async fn stopped(link: WorkerLink) {
    let WorkerLink { reader, writer, mut life } = link;
    drop((reader, writer));
    life.stopped().await;
}

async fn is_waited_for(link: &mut tokio::task::JoinHandle<()>) -> bool {
    tokio::time::timeout(A_WHILE, link).await.is_err()
}

#[tokio::test]
async fn each_read_has_a_connection_of_its_own_in_both_directions() {
    let manager = Manager::new();
    let host = manager.host();
    let (mut first, mut second) = (host.start().await.unwrap(), host.start().await.unwrap());
    let mut first_worker = manager.serve(&mut first).await;
    let _second_worker = manager.serve(&mut second).await;
    first.writer.write_all(b"bytes").await.unwrap();
    let mut heard = [0; 5];
    first_worker.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"bytes");
    // Closing one ends that one's worker and no other.
    stopped(first).await;
    assert_eq!(first_worker.read(&mut heard).await.unwrap(), 0);
    second.writer.write_all(b"alive").await.unwrap();
}

#[tokio::test]
async fn a_worker_has_stopped_when_its_unit_has_and_not_when_its_connection_is_closed() {
    let manager = Manager::new();
    let host = manager.host();
    let mut link = host.start().await.unwrap();
    let worker = manager.serve(&mut link).await;
    manager.lists(&["deactivating"]);
    let mut end = tokio::spawn(stopped(link));
    drop(worker);
    assert!(is_waited_for(&mut end).await);
    manager.lists(&["failed"]);
    end.await.unwrap();
    assert_eq!(host.running().await, Ok(0));
}

#[tokio::test]
async fn a_manager_that_does_not_answer_ends_no_worker() {
    let manager = Manager::new();
    let host = manager.host();
    let mut link = host.start().await.unwrap();
    let _worker = manager.serve(&mut link).await;
    manager.stops_answering();
    assert!(host.running().await.is_err());
    let mut end = tokio::spawn(stopped(link));
    assert!(is_waited_for(&mut end).await);
    manager.lists(&[]);
    end.await.unwrap();
}

#[tokio::test]
async fn of_two_workers_that_stop_neither_ends_on_the_other_s_unit() {
    let manager = Manager::new();
    let host = manager.host();
    let (mut first, mut second) = (host.start().await.unwrap(), host.start().await.unwrap());
    let _workers = (manager.serve(&mut first).await, manager.serve(&mut second).await);
    manager.lists(&["deactivating"]);
    // One unit is left, and nobody knows whose it is.
    let mut ends = [tokio::spawn(stopped(first)), tokio::spawn(stopped(second))];
    assert!(is_waited_for(&mut ends[0]).await && is_waited_for(&mut ends[1]).await);
    manager.lists(&[]);
    for end in ends {
        end.await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_that_goes_on_is_told_from_one_that_stops() {
    let manager = Manager::new();
    let host = manager.host();
    let (mut first, mut second) = (host.start().await.unwrap(), host.start().await.unwrap());
    let _first_worker = manager.serve(&mut first).await;
    let second_worker = manager.serve(&mut second).await;
    manager.lists(&["active", "deactivating"]);
    let mut end = tokio::spawn(stopped(first));
    assert!(is_waited_for(&mut end).await);
    // The other crashes at this moment: what is listed is not known to be its unit any more.
    drop(second_worker);
    manager.lists(&["deactivating"]);
    assert!(is_waited_for(&mut end).await);
    manager.lists(&[]);
    end.await.unwrap();
    drop(second);
}

#[tokio::test]
async fn one_listed_unit_of_a_living_worker_ends_the_wait_for_another() {
    let manager = Manager::new();
    let host = manager.host();
    let (mut first, mut second) = (host.start().await.unwrap(), host.start().await.unwrap());
    let _workers = (manager.serve(&mut first).await, manager.serve(&mut second).await);
    manager.lists(&["active"]);
    stopped(first).await;
    drop(second);
}

#[tokio::test]
async fn a_connection_nobody_has_answered_on_proves_no_worker() {
    let manager = Manager::new();
    let host = manager.host();
    let mut first = host.start().await.unwrap();
    let _worker = manager.serve(&mut first).await;
    let _waiting_in_the_backlog = host.start().await.unwrap();
    manager.lists(&["deactivating"]);
    let mut end = tokio::spawn(stopped(first));
    assert!(is_waited_for(&mut end).await);
    end.abort();
}

#[tokio::test]
async fn t13_a_fourth_connection_is_never_opened() {
    let manager = Manager::new();
    let host = manager.host();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(host.start().await.unwrap());
    }
    assert!(host.start().await.is_err());
    for _ in 0..3 {
        manager.listener.accept().await.unwrap();
    }
    let fourth = tokio::time::timeout(A_WHILE, manager.listener.accept()).await;
    assert!(fourth.is_err(), "a fourth connection reached the socket");
    stopped(held.remove(0)).await;
    assert!(host.start().await.is_ok());
}

#[tokio::test]
async fn a_socket_that_is_missing_or_closed_to_us_is_named() {
    let manager = Manager::new();
    let missing = manager.path("none");
    let Err(error) = manager.host_at(&missing).start().await else { panic!("it connected") };
    assert!(error.to_string().contains("none"), "{error}");
    // A path too long for a socket's address, and a file that is none.
    assert!(manager.host_at(&manager.path(&"x".repeat(200))).start().await.is_err());
    assert!(manager.host_at(&manager.path("list")).start().await.is_err());
    // What failed holds no place.
    let host = manager.host_at(&missing);
    for _ in 0..4 {
        let Err(error) = host.start().await else { panic!("it connected") };
        assert!(error.to_string().contains("none"), "{error}");
    }
}

#[tokio::test]
async fn a_manager_at_its_limit_closes_what_it_accepted() {
    let manager = Manager::new();
    let host = manager.host();
    let mut link = host.start().await.unwrap();
    drop(manager.listener.accept().await.unwrap());
    // Closed without a word is an end of file; with unread words of ours, a reset.
    let mut byte = [0];
    assert!(matches!(link.reader.read(&mut byte).await, Ok(0) | Err(_)));
    assert!(link.writer.write_all(b"hello").await.is_err());
    stopped(link).await;
}

#[tokio::test]
async fn t13_a_closed_connection_beside_somebody_else_s_workers_says_nothing() {
    let manager = Manager::new();
    let host = manager.host();
    let mut own = host.start().await.unwrap();
    let _worker = manager.serve(&mut own).await;
    manager.lists(&["active", "active"]);
    assert!(host.is_crowded().await, "one of two is nobody's here");
    manager.stops_answering();
    assert!(host.is_crowded().await, "nobody can tell");
}

#[tokio::test]
async fn t13_a_closed_connection_beside_own_workers_alone_is_a_broken_worker() {
    let manager = Manager::new();
    let host = manager.host();
    let mut own = host.start().await.unwrap();
    let _worker = manager.serve(&mut own).await;
    manager.lists(&["active", "failed"]);
    assert!(!host.is_crowded().await);
    // The unit that failed is listed a moment longer.
    manager.lists(&["active", "deactivating"]);
    let (crowded, ()) = tokio::join!(host.is_crowded(), async {
        tokio::time::sleep(A_WHILE).await;
        manager.lists(&["active"]);
    });
    assert!(!crowded);
}
