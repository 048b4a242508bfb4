# SPDX-License-Identifier: MIT
"""For tests of disks: a node with a past, and file systems that can fill up, fail, turn
read-only and lose their power.

    disk = Disk(t.path("image"), t.path("disk"), 64)   # MiB; ext4 on a loop device
    with disk:
        ...
        disk.cut_power()

Mounts are made in a namespace of the test's own: they and their loop devices are gone
with its last process, however it ends.
"""
import contextlib
import ctypes
import fcntl
import os
import random
import struct
import subprocess

from cluster import ServerError
from tap import check, equal, skip, wait_until

TTL_MS = 86400000  # outlives the test
REGISTERS = 4
VALUE = 60000      # bytes of a large value
CLONE_NEWNS = 0x20000
FS_IOC_SHUTDOWN = 0x8004587d
NO_LOG_FLUSH = 2   # what the journal has not written is lost too

_state = {}


def _may_mount():
    if "may" not in _state:
        libc = ctypes.CDLL(None, use_errno=True)
        _state["may"] = libc.unshare(CLONE_NEWNS) == 0 and subprocess.run(
            ["mount", "--make-rprivate", "/"], capture_output=True,
            check=False).returncode == 0
    return _state["may"]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"{words}: {done.stderr}")
    return done.stdout


class Disk:
    """A file system of its own. The test is skipped where that can't be made."""

    def __init__(self, image, path, mib):
        if not _may_mount():
            skip("may not mount")
        self.image, self.path = image, path
        with open(image, "wb") as f:
            f.truncate(mib << 20)
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", image)
        os.makedirs(path)
        self.filled = os.path.join(path, "filled")

    def mount(self, options="errors=remount-ro"):
        done = subprocess.run(["mount", "-o", f"loop,{options}", self.image, self.path],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            skip(f"may not mount: {done.stderr.strip()}")

    def unmount(self):
        """Also when a killed process has not let go of it yet."""
        def gone():
            return not os.path.ismount(self.path) or subprocess.run(
                ["umount", self.path], capture_output=True, check=False).returncode == 0
        wait_until(gone, what="the end of the mount")

    def __enter__(self):
        self.mount()
        return self

    def __exit__(self, *_):
        self.unmount()

    def room(self):
        st = os.statvfs(self.path)
        return st.f_bavail * st.f_frsize

    def fill(self, leave=0):
        """Takes all room but so many bytes."""
        with contextlib.suppress(OSError), open(self.filled, "ab") as f:
            while self.room() > leave:
                f.write(bytes(min(1 << 20, max(4096, self.room() - leave))))
                f.flush()

    def free(self):
        os.unlink(self.filled)

    def cut_power(self):
        """What was not synced is lost; nothing can be written until it is mounted
        again. Not while a write is under way: then even what was synced may go."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def break_read_only(self):
        """As the kernel does when it finds the file system damaged."""
        device = run("findmnt", "-no", "SOURCE", self.path).strip()
        trigger = f"/sys/fs/ext4/{os.path.basename(device)}/trigger_fs_error"
        try:
            with open(trigger, "w", encoding="ascii") as f:
                f.write("test")
        except OSError as e:
            skip(f"{trigger}: {e.strerror}")


class Past:
    """What a node has acknowledged: holds with their tokens, and registers."""

    def __init__(self):
        self.lease = 0
        self.tokens = {}
        self.asked = 0    # for locks, answered or not
        self.fences = {}
        self.unknown = {} # values that were sent later and not answered, by register
        self.seen = []    # tokens that were given out while it was verified

    @property
    def last_token(self):
        return max([0, *self.tokens.values(), *self.seen])

    def hold(self, c, n):
        for _ in range(n):
            name = f"lock/{self.asked}"
            self.asked += 1
            self.tokens[name] = c.ask("LOCK", "ACQUIRE", self.lease, name)["token"]

    def fence(self, c, times):
        """Writes large values, many at a time, to the registers in turn. Returns how
        many were refused because the disk is full."""
        sent, refused = [], 0
        for i in range(times):
            name, value = f"register/{i % REGISTERS}", f"{i} {random.random()} "
            sent.append((name, value + "x" * VALUE))
            self.unknown.setdefault(name, []).append(sent[-1][1])
            c.send("FENCE", "SET", name, max(self.tokens.values()), sent[-1][1])
        for name, value in sent:
            unknown = self.unknown[name]
            try:
                equal(c.reply()["status"], "OK")
                self.fences[name] = value
                del unknown[:unknown.index(value) + 1]
            except ServerError as e:
                equal(str(e), "NOSPACE the disk is full; nothing was changed")
                unknown.remove(value)
                refused += 1
        return refused

    def grow(self, node, times, holds=12):
        with node.connect() as c:
            if self.lease == 0:
                self.lease = c.ask("LEASE", "OPEN", TTL_MS)["lease"]
            self.hold(c, holds // 2)
            equal(self.fence(c, times), 0)
            self.hold(c, holds // 2)

    def look(self, c):
        """Everything is there."""
        for name, token in self.tokens.items():
            rows = c.ask("LOCK", "SHOW", name).get("rows") or []
            equal((name, [r["token"] for r in rows if r["kind"] == "hold"]),
                  (name, [token]))
        for name, value in self.fences.items():
            check(c.ask("FENCE", "GET", name)["value"] in [value, *self.unknown[name]],
                  f"{name} has another value than the one that was acknowledged")

    def verify(self, node):
        """Everything is there, and the next token is greater than all before."""
        with node.connect() as c:
            self.look(c)
            equal(c.ask("LEASE", "RENEW", self.lease)["status"], "OK")
            name = f"new/{self.last_token}"
            new = c.ask("LOCK", "TRY", self.lease, name)["token"]
            check(new > self.last_token, f"token {new} after {self.last_token}")
            self.seen.append(new)
