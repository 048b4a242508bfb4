#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Evidence that takes longer than `make test`: campaigns of many runs, with a report.

    tools/evidence.py flake-hunt [--times 30] [--suites 3] [--sanitized 0]
    tools/evidence.py sim        [--seeds 1000000]
    tools/evidence.py fuzz       [--seconds 60] [--rounds 1]
    tools/evidence.py chaos      [--storms 10] [--seconds 60]
    tools/evidence.py soak       [--parts 6]   [--seconds 600]
    tools/evidence.py upgrade-storm [--storms 10] [--seconds 60]

`make flake-hunt`, `make sim` and so on build what is needed and call this. All campaigns
share these options:

    --minutes N   stop after N minutes; the same command goes on from there
    --again       forget the report and begin anew
    --keep        go on with a report of another commit (each run names its commit)
    --redo TEXT   after a fix: forget the runs whose name contains TEXT and do all of
                  them again; implies --keep
    --jobs N      so many runs at a time; flake-hunt varies it by itself
    --only TEXT   only runs whose name contains TEXT

The report is build-reports/CAMPAIGN.jsonl: one JSON object per line. The first line has
campaign, commit and machine; each further line is one run: name, number, result (pass or
fail), seconds, limit_s, load (the machine's one-minute load average at the end of the
run), jobs, commit, detail. The output of each failed run is beside it. A run that is in
the report is not run again. The last line of the output is `N passed, N failed`.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import glob
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPORTS = os.path.join(ROOT, "build-reports")
NEAR = 0.5  # a run that takes more than this part of its limit is reported
SEEDS_EACH = 2000
PURE = {"test_log_scan"}  # of a hunted suite, but long and the same in every run
SLOW_CASE = re.compile(r"^# slow: ([0-9.]+) s of ([0-9]+) s: (.*)$", re.MULTILINE)

# A run to do: `name` and `number` tell it from all others.
Run = collections.namedtuple("Run", "name number command env limit_s cwd",
                             defaults=[ROOT])


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip()


def commit():
    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--short") else "")


class Report:
    """What has been run, on disk after every run."""

    def __init__(self, campaign, again=False, keep=False, redo=""):
        os.makedirs(REPORTS, exist_ok=True)
        self.path = os.path.join(REPORTS, campaign + ".jsonl")
        self.folder = os.path.join(REPORTS, campaign)
        self.commit = commit()
        self.runs = []
        if again and os.path.exists(self.path):
            os.remove(self.path)
            shutil.rmtree(self.folder, ignore_errors=True)
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as f:
                header, *self.runs = map(json.loads, f)
            if header["commit"] != self.commit and not keep and not redo:
                sys.exit(f"{campaign}: the report is of commit {header['commit']}, this "
                         f"is {self.commit}; 'make {campaign} OPTIONS=--again' begins "
                         "anew, OPTIONS=--keep goes on")
            if redo:
                self.runs = [r for r in self.runs if redo not in r["name"]]
                os.remove(self.path)
                for row in [header, *self.runs]:
                    self._add(row)
        else:
            self._add({"campaign": campaign, "commit": self.commit,
                       "machine": f"{platform.node()}, {os.cpu_count()} cores, "
                                  f"Linux {platform.release()}",
                       "began": time.strftime("%Y-%m-%d %H:%M:%S")})
        self.done = {(r["name"], r["number"]) for r in self.runs}

    def _add(self, row):
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")

    def add(self, run, result):
        row = {"name": run.name, "number": run.number, "limit_s": run.limit_s,
               "commit": self.commit} | result
        output = row.pop("output")
        self.runs.append(row)
        self._add(row)
        if row["result"] == "fail":
            os.makedirs(self.folder, exist_ok=True)
            name = re.sub(r"[^\w.-]+", "-", f"{run.name}-{run.number}") + ".log"
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
                f.write(output)


class Load:
    """Both cores and the disk, kept busy by processes of low priority until close()."""

    WRITER = ("import os, sys\n"
              "data = os.urandom(1 << 20)\n"
              "while True:\n"
              "    with open(sys.argv[1], 'wb') as f:\n"
              "        for _ in range(32):\n"
              "            f.write(data)\n"
              "            f.flush()\n"
              "            os.fsync(f.fileno())\n")
    BURNER = "while True: pass\n"

    def __init__(self):
        self.file = os.path.join(REPORTS, "written-by-the-load")
        burn = ["nice", "-n", "19", sys.executable, "-c", self.BURNER]
        self.processes = [subprocess.Popen(burn) for _ in range(os.cpu_count() or 2)]
        self.processes.append(
            subprocess.Popen([sys.executable, "-c", self.WRITER, self.file]))

    def close(self):
        for p in self.processes:
            p.kill()
            p.wait()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.file)


class Scratch:
    """A temporary folder for all runs, in memory if there is room (as tools/test.sh)."""

    def __init__(self):
        where = None
        with contextlib.suppress(OSError):
            room = os.statvfs("/dev/shm")
            if room.f_bavail * room.f_frsize > 4 << 30:
                where = "/dev/shm"
        self.path = tempfile.mkdtemp(prefix="picket-", dir=where)
        os.chmod(self.path, 0o755)

    def own(self):
        folder = tempfile.mkdtemp(prefix="run-", dir=self.path)
        os.chmod(folder, 0o1777)
        return folder

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


def group_end(process):
    """Ends a run that was started in a group of its own."""
    process.terminate()  # harnesses clean up, then end
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Runner:
    """Does runs, a few at a time, until all are done or time is up."""

    def __init__(self, name, report, minutes, total):
        self.name = name
        self.report = report
        self.total = total
        self.end = time.monotonic() + minutes * 60 if minutes else float("inf")
        self.began = time.monotonic()
        self.scratch = Scratch()
        self.lock = threading.Lock()
        self.under_way = set()
        self.stopped = False

    def run_one(self, run, jobs):
        if time.monotonic() > self.end:
            return
        folder = self.scratch.own()
        env = {"PICKET_TEST_DISK": tempfile.gettempdir(), "TMPDIR": folder}
        env = os.environ | env | run.env
        began = time.monotonic()
        detail = ""
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            process = subprocess.Popen(run.command, cwd=run.cwd, env=env, stdout=log,
                                       stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
            self.under_way.add(process)
            try:
                code = process.wait(run.limit_s)
            except subprocess.TimeoutExpired:
                code, detail = 1, f"not done after {run.limit_s} s"
            group_end(process)
            self.under_way.remove(process)
            log.seek(0)
            output = log.read()
        shutil.rmtree(folder, ignore_errors=True)
        if self.stopped:
            return  # ended by us, not by itself
        if code != 0 and not detail:
            failed = re.findall(r"^not ok \d+ *-? *(.*)$", output, re.MULTILINE)
            detail = "; ".join(failed) or f"exit {code}"
        slow = [f"{name}: {took} s of {limit} s"
                for took, limit, name in SLOW_CASE.findall(output)
                if float(took) > NEAR * float(limit)]
        self.done(run, {"result": "pass" if code == 0 else "fail",
                        "seconds": round(time.monotonic() - began, 1),
                        "load": round(os.getloadavg()[0], 1), "jobs": jobs,
                        "detail": detail, "near": slow, "output": output})

    def done(self, run, result):
        with self.lock:
            self.report.add(run, result)
            rows = self.report.runs
            failed = sum(r["result"] == "fail" for r in rows)
            minutes = (time.monotonic() - self.began) / 60
            print(f"{self.name}: {len(rows)} of {self.total} runs, {failed} failed, "
                  f"{minutes:.0f} min, load {result['load']}; {run.name} #{run.number}: "
                  f"{result['result']} ({result['seconds']} s)"
                  + (f": {result['detail']}" if result["detail"] else ""), flush=True)

    def stop(self):
        """Ends what is under way; it will be run again."""
        self.stopped = True
        self.end = 0
        for process in list(self.under_way):
            process.terminate()

    def run_all(self, streams):
        """Does the rounds of each stream, all streams at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(streams)) as pool:
            try:
                for stream in [pool.submit(self.run_rounds, s) for s in streams]:
                    stream.result()  # raises what the stream has raised
            except KeyboardInterrupt:
                self.stop()
                raise

    def run_rounds(self, rounds):
        """Does (runs, jobs) after (runs, jobs), at most `jobs` at a time. A round begins
        while the last runs of the one before it go on."""
        most = max((jobs for _, jobs in rounds), default=1)
        active = set()
        with concurrent.futures.ThreadPoolExecutor(most) as pool:
            for runs, jobs in rounds:
                for run in runs:
                    active = self.wait_for_room(active, jobs)
                    active.add(pool.submit(self.run_one, run, jobs))
            self.wait_for_room(active, 1)

    @staticmethod
    def wait_for_room(active, jobs):
        """Returns those of `active` that still run, fewer than `jobs`."""
        while len(active) >= jobs:
            done, active = concurrent.futures.wait(
                active, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                future.result()  # raises what the run has raised
        return active


# ---- campaigns: each gives its streams, which are lists of (runs, jobs) ----

def tests_of(build):
    done = subprocess.run(["meson", "introspect", "--tests", build], check=True, cwd=ROOT,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def hunted(build, suites):
    """The test programs of a build that start processes or depend on time."""
    return [t for t in tests_of(build) if t["name"] not in PURE and
            any(s.split(":")[-1] in suites for s in t["suite"])]


def hunting_round(dice, build, suites, number):
    """One run of each hunted program of a build, in an order and at a parallelism drawn
    by `dice`."""
    programs = [Run(f"{build}: {t['name']}", number, t["cmd"], t["env"], 3600,
                    os.path.join(ROOT, build)) for t in hunted(build, suites)]
    dice.shuffle(programs)
    return programs, dice.choice((6, 10, 14, 18))


def flake_hunt(o):
    """Rounds of the plain build, since users run that; then, if asked for, rounds under
    ASan. Beside them whole suites one after the other, which run the sanitized builds."""
    dice = random.Random(1)
    plain = {"unit", "e2e", "stores", "conform", "web", "faults"}
    sanitized = {"unit", "e2e", "conform"}
    rounds = [hunting_round(dice, "build", plain, i) for i in range(1, o.times + 1)]
    whole = [Run("make test", i, ["tools/test.sh"],
                 {"MESON_TESTTHREADS": str(dice.choice((2, 4, 6)))}, 4 * 3600)
             for i in range(1, o.suites + 1)]
    rounds += [hunting_round(dice, "build-asan", sanitized, i)
               for i in range(1, o.sanitized + 1)]
    return [rounds, [(whole, 1)]]


def sim(o):
    blocks = range(1, o.seeds + 1, SEEDS_EACH)
    runs = []
    for first in blocks:
        seeds = f"{first}-{min(first + SEEDS_EACH - 1, o.seeds)}"
        runs.append(Run("sim", first, ["build/test/sim", "--seeds", seeds], {}, 3600))
    return [[(runs, os.cpu_count() or 2)]]


def fuzz(o):
    runs = []
    for number in range(1, o.rounds + 1):
        for program in sorted(glob.glob(os.path.join(ROOT, "build-fuzz/test/fuzz_*"))):
            if not os.path.isfile(program):
                continue  # the folder of its objects
            target = os.path.basename(program).removeprefix("fuzz_")
            found = os.path.join(ROOT, "build-fuzz/found", target)
            os.makedirs(found, exist_ok=True)
            runs.append(Run(f"fuzz {target} for {o.seconds} s", number,
                            [program, f"-max_total_time={o.seconds}", "-verbosity=0",
                             "-print_final_stats=1", "-artifact_prefix=build-fuzz/",
                             found, os.path.join(ROOT, "test/fuzz/corpus", target)],
                            {}, o.seconds + 600))
    return [[(runs, os.cpu_count() or 2)]]


def picket_env():
    return {"PICKET": os.path.join(ROOT, "build/picket")}


def chaos(o):
    return [[([Run(f"chaos for {o.seconds} s", seed,
                  [sys.executable, "test/e2e/chaos.py", "chaos__"],
                  picket_env() | {"PICKET_CHAOS_SECONDS": str(o.seconds),
                                  "PICKET_CHAOS_SEED": str(seed)}, o.seconds + 900)
               for seed in range(1, o.storms + 1)], 1)]]


def upgrade_storm(o):
    env = picket_env() | {"PICKET_NEXT": os.path.join(ROOT, "build/test/picket-next"),
                          "PICKET_STORM_SECONDS": str(o.seconds)}
    return [[([Run(f"upgrades and downgrades for {o.seconds} s", seed,
                  [sys.executable, "test/e2e/versions.py", "storm__"],
                  env | {"PICKET_STORM_SEED": str(seed)}, o.seconds + 3600)
               for seed in range(1, o.storms + 1)], 1)]]


def soak(o):
    return [[([Run(f"soak for {o.seconds} s", part, [sys.executable, "test/e2e/soak.py"],
                  picket_env() | {"PICKET_SOAK_SECONDS": str(o.seconds)},
                  o.seconds + 900)
               for part in range(1, o.parts + 1)], 1)]]


CAMPAIGNS = {"flake-hunt": flake_hunt, "sim": sim, "fuzz": fuzz, "chaos": chaos,
             "soak": soak, "upgrade-storm": upgrade_storm}


def summary(report):
    """Failures, what came near a limit, the slowest; then the count."""
    rows = report.runs
    failed = [r for r in rows if r["result"] == "fail"]
    for r in failed:
        print(f"FAILED {r['name']} #{r['number']} after {r['seconds']} s: {r['detail']}")
    for r in rows:
        for case in r["near"]:
            print(f"NEAR ITS LIMIT {r['name']} #{r['number']}: {case}")
        if r["seconds"] > NEAR * r["limit_s"]:
            print(f"NEAR ITS LIMIT {r['name']} #{r['number']}: {r['seconds']} s of "
                  f"{r['limit_s']} s")
    if rows:
        loads = sorted(r["load"] for r in rows)
        print(f"load during it: {loads[0]} to {loads[-1]}, half of the runs above "
              f"{loads[len(loads) // 2]}; commits: "
              f"{', '.join(sorted({r['commit'] for r in rows}))}")
    slowest = {}
    for r in rows:
        if r["seconds"] > slowest.get(r["name"], {"seconds": -1})["seconds"]:
            slowest[r["name"]] = r
    for r in sorted(slowest.values(), key=lambda r: -r["seconds"] / r["limit_s"])[:10]:
        print(f"slowest: {r['name']}: {r['seconds']} s of {r['limit_s']} s")
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not rows else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("campaign", choices=CAMPAIGNS)
    for name, default in (("times", 30), ("suites", 3), ("sanitized", 0),
                          ("seeds", 1000000), ("rounds", 1), ("storms", 10),
                          ("parts", 6), ("minutes", 0), ("jobs", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--redo", default="")
    o = parser.parse_args()
    if o.seconds is None:
        o.seconds = 600 if o.campaign == "soak" else 60
    return o


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    o = arguments()
    report = Report(o.campaign, o.again, o.keep, o.redo)
    streams = [[([r for r in runs if o.only in r.name], o.jobs or jobs)
                for runs, jobs in rounds] for rounds in CAMPAIGNS[o.campaign](o)]
    runner = Runner(o.campaign, report, o.minutes,
                    sum(len(runs) for rounds in streams for runs, _ in rounds))
    load = Load() if o.campaign == "flake-hunt" else None
    try:
        runner.run_all([[([r for r in runs if (r.name, r.number) not in report.done],
                          jobs) for runs, jobs in rounds] for rounds in streams])
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        if load:
            load.close()
        runner.scratch.close()
    if len(report.runs) < runner.total:
        print(f"stopped at {len(report.runs)} of {runner.total} runs; the same command "
              "goes on from there")
    return summary(report)


if __name__ == "__main__":
    sys.exit(main())
