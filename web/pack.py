#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Packs a page into one file that needs nothing else, not even a server.

    web/pack.py -o simulator.html --page page.html --style page.css --module world.wasm
        --scenario a.sim ... --script world.js ...

The page allows itself, by a Content-Security-Policy of its own, nothing but what is in
it: its script and its style by their hashes. web/embed.py makes the server send the same.
"""
import argparse
import base64
import hashlib
import json
import os
import re
import zlib

POLICY = ("default-src 'none'; script-src 'sha256-{script}'{module}; "
          "style-src 'sha256-{style}'; img-src data:;{worker} "
          "connect-src 'self'; base-uri 'none'; form-action 'none'")


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def smallest_gzip(data):
    """How much memory the coder has decides where its blocks end; more is not better."""
    def packed(memory):
        coder = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS, memory)
        return coder.compress(data) + coder.flush()
    return min((packed(memory) for memory in range(1, 10)), key=len)


def lean(text, comment):
    """Without comments that have a line for themselves, and without indentation."""
    text = re.sub(comment, "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def script_of(paths):
    """All files as one script, with a scope of its own."""
    parts = [lean(text_of(path), r"^[ ]*//[^\n]*$") for path in paths]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def scenario_of(path):
    """A scenario as the page lists it: its title, and what its comments tell."""
    text = text_of(path)
    comments = re.findall(r"#[ ]*(.*)", text)
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    return {"name": os.path.basename(path).removesuffix(".sim"), "title": comments[0],
            "about": " ".join(comments[1:]), "text": text}


def hash_of(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("--page", required=True)
    parser.add_argument("--style", required=True)
    parser.add_argument("--module")
    parser.add_argument("--scenario", nargs="+", default=[])
    parser.add_argument("--script", nargs="+", required=True)
    given = parser.parse_args()

    module = b""
    if given.module is not None:
        with open(given.module, "rb") as f:
            module = smallest_gzip(f.read())
    style = lean(text_of(given.style), r"/\*.*?\*/")
    script = script_of(given.script)
    scenarios = [scenario_of(path) for path in sorted(given.scenario)]
    parts = {
        "POLICY": POLICY.format(
            script=hash_of(script), style=hash_of(style),
            module=" 'wasm-unsafe-eval'" if module else "",
            worker=" worker-src blob:;" if module else ""),
        "STYLE": style,
        "SCENARIOS": json.dumps(scenarios, separators=(",", ":")).replace("<", "\\u003c"),
        "MODULE": base64.b64encode(module).decode(),
        "SCRIPT": script,
    }
    page = re.sub("@@([A-Z]+)@@", lambda m: parts[m.group(1)], text_of(given.page))
    with open(given.output, "w", encoding="utf-8", newline="\n") as f:
        f.write(page)


main()
