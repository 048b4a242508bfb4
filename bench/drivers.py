#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What our client costs over each store, beside that store's own best client.

    bench/drivers.py [--rounds N] [--seconds S] [--build build] [STORE...]

One client takes and releases one lock that nobody else wants, one pair after the other,
through our library and through what people would write by hand for that store
(bench/own); in turn, on the same server, `rounds` times. Prints the median of the p50s,
and the ratio. Nothing is asserted: a figure depends on the machine and on what else it
does.
"""
import argparse
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "test", "e2e"))
from stores import STORES, Absent, Postgres  # noqa: E402

# With a disk that is waited for, as all the others do.
SYNCED = {"postgres": lambda folder: Postgres(folder, sync=True),
          "postgres-advisory": lambda folder: Postgres(folder, "?lock=advisory", True)}


def module(name):
    """A file of this folder that is a program first."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def pkg_config(name):
    done = subprocess.run(["pkg-config", "--cflags", "--libs", name], text=True,
                          check=True, stdout=subprocess.PIPE)
    return done.stdout.split()


class Programs:
    """The loads, built when they are first wanted."""

    def __init__(self, folder, build):
        self._folder, self._build = folder, build
        self._made = {}

    def get(self, name, *flags):
        if name not in self._made:
            out = os.path.join(self._folder, name)
            source = os.path.join(HERE, "own", name + ".c")
            subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-o", out, source,
                            *flags], check=True)
            self._made[name] = out
        return self._made[name]

    def ours(self):
        include = os.path.join(HERE, "..", "include")
        return self.get("picket", f"-I{include}", f"-L{self._build}", "-lpicket",
                        f"-Wl,-rpath,{self._build}")

    def etcd(self):
        if "etcd" not in self._made:
            self._made["etcd"] = module("compare").build_etcd_load(self._folder)
        return self._made["etcd"]


def figures(*words):
    """p50s in us: of the acquire, of the pair."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{os.path.basename(str(words[0]))}: "
                           f"{(done.stderr or done.stdout).strip()}")
    told = json.loads(done.stdout)
    if "pair" in told:  # as etcd-load says it
        return told["acquire"]["p50_ns"] / 1000, told["pair"]["p50_ns"] / 1000
    return told["acquire_p50_ns"] / 1000, told["pair_p50_ns"] / 1000


def endpoints(store):
    return ",".join(f"127.0.0.1:{s.port}" for s in store.servers)


def rivals(name, store, programs, seconds):
    """What the store's own clients are, and how they are run."""
    ports = ",".join(str(s.port) for s in store.servers)
    plain = store.url.partition("?")[0]
    if name in ("redis", "redlock"):
        load = programs.get("redis", *pkg_config("hiredis"))
        what = "hiredis, SET NX PX + EVALSHA" + (" on all" if name == "redlock" else "")
        return {what: [load, ports, seconds]}
    if name.startswith("etcd"):
        load = [programs.etcd(), endpoints(store)]
        return {"Go concurrency.Mutex": [*load, "mutex", 1, seconds],
                "Go clientv3, Txn + Delete": [*load, "latency", 1, seconds]}
    if name == "zk":
        load = programs.get("zk", "-DTHREADED", "-lzookeeper_mt", "-lpthread")
        return {"C client, the lock recipe": [load, endpoints(store), seconds]}
    if name == "postgres":
        load = programs.get("postgres", *pkg_config("libpq"))
        return {"libpq, INSERT + DELETE a row": [load, plain, "row", seconds]}
    if name == "postgres-advisory":
        load = programs.get("postgres", *pkg_config("libpq"))
        return {"libpq, pg_advisory_lock": [load, plain, "advisory", seconds]}
    return {}


def measure(name, args, programs):
    """Rows of the table: what, ours or theirs, p50s."""
    with tempfile.TemporaryDirectory(prefix="picket-bench.",
                                     ignore_cleanup_errors=True) as folder:
        with SYNCED.get(name, STORES[name])(folder) as store:
            loads = {"picket": [programs.ours(), store.url, args.seconds]}
            loads |= rivals(name, store, programs, args.seconds)
            taken = {what: [] for what in loads}
            for _ in range(args.rounds):
                for what, words in loads.items():
                    taken[what].append(figures(*words))
            return {what: [statistics.median(f) for f in zip(*all_of)]
                    for what, all_of in taken.items()}, store.version()


def report(name, rows, version):
    ours = rows["picket"]
    for what, (acquire, pair) in rows.items():
        ratio = "" if what == "picket" else f"{ours[1] / pair:8.2f}"
        print(f"{name:17} {what:36} {acquire:9.0f} us {pair:9.0f} us {ratio:>8}",
              flush=True)
        name = ""
    print(f"{'':17} ({version})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("stores", nargs="*", metavar="STORE")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    os.environ.setdefault("PICKET", os.path.join(args.build, "picket"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="picket-bench.")
    failed = 0
    try:
        programs = Programs(folder, args.build)
        print(f"{'store':17} {'client':36} {'acquire p50':>12} {'pair p50':>12} "
              f"{'ours/own':>8}")
        for name in args.stores or STORES:
            try:
                report(name, *measure(name, args, programs))
            except (Absent, RuntimeError) as e:
                failed += isinstance(e, RuntimeError) and "no driver for" not in str(e)
                print(f"{name:17} not measured: {e}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
