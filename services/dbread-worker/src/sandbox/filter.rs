//! The system call filter: what decoding pages and running SQL takes, and nothing else.
//!
//! A call that is not listed is answered with EPERM rather than with the end of the process. Both
//! stop the call. The difference shows in honest code: a C library that is newer than the list
//! tries a new call, gets an error and takes its old path, where a kill would turn every read on
//! the box into an interrupted one. And the error can be asserted from inside, thread by thread,
//! which is how the tests hold this list.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::BpfProgram;
use seccompiler::SeccompAction;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpArgLen::Qword;
use seccompiler::SeccompCmpOp;
use seccompiler::SeccompCmpOp::Eq;
use seccompiler::SeccompCmpOp::MaskedEq;
use seccompiler::SeccompCondition;
use seccompiler::SeccompFilter;
use seccompiler::SeccompRule;
use seccompiler::TargetArch;

/// Calls allowed with any argument.
const ALLOWED: &[c_long] = &[
    // The connection, the database, and standard error.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_flock,
    libc::SYS_close,
    // Paths; Landlock says which. Opening has a condition below; nothing is renamed or removed.
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    // Memory; mapping and protecting have conditions below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads that exist, waiting, and ending.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time, chance, identity.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
];

/// Older calls that this architecture still has, and its C library still uses.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_lstat,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
];

#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Calls that open a path, with the place of their flags among the arguments.
#[cfg(target_arch = "x86_64")]
const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];

#[cfg(not(target_arch = "x86_64"))]
const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2)];

/// Flags that make a file, with a name or without one. `O_TMPFILE` has the bit of `O_DIRECTORY`.
const MAKING: libc::c_int = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);

/// What SQLite and the standard library ask of an open file: its flags, a lock, a copy.
const FCNTL_COMMANDS: &[libc::c_int] = &[
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_DUPFD_CLOEXEC,
];

/// Installs the filter on every thread of the process, or on none.
pub(super) fn apply_to_all_threads() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let deny = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules()?, deny, SeccompAction::Allow, arch)?.try_into()
}

fn rules() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<_, _> =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|&call| (call, Vec::new())).collect();
    // The one file of scratch exists already: there is no second to fill the disk with.
    let never_making = MaskedEq(MAKING.unsigned_abs().into());
    for (call, flags) in OPENING {
        rules.insert(*call, vec![only_if(*flags, never_making.clone(), 0)?]);
    }
    // No memory is both filled by this process and executed.
    let never_executable = MaskedEq(libc::PROT_EXEC.unsigned_abs().into());
    rules.insert(libc::SYS_mmap, vec![only_if(2, never_executable.clone(), 0)?]);
    rules.insert(libc::SYS_mprotect, vec![only_if(2, never_executable, 0)?]);
    // On the connection that exists, never to an address.
    let no_address = SeccompCondition::new(4, Qword, Eq, 0)?;
    rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![no_address])?]);
    // How abort(3) ends a process; a signal to any other is denied.
    let own = std::process::id().into();
    rules.insert(libc::SYS_tgkill, vec![only_if(0, Eq, own)?]);
    let commands = FCNTL_COMMANDS.iter().map(|&c| only_if(1, Eq, c.unsigned_abs().into()));
    rules.insert(libc::SYS_fcntl, commands.collect::<Result<_, _>>()?);
    Ok(rules)
}

fn only_if(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Dword, operator, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_compiles_and_stays_small() {
        assert!(rules().unwrap().len() <= 64);
        assert!(!program().unwrap().is_empty());
    }

    #[test]
    fn paths_are_opened_and_files_never_made() {
        let rules = rules().unwrap();
        assert!(OPENING.iter().all(|(call, _)| rules[call].len() == 1));
        assert!(OPENING.iter().all(|(call, _)| !ALLOWED.contains(call)));
        // Opening a directory, as a listing does, is not making a file.
        assert_eq!(MAKING & libc::O_DIRECTORY, 0);
        assert_eq!(MAKING & libc::O_CREAT, libc::O_CREAT);
        assert_ne!(MAKING & libc::O_TMPFILE, 0);
    }

    #[test]
    fn what_makes_processes_threads_or_sockets_is_not_in_it() {
        let rules = rules().unwrap();
        for call in [
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_socket,
            libc::SYS_socketpair,
            libc::SYS_connect,
            libc::SYS_recvmsg,
            libc::SYS_ptrace,
            libc::SYS_unshare,
            libc::SYS_io_uring_setup,
            libc::SYS_ioctl,
            libc::SYS_prctl,
            libc::SYS_memfd_create,
            libc::SYS_openat2,
            libc::SYS_mkdirat,
            libc::SYS_renameat2,
            libc::SYS_unlinkat,
        ] {
            assert!(!rules.contains_key(&call), "system call {call}");
        }
    }
}
