//! Child processes as workers: their environment, their end, their scratch. A shell stands in for
//! the worker program; the real one is driven by the acceptance tests.

use std::fs;
use std::path::Path;

use carlos_box_agent::{ChildWorkerHost, WorkerCommand, WorkerHost, WorkerLink};
use carlos_bucket::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Makes and locks a scratch directory as a worker does; `$4` is the scratch root.
const SCRATCH: &str = r#"dir="$4/carlos-dbread-$$-00"; mkdir "$dir"; exec 9>"$dir/lock"; flock 9;"#;

fn host(root: &Path, script: &str) -> ChildWorkerHost {
    let script = format!("{SCRATCH} {script}");
    let args = vec!["-c".into(), script.into(), "sh".into()];
    let command = WorkerCommand { program: "/bin/sh".into(), args };
    ChildWorkerHost::new(Context::system(), command, root.to_owned())
}

fn directories(root: &Path) -> usize {
    fs::read_dir(root).unwrap().count()
}

/// Waits for the script's first line, by when its scratch is locked.
async fn greeted(link: &mut WorkerLink) -> String {
    let mut text = String::new();
    while !text.ends_with('\n') {
        text.push(char::from(link.reader.read_u8().await.unwrap()));
    }
    text
}

#[tokio::test]
async fn a_worker_ends_with_its_connection_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path(), "echo ready; cat >/dev/null");
    let mut link = host.start().await.unwrap();
    assert_eq!(greeted(&mut link).await, "ready\n");
    assert_eq!(host.running().await, Ok(1));
    assert_eq!(directories(root.path()), 1);
    let WorkerLink { reader, writer, mut life } = link;
    drop((reader, writer));
    life.stopped().await;
    drop(life);
    assert_eq!(host.running().await, Ok(0));
    assert_eq!(directories(root.path()), 0);
}

// Paused time passes the wait at once, so the kill is seen without it.
#[tokio::test(start_paused = true)]
async fn a_worker_that_stays_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path(), "echo ready; exec sleep 1000 0<&- 1>&-");
    let mut link = host.start().await.unwrap();
    greeted(&mut link).await;
    let WorkerLink { reader, writer, mut life } = link;
    drop((reader, writer));
    life.stopped().await;
    drop(life);
    assert_eq!(host.running().await, Ok(0));
}

#[tokio::test]
async fn a_worker_gets_the_protocol_s_arguments_and_no_environment() {
    let root = tempfile::tempdir().unwrap();
    let script = r#"tr '\0' '\n' </proc/$$/environ; echo "$1 $2 $3 $4"; pwd; echo end; cat"#;
    let host = host(root.path(), script);
    let mut link = host.start().await.unwrap();
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "end\n") {
        lines.push(greeted(&mut link).await);
    }
    let uid = rustix::process::getuid().as_raw();
    let arguments = format!("--peer-user {uid} --scratch {}\n", root.path().display());
    assert_eq!(lines, ["TZ=UTC\n", &arguments, "/\n", "end\n"]);
    // One connection in both directions.
    link.writer.write_all(b"echoed\n").await.unwrap();
    assert_eq!(greeted(&mut link).await, "echoed\n");
    let WorkerLink { reader, writer, mut life } = link;
    drop((reader, writer));
    life.stopped().await;
}

#[tokio::test]
async fn a_dropped_life_kills_and_what_it_left_is_an_orphan_until_it_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path(), "echo ready; exec sleep 1000");
    let mut link = host.start().await.unwrap();
    greeted(&mut link).await;
    drop(link);
    // The kill takes a moment; until then the scratch is a worker's that nobody answers for.
    while host.running().await.unwrap() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(directories(root.path()), 0);
}

#[tokio::test]
async fn scratch_of_an_earlier_agent_counts_while_its_owner_lives() {
    let root = tempfile::tempdir().unwrap();
    let stale = root.path().join("carlos-dbread-11-aa");
    let alive = root.path().join("carlos-dbread-12-bb");
    for dir in [&stale, &alive] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("database"), b"rows").unwrap();
    }
    let lock = fs::File::create(alive.join("lock")).unwrap();
    lock.lock().unwrap();
    let host = host(root.path(), "cat");
    assert_eq!(host.running().await, Ok(1));
    assert!(!stale.exists() && alive.exists());
    drop(lock);
    assert_eq!(host.running().await, Ok(0));
    assert!(!alive.exists());
}

#[tokio::test]
async fn other_names_and_links_are_not_scratch() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("keep"), b"").unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("carlos-dbread-1-aa")).unwrap();
    fs::create_dir(root.path().join("carlos-dbread-x-aa")).unwrap();
    fs::create_dir(root.path().join("other")).unwrap();
    assert_eq!(host(root.path(), "cat").running().await, Ok(0));
    assert!(outside.path().join("keep").exists());
    assert_eq!(directories(root.path()), 3);
}

#[tokio::test]
async fn a_missing_program_and_a_missing_root_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let command = WorkerCommand { program: "/no/such/worker".into(), args: Vec::new() };
    let host = ChildWorkerHost::new(Context::system(), command, root.path().join("none"));
    assert!(host.start().await.is_err());
    assert!(host.running().await.is_err());
}
