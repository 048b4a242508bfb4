# SPDX-License-Identifier: MIT
"""`picket serve --trace` on real clusters, and `picket sim replay` of what it wrote."""
import json
import os
import xml.etree.ElementTree as xml

from cluster import Cluster, Connection, fields
from tap import check, contains, equal, main, test, wait_until


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def traced(t, n, *flags):
    """A cluster in which each node records; nodes have .trace, the path."""
    c = Cluster(t.program, t.path("cluster"), n, flags)
    for node in c.nodes:
        node.trace = t.path(node.name + ".trace")
        node.place += ["--trace", node.trace]
    return c


def lines_of(path, kind):
    """The lines of one kind, as lists of words after it, with the time first."""
    words = [line.split() for line in text_of(path).splitlines()]
    return [[w[0], *w[2:]] for w in words if w[1] == kind]


def work(t, c, lock, times):
    """Holds the lock so many times, one after the other, from several processes."""
    jobs = [t.start("run", "--on", c.url, "--ttl", "60s", lock, "--", "true")
            for _ in range(times)]
    for job in jobs:
        job.communicate()
        equal(job.returncode, 0)


def replay(t, path, *args):
    return t.picket("sim", "replay", path, *args)


# ---- real clusters ----

@test
def trace__of_a_cluster_whose_leader_is_killed(t):
    with traced(t, 3) as c:
        work(t, c, "orders", 4)
        holder = t.start("run", "--on", c.url, "--ttl", "60s", "orders", "--", "cat",
                         stdin=-1)
        wait_until(lambda: len(lines_of(c.leader().trace, "granted")) == 5)
        waiter = t.start("run", "--on", c.url, "--ttl", "60s", "orders", "--", "true")
        wait_until(lambda: [x for x in lines_of(c.leader().trace, "queued")
                            if x[3] == "1"])
        killed = c.leader()
        killed.kill()
        c.leader()  # another one
        holder.communicate("")
        waiter.communicate()
        equal((holder.returncode, waiter.returncode), (0, 0))
        killed.start()
        work(t, c, "orders", 3)
        for token in (100, 99):
            t.picket("fence", "claim", "--on", c.url, "orders", "--token", token)
        for node in c.nodes:
            wait_until(lambda n=node: lines_of(n.trace, "refused"), what=node.name)

        for node in c.nodes:
            done = replay(t, node.trace)
            equal((node.name, done.returncode, done.stderr), (node.name, 0, ""))
            contains(done.stdout, "Nothing broke.")
            contains(done.stdout, "two-valid (clients know)")
            contains(done.stdout, "1 refused tokens")
        # Nodes that were there all the time wrote the same about the lock.
        stayed = [n for n in c.nodes if n is not killed]
        grants = [lines_of(n.trace, "granted") for n in stayed]
        equal(grants[0], grants[1])
        equal(len(grants[0]), 9)
        contains(text_of(killed.trace), f"picket-trace 1 {killed.name} ")
        equal(text_of(killed.trace).count("picket-trace 1 "), 2)


@test
def trace__that_was_tampered_with_is_found_out(t):
    with traced(t, 3) as c:
        work(t, c, "orders", 4)
        path = c.leader().trace
        wait_until(lambda: len(lines_of(path, "ended")) == 4)
        text = text_of(path)
    lines = text.splitlines(keepends=True)
    grants = [i for i, line in enumerate(lines) if " granted orders " in line]
    ends = [i for i, line in enumerate(lines) if " ended orders " in line]

    def judged(changed):
        done = replay(t, t.write("tampered.trace", "".join(changed)))
        return done.returncode, done.stdout

    code, said = judged(lines)
    equal((code, "BROKEN" in said), (0, False))

    # Two tokens in each other's place.
    swapped = list(lines)
    one, two = (lines[i].split(" ") for i in grants[1:3])
    one[5], two[5] = two[5], one[5]
    swapped[grants[1]], swapped[grants[2]] = " ".join(one), " ".join(two)
    code, said = judged(swapped)
    equal(code, 1)
    contains(said, "orders: token-order: At ")

    # A second grant while the first hold lasts.
    second = lines[grants[1]].split(" ")
    second[3], second[5] = "4711", "4711"
    twice = lines[:grants[1] + 1] + [" ".join(second)] + lines[grants[1] + 1:]
    code, said = judged(twice)
    equal(code, 1)
    contains(said, "orders: two-holders: At ")
    contains(said, "lease 4711 with token 4711 was given the lock while ")

    # An end that is missing.
    code, said = judged(lines[:ends[0]] + lines[ends[0] + 1:])
    equal(code, 1)
    contains(said, "two-holders")

    # A fence that falls.
    at = lines[-1].split(" ")[0]
    code, said = judged(lines + [f"{at} raised disk 8\n", f"{at} passed disk 7\n"])
    equal(code, 1)
    contains(said, "disk: fence-back: ")


@test
def trace__queues_in_order_and_out_of_order(t):
    with traced(t, 1) as c:
        clients = [c.leader().connect() for _ in range(4)]
        for k in clients:
            k.lease = k.ask("LEASE", "OPEN", 30000)["lease"]
        for k in clients:
            k.ask("LOCK", "ACQUIRE", k.lease, "q", "WAIT", 20000, "REQUEST", 1)
        for k in clients:
            k.ask("LEASE", "CLOSE", k.lease)
        path = c.nodes[0].trace
        wait_until(lambda: len(lines_of(path, "ended")) == 4)
    done = replay(t, path)
    equal(done.returncode, 0)
    text = text_of(path)
    queued = [x for x in text.splitlines() if " queued q " in x]
    equal(len(queued), 3)
    swapped = text.replace(queued[0], "-").replace(queued[2], queued[0])
    swapped = swapped.replace("\n-\n", f"\n{queued[2]}\n")
    at = queued[0].split()[0]  # times stay in order
    swapped = swapped.replace(queued[2], at + queued[2][len(queued[2].split()[0]):])
    swapped = swapped.replace(queued[0], queued[2].split()[0] +
                              queued[0][len(at):])
    done = replay(t, t.write("swapped.trace", swapped))
    equal(done.returncode, 1)
    contains(done.stdout, "q: queue-order: ")


@test
def trace__shared_holds_and_slots(t):
    with traced(t, 1) as c:
        url = c.url
        held = [t.start("run", "--on", url, "-s", "r", "--", "cat", stdin=-1)
                for _ in range(2)]
        held += [t.start("run", "--on", url, "--slots", "2", "s", "--", "cat", stdin=-1)
                 for _ in range(2)]
        path = c.nodes[0].trace
        wait_until(lambda: len(lines_of(path, "granted")) == 4)
        for job in held:
            job.communicate("")
        wait_until(lambda: len(lines_of(path, "ended")) == 4)
    done = replay(t, path)
    equal(done.returncode, 0)
    contains(done.stdout, "2 locks, 4 leases")


@test
def trace__over_a_restore(t):
    with traced(t, 3) as c:
        work(t, c, "a", 2)
        backup = t.path("b.backup")
        with c.leader().connect() as k:  # what is held in the backup ends by the restore
            lease = k.ask("LEASE", "OPEN", 3600000)["lease"]
            k.ask("LOCK", "ACQUIRE", lease, "kept")
            equal(t.picket("cluster", "backup", backup, "--from", c.leader().name, "--on",
                           c.url).returncode, 0)
            k.ask("LEASE", "CLOSE", lease)
        work(t, c, "a", 2)
        equal(t.picket("cluster", "restore", backup, "--yes", "--on",
                       c.url).returncode, 0)
        work(t, c, "a", 2)
        for node in c.nodes:
            wait_until(lambda n=node: len(lines_of(n.trace, "ended")) >= 8)
            contains(text_of(node.trace), " gap\n")
            done = replay(t, node.trace)
            equal((done.returncode, done.stderr), (0, ""))
            contains(done.stdout, "7 grants")


# ---- the file ----

@test
def trace__is_bounded_and_goes_on_in_a_new_file(t):
    with traced(t, 1, "--trace-mb", "1") as c:
        path = c.nodes[0].trace
        with Connection(c.nodes[0].port) as k:
            lease = fields(k.ask("LEASE", "OPEN", 60000))["lease"]
            for _ in range(9):
                for _ in range(10000):
                    k.send("LEASE", "RENEW", lease)
                for _ in range(10000):
                    k.reply()
        wait_until(lambda: os.path.exists(path + ".old"))
        work(t, c, "after", 1)
        wait_until(lambda: lines_of(path, "ended"))
    for name in (path, path + ".old"):
        check(os.path.getsize(name) < 3 << 20, f"{name} is too large")
        equal(replay(t, name).returncode, 0)
        equal(os.stat(name).st_mode & 0o777, 0o600)


@test
def trace__goes_on_after_a_restart(t):
    with traced(t, 1) as c:
        node = c.nodes[0]
        work(t, c, "a", 2)
        node.kill()
        with open(node.trace, "a", encoding="utf-8") as f:
            f.write("123 granted a 1 1")  # cut off by a crash
        node.start()
        c.leader()
        work(t, c, "a", 2)
        wait_until(lambda: len(lines_of(node.trace, "ended")) == 4)
        done = replay(t, node.trace)
    equal((done.returncode, done.stderr), (0, ""))
    contains(done.stdout, "4 grants")
    contains(done.stdout, "1 times a part is missing")


@test
def trace__does_not_touch_what_is_no_trace(t):
    path = t.write("precious", "not a trace\n")
    done = t.picket("serve", "--data", t.path("d"), "--listen", "127.0.0.1:0",
                    "--http", "off", "--raft", "127.0.0.1:0", "--trace", path)
    equal(done.returncode, 125)
    contains(done.stderr, "no trace")
    equal(text_of(path), "not a trace\n")
    done = t.picket("serve", "--data", t.path("d"), "--listen", "127.0.0.1:0",
                    "--http", "off", "--raft", "127.0.0.1:0", "--trace", "/no/where")
    equal(done.returncode, 125)
    contains(done.stderr, "/no/where")


# ---- replay ----

GOOD = ("picket-trace 1 n1 7\n1000 opened 1 one\n1000 granted x 1 1 1 x 0\n"
        "1500 queued x 2 1 1\n3000 ended x 1 1 1 expired\n3000 granted x 2 1 2 x 1500\n"
        "3100 raised x 2\n4000 refused x 1 2\n5000 ended x 2 1 2 released\n"
        "6000 granted y 1 2 3 x 0\n")


@test
def replay__another_version_and_no_trace(t):
    for text, why in (("picket-trace 9 n1 7\n", ":1: this is a trace of another version"),
                      ("", ":1: this is no trace"), ("sim 1\n", ":1: this is no trace"),
                      (GOOD + "7000 dance\n", ":11: there is no such word"),
                      (GOOD + "10 raised x 3\n", ":11: time goes back")):
        path = t.write("a.trace", text)
        done = replay(t, path)
        equal((done.returncode, done.stdout), (125, ""))
        contains(done.stderr, f"picket: {path}{why}")


@test
def replay__a_picture_of_one_lock_and_json_of_all(t):
    path = t.write("a.trace", GOOD)
    done = replay(t, path, "--svg", t.path("x.svg"))
    equal(done.returncode, 125)
    contains(done.stderr, "say --lock NAME")
    done = replay(t, path, "--lock", "x", "--svg", t.path("x.svg"))
    equal(done.returncode, 0)
    contains(done.stdout, "1 lock, 2 leases")
    root = xml.parse(t.path("x.svg")).getroot()
    equal(root.tag, "{http://www.w3.org/2000/svg}svg")
    told = json.loads(replay(t, path, "--json", "-").stdout)
    equal([x["name"] for x in told["locks"]], ["x", "y"])
    equal((told["grants"], told["refused"]), (3, 1))
    done = replay(t, path, "--lock", "z")
    equal(done.returncode, 125)
    contains(done.stderr, "has nothing about z")


@test
def replay__reads_standard_input(t):
    done = t.picket("sim", "replay", "-", input=GOOD + "7000 gra")
    equal(done.returncode, 0)
    contains(done.stdout, "The last line is unfinished and was left out.")


main()
