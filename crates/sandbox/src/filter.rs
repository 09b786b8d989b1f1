//! The filter of system calls: a program for the kernel's BPF machine.
//!
//! A rejected call fails with an error; the process is never killed, so that programs can fall back. The filter rejects
//! what no server needs and what could widen its rights: tracing, mounting, new namespaces, `io_uring` (whose operations
//! the filter would not see), keyrings, BPF, kernel modules, raw and Unix sockets.

use libc::{c_long, sock_filter};

/// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// System calls of this architecture, as the audit system numbers it.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

const fn fail(error: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | (error.unsigned_abs() & 0xffff)
}

/// Calls that always fail with EPERM.
const DENIED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    // File systems and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Keyrings.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_quotactl_fd,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that programs try before an older one: they fail as on a kernel without them.
const MISSING: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Its flags are in memory, where a filter cannot read them; C libraries fall back to `clone`.
    libc::SYS_clone3,
];

/// The last system call that was looked at. Later ones may be another `io_uring`: they fail as on a kernel without them.
const NEWEST: u32 = 469;

/// Flags of `clone` that make namespaces.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .unsigned_abs();

/// Requests of `ioctl` that type into the terminal of another process.
const TYPING: [u32; 2] = [0x5412, 0x541C];

/// Routes and addresses: C libraries read them to order the addresses of a host.
const NETLINK_ROUTE: u32 = 0;

/// The kind of a socket, without the flags beside it.
const SOCKET_KIND: u32 = 0xf;

/// The filter. `unix_sockets` allows sockets of that family; Landlock restricts their paths then.
pub(crate) fn program(unix_sockets: bool) -> Vec<sock_filter> {
    let mut program = Program::default();
    program.load(ARCHITECTURE);
    program.unless_equal_return(NATIVE, fail(libc::ENOSYS));
    program.load(NUMBER);
    // Calls of the x32 ABI are among these.
    program.if_above_return(NEWEST, fail(libc::ENOSYS));
    for call in DENIED {
        program.if_equal_return(number(*call), fail(libc::EPERM));
    }
    for call in MISSING {
        program.if_equal_return(number(*call), fail(libc::ENOSYS));
    }
    program.block(number(libc::SYS_clone), |clone| {
        clone.load(ARGUMENTS);
        clone.if_bits_return(NEW_NAMESPACES, fail(libc::EPERM));
    });
    program.block(number(libc::SYS_ioctl), |ioctl| {
        ioctl.load(ARGUMENTS + 8);
        for request in TYPING {
            ioctl.if_equal_return(request, fail(libc::EPERM));
        }
    });
    program.block(number(libc::SYS_socket), |socket| {
        socket.load(ARGUMENTS);
        for family in [libc::AF_INET, libc::AF_INET6] {
            socket.if_equal_return(family.unsigned_abs(), ALLOW);
        }
        if unix_sockets {
            socket.if_equal_return(libc::AF_UNIX.unsigned_abs(), ALLOW);
        }
        socket.unless_equal_return(libc::AF_NETLINK.unsigned_abs(), fail(libc::EACCES));
        socket.load(ARGUMENTS + 16);
        socket.unless_equal_return(NETLINK_ROUTE, fail(libc::EACCES));
    });
    program.block(number(libc::SYS_socketpair), |pair| {
        pair.load(ARGUMENTS);
        pair.unless_equal_return(libc::AF_UNIX.unsigned_abs(), fail(libc::EACCES));
        if !unix_sockets {
            // A datagram socket of a pair sends to any path; the other two kinds stay with each other.
            pair.load(ARGUMENTS + 8);
            pair.mask(SOCKET_KIND);
            pair.if_equal_return(libc::SOCK_SEQPACKET.unsigned_abs(), ALLOW);
            pair.unless_equal_return(libc::SOCK_STREAM.unsigned_abs(), fail(libc::EACCES));
        }
    });
    program.end(ALLOW)
}

/// A filter that asks another process about these calls and allows all others.
pub(crate) fn reporting(calls: impl Iterator<Item = c_long>) -> Vec<sock_filter> {
    let mut program = Program::default();
    program.load(ARCHITECTURE);
    program.unless_equal_return(NATIVE, ALLOW);
    program.load(NUMBER);
    for call in calls {
        program.if_equal_return(number(call), libc::SECCOMP_RET_USER_NOTIF);
    }
    program.end(ALLOW)
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// A program of the BPF machine under construction. Jumps only skip the next instruction or a whole block.
#[derive(Default)]
struct Program(Vec<sock_filter>);

impl Program {
    fn push(&mut self, code: u32, jump_true: u8, jump_false: u8, operand: u32) {
        self.0.push(sock_filter {
            code: u16::try_from(code).unwrap_or_default(),
            jt: jump_true,
            jf: jump_false,
            k: operand,
        });
    }

    /// Loads 32 bits at an offset of `seccomp_data`; the low half of an argument on little-endian machines.
    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    }

    fn ret(&mut self, value: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    }

    fn if_equal_return(&mut self, operand: u32, value: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, operand);
        self.ret(value);
    }

    fn unless_equal_return(&mut self, operand: u32, value: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, operand);
        self.ret(value);
    }

    fn if_above_return(&mut self, operand: u32, value: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, operand);
        self.ret(value);
    }

    /// Keeps these bits of what is loaded.
    fn mask(&mut self, bits: u32) {
        self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, bits);
    }

    fn if_bits_return(&mut self, bits: u32, value: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, bits);
        self.ret(value);
    }

    /// Instructions for one system call, which end in [`ALLOW`]. Expects the number loaded, and leaves it loaded for
    /// all other calls.
    fn block(&mut self, call: u32, body: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        body(&mut inner);
        inner.ret(ALLOW);
        let skip = u8::try_from(inner.0.len()).unwrap_or(u8::MAX);
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, call);
        self.0.append(&mut inner.0);
    }

    fn end(mut self, value: u32) -> Vec<sock_filter> {
        self.ret(value);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does.
    fn run(program: &[sock_filter], architecture: u32, call: c_long, arguments: [u32; 3]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = match step.k {
                        NUMBER => number(call),
                        ARCHITECTURE => architecture,
                        offset => arguments[usize::try_from((offset - ARGUMENTS) / 8).unwrap()],
                    };
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => loaded &= step.k,
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code => {
                    let holds = match code & 0xf0 {
                        libc::BPF_JEQ => loaded == step.k,
                        libc::BPF_JGT => loaded > step.k,
                        libc::BPF_JSET => loaded & step.k != 0,
                        other => panic!("jump {other:x}"),
                    };
                    at += usize::from(if holds { step.jt } else { step.jf });
                }
            }
        }
    }

    fn native(call: c_long, arguments: [u32; 3]) -> u32 {
        run(&program(false), NATIVE, call, arguments)
    }

    #[test]
    fn ordinary_calls_pass() {
        for call in [
            libc::SYS_read,
            libc::SYS_openat,
            libc::SYS_execve,
            libc::SYS_futex,
            libc::SYS_exit_group,
        ] {
            assert_eq!(native(call, [0; 3]), ALLOW);
        }
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_FILES).unsigned_abs();
        assert_eq!(native(libc::SYS_clone, [thread, 0, 0]), ALLOW);
        assert_eq!(native(libc::SYS_socketpair, [1, 1, 0]), ALLOW);
        assert_eq!(native(libc::SYS_ioctl, [0, 0x5401, 0]), ALLOW);
    }

    #[test]
    fn each_denied_call_fails_without_killing() {
        for call in DENIED {
            assert_eq!(native(*call, [0; 3]), fail(libc::EPERM), "{call}");
        }
        for call in MISSING {
            assert_eq!(native(*call, [0; 3]), fail(libc::ENOSYS), "{call}");
        }
    }

    #[test]
    fn namespaces_cannot_be_cloned() {
        for flag in [
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWNET,
            libc::CLONE_NEWNS,
            libc::CLONE_NEWPID,
        ] {
            let flags = flag.unsigned_abs() | 17;
            assert_eq!(native(libc::SYS_clone, [flags, 0, 0]), fail(libc::EPERM));
        }
    }

    #[test]
    fn sockets_are_internet_or_routes() {
        let socket = |family: i32, protocol: u32, unix| {
            let arguments = [family.unsigned_abs(), 1, protocol];
            run(&program(unix), NATIVE, libc::SYS_socket, arguments)
        };
        assert_eq!(socket(libc::AF_INET, 0, false), ALLOW);
        assert_eq!(socket(libc::AF_INET6, 6, false), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, 0, false), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, 9, false), fail(libc::EACCES));
        for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_UNIX] {
            assert_eq!(socket(family, 0, false), fail(libc::EACCES));
        }
        assert_eq!(socket(libc::AF_UNIX, 0, true), ALLOW);
    }

    #[test]
    fn pairs_are_streams_unless_landlock_restricts_paths() {
        let pair = |kind: i32, unix| {
            let kind = kind.unsigned_abs() | libc::SOCK_CLOEXEC.unsigned_abs();
            let arguments = [libc::AF_UNIX.unsigned_abs(), kind, 0];
            run(&program(unix), NATIVE, libc::SYS_socketpair, arguments)
        };
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            assert_eq!(pair(kind, false), ALLOW);
        }
        // The kernel makes a datagram socket of a raw one.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            assert_eq!(pair(kind, false), fail(libc::EACCES));
            assert_eq!(pair(kind, true), ALLOW);
        }
    }

    #[test]
    fn calls_of_later_kernels_are_missing() {
        let last = c_long::from(NEWEST);
        assert_eq!(native(last, [0; 3]), ALLOW);
        assert_eq!(native(last + 1, [0; 3]), fail(libc::ENOSYS));
    }

    #[test]
    fn terminals_take_no_typing_from_the_sandbox() {
        for request in TYPING {
            assert_eq!(native(libc::SYS_ioctl, [0, request, 0]), fail(libc::EPERM));
        }
    }

    #[test]
    fn other_architectures_have_no_calls() {
        let i386 = 0x4000_0003;
        assert_eq!(run(&program(false), i386, 5, [0; 3]), fail(libc::ENOSYS));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            native(libc::SYS_ptrace | 0x4000_0000, [0; 3]),
            fail(libc::ENOSYS)
        );
    }
}
