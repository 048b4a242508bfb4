# SPDX-License-Identifier: MIT
"""What clients saw of a cluster under faults, and the promises checked from it alone.

A history is a list of operations. Times are those of one machine's monotonic clock, so
"before" can be told across clients. An operation whose answer never came, or came as
"unknown", may have happened at most once, at any time after it was sent.
"""
import dataclasses
import threading


@dataclasses.dataclass
class Operation:
    kind: str  # acquire, release, renew, add (a fenced read-modify-write)
    client: int
    lock: str
    lease: int
    request: int
    sent: float
    done: float = None  # None: no answer
    queued: float = None  # acquire: when the place in the queue was acknowledged
    status: str = None
    token: int = None
    value: int = None  # add: what was written
    answers: list = dataclasses.field(default_factory=list)  # of each try, when known


class History:
    """Operations of many threads, in no order."""

    def __init__(self):
        self.operations = []
        self.mutex = threading.Lock()

    def begin(self, **fields):
        operation = Operation(**fields)
        with self.mutex:
            self.operations.append(operation)
        return operation

    def of(self, kind, status="OK"):
        return [o for o in self.operations if o.kind == kind and o.status == status]


def holds(history, margin_s, ttl_s):
    """(lock, token, from, to) of each hold, as long as its client could be sure of it:
    from the grant to the sending of the release, but no longer than its last acknowledged
    renewal covers."""
    releases = {(o.lock, o.token): o.sent for o in history.operations
                if o.kind == "release"}
    renewals = {}
    for o in history.of("renew"):
        renewals.setdefault(o.lease, []).append(o.sent)
    for o in history.of("acquire"):
        end = releases.get((o.lock, o.token), float("inf"))
        covered = o.done
        for sent in sorted(renewals.get(o.lease, ())):
            if sent <= covered and sent + ttl_s - margin_s > covered:
                covered = sent + ttl_s - margin_s
        yield o.lock, o.token, o.done, min(end, covered)


def check_one_holder(history, margin_s, ttl_s):
    """P1, with P4 and P5: nobody is sure of a lock while somebody else is."""
    by_lock = {}
    for lock, token, start, end in holds(history, margin_s, ttl_s):
        if end > start:
            by_lock.setdefault(lock, []).append((start, end, token))
    for lock, spans in by_lock.items():
        spans.sort()
        for (_, end, token), (start, _, other) in zip(spans, spans[1:]):
            if start < end:
                yield f"P1: {lock} is held with tokens {token} and {other} at once"


def check_tokens(history):
    """P2: a grant that began after another was known has the greater token."""
    grants = sorted(history.of("acquire"), key=lambda o: o.sent)
    tokens = [o.token for o in grants]
    if len(set(tokens)) != len(tokens):
        yield "P2: a token was given out twice"
    done = sorted(grants, key=lambda o: o.done)
    highest, i = 0, 0
    for o in grants:
        while i < len(done) and done[i].done < o.sent:
            highest = max(highest, done[i].token)
            i += 1
        if o.token <= highest:
            yield f"P2: token {o.token} came after {highest} was known"


def check_fifo(history):
    """P7: who had a place in the queue before another asked is granted first."""
    by_lock = {}
    for o in history.of("acquire"):
        if o.queued is not None:
            by_lock.setdefault(o.lock, []).append(o)
    for lock, queue in by_lock.items():
        for a in queue:
            for b in queue:
                if a.queued < b.sent and a.token > b.token:
                    yield (f"P7: on {lock}, token {b.token} overtook token {a.token}, "
                           f"which had waited longer")


def check_repeats(history):
    """P8: every try of a request that was answered got the same answer."""
    for o in history.operations:
        if len(set(o.answers)) > 1:
            yield f"P8: request {o.request} of lease {o.lease} got {o.answers}"


def check_counters(history, final):
    """P3 and P6: a counter that was only raised under its lock, with the token, shows
    every addition that was acknowledged, and none twice."""
    for lock, value in final.items():
        adds = [o for o in history.operations if o.kind == "add" and o.lock == lock]
        certain = [o.value for o in adds if o.status == "OK"]
        possible = len([o for o in adds if o.status is None])
        if len(set(certain)) != len(certain):
            yield f"P3: {lock} lost an update: {sorted(certain)}"
        if not len(certain) <= value <= len(certain) + possible:
            yield (f"P3: {lock} counts {value}, after {len(certain)} acknowledged "
                   f"additions and {possible} of unknown outcome")


def check_answered(history, healed):
    """P9: once the faults are over, whoever waits gets an answer."""
    for o in history.operations:
        if o.kind == "acquire" and o.done is None and o.sent > healed:
            yield f"P9: an acquire of {o.lock} was never answered"


def check_all(history, final, healed, margin_s, ttl_s):
    """Sentences about broken promises; empty when all were kept."""
    return [*check_one_holder(history, margin_s, ttl_s), *check_tokens(history),
            *check_fifo(history), *check_repeats(history),
            *check_counters(history, final), *check_answered(history, healed)]
