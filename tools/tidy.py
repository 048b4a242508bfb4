#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Style as a test: what compilers and formatters don't look at.

    tools/tidy.py [ROOT]

Prints `path:line: message` for each finding and exits 1 when there is one. The rules are
the constants below; CONTRIBUTING.md has them in prose.
"""
import os
import re
import subprocess
import sys

COLUMNS = 90
FUNCTION_LINES = 70
FILE_LINES = 800
CORE_FILE_LINES = 1000  # src/core/*.c
SPDX = "SPDX-License-Identifier: MIT"

# Folder under src/ -> the folders whose headers it may include ("*": all of them).
LAYERS = {
    "core": {"core"},
    "host": {"core", "host"},
    "client": {"core", "host", "client", "drivers", "public"},
    "drivers": {"core", "host", "proto", "client", "drivers", "public"},
    "proto": {"core", "proto"},
    "fence": {"core", "host", "client", "fence", "public"},
    "raft": {"core", "host", "raft"},
    "server": {"core", "host", "proto", "raft", "server", "sim"},
    "gate": {"core", "host", "proto", "server", "gate", "public"},
    "sim": {"core", "client", "sim", "public"},
    "cli": {"*"},
}
CORE_SYSTEM_HEADERS = {"stdint.h", "stddef.h", "stdbool.h", "limits.h", "string.h"}
PUBLIC_HEADERS = {"picket.h", "picket_fence.h"}
RAFT_HEADERS = re.compile(r"raft(\.h|/.*)")

BANNED_CALLS = re.compile(
    r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|gets|alloca"
    r"|rand|time|gettimeofday)\s*\(")
# A wall clock decides nothing (it may be set back): these show the time to people.
WALL_CLOCK = re.compile(r"\bCLOCK_(REALTIME|TAI)\w*")
WALL_CLOCK_FILES = {"src/drivers/card.c", "src/server/log.c"}
FLOATS = re.compile(r"\b(float|double)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# The brackets keep these patterns from finding themselves.
MARKS = re.compile(r"\b(FIXM[E]|XX[X]|HAC[K])\b")
UNFILED = re.compile(r"\bTOD[O]\b(?!\(#\d+\))")
MACHINE_PATH = re.compile(r"(?<![\w.$])/(work|root)/")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)

# Bytes, not text: nothing below applies to them.
UNREAD = ("test/fuzz/corpus/",)


def paths_of(root):
    """Tracked and new files, relative to root; without git, all but build folders."""
    command = ["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        git = subprocess.run(command, capture_output=True, check=False)
        listed = git.returncode == 0
    except FileNotFoundError:
        listed = False
    if listed:
        found = os.fsdecode(git.stdout).split("\0")
    else:
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f != ".git" and not f.startswith("build")]
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(p for p in found if p and not p.startswith(UNREAD)
                  and os.path.isfile(os.path.join(root, p)))


def text_of(root, path):
    """The file's text, or None when it is not text."""
    with open(os.path.join(root, path), "rb") as f:
        raw = f.read()
    try:
        return None if b"\0" in raw else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def code_of(text):
    """C without its comments, strings and character constants; lines and columns stay."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                  blank, text, flags=re.DOTALL)


def is_c(path):
    return path.endswith((".c", ".h"))


def is_source(path, text):
    name = os.path.basename(path)
    return (is_c(path) or name.endswith((".py", ".sh", ".bash", ".js"))
            or name in ("Makefile", "meson.build", "meson_options.txt")
            or text.startswith("#!"))


def check_lines(path, text):
    """What holds for every line of every text file, and of every source file."""
    source = is_source(path, text)
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "trailing whitespace"
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"
        if source and len(line) > COLUMNS:
            yield number, f"{len(line)} columns; the limit is {COLUMNS}"
        if source and MARKS.search(line):
            yield number, f"{MARKS.search(line).group()} left behind"
        if source and UNFILED.search(line):
            yield number, "a to-do needs its issue: TODO(#12)"


def check_head_and_length(path, text):
    if not is_source(path, text):
        return
    lines = text.split("\n")
    if not any(SPDX in line for line in lines[:3]):
        yield 1, f"no '{SPDX}' in the first lines"
    core = path.startswith("src/core/") and path.endswith(".c")
    limit = CORE_FILE_LINES if core else FILE_LINES
    if len(lines) - 1 > limit:
        yield limit + 1, f"{len(lines) - 1} lines; the limit is {limit}"


def check_includes(path, text):
    parts = path.split("/")
    folder = parts[1] if parts[0] == "src" and len(parts) > 2 else None
    if folder and folder not in LAYERS:
        yield 1, f"no layer rule for src/{folder}; add it to LAYERS in tools/tidy.py"
        return
    for number, line in enumerate(text.split("\n"), 1):
        include = INCLUDE.match(line)
        if not include:
            continue
        quote, header = include.groups()
        outside = folder not in (None, "raft")  # tests may look behind it
        if RAFT_HEADERS.fullmatch(header) and quote == "<" and outside:
            yield number, f"{header} belongs to src/raft alone"
        if folder:
            message = check_layer(folder, quote, header)
            if message:
                yield number, message


def check_layer(folder, quote, header):
    """The complaint about one include of a file in src/<folder>, or None."""
    if header in PUBLIC_HEADERS:
        target = "public"
    elif quote == "<":
        if folder == "core" and header not in CORE_SYSTEM_HEADERS:
            return f"the core does not include <{header}>"
        return None
    elif "/" not in header:
        return f'name the folder: #include "{folder}/{header}"'
    else:
        target = header.split("/")[0]
    allowed = LAYERS[folder]
    if "*" in allowed or target in allowed:
        return None
    return f"src/{folder} must not know {header}"


def check_c(path, text):
    code = code_of(text).split("\n")
    for number, line in enumerate(code, 1):
        banned = BANNED_CALLS.search(line)
        if banned:
            yield number, f"{banned.group(1)}() is banned"
        if (path.startswith("src/") and path not in WALL_CLOCK_FILES and
                WALL_CLOCK.search(line)):
            yield number, "a wall clock decides nothing; use host/clock.h"
        if path.startswith("src/core/") and FLOATS.search(line):
            yield number, "no floating point in the core"
    yield from check_functions(code)


def check_functions(code):
    """A function's body is what stands between a brace that ends a line after a parameter
    list, or stands alone in the first column, and the next brace in the first column."""
    start = None
    for number, line in enumerate(code, 1):
        if line.startswith("{") or re.match(r"[A-Za-z_][^=;]*\)\s*\{\s*$", line):
            start = number
        elif line.startswith("}") and start is not None:
            length = number - start - 1
            if length > FUNCTION_LINES:
                yield start, f"{length} lines of function; the limit is {FUNCTION_LINES}"
            start = None


def anchors_of(text):
    """The fragments that a Markdown text's headings can be linked by."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in HEADING.findall(plain)}


def check_links(root, path, text):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", blank, text,
                   flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(prose.split("\n"), 1):
        for link in LINK.findall(line):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, fragment = link.partition("#")
            folder = os.path.dirname(path)
            target = os.path.normpath(os.path.join(folder, name)) if name else path
            there = os.path.exists(os.path.join(root, target))
            if name.startswith("/") or target.startswith("..") or not there:
                yield number, f"a link to nowhere: {link}"
            elif fragment and target.endswith(".md"):
                if fragment not in anchors_of(text_of(root, target) or ""):
                    yield number, f"no such heading: {link}"


def check_file(root, path):
    text = text_of(root, path)
    if text is None:
        return
    yield from check_lines(path, text)
    yield from check_head_and_length(path, text)
    if is_c(path):
        yield from check_includes(path, text)
        yield from check_c(path, text)
    if path.endswith(".md"):
        yield from check_links(root, path, text)


def main():
    above = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    root = sys.argv[1] if len(sys.argv) > 1 else above
    findings = 0
    for path in paths_of(root):
        for number, message in sorted(check_file(root, path)):
            print(f"{path}:{number}: {message}")
            findings += 1
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
