# SPDX-License-Identifier: MIT
"""redis-py's Lock against a node of Picket, as its users use it:

    /usr/bin/python3 redis_py.py CASE PORT

redis_clients.py runs this with the interpreter that Debian's python3-redis belongs to. A
case that fails raises. It stands alone, so that it needs nothing but redis-py.
"""
import sys
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

LONG_S = 60


def connect(port):
    return redis.Redis(port=port, socket_timeout=120)


def token(r, lock):
    """The fencing token of a lock that we hold, by the one command of Picket's own."""
    return r.execute_command("LOCK", "TOKEN", lock.name, lock.local.token)


def raises(error, function, *args, text="", **options):
    try:
        result = function(*args, **options)
    except error as e:
        assert text in str(e), f"{text!r} is not in {e}"
        return
    raise AssertionError(f"{error.__name__} expected, got {result!r}")


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "did not come true within 10 s"
        time.sleep(0.02)


def lifecycle(port):
    r = connect(port)
    lock = r.lock("job", timeout=LONG_S)
    assert not lock.locked() and not lock.owned()
    assert lock.acquire()
    assert lock.locked() and lock.owned()
    first = token(r, lock)
    assert lock.extend(LONG_S)
    assert r.ttl("job") > 1.5 * LONG_S
    assert lock.extend(2 * LONG_S, replace_ttl=True)
    assert 1.5 * LONG_S < r.ttl("job") <= 2 * LONG_S
    assert lock.reacquire()
    assert r.ttl("job") <= LONG_S
    assert token(r, lock) == first
    lock.release()
    assert not lock.locked()
    raises(LockError, lock.release)
    assert lock.acquire()
    assert token(r, lock) > first


def context_manager(port):
    r = connect(port)
    with r.lock("job", timeout=LONG_S) as lock:
        assert lock.owned()
        assert r.get("job") == lock.local.token
    assert r.exists("job") == 0


def contenders(port):
    mine, theirs = connect(port), connect(port)
    lock = mine.lock("job", timeout=LONG_S)
    other = theirs.lock("job", timeout=LONG_S, sleep=0.02)
    assert lock.acquire()
    assert other.acquire(blocking=False) is False
    assert other.acquire(blocking_timeout=0.3) is False
    assert other.locked() and not other.owned()
    got = []
    waiter = threading.Thread(target=lambda: got.append(other.acquire()))
    # thread_local: the token must be seen by the thread that releases.
    other.local = type("Plain", (), {"token": None})()
    waiter.start()
    lock.release()
    waiter.join(10)
    assert got == [True] and other.owned()
    other.release()


def expiry(port):
    r = connect(port)
    lock = r.lock("job", timeout=0.2)
    assert lock.acquire()
    until(lambda: not lock.locked())
    other = r.lock("job", timeout=LONG_S)
    assert other.acquire()
    raises(LockNotOwnedError, lock.release)
    assert other.owned()
    stale = r.lock("job", timeout=LONG_S)
    stale.local.token = b"somebody else"
    raises(LockNotOwnedError, stale.extend, 10)
    raises(LockNotOwnedError, stale.reacquire)
    raises(redis.ResponseError, r.execute_command, "LOCK", "TOKEN", "job",
           "somebody else", text="NOTHELD")


def refusals(port):
    """What could harm a lock is refused, and changes nothing."""
    r = connect(port)
    raises(redis.ResponseError, r.lock("job").acquire, text="TTL")
    lock = r.lock("job", timeout=LONG_S)
    assert lock.acquire()
    raises(redis.ResponseError, r.set, "job", "thief", text="without NX")
    raises(redis.ResponseError, r.set, "job", "thief", px=1000, xx=True)
    raises(redis.ResponseError, r.setnx, "job", "thief")
    raises(redis.ResponseError, r.incr, "job", text="unknown command")
    raises(redis.ResponseError, r.hset, "h", "f", "v", text="unknown command")
    raises(redis.ResponseError, r.eval, "return redis.call('del', KEYS[1])", 1, "job",
           text="not one of the lock scripts")
    assert lock.owned()


def pool(port):
    """Every command on a connection of its own, so that none profits from another: this
    is what a pool does, and through a follower each of them is passed on by itself."""
    for _ in range(3):
        lock = connect(port).lock("job", timeout=LONG_S)
        assert lock.acquire(blocking=False)
        for do in (lambda: lock.extend(1), lock.reacquire, lock.release):
            lock.redis.connection_pool.disconnect()
            do()


def failover(port):
    """Takes the lock, waits for a word on standard input, and goes on with it."""
    r = connect(port)
    lock = r.lock("job", timeout=LONG_S)
    assert lock.acquire()
    print("held", token(r, lock), flush=True)
    sys.stdin.readline()
    until(lambda: tried(lock.reacquire))
    print("kept", token(r, lock), flush=True)
    assert connect(port).lock("job", timeout=LONG_S).acquire(blocking=False) is False
    lock.release()
    assert lock.acquire()
    print("next", token(r, lock), flush=True)


def tried(act):
    """What a client does while nobody leads: it tries again."""
    try:
        return act()
    except (redis.ConnectionError, redis.TimeoutError) as e:
        print("#", e, file=sys.stderr)
    except redis.ResponseError as e:
        assert str(e).split(" ")[0] in ("NOLEADER", "UNKNOWN"), e
    return False


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
