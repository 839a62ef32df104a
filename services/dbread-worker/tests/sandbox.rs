//! The sandbox from inside: every forbidden act is tried on every thread of an enclosed process.
//!
//! This file has its own `main`, because the sandbox needs a process of one thread and the usual
//! test harness brings its own. The test starts itself twice. `--open` tries the same acts without
//! the sandbox, and each must succeed there: otherwise its failing inside would say nothing.
//! `--enclosed` puts the sandbox up as the worker does, and each must fail.
#![cfg_attr(target_os = "linux", allow(clippy::disallowed_methods, clippy::disallowed_macros))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;
    use std::io::Read;
    use std::io::Write;
    use std::net::TcpListener;
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::path::PathBuf;
    use std::process::Child;
    use std::process::Command;
    use std::process::Stdio;
    use std::sync::mpsc;
    use std::time::Duration;

    use carlos_dbread_worker::sandbox::Level;
    use carlos_dbread_worker::serve;
    use rustix::fs::CWD;
    use rustix::fs::FileType;
    use rustix::fs::MemfdFlags;
    use rustix::fs::Mode;
    use rustix::fs::OFlags;
    use rustix::process::Pid;
    use rustix::process::PidfdFlags;
    use rustix::process::Resource;
    use rustix::process::Rlimit;

    const NAME: &str = "every_thread_is_enclosed";

    /// Which wall denies an act. Without Landlock in the kernel, paths stay open; the report says
    /// so, and the agent decides.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Wall {
        Calls,
        Paths,
    }

    /// Where the acts happen: a readable file and a writable directory that are not scratch.
    struct Place {
        forbidden: PathBuf,
        outside: PathBuf,
        parent: Pid,
    }

    struct Act {
        name: &'static str,
        wall: Wall,
        attempt: fn(&Place) -> io::Result<()>,
    }

    const ACTS: &[Act] = &[
        path("read a file", |p| fs::read(&p.forbidden).map(drop)),
        path("read /etc/passwd", |_| fs::read("/etc/passwd").map(drop)),
        path("list the root", |_| fs::read_dir("/").map(drop)),
        path("list /proc/self/fd", |_| fs::read_dir("/proc/self/fd").map(drop)),
        path("write a file", |p| fs::OpenOptions::new().append(true).open(&p.forbidden).map(drop)),
        call("make a file", |p| fs::File::create(p.outside.join("made")).map(drop)),
        call("remove a file", |p| fs::remove_file(p.outside.join("removable"))),
        call("start a thread", |_| start_thread()),
        call("start a process", |_| Command::new("/bin/true").status().map(drop)),
        call("make a directory", |p| fs::create_dir(p.outside.join("dir"))),
        call("make a link", |p| std::os::unix::fs::symlink("/", p.outside.join("link"))),
        call("make a pipe in the tree", |p| make_fifo(&p.outside)),
        call("rename a file", |p| fs::rename(p.outside.join("old"), p.outside.join("new"))),
        call("change a mode", |p| {
            fs::set_permissions(&p.forbidden, fs::metadata("/")?.permissions())
        }),
        call("pair of sockets", |_| UnixStream::pair().map(drop)),
        call("unix socket", |_| UnixDatagram::unbound().map(drop)),
        call("tcp socket", |_| TcpListener::bind("127.0.0.1:0").map(drop)),
        call("udp socket", |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
        call("pipe", |_| io::pipe().map(drop)),
        call("file in memory", |_| {
            Ok(rustix::fs::memfd_create("m", MemfdFlags::CLOEXEC).map(drop)?)
        }),
        call("signal the parent", |p| Ok(rustix::process::test_kill_process(p.parent)?)),
        call("hold the parent", |p| {
            Ok(rustix::process::pidfd_open(p.parent, PidfdFlags::empty()).map(drop)?)
        }),
        call("set a limit", |_| set_limit()),
        call("become dumpable", |_| {
            let behavior = rustix::process::DumpableBehavior::Dumpable;
            Ok(rustix::process::set_dumpable_behavior(behavior)?)
        }),
        call("change directory", |_| std::env::set_current_dir("/")),
    ];

    const fn path(name: &'static str, attempt: fn(&Place) -> io::Result<()>) -> Act {
        Act { name, wall: Wall::Paths, attempt }
    }

    const fn call(name: &'static str, attempt: fn(&Place) -> io::Result<()>) -> Act {
        Act { name, wall: Wall::Calls, attempt }
    }

    fn start_thread() -> io::Result<()> {
        let thread = std::thread::Builder::new().spawn(|| ())?;
        thread.join().map_err(|_| io::Error::other("the thread panicked"))
    }

    fn make_fifo(dir: &Path) -> io::Result<()> {
        let mode = Mode::from_raw_mode(0o600);
        Ok(rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0)?)
    }

    fn set_limit() -> io::Result<()> {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        Ok(rustix::process::setrlimit(Resource::Core, none)?)
    }

    pub(crate) fn main() {
        let args: Vec<String> = std::env::args().skip(1).collect();
        match args.first().map(String::as_str) {
            Some("--open") => {
                try_all("open", &place(&args[1]));
                seconds_without_a_sandbox(Path::new(&args[1]));
            }
            Some("--enclosed") => enclosed(Path::new(&args[1])),
            Some("--list") => println!("{NAME}: test"),
            _ => every_thread_is_enclosed(),
        }
    }

    fn place(dir: impl AsRef<Path>) -> Place {
        let dir = dir.as_ref();
        let parent = rustix::process::getppid().unwrap();
        Place { forbidden: dir.join("forbidden"), outside: dir.to_owned(), parent }
    }

    fn try_all(thread: &str, place: &Place) {
        for act in ACTS {
            let outcome = match (act.attempt)(place) {
                Ok(()) => "done".to_owned(),
                Err(error) => format!("{error}"),
            };
            println!("{thread}\t{}\t{outcome}", act.name);
        }
    }

    /// The enclosed process: the worker's own way in, then the acts on both of its threads.
    fn enclosed(dir: &Path) {
        let place_now = place(dir);
        let (connection, _peer) = UnixStream::pair().unwrap();
        let fenced = serve::fence(&connection, dir, 1 << 20).unwrap();
        println!("report\t{:?}\t{:?}", fenced.report.landlock, fenced.report);
        try_all("main", &place_now);
        let (done, watcher) = mpsc::channel();
        let scratch = fenced.scratch.path().to_owned();
        fenced.life.leave_errand(Box::new(move || {
            try_all("watcher", &place_now);
            done.send(()).unwrap();
        }));
        watcher.recv_timeout(Duration::from_secs(10)).unwrap();
        use_scratch(&scratch).unwrap();
        try_seconds("main", &scratch);
        println!("ready\tscratch\tdone");
        // Held until the test has looked at it from outside.
        let _ = io::stdin().read(&mut [0]);
        // Last, because it would not come back.
        let error = Command::new("/bin/true").exec();
        println!("main\texec\t{error}");
    }

    /// What must stay possible: to write, cut, sync, read and empty the one file. And what must
    /// not: a second file, by any way there is, since nothing would limit the two together.
    fn use_scratch(scratch: &Path) -> io::Result<()> {
        let database = scratch.join("database");
        let mut file = fs::OpenOptions::new().read(true).write(true).open(&database)?;
        file.write_all(b"page after page")?;
        file.set_len(4)?;
        file.sync_all()?;
        assert_eq!(fs::read(&database)?, b"page");
        file.set_len(0)
    }

    type Attempt = fn(&Path) -> io::Result<()>;

    const SECONDS: &[(&str, Attempt)] = &[
        ("a new file", |dir| fs::File::create(dir.join("second")).map(drop)),
        ("a file without a name", |dir| {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            Ok(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600)).map(drop)?)
        }),
        ("the lock, written to", |dir| {
            fs::OpenOptions::new().write(true).open(dir.join("lock")).map(drop)
        }),
        ("another name for the first", |dir| {
            fs::rename(dir.join("database"), dir.join("renamed"))?;
            fs::rename(dir.join("renamed"), dir.join("database"))
        }),
        ("a name taken from the first", |dir| fs::remove_file(dir.join("database"))),
    ];

    fn try_seconds(who: &str, scratch: &Path) {
        for (name, attempt) in SECONDS {
            let outcome =
                attempt(scratch).map_or_else(|error| format!("{error}"), |()| "done".into());
            println!("{who}\t{name}\t{outcome}");
        }
    }

    /// Without the sandbox each is possible, as this user; with it none is.
    fn seconds_without_a_sandbox(dir: &Path) {
        fs::write(dir.join("database"), b"").unwrap();
        fs::write(dir.join("lock"), b"").unwrap();
        try_seconds("open", dir);
    }

    fn every_thread_is_enclosed() {
        let open = lines(&prepared(), "--open", |_| ());
        for act in ACTS {
            assert_eq!(
                outcome(&open, "open", act.name),
                "done",
                "{} without the sandbox",
                act.name
            );
        }
        let inside = lines(&prepared(), "--enclosed", look_from_outside);
        assert_eq!(outcome(&inside, "ready", "scratch"), "done");
        let full = inside.iter().any(|l| l.starts_with(&format!("report\t{:?}\t", Level::Full)));
        for (thread, act) in
            ["main", "watcher"].iter().flat_map(|t| ACTS.iter().map(move |a| (t, a)))
        {
            let outcome = outcome(&inside, thread, act.name);
            if act.wall == Wall::Paths && !full {
                println!("skipped: {} (this kernel has no full Landlock)", act.name);
                continue;
            }
            assert_denied(&outcome, &format!("{} on {thread}", act.name));
        }
        assert_denied(&outcome(&inside, "main", "exec"), "exec");
        for (second, _) in SECONDS {
            assert_eq!(outcome(&open, "open", second), "done", "{second} without the sandbox");
            assert_denied(&outcome(&inside, "main", second), second);
        }
        println!("test {NAME} ... ok ({} acts on 2 threads, landlock full: {full})", ACTS.len());
    }

    fn assert_denied(outcome: &str, what: &str) {
        let denied = outcome.contains("os error 1)") || outcome.contains("os error 13)");
        assert!(denied, "{what}: {outcome}");
    }

    /// A fresh directory with something to read, remove and rename in it.
    fn prepared() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["forbidden", "removable", "old"] {
            fs::write(dir.path().join(name), b"another tenant's").unwrap();
        }
        dir
    }

    fn outcome(lines: &[String], thread: &str, act: &str) -> String {
        let head = format!("{thread}\t{act}\t");
        let found = lines.iter().find_map(|line| line.strip_prefix(&head));
        found.unwrap_or_else(|| panic!("no outcome of {act} on {thread} in {lines:#?}")).to_owned()
    }

    fn lines(dir: &tempfile::TempDir, mode: &str, while_held: fn(&Child)) -> Vec<String> {
        let (held, stdin) = UnixStream::pair().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(mode)
            .arg(dir.path())
            .stdin(Stdio::from(OwnedFd::from(stdin)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = Vec::new();
        let mut line = String::new();
        while io::BufRead::read_line(&mut reader, &mut line).unwrap() > 0 {
            if line.starts_with("ready") {
                while_held(&child);
                (&held).write_all(b"!").unwrap();
            }
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        child.wait().unwrap();
        lines
    }

    /// The kernel's word, read by another process: two threads, both filtered, none privileged.
    fn look_from_outside(child: &Child) {
        let tasks: Vec<_> = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().collect();
        assert_eq!(tasks.len(), 2, "main and the watcher");
        for task in tasks {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
            assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
            assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
            assert!(status.contains("\nCapPrm:\t0000000000000000\n"), "{status}");
        }
    }
}
