# SPDX-License-Identifier: MIT
"""The words of the command line: what is refused, and what is explained."""
import json
import os
import re
import shutil
import subprocess

from holding import hold, let_go, ok, parsed
from tap import check, contains, equal, main, skip, test

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
VERBS = ("run", "once", "acquire", "extend", "release", "elect", "ls", "show", "watch",
         "break", "fence", "gate", "drill", "sim", "doctor", "serve", "dev", "cluster",
         "bench", "version")
TOKEN_MAX = 2**53 - 1

# Words that are wrong, and a part of the one line that says so.
BAD = [
    ((), "--help"),
    (("frob",), "there is no verb"),
    (("help", "frob"), "there is no verb"),
    (("--on", "local:", "ls"), "after the verb"),
    (("run",), "LOCK is missing"),
    (("run", "db"), "what to run"),
    (("run", "db", "--"), "what to run"),
    (("run", "-c", "true", "db", "--", "true"), "exclude each other"),
    (("run", "--frob", "db", "--", "true"), "no option --frob"),
    (("run", "-Z", "db", "--", "true"), "no option -Z"),
    (("run", "--ttl"), "wants a value"),
    (("run", "--shared=yes", "db", "--", "true"), "takes no value"),
    (("run", "--ttl", "0", "db", "--", "true"), "say 10s or 500ms"),
    (("run", "--ttl", "10", "db", "--", "true"), "say 10s or 500ms"),
    (("run", "--ttl", "-5s", "db", "--", "true"), "negative"),
    (("run", "--ttl", "0s", "db", "--", "true"), "not between 50ms and 1d"),
    (("run", "--ttl", "49ms", "db", "--", "true"), "not between 50ms and 1d"),
    (("run", "--ttl", "400d", "db", "--", "true"), "not between 50ms and 1d"),
    (("run", "--ttl", "9" * 40 + "s", "db", "--", "true"), "too long"),
    (("run", "--ttl", "10parsec", "db", "--", "true"), "unknown unit"),
    (("run", "--ttl", "1.s", "db", "--", "true"), "not a time"),
    (("run", "--ttl", "ten", "db", "--", "true"), "not a time"),
    (("run", "--ttl", "", "db", "--", "true"), "not a time"),
    (("run", "--kill-after", "5", "db", "--", "true"), "say 10s or 500ms"),
    (("run", "-w", "-1", "db", "--", "true"), "negative"),
    (("run", "-w", "soon", "db", "--", "true"), "not a time"),
    (("run", "-E", "0", "db", "--", "true"), "from 1 to 255"),
    (("run", "-E", "256", "db", "--", "true"), "from 1 to 255"),
    (("run", "-s", "--slots", "2", "db", "--", "true"), "exclude each other"),
    (("run", "--slots", "0", "db", "--", "true"), "from 1 to"),
    (("run", "--require", "magic", "db", "--", "true"), "neither correctness nor"),
    (("run", "-F", "--grace", "1s", "db", "--", "true"), "exclude each other"),
    (("run", "", "--", "true"), "name is empty"),
    (("run", "a" * 256, "--", "true"), "longer than 255"),
    (("run", "a\nb", "--", "true"), "not printable"),
    (("run", "a\x7f", "--", "true"), "not printable"),
    (("run", b"a\xff", "--", "true"), "not printable"),
    (("run", "a", "--also", "a", "--", "true"), "twice"),
    (("run", "a", *(w for i in range(16) for w in ("--also", f"l{i}")), "--", "true"),
     "at most 16"),
    (("acquire",), "LOCK is missing"),
    (("acquire", ""), "name is empty"),
    (("acquire", "a", "b"), "one word too many"),
    (("acquire", "--ttl", "10", "a"), "say 10s or 500ms"),
    (("extend",), "which lease"),
    (("extend", "--lease", "x"), "not a whole number"),
    (("extend", "--lease", "0"), "not a whole number"),
    (("extend", "--lease", "77"), "lease 77"),
    (("release",), "which lock"),
    (("release", "db"), "--token"),
    (("release", "db", "--token", "1"), "--lease"),
    (("release", "db", "--token", "abc"), "not a whole number"),
    (("release", "db", "--token", "-1"), "not a whole number"),
    (("release", "db", "--token", "0"), "not a whole number"),
    (("release", "db", "--token", str(TOKEN_MAX + 1)), "not a whole number"),
    (("release", "db", "--token", "9" * 40), "not a whole number"),
    (("show",), "LOCK is missing"),
    (("show", ""), "name is empty"),
    (("ls", "a", "b"), "one word too many"),
    (("ls", "a", "b\x1b[2J\r\n"), '"b\\x1b[2J\\x0d\\x0a"'),
    (("ls", "-o", "xml"), "neither text nor json"),
    (("ls", "--on", ""), "not a URL"),
    (("ls", "--on", "carrier-pigeon:coop"), "carrier-pigeon"),
    (("watch", "--count", "0"), "not a whole number"),
    (("break", "db"), "--reason"),
    (("break", "db", "--reason", ""), "--reason"),
    (("fence",), "missing"),
    (("fence", "frob", "r"), "none of claim, check, put, get"),
    (("fence", "claim", "r"), "--token"),
    (("fence", "claim", "r", "--token", "x"), "not a whole number"),
    (("fence", "claim", "", "--token", "1"), "empty"),
    (("fence", "put", "r", "--token", "1"), "one value"),
    (("fence", "put", "r", "--token", "1", "v", "--file", "f"), "one value"),
    (("fence", "put", "r", "--token", "1", "--file", "no-such-file"), "no-such-file"),
    (("fence", "get", "r", "v"), "takes no value"),
    (("elect", "n"), "VALUE is missing"),
    (("elect", "n", "--", "true"), "VALUE is missing"),
    (("elect", "n", "v", "true"), "behind --"),
    (("elect", "n", "v", "-o", "json", "--", "true"), "-o json"),
    (("elect", "--once", "n", "v"), "--observe"),
    (("elect", "--observe", "n", "v"), "nothing else"),
    (("run", "-o", "json", "db", "--", "true"), "no option -o"),
    *((("elect", *words, "n", "v"), "no option " + words[0]) for words in (
        ("-s",), ("-x",), ("-c", "true"), ("--slots", "2"), ("--also", "m"),
        ("--value", "v"))),
    *((("acquire", *words, "db"), "no option " + words[0]) for words in (
        ("-c", "true"), ("-F",), ("--kill-after", "1s"), ("--grace", "1s"))),
    (("version", "x"), "one word too many"),
    (("bench",), "LOAD is missing"),
    (("bench", "sprint"), "there is no load"),
    (("bench", "pairs"), "needs a server"),
    (("bench", "--connections", "2", "handoff"), "connection of its own"),
    (("bench", "--redis", "renew"), "Redis' idiom has no renew"),
]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


@test
def bad_input__costs_one_line_and_changes_nothing(t):
    ok(t.picket("run", "other", "--", "true"))
    before = ok(t.picket("acquire", "-o", "json", "before"))
    for words, part in BAD:
        done = subprocess.run([t.program, *words], cwd=t.dir, env=t.env, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True)
        said = done.stderr.decode("utf-8", "replace")
        check(done.returncode == 125, f"{words}: exit code {done.returncode}: {said}")
        check(said.startswith("picket: ") and said.count("\n") == 1 and said[-1] == "\n",
              f"{words}: not one line: {said!r}")
        check(part in said, f"{words}: {part!r} is not in {said!r}")
        equal(done.stdout, b"")
    after = ok(t.picket("acquire", "-o", "json", "after"))
    equal(json.loads(after)["token"], json.loads(before)["token"] + 1)
    equal(ok(t.picket("ls", "-q")), "after\nbefore\n")


@test
def bad_environment__is_named(t):
    for name, words in (("PICKET_TOKEN", ("fence", "claim", "r")),
                        ("PICKET_LEASE", ("extend",))):
        done = t.picket(*words, env={name: "seven"})
        equal(done.returncode, 125)
        contains(done.stderr, f'${name} "seven" is not a whole number')


@test
def options__win_over_the_environment(t):
    env = {"PICKET_TOKEN": "9", "PICKET_LEASE": "77"}
    ok(t.picket("fence", "claim", "r", "--token", "5", env=env))
    equal(parsed(t.picket("fence", "show", "-o", "json", "r"))["fence"], 5)
    got = parsed(t.picket("acquire", "-o", "json", "db"))
    mine = ("--lease", got["lease"])
    equal(parsed(t.picket("extend", "-o", "json", *mine, env=env))["lease"], got["lease"])
    ok(t.picket("release", "db", "--token", got["token"], *mine, env=env))


@test
def state_directory__that_is_not_usable_is_refused(t):
    plain = t.write("plain", "not a directory")
    newer = t.path("newer")
    os.mkdir(newer, 0o700)
    t.write("newer/journal", "This was written by a picket of the year 3000.\n")
    for url in ("local:" + plain, "local:" + newer, "local:/proc/no/such"):
        for words in (("ls",), ("run", "db", "--", "touch", t.path("ran"))):
            done = t.picket(*words, "--on", url) if words == ("ls",) else \
                t.picket("run", "--on", url, *words[1:])
            equal(done.returncode, 125)
            equal(done.stderr.count("\n"), 1)
    check(not os.path.exists(t.path("ran")), "the command ran")


@test
def help__is_complete_for_every_verb(t):
    top = ok(t.picket("--help"))
    equal(ok(t.picket("help")), top)
    for verb in VERBS:
        contains(top, f"  {verb} ")
        text = ok(t.picket(verb, "--help"))
        equal(ok(t.picket("help", verb)), text)
        for part in (f"Usage: picket {verb}", "Options:", "--on URL", "Exit codes:",
                     "125", "Examples:"):
            contains(text, part)
        check(all(len(line) <= 90 for line in text.split("\n")), f"{verb}: wide help")


@test
def documents__name_every_verb_and_option(t):
    page = read("docs/picket.1")
    completion = read("packaging/picket.bash")
    for verb in VERBS:
        check(re.search(rf"^\.Ss {verb}\b", page, re.MULTILINE), f"no section {verb}")
        check(re.search(rf"verbs\+?='.*\b{verb}\b", completion),
              f"{verb} is not completed")
        for option in re.findall(r"^  .{4}--([a-z-]+)", ok(t.picket(verb, "--help")),
                                 re.MULTILINE):
            check(re.search(rf"^\.(It|Op) Fl .*-{option}\b", page, re.MULTILINE),
                  f"--{option} is not in picket.1")


@test
def options__have_a_long_form_that_does_the_same(t):
    holder = hold(t, "db")
    busy = ("--nonblock", "--conflict-exit-code", "75", "--quiet")
    done = t.picket("run", *busy, "db", "--", "true")
    equal((done.returncode, done.stdout, done.stderr), (75, "", ""))
    equal(t.picket("run", "--wait", "0.02", "db", "--", "true").returncode, 124)
    let_go(holder)
    done = t.picket("run", "--shared", "--exclusive", "db", "--command", "echo $$",
                    "--no-fork", "--verbose")
    equal(done.returncode, 0)
    contains(done.stderr, "picket: ")
    held = hold(t, "--shared", "db")
    for mode, code in (("--exclusive", 124), ("--shared", 0)):
        equal(t.picket("run", "--nonblock", mode, "db", "--", "true").returncode, code)
    equal(parsed(t.picket("show", "--output", "json", "db"))["state"], "held")
    let_go(held)
    child = t.start("run", "--no-fork", "db", "--command", "echo $PPID $$")
    equal(int(child.communicate()[0].split()[1]), child.pid)


@test
def state__is_where_the_environment_says(t):
    env = {"PICKET_URL": "", "XDG_STATE_HOME": t.path("xdg")}
    os.mkdir(t.path("xdg"))
    ok(t.picket("run", "db", "--", "true", env=env))
    check(os.path.exists(t.path("xdg/picket/journal")), "no state in XDG_STATE_HOME")
    # As another user than root, whose home is the test's own folder.
    if os.getuid() != 0:
        skip("needs another user")
    os.chmod(t.dir, 0o777)
    program = shutil.copy(t.program, t.path("picket"))
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "run",
         "db", "--", "true"], env=t.env | {"PICKET_URL": ""}, cwd=t.dir, check=False,
        capture_output=True, text=True)
    equal((done.returncode, done.stderr), (0, ""))
    check(os.path.exists(t.path(".local/state/picket/journal")), "no state below HOME")


@test
def completion__knows_verbs_options_and_locks(t):
    ok(t.picket("acquire", "a lock"))
    ok(t.picket("acquire", "another"))
    os.symlink(t.program, t.path("picket"))
    script = f"""
        PATH={t.dir}:$PATH
        source {os.path.join(ROOT, "packaging/picket.bash")}
        try() {{
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _picket
            printf '%s|' "${{COMPREPLY[@]}}"
            echo
        }}
        try picket r
        try picket show a
        try picket run --also 'a '
        try picket run --kill
        try picket fence claim r -o j
        try picket fence c
        try picket cluster re
    """
    done = subprocess.run(["bash", "-c", script], env=t.env, text=True, check=True,
                          stdout=subprocess.PIPE)
    equal(done.stdout.splitlines(), ["run|release|", r"a\ lock|another|", r"a\ lock|",
                                     "--kill-after|", "json|", "claim|check|",
                                     "replace|remove|restore|recover|"])


@test
def version__names_the_drivers(t):
    text = ok(t.picket("--version"))
    check(text.startswith("picket ") and text.count("\n") == 1, text)
    contains(ok(t.picket("version")), text)
    value = parsed(t.picket("version", "-o", "json"))
    equal(value["version"], text.split()[1])
    equal(value["drivers"][0]["driver"], "local")


main()
