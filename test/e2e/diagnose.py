# SPDX-License-Identifier: MIT
"""What a failed test prints, so that one failure on one machine is enough to explain it:
the processes it had started, their stacks if it hung, and the end of every log."""
import os
import shutil
import subprocess

LOG_BYTES = 4000  # of each log, from its end
STACKS = 8        # processes at most whose stacks are taken


def stat(pid):
    """State letter and parent of a process, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            state, parent = f.read().rpartition(")")[2].split()[:2]
        return state, int(parent)
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants():
    """The processes below this one."""
    parents = {}
    for name in os.listdir("/proc"):
        found = stat(name) if name.isdigit() else None
        if found is not None:
            parents[int(name)] = found[1]
    ours = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            return ours - {os.getpid()}
        ours |= more


def _word(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as f:
            return f.read().replace("\0", " ").strip()
    except OSError:
        return "?"


def _stack(pid):
    """What each thread is doing, as far as eu-stack (package elfutils) can tell."""
    if shutil.which("eu-stack") is None:
        return []
    try:
        done = subprocess.run(["eu-stack", "-p", str(pid)], text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=30, check=False)
        return [f"  {line}" for line in done.stdout.splitlines()]
    except subprocess.TimeoutExpired:
        return ["  (no stack within 30 s)"]


def processes(stacks=False):
    """Lines about all processes below this one, with the stacks of a few of them."""
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    lines = [f"processes that the test had started (load {load}):"]
    for number, pid in enumerate(sorted(descendants())):
        found = stat(pid)
        lines.append(f"{pid} {found[0] if found else 'gone'} {_word(pid, 'wchan')} "
                     f"{_word(pid, 'cmdline')[:200]}")
        if stacks and number < STACKS and found and found[0] not in "ZTt":
            lines += _stack(pid)
    return lines


def logs(folder):
    """Lines with the end of every *.log below the folder."""
    lines = []
    for at, _, names in sorted(os.walk(folder)):
        for name in sorted(n for n in names if n.endswith(".log")):
            path = os.path.join(at, name)
            try:
                with open(path, "rb") as f:
                    f.seek(max(0, os.fstat(f.fileno()).st_size - LOG_BYTES))
                    text = f.read().decode("utf-8", "replace")
            except OSError:
                continue
            if text:
                lines.append(f"the end of {os.path.relpath(path, folder)}:")
                lines += [f"  {line}" for line in text.splitlines()]
    return lines
