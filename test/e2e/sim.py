# SPDX-License-Identifier: MIT
"""`picket sim run` and `fuzz`: scenarios, verdicts, exit codes, files."""
import glob
import json
import os
import subprocess
import xml.etree.ElementTree as xml

from tap import check, contains, equal, main, test

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCENARIOS = sorted(glob.glob(os.path.join(ROOT, "scenarios", "*.sim")))

STORY = """sim 1 # A story
fence off
at 0 A acquire
at 0.5 A write
at 1 A pause 8s
at 2 B acquire
at 7 B write
at 9.2 A write
until 12s
"""


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


# ---- scenarios ----

@test
def scenarios__come_out_as_they_say(t):
    check(len(SCENARIOS) >= 12, f"only {len(SCENARIOS)} scenarios")
    for path in SCENARIOS:
        done = t.picket("sim", "run", path)
        equal((path, done.returncode, done.stderr), (path, 0, ""))
        contains(done.stdout, "As expected.")


@test
def scenarios__come_out_as_they_say_with_the_fence_on(t):
    for path in SCENARIOS:
        done = t.picket("sim", "run", path, "--fence", "on")
        equal((path, done.returncode, done.stderr), (path, 0, ""))
        contains(done.stdout, "As expected.")


@test
def scenarios__tell_their_story(t):
    titles = set()
    for path in SCENARIOS:
        lines = text_of(path).splitlines()
        check(lines[0].startswith("sim 1 # "), f"{path} has no title")
        titles.add(lines[0])
        told = [x for x in lines[1:] if x.startswith("# ")]
        check(len(told) >= 2, f"{path} tells nothing")
        check(any(x.startswith("expect ") for x in lines), f"{path} expects nothing")
    equal(len(titles), len(SCENARIOS))


@test
def scenarios__break_without_a_fence_and_not_with_one(t):
    """The expectations above are not all the same word."""
    off = {p: t.picket("sim", "run", p, "--fence", "off").stdout for p in SCENARIOS}
    broken = [p for p in SCENARIOS if "Broken:" in off[p]]
    check(len(broken) >= 6, f"only {broken} break without a fence")
    healed = [p for p in broken
              if "Nothing broke" in t.picket("sim", "run", p, "--fence", "on").stdout]
    check(len(healed) >= 4, f"only {healed} are saved by a fence")


@test
def pictures__of_the_documents_are_what_the_program_draws(t):
    os.makedirs(t.path("img"))
    done = subprocess.run([os.path.join(ROOT, "tools", "pictures.sh"), t.program,
                           t.path("img")], check=False, capture_output=True, text=True)
    equal((done.returncode, done.stderr), (0, ""))
    kept = os.path.join(ROOT, "docs", "img")
    drawn = sorted(os.listdir(t.path("img")))
    check(len(drawn) >= 4, str(drawn))
    for name in drawn:
        check(text_of(os.path.join(kept, name)) == text_of(t.path("img/" + name)),
              f"docs/img/{name} shows something else: run tools/pictures.sh")
    document = text_of(os.path.join(ROOT, "docs", "simulator.md"))
    for name in drawn:
        contains(document, f"(img/{name})")


# ---- verdicts ----

@test
def run__without_an_expectation_nothing_may_break(t):
    path = t.write("a.sim", STORY)
    done = t.picket("sim", "run", path)
    equal(done.returncode, 1)
    contains(done.stdout, "Broken: fence-back lost-update stale-write\n")
    contains(done.stdout, "A with token 1 wrote although the lock had been given to B")
    equal(t.picket("sim", "run", path, "--fence", "on").returncode, 0)


@test
def run__another_verdict_than_expected(t):
    for expected, code in (("stale-write", 1), ("nothing", 1),
                           ("fence-back lost-update stale-write", 0),
                           ("two-valid fence-back lost-update stale-write", 1)):
        path = t.write("a.sim", STORY + f"expect {expected}\n")
        done = t.picket("sim", "run", path)
        equal((expected, done.returncode), (expected, code))
        contains(done.stdout, "As expected." if code == 0 else
                 f"NOT as expected, which is: {expected}\n")


@test
def run__an_expectation_is_for_its_own_setting(t):
    path = t.write("a.sim", STORY + "expect fence-back lost-update stale-write\n")
    equal(t.picket("sim", "run", path).returncode, 0)
    equal(t.picket("sim", "run", path, "--fence", "off").returncode, 0)
    equal(t.picket("sim", "run", path, "--fence", "on").returncode, 0)
    equal(t.picket("sim", "run", path, "--fence", "check").returncode, 0)
    equal(t.picket("sim", "run", path, "--flavour", "redlock").returncode, 1)
    path = t.write("b.sim", STORY + "expect-fenced two-valid\n")
    equal(t.picket("sim", "run", path, "--fence", "on").returncode, 1)


@test
def run__reads_standard_input(t):
    done = t.picket("sim", "run", "-", "--fence", "on", input=STORY)
    equal(done.returncode, 0)
    contains(done.stdout, "A story\npicket, fence on, TTL 5 s: 6 acts, 12 s")
    contains(done.stdout, "calls rejected 1, fence at 2")


@test
def run__is_the_same_every_time(t):
    path = t.write("a.sim", STORY)
    equal(t.picket("sim", "run", path).stdout, t.picket("sim", "run", path).stdout)


@test
def run__says_file_and_line_of_what_is_wrong(t):
    path = t.write("bad.sim", "sim 1\n\nat 1 A fly\n")
    done = t.picket("sim", "run", path)
    equal((done.returncode, done.stdout), (125, ""))
    equal(done.stderr, f"picket: {path}:3: nobody can do that: fly\n")
    done = t.picket("sim", "run", "-", input="sim 9\n")
    equal(done.returncode, 125)
    equal(done.stderr,
          "picket: standard input:1: this is a script of another version: 9\n")


@test
def run__says_when_acts_do_not_fit_the_flavour(t):
    path = t.write("a.sim", "sim 1\nat 1 service failover 1s\n")
    done = t.picket("sim", "run", path, "--flavour", "redlock")
    equal(done.returncode, 125)
    contains(done.stderr, "can't be played as redlock: there is nobody of that name")


@test
def run__bytes_from_anywhere(t):
    path = t.path("bytes.sim")
    with open(path, "wb") as f:
        f.write(b"sim 1 # \x1b[31m\xff\n\x00\x01\xfe\n")
    done = t.picket("sim", "run", path, errors="replace")
    equal(done.returncode, 125)
    check("\x1b" not in done.stderr + done.stdout)


# ---- files ----

@test
def run__writes_a_picture_and_json(t):
    path = t.write("a.sim", STORY)
    done = t.picket("sim", "run", path, "--svg", t.path("a.svg"), "--json",
                    t.path("a.json"))
    equal(done.returncode, 1)
    root = xml.parse(t.path("a.svg")).getroot()
    equal(root.tag, "{http://www.w3.org/2000/svg}svg")
    told = json.loads(text_of(t.path("a.json")))
    equal(told["broken"], "fence-back lost-update stale-write")
    equal(told["counts"]["stale-write"], 1)
    equal((told["end"]["counter"], told["end"]["rejected"]), (2, 0))
    equal(len(told["hits"]), 3)
    kinds = [r["kind"] for r in told["trace"]]
    equal(kinds.count("granted"), 2)
    # The script inside plays the same.
    again = t.picket("sim", "run", "-", "--json", "-", input=told["script"])
    equal(json.loads(again.stdout)["digest"], told["digest"])


@test
def run__a_file_that_cannot_be_written(t):
    path = t.write("a.sim", STORY)
    done = t.picket("sim", "run", path, "--svg", t.path("no/where.svg"))
    equal(done.returncode, 125)
    contains(done.stderr, "can't write")


@test
def run__prints_a_link(t):
    path = t.write("a.sim", "sim 1 # x\nat 0 A acquire\nuntil 2s\n")
    done = t.picket("sim", "run", path, "--link")
    contains(done.stdout, "simulator.html#v=1&s=sim_1_%23_x~flavour_picket~fence_on~"
                          "ttl_5s~at_0_A_acquire~until_2s~\n")


# ---- fuzz ----

def table(text):
    """check -> worlds in which it was hit."""
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    return {row[0]: int(row[1]) for row in rows}


@test
def fuzz__finds_what_breaks_without_a_fence(t):
    done = t.picket("sim", "fuzz", "--seeds", "1-40", "--fence", "off")
    equal(done.returncode, 1)
    counts = table(done.stdout)
    check(counts["stale-write"] > 0 and counts["lost-update"] > 0, done.stdout)
    equal((counts["two-holders"], counts["two-valid"], counts["digests"]), (0, 0, 0))
    contains(done.stdout, "40 worlds")


@test
def fuzz__finds_nothing_with_one(t):
    done = t.picket("sim", "fuzz", "--seeds", "1-40", "--rough", "3", "-v")
    equal((done.returncode, done.stderr), (0, ""))
    contains(done.stdout, "picket, fence on, rough 3: 40 worlds")
    contains(done.stdout, "a hold expired while its holder was paused")


@test
def fuzz__gives_the_same_whoever_does_it(t):
    def counts(jobs):
        done = t.picket("sim", "fuzz", "--seeds", "5-25", "--fence", "off",
                        "--jobs", jobs)
        return [x.split("first") for x in done.stdout.splitlines()[1:]]
    equal(counts(1), counts(3))
    equal(counts(1), counts(64))


@test
def fuzz__keeps_small_scripts_that_break(t):
    out = t.path("found")
    done = t.picket("sim", "fuzz", "--flavour", "redlock", "--jumps", "--seeds", "1-20",
                    "--shrink", "--out", out)
    equal(done.returncode, 1)
    found = sorted(os.listdir(out))
    check("redlock-stale-write.sim" in found and "redlock-two-valid.sim" in found,
          str(found))
    for name in found:
        path = os.path.join(out, name)
        played = t.picket("sim", "run", path)
        equal((name, played.returncode), (name, 0))
        contains(played.stdout, name.removeprefix("redlock-").removesuffix(".sim"))
        check(text_of(path).count("\nat ") < 30, f"{name} is not small")


# ---- words ----

@test
def sim__refuses_what_makes_no_sense(t):
    for args, why in (
            (("dance",), '"dance" is none of run, fuzz and replay'),
            (("run",), "run takes FILE.sim"),
            (("run", "a", "b"), "run takes FILE.sim"),
            (("fuzz", "a"), "fuzz takes options, but no words"),
            (("run", "a", "--seeds", "1-2"), "that option is not for run"),
            (("fuzz", "--svg", "x"), "that option is not for fuzz"),
            (("fuzz", "--seeds", "9-1"), "--seeds is A-B"),
            (("fuzz", "--seeds", "all"), "--seeds is A-B"),
            (("fuzz", "--flavour", "raft"), "--flavour is picket, etcd"),
            (("fuzz", "--fence", "high"), "--fence is off, check or on, not high"),
            (("fuzz", "--rough", "4"), "whole number from 0 to 3"),
            (("fuzz", "--jumps"), "--jumps is for redlock"),
            (("run", "/nowhere/at.all"), "can't open /nowhere/at.all")):
        done = t.picket("sim", *args)
        equal((args, done.returncode, done.stdout), (args, 125, ""))
        contains(done.stderr, why)


@test
def sim__help_is_complete(t):
    done = t.picket("sim", "--help")
    equal(done.returncode, 0)
    for word in ("run FILE.sim", "fuzz", "replay TRACE", "--fence", "--shrink", "125"):
        contains(done.stdout, word)


main()
