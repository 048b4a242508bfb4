# SPDX-License-Identifier: MIT
"""Every choice of optional parts builds and works: none, each one alone, all with clang.

    python3 test/lint/parts.py SOURCE [TEXT]

Builds in SOURCE/build-parts, one choice after the other. Each program must run a job
under a local lock, and know the stores of its parts and no others. TAP on stdout.
"""
import os
import subprocess
import sys
import tempfile

# Parts (meson_options.txt) and the kinds of URL that only a build with that part knows,
# for locks and for fences.
LOCKS = {"redis": "redis:", "etcd": "etcd:", "consul": "consul:", "zookeeper": "zk:",
         "postgres": "postgres:"}
FENCES = {"sqlite": "sqlite:", "mysql": "mysql:", "postgres": "postgres:",
          "redis": "redis:"}
PARTS = sorted(set(LOCKS) | set(FENCES) | {"simulator"})


class Wrong(Exception):
    """A build that fails, or knows the wrong stores."""


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **options)
    return done.returncode, done.stdout


def must(*words, **options):
    code, said = run(*words, **options)
    if code != 0:
        raise Wrong(f"{' '.join(words)} ended with {code}\n{said[-4000:]}")


def check_kinds(program, parts, kinds, *words):
    """A URL of no kind is refused with a list of those that this build has."""
    _, said = run(program, *words)
    for part, kind in kinds.items():
        if (f" {kind}" in said) != (part in parts):
            raise Wrong(f"{kind} is wrong in a build with {parts}: {said}")


def examine(program, parts):
    with tempfile.TemporaryDirectory(prefix="picket-test-") as folder:
        env = dict(os.environ, PICKET_URL=f"local:{folder}/state")
        must(program, "run", "-n", "job", "--", "true", env=env, cwd=folder)
        must(program, "version", env=env)
    check_kinds(program, parts, LOCKS, "ls", "--on", "nothing:x")
    check_kinds(program, parts, FENCES, "fence", "get", "r", "--resource", "nothing:x")


def build(source, folder, parts, compiler):
    """Configures `folder` for these parts alone and builds the program."""
    words = [f"-D{p}={'enabled' if p in parts else 'disabled'}" for p in PARTS]
    if os.path.exists(os.path.join(folder, "build.ninja")):
        must("meson", "configure", folder, *words)
    else:
        env = dict(os.environ, CC=compiler) if compiler else None
        must("meson", "setup", folder, source, "-Doptimization=0", "-Ddebug=false",
             *words, env=env)
    must("ninja", "-C", folder, "picket", "libpicket.so.0.1.0")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    source = os.path.abspath(sys.argv[1])
    text = sys.argv[2] if len(sys.argv) > 2 else ""
    choices = [("none", [], None)] + [(f"{p} alone", [p], None) for p in PARTS]
    choices.append(("all with clang", PARTS, "clang"))
    choices = [c for c in choices if text in c[0]]
    print(f"1..{len(choices)}")
    failed = 0
    for number, (name, parts, compiler) in enumerate(choices, 1):
        folder = os.path.join(source, f"build-parts{'-' + compiler if compiler else ''}")
        why = ""
        try:
            build(source, folder, parts, compiler)
            examine(os.path.join(folder, "picket"), parts)
        except Wrong as e:
            why = str(e)
            failed += 1
        for line in why.splitlines():
            print(f"# {line}")
        print(f"{'not ok' if why else 'ok'} {number} - {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
