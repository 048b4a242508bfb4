# SPDX-License-Identifier: MIT
"""The drill over other people's stores, on real servers: whose tokens fence, and whose
lock has none to fence by."""
import os
import tempfile

from conform import driver_missing
from stores import STORES, Absent
from tap import contains, equal, main, skip, test

CONFORM = os.path.abspath(os.environ.get("CONFORM", "build/test/conform"))


def drills(t, name, *options):
    """A drill over that store for each of the options: exit codes, and what was said."""
    missing = driver_missing(CONFORM, name)
    if missing:
        skip(f"{name}: {missing}")
    with tempfile.TemporaryDirectory(prefix="picket-test-",
                                     ignore_cleanup_errors=True) as folder:
        try:
            with STORES[name](folder) as store:
                done = [t.picket("drill", "--on", store.url, *o) for o in options]
        except Absent as e:
            skip(f"{name}: {e}")
    return [(d.returncode, d.stdout) for d in done]


def safe_with_a_fence_only(t, name):
    (safe, refused), (unsafe, damaged) = drills(t, name, (), ("--no-fence",))
    equal((safe, unsafe), (0, 1))
    contains(refused, "SAFE: the zombie's write was refused")
    contains(damaged, "CORRUPTED")


@test
def drill__over_redis(t):
    safe_with_a_fence_only(t, "redis")


@test
def drill__over_etcd(t):
    safe_with_a_fence_only(t, "etcd")


@test
def drill__over_zookeeper(t):
    safe_with_a_fence_only(t, "zk")


@test
def drill__over_postgres(t):
    safe_with_a_fence_only(t, "postgres")


@test
def drill__over_advisory_locks(t):
    safe_with_a_fence_only(t, "postgres-advisory")


@test
def drill__over_consul(t):  # whose sessions take up to 20 s to end
    [(code, said)] = drills(t, "consul", ())
    equal(code, 0)
    contains(said, "SAFE: the zombie's write was refused")


@test
def drill__over_redlock_has_no_token_to_fence_by(t):
    [(code, said)] = drills(t, "redlock", ())
    equal(code, 1)
    contains(said, "no token")
    contains(said, "CORRUPTED")


main()
