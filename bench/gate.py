#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A service alone and behind `picket gate`, on this machine, in one run.

    bench/gate.py [--rounds N] [--seconds S] [--connections N] [--program build/picket]

nginx (one worker) serves a small file to wrk, straight and through the gate in turn,
`rounds` times; what is printed is the median of each, the ratio of requests per second
and the latency that the gate adds. Beside them: the same nginx behind another nginx with
one worker that does nothing but proxy, to say what any proxy costs here. Nothing is
asserted: figures depend on the machine.
"""
import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "test", "e2e"))
from cluster import free_ports  # noqa: E402

NGINX = """daemon off;
worker_processes 1;
user %(user)s;
pid %(dir)s/nginx.pid;
error_log %(dir)s/nginx.log;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    upstream service { server 127.0.0.1:%(upstream)d; keepalive 128; }
    server {
        listen 127.0.0.1:%(port)d;
        root %(dir)s/www;
        location / { %(what)s }
    }
}
"""
PROXY = ('proxy_pass http://service; proxy_http_version 1.1; '
         'proxy_set_header Connection "";')
BODY = b"x" * 1024


def wait_for_port(port):
    for _ in range(200):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.05)
    sys.exit(f"nothing answers on port {port}")


def start_nginx(folder, port, upstream, what):
    os.makedirs(os.path.join(folder, "www", "r"))
    with open(os.path.join(folder, "www", "r", "file"), "wb") as f:
        f.write(BODY)
    config = os.path.join(folder, "nginx.conf")
    user = "root" if os.getuid() == 0 else "nobody"
    with open(config, "w", encoding="ascii") as f:
        f.write(NGINX % {"dir": folder, "port": port, "upstream": upstream,
                         "what": what, "user": user})
    process = subprocess.Popen(["nginx", "-p", folder, "-c", config],
                               stderr=subprocess.DEVNULL)
    wait_for_port(port)
    return process


def start_gate(program, folder, port, upstream, *flags):
    log = open(os.path.join(folder, f"gate-{port}.log"), "wb")
    with log:
        process = subprocess.Popen(
            [program, "gate", "--on", "local:" + os.path.join(folder, f"s{port}"),
             "--listen", f"127.0.0.1:{port}",
             "--upstream", f"http://127.0.0.1:{upstream}",
             "--resource-from", "path-prefix", *flags], stdout=log, stderr=log)
    wait_for_port(port)
    return process


MS = {"us": 0.001, "ms": 1, "s": 1000}


def measure(port, args):
    """Requests per second, and the median latency in ms."""
    done = subprocess.run(
        ["wrk", "-t", "1", "-c", str(args.connections), "-d", f"{args.seconds}s",
         "--latency", "-H", "X-Picket-Token: 5", f"http://127.0.0.1:{port}/r/file"],
        capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in done:
        sys.exit(f"not all requests were served:\n{done}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])
    value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", done).groups()
    return rate, float(value) * MS[unit]


def report(figures):
    rate = {who: statistics.median(r for r, _ in v) for who, v in figures.items()}
    p50 = {who: statistics.median(m for _, m in v) for who, v in figures.items()}
    print(f"{'':16} {'requests/s':>11} {'ratio':>6} {'p50 ms':>8} {'added ms':>9}")
    for who in figures:
        print(f"{who:16} {rate[who]:11.0f} {rate[who] / rate['straight']:6.2f} "
              f"{p50[who]:8.3f} {p50[who] - p50['straight']:9.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--program", default=os.path.join(HERE, "..", "build", "picket"))
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    for tool in ("nginx", "wrk"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is needed: apt-get install {tool}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="picket-bench.")
    os.chmod(folder, 0o755)
    service, proxy, gate = free_ports(3)
    processes, figures = [], {"straight": [], "gate": [], "nginx as proxy": []}
    try:
        processes.append(start_nginx(os.path.join(folder, "a"), service, service, ""))
        processes.append(start_nginx(os.path.join(folder, "b"), proxy, service, PROXY))
        processes.append(start_gate(program, folder, gate, service))
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
            for who, port in zip(figures, (service, gate, proxy)):
                figures[who].append(measure(port, args))
    finally:
        for p in processes:
            p.terminate()
        for p in processes:
            p.wait()
        shutil.rmtree(folder, ignore_errors=True)
    report(figures)


if __name__ == "__main__":
    main()
