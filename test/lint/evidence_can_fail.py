# SPDX-License-Identifier: MIT
"""tools/evidence.py sees what fails, hangs or comes near a limit, and repeats nothing."""
import contextlib
import importlib.util
import io
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
# pylint: disable=wrong-import-position
from tap import contains, equal, main, test  # noqa: E402


def load(t):
    """The tool as a module whose reports are in the test's folder."""
    path = os.path.join(HERE, "../../tools/evidence.py")
    spec = importlib.util.spec_from_file_location("evidence", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.REPORTS = t.path("reports")
    return tool


def run(tool, *runs, redo=""):
    """Does the runs that the report has not; returns exit code, output and report."""
    report = tool.Report("test", keep=True, redo=redo)
    runner = tool.Runner("test", report, 0, len(runs))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runner.run_all([[([r for r in runs if (r.name, r.number) not in report.done],
                          2)]])
        code = tool.summary(report)
    runner.scratch.close()
    return code, out.getvalue(), report


def shell(tool, name, script, limit_s=600):
    return tool.Run(name, 1, ["sh", "-c", script], {}, limit_s)


@test
def evidence__sees_a_failure_and_keeps_its_output(t):
    tool = load(t)
    good = shell(tool, "good", "true")
    bad = shell(tool, "bad", "echo 'not ok 3 - it broke'; exit 1")
    code, out, report = run(tool, good, bad)
    equal((code, out.splitlines()[-1]), (1, "1 passed, 1 failed"))
    contains(out, "FAILED bad #1")
    contains(out, "it broke")
    with open(os.path.join(report.folder, "bad-1.log"), encoding="utf-8") as f:
        equal(f.read(), "not ok 3 - it broke\n")


@test
def evidence__ends_what_hangs(t):
    tool = load(t)
    code, out, _ = run(tool, shell(tool, "hangs", "sleep 1000", limit_s=1))
    equal((code, out.splitlines()[-1]), (1, "0 passed, 1 failed"))
    contains(out, "not done after 1 s")


@test
def evidence__tells_of_what_comes_near_a_limit(t):
    tool = load(t)
    code, out, _ = run(tool, shell(tool, "slow", "echo '# slow: 400.0 s of 600 s: it'"))
    equal(code, 0)
    contains(out, "NEAR ITS LIMIT slow #1: it: 400.0 s of 600 s")


@test
def evidence__repeats_nothing(t):
    tool = load(t)
    once = shell(tool, "once", f"echo x >>{t.path('runs')}")
    run(tool, once)
    code, out, _ = run(tool, once)
    equal((code, out.splitlines()[-1], t.read("runs")), (0, "1 passed, 0 failed", "x\n"))


@test
def evidence__does_a_mended_test_again(t):
    tool = load(t)
    other = shell(tool, "other", f"echo x >>{t.path('runs')}")
    run(tool, other, shell(tool, "flaky", "exit 1"))
    code, out, _ = run(tool, other, shell(tool, "flaky", "true"), redo="flaky")
    equal((code, out.splitlines()[-1], t.read("runs")), (0, "2 passed, 0 failed", "x\n"))


@test
def evidence__begins_a_round_while_the_last_one_ends(t):
    tool = load(t)
    first = shell(tool, "first", f"until [ -e {t.path('second')} ]; do sleep 0.01; done")
    second = shell(tool, "second", f"touch {t.path('second')}")
    report = tool.Report("test")
    runner = tool.Runner("test", report, 0, 2)
    with contextlib.redirect_stdout(io.StringIO()):
        runner.run_all([[([first], 2), ([second], 2)]])
    runner.scratch.close()
    equal([r["result"] for r in report.runs], ["pass", "pass"])


@test
def evidence__of_nothing_is_a_failure(t):
    equal(run(load(t))[0], 1)


main()
