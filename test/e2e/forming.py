# SPDX-License-Identifier: MIT
"""How nodes with empty directories come to be a cluster, whatever happens meanwhile."""
import random
import shutil

from cluster import READY_S, Cluster, get
from tap import check, contains, equal, main, test, wait_until

NODES = ["n1", "n2", "n3"]


def three(t, name="c"):
    """Three first nodes, none of them started."""
    return Cluster(t.program, t.path(name), 3)


def status(node):
    with node.connect() as c:
        return c.ask("CLUSTER", "STATUS")


def voters(node):
    return sorted(m["name"] for m in status(node)["members"] if m["role"] == "voter")


def is_formed(cluster):
    wait_until(lambda: any("event=formed" in n.words() for n in cluster.nodes),
               what="a cluster that is formed")
    equal(voters(cluster.leader()), NODES)
    return True


@test
def forming__waits_for_all_nodes_and_says_so(t):
    cluster = three(t)
    n1, n2, n3 = cluster.nodes
    try:
        n2.start()
        n1.start()
        for n in (n1, n2):
            wait_until(lambda n=n: "nodes that don't answer: n3@" in n.words().split(
                "event=forming")[-1], what="its words about n3")
        equal(status(n1)["state"], "forming")
        contains(status(n1)["waits_for"], "n3@")
        equal((status(n1)["serving"], status(n1)["members"]), (0, []))
        equal(get(n2, "/readyz")[0], 503)
        equal(t.picket("cluster", "status", "--on", n1.url).returncode, 1)
        n3.start()
        is_formed(cluster)
        equal([status(n)["state"] for n in cluster.nodes], ["member"] * 3)
    finally:
        cluster.close()


@test
def forming__serves_when_all_first_nodes_have_a_vote(t):
    """One of them is frozen before it has a vote: nobody is served until it has."""
    for attempt in range(50):
        cluster = three(t, f"c{attempt}")
        n1, _, n3 = cluster.nodes
        try:
            for n in cluster.nodes:
                n.start()
            wait_until(lambda n1=n1: "the votes of all first nodes" in n1.words())
            n3.stop()
            if "event=formed" in n1.words():
                continue  # it was faster
            equal(status(n1)["serving"], 0)
            check("event=serving" not in n1.words(), n1.words())
            # Nor is it a cluster of its own, if it forgets about the others.
            n1.kill()
            named, n1.place = n1.place, []
            n1.start()
            equal(n1.process.wait(READY_S), 125)
            contains(n1.words(), "give it the --cluster of before")
            n1.place = named
            n1.start()
            n3.cont()
            is_formed(cluster)
            return
        finally:
            cluster.close()
    check(False, "no node could be frozen in time")


@test
def forming__goes_on_after_any_node_was_killed(t):
    dice = random.Random(1)
    for round_ in range(6):
        cluster = three(t, f"c{round_}")
        try:
            for n in cluster.nodes:
                n.start()
            victim = cluster.nodes[round_ % 3]
            for _ in range(dice.randrange(40)):  # somewhere in the midst of it
                victim.words()
            victim.kill()
            victim.start()
            is_formed(cluster)
        finally:
            cluster.close()


@test
def forming__admits_a_node_that_was_wiped_meanwhile(t):
    dice = random.Random(2)
    for round_ in range(4):
        cluster = three(t, f"c{round_}")
        n1, n2, _ = cluster.nodes
        try:
            for n in cluster.nodes:
                n.start()
            for _ in range(dice.randrange(40)):
                n2.words()
            n2.kill()
            done = "event=formed" in n1.words()
            shutil.rmtree(n2.data, ignore_errors=True)
            n2.start()
            # It is admitted, waits to be replaced, or all have to start over: said so.
            wait_until(lambda n1=n1, n2=n2, done=done:
                       (not done and "event=formed" in n1.words())
                       or "picket cluster replace n2" in n2.words()
                       or "empty all their directories" in n1.words(), what="an end")
        finally:
            cluster.close()


main()
