#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The simulator page without any driver: what Chromium's command line shows of it, its
size and what it asks for, the bytes of two builds, and how a real server shows it.

    SIMULATOR=build/web/simulator.html PICKET=build/picket test/web/smoke.py [TEXT]
"""
import base64
import glob
import gzip
import hashlib
import html
import http.client
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
# pylint: disable=wrong-import-position
from cluster import READY_S, Cluster
from tap import check, contains, equal, main, skip, test, wait_until

PAGE = os.path.abspath(os.environ["SIMULATOR"])
MOST_BYTES = 150 * 1000
ERRORS = re.compile(r"CONSOLE.*", re.MULTILINE)


def page_bytes():
    with open(PAGE, "rb") as f:
        return f.read()


def dom(t, url):
    """What the page has become once it is ready; it must not report errors. Virtual time
    runs on while the module is being compiled, so a busy machine needs another look."""
    text = wait_until(lambda: ready_dom(t, url), what=f"a page that is ready: {url}")
    return text.split('<script type="application/json"')[0]


def ready_dom(t, url):
    chromium = shutil.which("chromium")
    if chromium is None:
        skip("Chromium is not installed")
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--disable-quic", "--enable-logging=stderr",
         "--user-data-dir=" + t.path("profile"), "--virtual-time-budget=5000",
         "--dump-dom", url],
        capture_output=True, text=True, check=False)
    equal(ERRORS.findall(done.stderr), [])
    return done.stdout if 'data-ready="yes"' in done.stdout else None


def number(text, label):
    return re.search(f'<dt title="{label}">[^<]*</dt><dd>([^<]*)</dd>', text).group(1)


def opened(t, hash_text):
    return dom(t, f"file://{PAGE}#{hash_text}")


@test
def without_a_fence_the_late_write_is_a_violation(t):
    text = html.unescape(opened(t, "scenario=gc-pause"))
    contains(text, "Violation: a write undid another one's")
    contains(text, "because it had read before that: the update is lost.")
    equal([number(text, k) for k in ("accepted", "rejected", "counter")],
          ["4", "0", "2"])


@test
def with_a_fence_it_is_refused(t):
    text = opened(t, "scenario=gc-pause-fenced")
    contains(text, "Nothing is broken so far")
    equal([number(text, k) for k in ("accepted", "rejected", "counter")],
          ["3", "1", "3"])


@test
def a_link_brings_its_script(t):
    text = opened(t, "v=1&s=sim_1_%23_Linked~at_0.1_C_acquire~until_1s~")
    equal(number(text, "holder"), "C")
    contains(text, ">Linked<")


@test
def a_link_of_another_version_is_told(t):
    contains(opened(t, "v=7&s=sim_1~"), "This link is of version 7")


@test
def the_page_is_small_and_asks_for_nothing(_t):
    page = page_bytes()
    check(len(page) < MOST_BYTES, f"{len(page)} bytes")
    text = page.decode()
    equal(re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*["']""", text), [])
    equal(re.findall(r"<[^>]*\sstyle=", text), [])
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
    equal(addresses - {"http://www.w3.org/2000/svg"}, set())


@test
def it_has_all_scenarios(_t):
    """scenarios/meson.build must list each of them."""
    text = page_bytes().decode()
    found = re.search(r'id="scenarios">(.*?)</script>', text, re.DOTALL).group(1)
    files = glob.glob(os.path.join(ROOT, "scenarios", "*.sim"))
    check(len(files) >= 12)
    equal(sorted(s["name"] + ".sim" for s in json.loads(found)),
          sorted(map(os.path.basename, files)))


@test
def its_policy_allows_its_own_script_and_style_alone(_t):
    text = page_bytes().decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        inner = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        contains(policy, f"{directive} 'sha256-{digest}'")
    contains(policy, "default-src 'none'")


@test
def two_clean_builds_are_the_same_bytes(t):
    """Another build folder, at another depth."""
    if os.environ.get("BUILD_TWICE") != "yes":
        skip("only where it is built as it ships")
    folder = t.path("a/b/build")
    meson = ["meson", "setup", folder, ROOT, "-Dsimulator=enabled"]
    done = subprocess.run(meson, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout if done.returncode else ""), (0, ""))
    subprocess.run(["ninja", "-C", folder, "-j2", "web/simulator.html"],
                   capture_output=True, check=True)
    with open(os.path.join(folder, "web", "simulator.html"), "rb") as f:
        equal(hashlib.sha256(f.read()).hexdigest(),
              hashlib.sha256(page_bytes()).hexdigest())


def ask(node, path, headers, method="GET"):
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
    try:
        c.request(method, path, headers=headers)
        answer = c.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        c.close()


@test
def the_server_shows_the_same_bytes(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        node = cluster.nodes[0]
        status, headers, body = ask(node, "/sim", {})
        equal((status, body == page_bytes()), (200, True))
        equal(headers["Content-Type"], "text/html; charset=utf-8")
        policy = headers["Content-Security-Policy"]
        contains(policy, "default-src 'none'; script-src 'sha256-")
        contains(policy, "frame-ancestors 'none'")
        equal("Content-Encoding" in headers, False)
        status, packed, body = ask(node, "/sim", {"Accept-Encoding": "br, gzip"})
        equal((status, packed["Content-Encoding"]), (200, "gzip"))
        equal(gzip.decompress(body) == page_bytes(), True)
        equal(packed["Vary"], "Accept, Accept-Encoding")
        status, again, body = ask(node, "/sim", {"If-None-Match": headers["ETag"]})
        equal((status, body, again["ETag"]), (304, b"", headers["ETag"]))
        status, _, body = ask(node, "/sim", {"If-None-Match": '"other"'})
        equal((status, len(body)), (200, len(page_bytes())))
        status, head, body = ask(node, "/sim", {}, "HEAD")
        equal((status, body, head["Content-Length"]),
              (200, b"", str(len(page_bytes()))))
        version = t.picket("version").stdout
        equal(ask(node, "/version", {})[2].decode().strip() in version, True)


@test
def served_by_a_node_it_runs_under_its_policy(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        url = f"http://127.0.0.1:{cluster.nodes[0].http_port}/sim#scenario=gc-pause"
        text = dom(t, url)
        contains(text, "Violation: ")
        contains(text, '<span id="version-note"></span>')


main()
