//! What only a process with some power over others, or over the machine, can do.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::Attempt;

pub(super) fn unshare_user() -> Attempt {
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
    Ok("a user name space of its own".into())
}

pub(super) fn unshare_net() -> Attempt {
    nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
    Ok("a network of its own".into())
}

pub(super) fn mount(scratch: &Path) -> Attempt {
    nix::mount::mount(Some("made"), scratch, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    nix::mount::umount(scratch)?;
    Ok("mounted".into())
}

pub(super) fn chroot(scratch: &Path) -> Attempt {
    nix::unistd::chroot(scratch)?;
    Ok("a root of its own".into())
}

/// Holds another process of the same user.
pub(super) fn ptrace() -> Attempt {
    let mut child = Command::new("/opt/carlos/carlos").arg("sleep").spawn()?;
    let held = ptrace::attach(Pid::from_raw(child.id().try_into()?));
    let _ = child.kill();
    held?;
    Ok("attached".into())
}

pub(super) fn io_uring() -> Attempt {
    io_uring::IoUring::new(8)?;
    Ok("a ring".into())
}

/// The process of the agent's user that `/run/agent.pid` names.
pub(super) fn signal_agent() -> Attempt {
    let pid = fs::read_to_string("/run/agent.pid")?;
    let pid = rustix::process::Pid::from_raw(pid.trim().parse()?).ok_or("a process id")?;
    rustix::process::test_kill_process(pid)?;
    Ok("reached".into())
}
