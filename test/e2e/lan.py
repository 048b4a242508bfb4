# SPDX-License-Identifier: MIT
"""A network of our own for tests, whose cables can be cut.

    with Lan(4) as lan, Cluster(t.program, t.path("c"), 3, hosts=lan.hosts) as cluster:
        a, b = lan.hosts[:2]
        lan.cut(a, b)           # what a sends does not reach b: silently, no FIN, no RST
        lan.part([a], [b])      # nor the other way round
        lan.heal()
        with b.inside():        # sockets made here are b's
            ...
        subprocess.run([*b.enter, "ss", "-tn"])

Each host is a network namespace with an address; all are on one bridge. The test itself
is in a namespace, too, whose cable is never cut: it reaches everybody all the time. No
namespace has a name: they live as long as the processes in them, so that nothing is left
over, however the test ends.
"""
import contextlib
import ctypes
import os
import shutil
import subprocess

from tap import skip

CLONE_NEWNET = 0x40000000
SUBNET = "10.77.0."

_libc = ctypes.CDLL(None, use_errno=True)
_private = []  # this process' own network, once it has one


def _must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _unshare():
    _must(_libc.unshare(CLONE_NEWNET))


def _ip(commands, enter=()):
    """Runs lines of `ip -batch`."""
    done = subprocess.run([*enter, "ip", "-batch", "-"], input="\n".join(commands),
                          text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())


def _leave_the_machine():
    """Takes this process out of the machine's own network, for good."""
    if not _private:
        _unshare()
        _ip(["link set lo up"])
        _private.append(os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))


class Host:
    """One namespace, kept by a process that sleeps."""

    def __init__(self, number):
        self.number = number
        self.address = f"{SUBNET}{number}"
        self.keeper = subprocess.Popen(["sleep", "infinity"], preexec_fn=_unshare)
        self.enter = ("nsenter", "-t", str(self.keeper.pid), "-n")

    def plug_in(self):
        _ip([f"link add v{self.number} type veth peer name eth0 netns {self.keeper.pid}",
             f"link set v{self.number} master lan up"])
        _ip([f"addr add {self.address}/24 dev eth0", "link set eth0 up",
             "link set lo up"], self.enter)

    def unplug(self):
        with contextlib.suppress(OSError):
            _ip([f"link del v{self.number}"])  # now: the kernel's own way takes a while
        self.keeper.kill()
        self.keeper.wait()

    def slow_down(self, rate):
        """What others send to this host arrives at that rate, in tc's words."""
        subprocess.run(["tc", "qdisc", "replace", "dev", f"v{self.number}", "root", "tbf",
                        "rate", rate, "burst", "32kb", "latency", "200ms"], check=True)

    def filter(self, *words):
        """What this host does not get to hear, in iptables' words."""
        subprocess.run([*self.enter, "iptables", "-w", *words], check=True)

    @contextlib.contextmanager
    def inside(self):
        """What this process does meanwhile, it does on that host."""
        fd = os.open(f"/proc/{self.keeper.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _must(_libc.setns(fd, CLONE_NEWNET))
            yield
        finally:
            _must(_libc.setns(_private[0], CLONE_NEWNET))
            os.close(fd)


class Lan:
    """`n` hosts. Skips the test where such a thing can't be made."""

    def __init__(self, n):
        self.n = n
        self.hosts = []

    def cut(self, sender, receiver):
        receiver.filter("-A", "INPUT", "-s", sender.address, "-j", "DROP")

    def part(self, some, others):
        """None of `some` hears any of `others`, nor the other way round."""
        for a in some:
            for b in others:
                self.cut(a, b)
                self.cut(b, a)

    def isolate(self, host):
        self.part([host], [h for h in self.hosts if h is not host])

    def heal(self):
        for host in self.hosts:
            host.filter("-F", "INPUT")

    def __enter__(self):
        if os.geteuid() != 0:
            skip("making networks is for root only")
        for program in ("ip", "iptables", "nsenter"):
            if shutil.which(program) is None:
                skip(f"there is no {program}")
        try:
            _leave_the_machine()
            _ip(["link add lan type bridge"])
        except OSError as e:
            skip(f"no networks can be made here: {e}")
        try:
            _ip(["link set lan up", f"addr add {SUBNET}254/24 dev lan"])
            for number in range(1, self.n + 1):
                self.hosts.append(Host(number))
                self.hosts[-1].plug_in()
            self.heal()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.unplug()
        _ip(["link del lan"])
