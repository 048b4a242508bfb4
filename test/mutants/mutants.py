#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants mistakes and checks that a test sees each of them.

    test/mutants/mutants.py [--sample N] [--jobs N] [--list] BUILD [TEXT...]

BUILD is a configured build folder. A mutant is one small mistake in one copy of a source
file; the lists are the *.txt files beside this program, one per folder of src/. With
TEXT, only the mutants whose `folder/name` contains one of the texts are planted.
`--sample N` plants N of them, spread over the folders, of those that no clock decides;
the same commit always gets the same sample. Output is TAP, with a table by folder at the
end.

For each mutant the runner compiles the changed copy with the file's own command of the
build, links it into each program that the named test uses, and runs that test. The
mutant is caught if the test fails. A test that also runs a program of the next version
(test/versions) gets the mistake in both. Each test also runs once on the unchanged
program and must pass there, because a test that always fails proves nothing.

The format of a list:

    mutant  short_name_of_the_mistake
    test    test_client lease__         a test of meson's list, and its arguments
    test    conform_local fork__        optional: tried if the first one sees nothing
    test    SEEDS=9 parity              variables of the environment may come first
    slow                                optional: never part of a sample
    file    src/client/client.c
    -    the text to replace, which must be in the file exactly once;
    -    a text of several lines has its inner indentation
    +    the new text; none: the text is deleted
    -    optional: a second text of the same file,
    +    and what takes its place
    file    ...                         optional: a second file of the same mistake

Every run, of a sample too, first looks for the texts of all mutants: one whose text is no
longer in its source fails, so that the lists can't rot.
"""
import argparse
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT_S = 600  # a mutant may make its test hang; that counts as seen
# The harnesses divide their own limits by this: a wait that a mistake makes endless
# should not take the minutes that a busy machine is allowed.
HASTE = "6"
# Programs whose arguments in meson's list are replaced by the mutant's, not added to.
OWN_ARGUMENTS = {"sim", "differential", "interleave", "matrix"}


class Broken(Exception):
    """The mutant can't be planted; the text says why."""


class Mutant:
    def __init__(self, folder, name):
        self.folder = folder
        self.name = name
        self.tests = []   # lists of words
        self.files = []   # [path, [[old, new], ...]]: lists of lines
        self.slow = False

    @property
    def title(self):
        return f"{self.folder}/{self.name}"


def parse(path):
    """The mutants of one list."""
    folder = os.path.splitext(os.path.basename(path))[0]
    found = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip("\n")
            word, _, rest = line.partition(" ")
            rest = rest.strip()
            if line.startswith("-"):
                texts = found[-1].files[-1][1]
                if not texts or texts[-1][1]:
                    texts.append([[], []])
                texts[-1][0].append(line[1:])
            elif line.startswith("+"):
                found[-1].files[-1][1][-1][1].append(line[1:])
            elif word == "mutant":
                found.append(Mutant(folder, rest))
            elif word == "test":
                found[-1].tests.append(shlex.split(rest))
            elif word == "slow":
                found[-1].slow = True
            elif word == "file":
                found[-1].files.append([rest, []])
            elif line.strip() and not line.startswith("#"):
                sys.exit(f"{path}:{number}: not understood: {line}")
    for m in found:
        if not m.tests or not m.files or not all(texts for _, texts in m.files):
            sys.exit(f"{path}: {m.name} needs a test, a file and a text to replace")
    return found


def split(words):
    """Variables, name and arguments of a test."""
    n = 0
    while re.fullmatch(r"[A-Z_]+=.*", words[n]):
        n += 1
    return dict(w.split("=", 1) for w in words[:n]), words[n], list(words[n + 1:])


def replaced(path, texts, root=ROOT):
    """The text of a source file with the mistake in it."""
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    for old, new in texts:
        old, new = "\n".join(old).strip(), "\n".join(new).strip()
        if text.count(old) != 1:
            raise Broken(f"its text is {text.count(old)} times in {path}, not once: "
                         f"{old!r}")
        text = text.replace(old, new)
    return text


class Build:
    """What meson and ninja know: commands, tests, programs."""

    def __init__(self, folder, root=ROOT):
        self.folder = os.path.abspath(folder)
        self.root = root   # of the sources
        self.tests = {t["name"]: t for t in self._introspect("--tests")}
        self.programs = {}   # absolute path of a program or library -> ninja's target
        for target in self._introspect("--targets"):
            if target["type"] in ("executable", "shared library"):
                path = target["filename"][0]
                self.programs[path] = os.path.relpath(path, self.folder)
        with open(self.path("compile_commands.json"), encoding="utf-8") as f:
            self.compiles = json.load(f)
        self._lock = threading.Lock()
        self._commands = {}
        self._inputs = {}
        self._next = None

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def next(self, words):
        """The build of the next version's program (test/versions), and the program's
        place, if the test uses it."""
        place = self.invocation(words)[1].get("PICKET_NEXT")
        with self._lock:
            if place is not None and self._next is None:
                self._next = Build(place + ".build", place + ".tree")
        return self._next, place

    def _introspect(self, what):
        done = subprocess.run(["meson", "introspect", what, self.folder], check=True,
                              stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def command(self, target):
        """The words of the command that makes a target."""
        with self._lock:
            if target not in self._commands:
                done = subprocess.run(["ninja", "-C", self.folder, "-t", "commands",
                                       target], check=True, text=True,
                                      stdout=subprocess.PIPE)
                last = [l for l in done.stdout.splitlines() if not l.startswith("ninja:")]
                self._commands[target] = shlex.split(last[-1])
            return self._commands[target]

    def compile_of(self, path):
        """The first compile command of a source: its words, and the object it makes."""
        wanted = os.path.join(self.root, path)
        for entry in self.compiles:
            source = os.path.join(entry["directory"], entry["file"])
            if os.path.normpath(source) == wanted:
                return shlex.split(entry["command"]), entry["output"]
        raise Broken(f"{path} is not compiled in {self.folder}")

    def generated_from(self, path):
        """The C file that is made from an SQL or Lua text."""
        name = os.path.relpath(os.path.join(self.root, path), self.folder)
        for target in glob.glob(self.path("*.c")):
            target = os.path.basename(target)
            if name in self.command(target):
                return target, name
        raise Broken(f"{path} is neither compiled nor part of a C file")

    def invocation(self, words):
        """Arguments and environment of a test, for a line of a list."""
        variables, name, more = split(words)
        test = self.tests.get(name)
        if test is None:
            raise Broken(f"there is no test {name}")
        # Meson lists a program among the arguments by its path in the build folder.
        args = [self.path(a) if self.path(a) in self.programs else a
                for a in test["cmd"]]
        if name in OWN_ARGUMENTS:
            args = args[:1]
        return args + more, dict(test["env"]) | variables

    def uses(self, words):
        """The programs that a test runs."""
        args, env = self.invocation(words)
        return [p for p in self.programs if p in args or p in env.values()]

    def contains(self, program, path):
        """Whether the program is made of this source, among others."""
        source = os.path.relpath(os.path.join(self.root, path), self.folder)
        with self._lock:
            if program not in self._inputs:
                done = subprocess.run(["ninja", "-C", self.folder, "-t", "inputs",
                                       self.programs[program]], check=True, text=True,
                                      stdout=subprocess.PIPE)
                self._inputs[program] = set(done.stdout.splitlines())
            return source in self._inputs[program]

    def prepare(self, mutants):
        targets = {self.programs[p] for m in mutants for t in m.tests
                   for p in self.uses(t)}
        targets |= {os.path.relpath(e["PICKET_NEXT"], self.folder) for m in mutants
                    for t in m.tests for e in [self.invocation(t)[1]]
                    if "PICKET_NEXT" in e}
        subprocess.run(["ninja", "-C", self.folder, *sorted(targets)], check=True,
                       stdout=subprocess.DEVNULL)


def compile_mutant(build, mutant, work):
    """Compiles the changed files. Returns the new objects and those that they replace."""
    made, instead = [], []
    for i, (path, texts) in enumerate(mutant.files):
        source = os.path.join(work, f"{i}-{os.path.basename(path)}")
        with open(source, "w", encoding="utf-8") as f:
            f.write(replaced(path, texts, build.root))
        compiled = path
        if not path.endswith(".c"):
            target, name = build.generated_from(path)
            output = os.path.join(work, f"{i}-{target}")
            words = [source if w == name else output if w == target else w
                     for w in build.command(target)]
            run_tool(build, words)
            source, compiled = output, os.path.relpath(build.path(target), build.root)
        words, replaces = build.compile_of(compiled)
        made.append(os.path.join(work, f"{i}.o"))
        instead.append(replaces)
        original = words[words.index("-c") + 1]
        words = without_dependency_file([w for w in words if w != "-Werror"])
        words[words.index("-c") + 1] = source
        words[words.index("-o") + 1] = made[-1]
        # Includes that are relative to the file's own folder.
        folder = os.path.dirname(os.path.join(build.folder, original))
        run_tool(build, words + ["-w", f"-I{folder}"])
    return made, instead


def without_dependency_file(words):
    kept, skip = [], False
    for w in words:
        if skip:
            skip = False
        elif w in ("-MF", "-MQ"):
            skip = True
        elif w != "-MD":
            kept.append(w)
    return kept


def run_tool(build, words):
    done = subprocess.run(words, cwd=build.folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        said = [l for l in done.stdout.splitlines() if "error" in l] or ["?"]
        raise Broken(f"does not build: {said[0]}")


def link_mutant(build, program, objects, instead, work):
    """Links `program` with the objects before all libraries, whose own copies of them are
    then not taken."""
    output = os.path.join(work, os.path.basename(program))
    words = [w for w in build.command(build.programs[program]) if w not in instead]
    at = words.index("-o")
    words[at + 1] = output
    run_tool(build, words[:at + 2] + objects + words[at + 2:])
    return output


def run_test(build, words, work, programs):
    """Runs a test with `programs` (path -> path) in place of the build's. Returns None if
    it passes, else what it said first."""
    args, env = build.invocation(words)
    args = [programs.get(a, a) for a in args]
    env = {k: programs.get(v, v) for k, v in env.items()}
    scratch = os.path.join(work, "tmp")
    os.makedirs(scratch, exist_ok=True)
    os.chmod(scratch, 0o1777)
    os.chmod(work, 0o755)
    env = os.environ | env | {"TMPDIR": scratch, "PICKET_TEST_HASTE": HASTE}
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(args, cwd=build.folder, env=env, stdout=log,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
            process.terminate()  # the harnesses clean up, then end
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    if code == 0:
        return None
    if code is None:
        return f"{split(words)[1]} hung"
    failed = [l.split(" - ", 1)[-1] for l in lines if l.startswith("not ok")]
    how = failed[0] if failed else f"ended with {code}" if code > 0 else \
        signal.Signals(-code).name
    return f"{split(words)[1]}: {how}"


def plant_next(build, mutant, words, work, linked):
    """The same mistake in the program of the next version, if the test uses it."""
    following, place = build.next(words)
    if place is None or place in linked:
        return
    work = os.path.join(work, "next")
    os.makedirs(work)
    objects, instead = compile_mutant(following, mutant, work)
    linked[place] = link_mutant(following, following.path("picket"), objects, instead,
                                work)


def plant(build, mutant):
    """Returns whether the mutant was caught, and how."""
    work = tempfile.mkdtemp(prefix="picket-mutant-")
    try:
        objects, instead = compile_mutant(build, mutant, work)
        linked = {}
        for words in mutant.tests:
            for program in build.uses(words):
                if program not in linked and any(build.contains(program, path)
                                                 for path, _ in mutant.files):
                    linked[program] = link_mutant(build, program, objects, instead, work)
            plant_next(build, mutant, words, work, linked)
            how = run_test(build, words, work, linked)
            if how is not None:
                return True, how
        return False, "NOT SEEN by " + ", ".join(" ".join(t) for t in mutant.tests)
    except Broken as e:
        return False, str(e)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def outdated(mutants):
    """(title, why) of each mutant whose texts are not in the sources."""
    found = []
    for m in mutants:
        try:
            for path, texts in m.files:
                replaced(path, texts)
        except (Broken, OSError) as e:
            found.append((m.title, str(e)))
    return found


def brief(words):
    """Long random runs pass unchanged in `make test`; here a short one will do."""
    short = {"sim": ("--seeds", "1-100"), "differential": ("--commands", "200000")}
    words = list(words)
    if words[0] in short:
        option, value = short[words[0]]
        words[words.index(option) + 1] = value
    return words


def control(build, words):
    """The unchanged program must pass."""
    work = tempfile.mkdtemp(prefix="picket-mutant-")
    try:
        how = run_test(build, brief(words), work, {})
        return how is None, "passes" if how is None else f"fails unchanged: {how}"
    except Broken as e:
        return False, str(e)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def depends_on_time(m):
    """True when its first test runs over a store of its own, and so by a clock that no
    test can stop: a busy machine may let the mistake pass unseen."""
    program = next(w for w in m.tests[0] if "=" not in w)
    return program.startswith(("conform_", "store_"))


def sample(mutants, n):
    """`n` of the quick ones, the same for the same commit: round the folders in turn."""
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    seed = int(hashlib.sha256(head.stdout.encode()).hexdigest(), 16)
    by_folder = collections.defaultdict(list)
    for m in mutants:
        if not m.slow and not depends_on_time(m):
            by_folder[m.folder].append(m)
    dice = random.Random(seed)
    for rest in by_folder.values():
        dice.shuffle(rest)
    chosen = []
    while len(chosen) < n and any(by_folder.values()):
        for rest in by_folder.values():
            if rest and len(chosen) < n:
                chosen.append(rest.pop())
    return chosen


def table(mutants, caught):
    """Rows of folder, planted, caught."""
    planted = collections.Counter(m.folder for m in mutants)
    seen = collections.Counter(m.folder for m in mutants if m.title in caught)
    rows = [("folder", "planted", "caught")]
    rows += [(f, str(planted[f]), str(seen[f])) for f in sorted(planted)]
    rows.append(("all", str(len(mutants)), str(len(caught))))
    return [f"{a:<12}{b:>8}{c:>8}" for a, b, c in rows]


def arguments():
    parser = argparse.ArgumentParser(description="plant mistakes; see each one caught")
    parser.add_argument("build")
    parser.add_argument("text", nargs="*", help="part of a mutant's folder/name")
    parser.add_argument("--sample", type=int, help="plant only so many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--list", action="store_true", help="print the names and end")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout.reconfigure(line_buffering=True)
    args = arguments()
    mutants = [m for path in sorted(glob.glob(os.path.join(HERE, "*.txt")))
               for m in parse(path)]
    names = collections.Counter(m.title for m in mutants)
    doubled = [title for title, n in names.items() if n > 1]
    if doubled:
        sys.exit(f"two mutants have one name: {', '.join(doubled)}")
    rotten = outdated(mutants)
    if args.text:
        mutants = [m for m in mutants if any(t in m.title for t in args.text)]
    if args.sample:
        mutants = sample(mutants, args.sample)
    if args.list:
        print("\n".join(m.title for m in mutants))
        return 0
    if not mutants:
        sys.exit("no mutant has such a name")
    build = Build(args.build)
    try:
        build.prepare(mutants)
    except Broken as e:
        sys.exit(str(e))
    controls = sorted({tuple(t) for m in mutants for t in m.tests})
    print(f"1..{1 + len(mutants) + len(controls)}")
    print(f"{'not ok' if rotten else 'ok'} 1 - texts of all mutants are in the sources")
    for title, why in rotten:
        print(f"# {title}: {why}")
    began, number, caught, failed = time.monotonic(), 1, set(), len(rotten)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = {pool.submit(control, build, t): f"unchanged {' '.join(t)}"
                for t in controls}
        runs |= {pool.submit(plant, build, m): m for m in mutants}
        for run in concurrent.futures.as_completed(runs):
            what, (ok, how) = runs[run], run.result()
            number += 1
            failed += not ok
            title = what if isinstance(what, str) else what.title
            if ok and not isinstance(what, str):
                caught.add(what.title)
            print(f"{'ok' if ok else 'not ok'} {number} - {title}: {how}")
            print(f"# {number - 1} of {len(runs)}, {time.monotonic() - began:.0f} s")
    for row in table(mutants, caught):
        print(f"# {row}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
