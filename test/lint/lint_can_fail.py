# SPDX-License-Identifier: MIT
"""Breaks each rule of tools/tidy.py, tools/purity.sh and promises.py once and wants it
reported."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(HERE, "../../tools")
sys.path.insert(0, os.path.join(HERE, "../e2e"))
# pylint: disable=wrong-import-position
from tap import contains, equal, main, test  # noqa: E402

C = "/* SPDX-License-Identifier: MIT */\n"
PY = "# SPDX-License-Identifier: MIT\n"

# What to write where, and the finding it must give; None: it must give none.
CASES = [
    ("src/core/a.c", C + '#include "core/a.h"\n#include <string.h>\n', None),
    ("src/core/a.c", C + "#include <stdio.h>\n", "2: the core does not include"),
    ("src/core/a.c", C + '#include "host/a.h"\n', "2: src/core must not know host/a.h"),
    ("src/core/a.c", C + '#include "a.h"\n', "2: name the folder"),
    ("src/core/a.c", C + "double half;\n", "2: no floating point"),
    ("src/core/a.c", C + "/* a double hold */\n", None),
    ("src/core/a.c", C + "\n" * 1000, "1001: 1001 lines"),
    ("src/host/a.c", C + '#include "client/a.h"\n', "2: src/host must not know"),
    ("src/client/a.c", C + '#include "cli/a.h"\n', "2: src/client must not know"),
    ("src/client/a.c", C + '#include <picket.h>\n#include "core/a.h"\n', None),
    ("src/drivers/a.c", C + '#include "cli/a.h"\n', "2: src/drivers must not know"),
    ("src/sim/a.c", C + '#include "drivers/a.h"\n', "2: src/sim must not know"),
    ("src/cli/a.c", C + '#include "drivers/a.h"\n#include "sim/a.h"\n', None),
    ("src/cli/a.c", C + "#include <raft.h>\n", "2: raft.h belongs to src/raft alone"),
    ("src/raft/a.c", C + "#include <raft.h>\n", None),
    ("src/odd/a.c", C, "1: no layer rule for src/odd"),
    ("src/cli/a.c", C + "\n" * 800, "801: 801 lines"),
    ("src/cli/a.c", C + "int x = atoi(s);\n", "2: atoi() is banned"),
    ("src/cli/a.c", C + "int x = time (NULL);\n", "2: time() is banned"),
    ("src/cli/a.c", C + 'say("time(x)"); pk_time(x);\n', None),
    ("src/cli/a.c", C + "int f(void)\n{\n" + "\n" * 71 + "}\n", "3: 71 lines of func"),
    ("src/cli/a.c", C + "int f(void) {\n" + "\n" * 71 + "}\n", "2: 71 lines of func"),
    ("src/cli/a.c", C + "int f(void)\n{\n" + "\n" * 70 + "}\n", None),
    ("test/unit/a.c", C + "/*" + "x" * 89 + "\n", "2: 91 columns"),
    ("test/unit/a.c", "int x;\n", "1: no 'SPDX"),
    ("tools/a.py", "import os\n", "1: no 'SPDX"),
    ("tools/a", "#!/bin/sh\n", "1: no 'SPDX"),
    ("tools/a.py", PY + "x = 1 # FIX" + "ME\n", "2: FIX" + "ME left behind"),
    ("tools/a.py", PY + "# TO" + "DO: later\n", "2: a to-do needs its issue"),
    ("tools/a.py", PY + "# TO" + "DO(#12): later\n", None),
    ("docs/a.txt", "one \n", "1: trailing whitespace"),
    ("docs/a.txt", "cd /ro" + "ot/x\n", "1: a path of one machine"),
    ("docs/a.md", "[b](b.md)\n", "1: a link to nowhere: b.md"),
    ("docs/a.md", "[a](a.md#no)\n", "1: no such heading: a.md#no"),
    ("docs/a.md", "# On it\n[a](#on-it) [b](../docs/a.md) `[c](c.md)`\n", None),
]


def tidy(folder):
    return subprocess.run([sys.executable, os.path.join(TOOLS, "tidy.py"), folder],
                          capture_output=True, text=True, check=False)


@test
def tidy__reports_each_broken_rule(t):
    for number, (path, text, finding) in enumerate(CASES):
        folder = t.path(str(number))
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full))
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
        done = tidy(folder)
        if finding is None:
            equal((path, text, done.stdout), (path, text, ""))
        else:
            contains(done.stdout, f"{path}:{finding}")
        equal(done.returncode, 0 if finding is None else 1)


# A small tree that keeps every rule of promises.py.
KEPT = {
    "README.md": "# It\nTokens grow.\n## Bounds\n- a request has\n  16 words\n"
                 "## The tree\nfolders\n2 golden scenarios\n`make test`\n",
    "Makefile": "test:\n\techo\n",
    "docs/picket.1": ".Sh OPTIONS\n.Bl\n.It Fl -fast\nGoes fast.\n.El\n.Sh ENVIRONMENT\n"
                     ".Bl\n.It Ev PICKET_URL\nThe store.\n.El\n",
    "docs/operations.md": "# Ops\n| `picket_a_total` | counter |\n",
    "include/it.h": "/* Names are short. */\n    X(OK, DONE)\nint picket_go(void);\n",
    "src/cli/it.c": 'getenv("PICKET_URL"); {PK_OPTION_FLAG, 0, "fast"}',
    "src/server/metrics.c": '"picket_a_total"',
    "test/meson.build": "'grow', 'it', 'page', files('web/it.py')",
    "test/e2e/grow.py": "@test\ndef grow__always(t):\n    run('--fast', 'PICKET_URL')\n"
                        "def helper():\n",
    "test/unit/test_it.c": "TEST(it__goes)\n{ picket_go() == PICKET_OK; "
                           "picket_a_total }\n",
    "test/web/page.mjs": 'test("a_page", async () => {});\n',
    "test/scenario/one.txt": "", "test/scenario/two.txt": "",
    "test/promises.txt": """# a remark
document README.md
promise Tokens   grow.
test test/e2e/grow.py: grow__always
test test/scenario/one.txt
whole Bounds
promise has 16 words
test test/unit/test_it.c: it__goes
none The tree
document docs/picket.1
promise .It Fl -fast Goes fast.
test test/e2e/grow.py: grow__always
whole ENVIRONMENT
promise The store.
test test/web/page.mjs: a_page
document docs/operations.md
promise picket_a_total
test test/unit/test_it.c: it__goes
document include/it.h
promise Names are short.
test test/unit/test_it.c: it__goes
"""}
# What to replace in which file, and the finding it must give.
BREACHES = [
    ("README.md", "Tokens grow", "Tokens shrink", "README.md does not say: Tokens grow."),
    ("README.md", "## The", "- another bound\n## The", "not in the list: - another"),
    ("README.md", "## The", "## News\nMore.\n## The", "no promise of section News"),
    ("README.md", "2 golden", "3 golden", "it says 3, and test/scenario/*.txt has 2"),
    ("README.md", "make test", "make tea", "the Makefile has no target tea"),
    ("test/promises.txt", "none The tree\n", "", "no promise of section The tree"),
    ("test/promises.txt", "The tree", "The forest", "no section The forest"),
    ("test/promises.txt", "none The tree", "none It", "It does promise something"),
    ("test/promises.txt", "document include/it.h", "# gone", "include/it.h: not in"),
    ("test/promises.txt", "document docs/picket.1", "document docs/no.1", "no document"),
    ("test/promises.txt", "grow__always\ntest", "grow__x\ntest", "no test grow__x"),
    ("test/promises.txt", ": grow__always\ntest", ": helper\ntest", "has no test helper"),
    ("test/promises.txt", ": grow__always\ntest", "\ntest", "which test of test/e2e/gr"),
    ("test/promises.txt", "it.c: it__goes\nnone", "it.c: it\nnone", "has no test it"),
    ("test/promises.txt", "mjs: a_page", "mjs: page", "page.mjs has no test page"),
    ("test/promises.txt", "scenario/one", "scenario/six", "no file test/scenario/six"),
    ("test/promises.txt", "test test/web/page.mjs: a_page\n", "", "no test for: The st"),
    ("test/promises.txt", "promise The store.", "promse The", "not a line of this list"),
    ("test/promises.txt", "whole Bounds", "not all\nwhole Bounds", "does not say: all"),
    ("test/meson.build", "'grow', ", "", "does not run test/e2e/grow.py"),
    ("test/e2e/grow.py", "--fast", "-f", "no test uses --fast"),
    ("test/e2e/grow.py", "'PICKET_URL'", "''", "no test uses $PICKET_URL"),
    ("src/cli/it.c", '"fast"', '"slow"', "--slow is not in docs/picket.1"),
    ("src/cli/it.c", "PICKET_URL", "PICKET_ODD", "$PICKET_ODD is not in docs/picket.1"),
    ("src/server/metrics.c", "_a_", "_b_", "metrics.c has no metric picket_a_total"),
    ("src/server/metrics.c", '"', '"picket_b_total', "picket_b_totalpicket_a_total of"),
    ("README.md", "folders", "picket_c_total", "no source has the metric picket_c_tot"),
    ("test/unit/test_it.c", "picket_a_total", "", "no test looks at picket_a_total"),
    ("test/unit/test_it.c", "picket_go()", "", "no test calls picket_go"),
    ("test/unit/test_it.c", "PICKET_OK", "", "no test sees PICKET_OK"),
]


def promises(folder):
    lint = os.path.join(HERE, "promises.py")
    return subprocess.run([sys.executable, lint, folder], capture_output=True, text=True,
                          check=False)


def plant(t, folder, files):
    for path, text in files.items():
        full = os.path.join(t.path(folder), path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
    return t.path(folder)


@test
def promises__reports_each_breach(t):
    done = promises(plant(t, "kept", KEPT))
    equal((done.stdout, done.stderr, done.returncode), ("", "", 0))
    for number, (path, old, new, finding) in enumerate(BREACHES):
        equal((old, old in KEPT[path]), (old, True))
        changed = KEPT | {path: KEPT[path].replace(old, new, 1)}
        done = promises(plant(t, str(number), changed))
        contains(done.stdout, finding)
        equal(done.returncode, 1)


def purity(t, code):
    """The findings on a library with one object made from the given C."""
    t.write("part.c", code)
    for command in ("gcc -O2 -fPIC -c part.c", "ar rc part.a part.o"):
        subprocess.run(command.split(), cwd=t.dir, check=True)
    done = subprocess.run([os.path.join(TOOLS, "purity.sh"), t.path("part.a")],
                          capture_output=True, text=True, check=False)
    equal(done.returncode, 1 if done.stdout else 0)
    return done.stdout


@test
def purity__lets_pure_code_pass(t):
    equal(purity(t, """
        #include <string.h>
        void *pk_door_resize(void *old, size_t size);
        static const char *const names[] = {"a", "b"};
        const char *pk_name(void *p, size_t n, unsigned i) {
            memset(pk_door_resize(p, n), 1, n);
            return names[i];
        }"""), "")


@test
def purity__reports_a_clock(t):
    equal(purity(t, "#include <time.h>\nlong pk_now(void) { return time(0); }"),
          "part.o: imports time\n")


@test
def purity__reports_our_own_functions_outside_the_core(t):
    equal(purity(t, "long pk_host(void); long pk_f(void) { return pk_host() + 1; }"),
          "part.o: imports pk_host\n")


@test
def purity__reports_writable_data(t):
    contains(purity(t, "int pk_f(void) { static int n; return ++n; }"), "data n.0 in")
    contains(purity(t, "int pk_start = 1;"), "data pk_start in .data")


main()
