#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks test/promises.txt: what the documents promise has a test.

    test/lint/promises.py [TREE]

The list names, for each document, the promises in it and the tests that fail if a promise
is untrue. Prints one line per finding, and exits with 1 if there is one.

The format of the list:

    document README.md
    promise  others wait in line                    as the document has it; white space is
    test     test/e2e/cli_run.py: run__waits_in_line               folded in both
    test     test/scenario/p7-first-come-first-served.txt          optional: more tests
    whole    Errors                 each table row and bullet of this section is a promise
    not      the network is private         but for the one that says this
    none     The tree               this section promises nothing

A test is FILE: NAME, NAME; a scenario, a fuzz target and a program that is one test have
no NAME. test/meson.build must run the file, and the tests must be in it.

What is checked besides, so that a new promise is not forgotten:
- every document has its part in the list, and every section a promise or a `none`;
- every option, exit code and variable of the manual page, every status and function of
  the public headers, and every metric of the documents is used by a test;
- the source has no option, variable or metric that no document mentions;
- numbers of scenarios and conformance cases in the documents are those of the tree, and
  targets of make that they name are in the Makefile.
"""
import fnmatch
import functools
import glob
import os
import re
import sys

LIST = "test/promises.txt"
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "docs/*.md", "docs/*.1", "include/*.h")
# Functions of these files are tests although nothing decorates them: the runner names
# them as text.
RUN_BY = {"test/e2e/redis_py.py": "test/e2e/redis_clients.py",
          "test/e2e/redis_node/locks.js": "test/e2e/redis_clients.py"}
# Programs that are one test.
PROGRAMS = ("test/scenario/*.txt", "test/fuzz/fuzz_*.c", "test/model/*.c",
            "test/sim/sim_run.c", "test/world/*", "test/stress/*.c", "test/web/parity.*")
# A number in a document, and how to count the same in the tree.
COUNTS = (
    (r"([\d,]+) golden scenarios", "test/scenario/*.txt", None),
    (r"(?:suite of|runs one suite of) ([\d,]+) cases", "test/conform/*.c", r"^TEST\("),
)
# Metrics: the document with the table, what begins a name, and where the source is.
METRICS = (("docs/operations.md", "(?:picket|process)_", "src/server/metrics.c"),
           ("docs/gate.md", "picket_gate_", "src/gate/*.c"))
# Metrics of the gate that its table leaves to whoever looks at /metrics.
MINOR_METRICS = {"picket_gate_connections", "picket_gate_connections_total",
                 "picket_gate_exchanges", "picket_gate_upstream_connects_total",
                 "picket_gate_upstream_connections"}
# Read by the program and no business of its users.
PRIVATE_VARIABLES = {"HOME", "PICKET_DISK"}


def folded(text):
    return " ".join(text.split())


class Tree:
    """The files below a folder, each read once."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self.read = functools.lru_cache(maxsize=None)(self._read)
        self.joined = functools.lru_cache(maxsize=None)(self._joined)

    def find(self, where, what):
        self.findings.append(f"{where}: {what}")

    def paths(self, *patterns):
        """Relative paths that match, in order."""
        found = [os.path.relpath(p, self.root) for pattern in patterns
                 for p in glob.glob(os.path.join(self.root, pattern), recursive=True)]
        return sorted({p for p in found if os.path.isfile(os.path.join(self.root, p))})

    def _read(self, path):
        try:
            with open(os.path.join(self.root, path), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def _joined(self, *patterns):
        """The text of several files; the list itself and lints are no tests."""
        return "\n".join(self.read(p) for p in self.paths(*patterns)
                         if not p.startswith("test/lint/"))


# ---- documents ----

class Document:
    """Sections of a document, as (title, text, items); texts are folded."""

    def __init__(self, path, text):
        lines = text.split("\n")
        if path.endswith(".1"):
            self.sections = manual(lines)
        elif path.endswith(".md"):
            self.sections = markdown(lines)
        else:
            self.sections = source(text)
        self.text = " ".join(section[1] for section in self.sections)


def cut(lines, begins):
    """(title, lines) of the parts; `begins` gives the title of a line that begins one."""
    parts = [("", [])]
    for line in lines:
        title = begins(line)
        if title is not None:
            parts.append((title, []))
        else:
            parts[-1][1].append(line)
    return parts


def markdown(lines):
    fenced = False

    def begins(line):
        nonlocal fenced
        if line.startswith("```"):
            fenced = not fenced
        match = None if fenced else re.match(r"#+ (.*)", line)
        return match[1] if match else None

    sections = []
    for title, part in cut(lines, begins):
        items, inside, fence = [], False, False
        for n, line in enumerate(part):
            fence ^= line.startswith("```")
            if fence:
                inside = False
            elif line.startswith("|"):
                inside = False
                head = n + 1 < len(part) and part[n + 1].startswith("|---")
                if not head and not line.startswith("|---"):
                    items.append(line)
            elif re.match(r"\s*(- |\d+\. )", line):
                items.append(line)
                inside = True
            elif inside and line.strip():
                items[-1] += "\n" + line
            else:
                inside = False
        sections.append((title, folded("\n".join(part)), list(map(folded, items))))
    return sections


def manual(lines):
    def begins(line):
        match = re.match(r"\.S[hs] (.*)", line)
        return match[1] if match else None

    sections = []
    for title, part in cut(lines, begins):
        items, inside = [], False
        for line in part:
            if line.startswith(".It"):
                items.append(line)
                inside = True
            elif line.startswith((".El", ".Bl")):
                inside = False
            elif inside:
                items[-1] += "\n" + line
        sections.append((title, folded("\n".join(part)), list(map(folded, items))))
    return sections


def source(text):
    """Comments and texts of C: without stars, and with literals put together."""
    text = re.sub(r'"\s*\n\s*"', "", text).replace("\\n", "\n")
    lines = [re.sub(r"^\s*(/?\*+/?) ?", "", line) for line in text.split("\n")]

    def begins(line):
        match = re.match(r"(?:/\* )?---- (.*) ----", line)
        return match[1] if match else None

    return [(title, folded("\n".join(part)), []) for title, part in cut(lines, begins)]


# ---- the list ----

class Part:
    """What the list says of one document."""

    def __init__(self, path, line):
        self.path = path
        self.line = line
        self.promises = []  # [line, phrase, tests]
        self.whole = []     # (line, title)
        self.none = []
        self.asides = []    # (line, phrase)


def parse(tree):
    parts = []
    for number, raw in enumerate(tree.read(LIST).split("\n"), 1):
        where = f"{LIST}:{number}"
        if not raw.strip() or raw.startswith("#"):
            continue
        word, _, rest = raw.strip().partition(" ")
        rest = folded(rest)
        if word == "document":
            parts.append(Part(rest, number))
        elif not parts:
            tree.find(where, "the list begins with a document")
            return parts
        elif word == "promise":
            parts[-1].promises.append([number, rest, []])
        elif word == "test" and parts[-1].promises:
            parts[-1].promises[-1][2].append((number, rest))
        elif word == "not":
            parts[-1].asides.append((number, rest))
        elif word in ("whole", "none"):
            getattr(parts[-1], word).append((number, rest))
        else:
            tree.find(where, f"not a line of this list: {word}")
    return parts


# ---- tests ----

def is_run(tree, path):
    """Whether test/meson.build names the file, by its path or by its short name."""
    build = tree.read("test/meson.build") or ""
    stem = os.path.splitext(os.path.basename(path))[0]
    short = re.sub(r"^(store|test|fuzz)_", "", stem)
    names = (f"'{stem}'", f"'{short}'", f"{path.removeprefix('test/')}'",
             f"{os.path.splitext(path.removeprefix('test/'))[0]}.py'")
    return path.startswith("test/scenario/") or any(n in build for n in names)


def check_test(tree, where, test):
    path, _, names = test.partition(": ")
    text = tree.read(path)
    if text is None:
        tree.find(where, f"there is no file {path}")
        return
    if not is_run(tree, RUN_BY.get(path, path)):
        tree.find(where, f"test/meson.build does not run {path}")
    if not names and not any(fnmatch.fnmatch(path, p) for p in PROGRAMS):
        tree.find(where, f"which test of {path}?")
    for name in names.split(", ") if names else ():
        if not has_test(tree, path, text, name):
            tree.find(where, f"{path} has no test {name}")


def has_test(tree, path, text, name):
    word = re.escape(name)
    if path in RUN_BY:
        return re.search(rf"\b{word}\b", text) and f'"{name}"' in tree.read(RUN_BY[path])
    if path.endswith(".py"):
        return re.search(rf"^@.*\ndef {word}\(", text, re.MULTILINE)
    if path.endswith(".mjs"):
        return re.search(rf'\btest\("{word}"', text)
    return re.search(rf"^TEST\({word}\)", text, re.MULTILINE)


def check_part(tree, part):
    text = tree.read(part.path)
    if text is None:
        tree.find(f"{LIST}:{part.line}", f"there is no document {part.path}")
        return
    document = Document(part.path, text)
    seen = set()
    for number, phrase, tests in part.promises:
        where = f"{LIST}:{number}"
        if phrase not in document.text:
            tree.find(where, f"{part.path} does not say: {phrase}")
        if phrase in seen:
            tree.find(where, f"twice: {phrase}")
        seen.add(phrase)
        if not tests:
            tree.find(where, f"no test for: {phrase}")
        for at, test in tests:
            check_test(tree, f"{LIST}:{at}", test)
    for number, phrase in part.asides:
        if phrase not in document.text:
            tree.find(f"{LIST}:{number}", f"{part.path} does not say: {phrase}")
    check_sections(tree, part, document)


def check_sections(tree, part, document):
    titles = [title for title, _, _ in document.sections]
    for number, title in part.whole + part.none:
        if title not in titles:
            tree.find(f"{LIST}:{number}", f"{part.path} has no section {title}")
    whole = {title for _, title in part.whole}
    none = {title for _, title in part.none}
    known = [phrase for _, phrase, _ in part.promises] + [p for _, p in part.asides]
    for title, text, items in document.sections:
        has = any(phrase in text for _, phrase, _ in part.promises)
        if title in none and has:
            tree.find(part.path, f"{title} does promise something")
        if title and text and not has and title not in none:
            tree.find(part.path, f"no promise of section {title} is in the list")
        for item in items if title in whole else ():
            if not any(phrase in item for phrase in known):
                tree.find(part.path, f"{title}: not in the list: {item[:90]}")


# ---- what is easily forgotten ----

TESTS = ("test/**/*.py", "test/**/*.c", "test/**/*.mjs", "test/**/*.js", "test/**/*.h",
         "examples/*.sh")


def check_options(tree):
    """Every long option of the manual page is used by a test, and every one of the
    program is in the manual page."""
    page = tree.read("docs/picket.1")
    if page is None:
        return
    tests = tree.joined(*TESTS)
    items = " ".join(re.findall(r"^\.It (Fl .*)", page, re.MULTILINE))
    documented = set(re.findall(r"(?:Fl|,) -([a-z][a-z-]+)", items))
    for option in sorted(documented):
        if not re.search(rf"[\"' ]--{option}\b(?!-)", tests):
            tree.find("docs/picket.1", f"no test uses --{option}")
    for path in tree.paths("src/cli/*.c"):
        for option in re.findall(r'\{PK_OPTION_\w+,\s*[^,]+,\s*"([a-z-]+)"',
                                 tree.read(path)):
            if option not in documented:
                tree.find(path, f"--{option} is not in docs/picket.1")


def check_variables(tree):
    page = tree.read("docs/picket.1")
    if page is None:
        return
    tests = tree.joined(*TESTS)
    items = re.findall(r"^\.It Ev (.*)", page, re.MULTILINE)
    named = set(re.findall(r"[A-Z_]{4,}", " ".join(items)))
    for name in sorted(named):
        if name not in tests:
            tree.find("docs/picket.1", f"no test uses ${name}")
    for path in tree.paths("src/**/*.c"):
        for name in re.findall(r'getenv\("([A-Z_]+)"\)', tree.read(path)):
            if name not in named | PRIVATE_VARIABLES:
                tree.find(path, f"${name} is not in docs/picket.1")


def check_headers(tree):
    tests = tree.joined(*TESTS, "examples/*.c")
    for path in tree.paths("include/*.h"):
        text = tree.read(path)
        for name in re.findall(r"^    X\(([A-Z_]+),", text, re.MULTILINE):
            if not re.search(rf"\bPICKET_{name}\b|\"{name}\"", tests):
                tree.find(path, f"no test sees PICKET_{name}")
        for name in sorted(set(re.findall(r"^[^ /*#].*?\b(picket_\w+)\(|^(picket_\w+)\(",
                                          text, re.MULTILINE))):
            name = name[0] or name[1]
            if not re.search(rf"\b{name}\b", tests):
                tree.find(path, f"no test calls {name}")


def check_metrics(tree):
    tests = tree.joined(*TESTS)
    for document, begin, sources in METRICS:
        text = tree.read(document)
        if text is None:
            continue
        code = tree.joined(sources)
        rows = "\n".join(line for line in text.split("\n") if line.startswith("|"))
        named = set(re.findall(rf"`({begin}[a-z_]+)[`{{]", rows))
        made = {m for m in re.findall(rf"\b({begin}[a-z_]+)\b", code)
                if not m.endswith("_")}
        for metric in sorted(named):
            if metric not in code:
                tree.find(document, f"{sources} has no metric {metric}")
            if not re.search(rf"{metric}(_bucket|_sum|_count)?\b", tests):
                tree.find(document, f"no test looks at {metric}")
        for metric in sorted(made - named - MINOR_METRICS):
            tree.find(document, f"{metric} of {sources} is not in the table")
    code = tree.joined("src/**/*.c")
    for document in tree.paths(*DOCUMENTS):
        for metric in sorted(set(re.findall(r"\bpicket_[a-z_]+_total\b",
                                            tree.read(document)))):
            if metric not in code:
                tree.find(document, f"no source has the metric {metric}")


def check_counts(tree):
    for document in tree.paths(*DOCUMENTS):
        text = folded(tree.read(document))
        for pattern, files, line in COUNTS:
            if line is None:
                there = len(tree.paths(files))
            else:
                there = len(re.findall(line, tree.joined(files), re.MULTILINE))
            for said in re.findall(pattern, text):
                if int(said.replace(",", "")) != there:
                    tree.find(document, f"it says {said}, and {files} has {there}")


def check_targets(tree):
    targets = set(re.findall(r"^([a-z-]+):", tree.read("Makefile") or "", re.MULTILINE))
    for document in tree.paths(*DOCUMENTS):
        for target in re.findall(r"`make ([a-z-]+)", tree.read(document)):
            if target not in targets:
                tree.find(document, f"the Makefile has no target {target}")


def check(root):
    """The findings, one per line."""
    tree = Tree(root)
    if tree.read(LIST) is None:
        return [f"{LIST}: there is no such file"]
    parts = parse(tree)
    for path in tree.paths(*DOCUMENTS):
        if path not in [part.path for part in parts]:
            tree.find(path, f"not in {LIST}")
    for part in parts:
        check_part(tree, part)
    for one in (check_options, check_variables, check_headers, check_metrics,
                check_counts, check_targets):
        one(tree)
    return tree.findings


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    found = check(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../.."))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
