"""What lockctl needs of this host, tried out where that can be done."""

from __future__ import annotations

import errno
import os
import resource
import time
from signal import SIGKILL

from lockctl import clock, kernel
from lockctl.doctor import installation
from lockctl.errors import LockctlError
from lockctl.finding import Check, Examination, Finding
from lockctl.supervise import contain, tree
from lockctl.supervise.signals import keep_statuses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


FEW_DESCRIPTORS = 256
FEW_PROCESSES, NO_PROCESSES = 64, 8  # that may still be started; a run needs about six
ADOPTED, ENDED = 1, 2
ORPHAN_LIMIT = 2.0  # seconds after which an orphan that nobody killed ends by itself
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of <linux/proc_ns.h>
THREADS = 17  # place of num_threads in tree.stat_fields

CLOCK = Check(
    "host.clock",
    "The deadline of a lease must also count the time in which the machine is suspended.",
    "allow timerfd_create with CLOCK_BOOTTIME and timerfd_settime (seccomp profile of the container),"
    " or use Linux 5.3 or newer",
)
DEATH = Check(
    "host.death_signal",
    "The kernel must kill the job when its guard is killed: nothing else can.",
    "allow prctl(PR_SET_PDEATHSIG) (seccomp profile of the container)",
)
SUBREAPER = Check(
    "host.subreaper",
    "Processes that leave the job's session are found again only when they become children of the guard.",
    "allow prctl(PR_SET_CHILD_SUBREAPER) (seccomp profile of the container)",
)
PIDFD = Check(
    "host.pidfd",
    "Without descriptors of processes lockctl cannot wait for their end.",
    "allow pidfd_open (seccomp profile of the container), or use Linux 5.3 or newer",
)
PROC = Check(
    "host.proc",
    "The processes of a job are found in /proc.",
    "mount -t proc proc /proc (in a pid namespace of its own: unshare --fork --mount-proc)",
)
HIDDEN = Check(
    "host.hidepid",
    "Processes of a job that run as another user are found late, and stopping the job takes longer.",
    "mount -o remount,hidepid=0 /proc, or add the user of the jobs to the group that gid= names",
)
CONTAIN = Check(
    "host.contain",
    "With --contain the kernel kills all processes of a job when both of lockctl are killed in the same instant.",
    "allow unshare and mount (CAP_SYS_ADMIN for root, else user namespaces); without it, do not use --contain require",
)
DESCRIPTORS = Check(
    "host.descriptors",
    "Several locks, a wait and the job itself share this limit, and a run that reaches it does not start.",
    "ulimit -n 1024, or LimitNOFILE=1024 in the unit of systemd",
)
PROCESSES = Check(
    "host.processes",
    "A run needs two processes and some threads beside the job, and does not start without them.",
    "ulimit -u, TasksMax= in the unit of systemd, or --pids-limit of the container: raise the one that is reached",
)
CONTAINER = Check(
    "host.container",
    "The job ends with its container, but one that is paused stands still with its guard, and goes on for a moment"
    " after its lease has ended; files in it are seen by no other container.",
    "protect what the job writes with --fence, and keep lock files on a volume (-b file:///VOLUME)",
)
CHECKS = (
    CLOCK,
    DEATH,
    SUBREAPER,
    PIDFD,
    PROC,
    HIDDEN,
    CONTAIN,
    DESCRIPTORS,
    PROCESSES,
    CONTAINER,
    *installation.CHECKS,
)


def examine(environ: Mapping[str, str], program: str) -> list[Finding]:
    """What is found on this host; *program* is how lockctl was started."""
    found = Examination(f"host {os.uname().nodename}", 0.0)
    keep_statuses()
    if tree.starts_elsewhere():  # nothing below is told of this process there, and what is started later may fail
        found.judge(PROC, "it shows another namespace than what is started here gets into", fails=True)
    else:
        _check_kernel(found)
        _check_proc(found)
        _check_containment(found)
    check_limits(found)
    namespace = _link("/proc/self/ns/pid")
    inside = namespace not in ("", FIRST_PID_NAMESPACE)
    found.judge(CONTAINER, "a pid namespace of its own" if inside else "no container", warns=inside)
    installation.examine(environ, program, found)
    return found.findings


def _check_kernel(found: Examination) -> None:
    _try(found, CLOCK, lambda: kernel.timer_descriptor(clock.BOOTTIME), "counts suspend")
    seen = _orphan()
    adopted, ended = bool(seen & ADOPTED), bool(seen & ENDED)
    found.judge(SUBREAPER, "orphans are adopted" if adopted else "orphans are not adopted", fails=not adopted)
    if adopted:  # else nobody saw how it ended
        found.judge(DEATH, "an orphan was killed" if ended else "an orphan was not killed", fails=not ended)
    _try(found, PIDFD, lambda: kernel.process_descriptor(os.getpid()), "there are some")


def _try(found: Examination, check: Check, opened: Callable[[], int], seen: str) -> None:
    try:
        os.close(opened())
    except (LockctlError, OSError) as problem:
        found.judge(check, str(problem), fails=True)
    else:
        found.judge(check, seen)


def _orphan() -> int:
    """What becomes of a process whose parent ends, below a process that wants to adopt it: ADOPTED, ENDED."""
    try:
        adopter = os.fork()
    except OSError:
        return 0
    if adopter == 0:
        result = 0
        try:
            kernel.become_subreaper()
            parent = os.fork()
            if parent == 0:
                reading, writing = os.pipe()
                if os.fork() == 0:
                    kernel.set_death_signal(SIGKILL)
                    os.close(writing)
                    time.sleep(ORPHAN_LIMIT)
                    os._exit(0)
                os.close(writing)
                os.read(reading, 1)  # ends when the other has closed it, or has ended
                os._exit(0)
            os.waitpid(parent, 0)
            _, status = os.waitpid(-1, 0)
            result = ADOPTED | (ENDED if os.WIFSIGNALED(status) and os.WTERMSIG(status) == SIGKILL else 0)
        finally:
            os._exit(result)
    _, status = os.waitpid(adopter, 0)
    return os.waitstatus_to_exitcode(status)


def _check_proc(found: Examination) -> None:
    ours = _link("/proc/self") == str(os.getpid())
    found.judge(PROC, "shows this process" if ours else "it is missing, or shows another namespace", fails=not ours)
    if ours:
        hidden = tree.stat_fields(1) is None
        found.judge(HIDDEN, "others are hidden" if hidden else "all processes are shown", warns=hidden)


def _check_containment(found: Examination) -> None:
    """Whether a job could be contained: tried out by a process of its own, which stays in the namespaces."""
    probe = os.fork()
    if probe == 0:
        problem = errno.EPERM
        try:
            init = contain.enter(contain.REQUIRE, ())
            if init is not None:
                init.end()
                problem = 0
        except OSError as refused:
            problem = refused.errno or problem
        finally:
            os._exit(problem)
    problem = os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1])
    how = "possible (auto and require)" if os.geteuid() == 0 else "possible in a user namespace (require)"
    found.judge(CONTAIN, f"not possible: {os.strerror(abs(problem))}" if problem else how, warns=problem != 0)


def check_limits(found: Examination) -> None:
    """How many files and processes there may be."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = most != resource.RLIM_INFINITY and most < FEW_DESCRIPTORS
    found.judge(DESCRIPTORS, "no limit" if most == resource.RLIM_INFINITY else f"at most {most}", warns=few)
    left, seen = _room_for_processes()
    found.judge(PROCESSES, seen, fails=left < NO_PROCESSES, warns=left < FEW_PROCESSES)


def _room_for_processes() -> tuple[float, str]:
    """How many more there may be, of this user and in this control group, and that in words."""
    left, seen = float("inf"), "no limit"
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY and os.geteuid() != 0:  # root is not bound by it
        used = _threads_of(os.geteuid())
        left, seen = most - used, f"{used} of {most} of this user"
    used_there, most_there = _control_group()
    if most_there - used_there < left:
        left, seen = most_there - used_there, f"{used_there:g} of {most_there:g} of the control group"
    return left, seen


def _threads_of(user: int) -> int:
    count = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == user:
                fields = tree.stat_fields(int(entry))
                count += int(fields[THREADS]) if fields else 1
        except OSError:
            continue  # it has ended
    return count


def _control_group() -> tuple[float, float]:
    """Processes there are, and may be, in the control group of this process; infinity if nothing is known."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        folder = f"/sys/fs/cgroup{'/pids' if controllers == 'pids' else ''}{path}"
        if controllers in ("", "pids"):
            used, most = _text(f"{folder}/pids.current").strip(), _text(f"{folder}/pids.max").strip()
            if used.isdigit() and most.isdigit():
                return int(used), int(most)
    return 0, float("inf")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
