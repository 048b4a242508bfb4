#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What Picket offers of Redis, next to a real redis-server.

Each script that Picket takes for a known one is run on both, in every state that its
keys can be in, and must answer the same and leave the same behind. Most of the scripts
are known ones with something changed at random, because the danger is a script that is
taken for another: one that is refused is fine, one that does something else is not.
"""
import os
import random
import re
import shutil
import subprocess

from cluster import Cluster, Connection, ServerError, free_ports
from tap import check, contains, equal, main, test, wait_until

# More of them: MUTANTS=100000 SEED=1 python3 test/e2e/redis_same.py no_script
MUTANTS = int(os.environ.get("MUTANTS", "3000"))
SEED = int(os.environ.get("SEED", "7420"))
TTL = "60000"  # a minute in milliseconds, below a day in seconds

EACH = "for i, key in ipairs(KEYS) do "
GUARD = "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end "
SET_EACH = EACH + "redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS"

OWN = [  # on KEYS[1], with the value in ARGV[1] and the TTL in ARGV[2]
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
    "else return 0 end",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('unlink', KEYS[1]) "
    "end",
    "local k = KEYS[1]; local v = ARGV[1]; if (redis.call('GET', k) == v) then "
    "redis.call('DEL', k); return true; end; return false;",
    "local v = redis.call('get', KEYS[1]) if v and v == ARGV[1] then "
    "redis.call('del', KEYS[1]) return 1 else return nil end",
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return -1 end "
    "return redis.call('del', KEYS[1])",
    GUARD + "redis.call('del', KEYS[1]) return 1",
    GUARD + "redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
    GUARD + "local e = redis.call('pttl', KEYS[1]) if not e then e = 0 end if e < 0 then "
    "return 0 end local n = ARGV[2] if ARGV[3] == '0' then n = ARGV[2] + e end "
    "redis.call('pexpire', KEYS[1], n) return 1",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], "
    "tonumber(ARGV[2])) else return 0 end",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], "
    "ARGV[2]) end return 0",
    "if ARGV[1] == redis.call('get', KEYS[1]) then return redis.call('set', KEYS[1], "
    "ARGV[1], 'XX', 'PX', ARGV[2]) else return false end",
    "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('expire', KEYS[1], "
    "ARGV[2]) return 1 else return 0 end",
    "local s = redis.call('setnx', KEYS[1], ARGV[1]) if s == 0 then return 0 end "
    "redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
    "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    "if redis.call('set', KEYS[1], ARGV[1], 'EX', ARGV[2], 'NX') then return 1 else "
    "return 0 end",
    "if redis.call('exists', KEYS[1]) == 0 then redis.call('set', KEYS[1], ARGV[1], "
    "'PX', ARGV[2]) return 1 end return 0",
    "if redis.call('get', KEYS[1]) then return false end return redis.call('set', "
    "KEYS[1], ARGV[1], 'PX', ARGV[2])",
]
ALL = [  # on all of KEYS
    EACH + "if redis.call('exists', key) == 1 then return 0 end end " + SET_EACH,
    EACH + "if redis.call('get', key) ~= ARGV[1] then return 0 end end " + SET_EACH,
    "local c = 0 " + EACH + "if redis.call('get', key) == ARGV[1] then "
    "redis.pcall('del', key) c = c + 1 end end return c",
]
KEYS = ["a", "b"]
STATES = [{}, {"a": "mine"}, {"a": "other"}, {"a": "mine", "b": "mine"}, {"b": "mine"}]

TOKEN = re.compile(r"'[^']*'|\w+|==|~=|\s+|.")


def selecting(script):
    """The same on the database that ARGV[1] says."""
    shifted = re.sub(r"ARGV\[(\d)\]", lambda m: f"ARGV[{int(m.group(1)) + 1}]", script)
    return "redis.pcall('SELECT', tonumber(ARGV[1])) " + shifted


def arguments(script):
    return ["0", "mine", TTL] if "SELECT" in script else ["mine", TTL, "0"]


def mutate(script, rng, words):
    """The script with a token or two left out, doubled, swapped or replaced."""
    tokens = TOKEN.findall(script)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(tokens))
        kind = rng.randrange(4)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, rng.choice(words))
        elif kind == 2:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            tokens[at] = rng.choice(words)
        if not tokens:
            return ""
    return "".join(tokens)


def answer(connection, *words):
    """The reply, or the word "error": the sentences are each server's own."""
    try:
        return connection.ask(*words)
    except ServerError:
        return "error"


def left(connection):
    """What the keys are now, with their TTL in minutes."""
    ttls = [connection.ask("PTTL", k) for k in KEYS]
    return [(answer(connection, "GET", k), ttl if ttl < 0 else (ttl + 30000) // 60000)
            for k, ttl in zip(KEYS, ttls)]


def outcome(connection, state, *words):
    """The answer and what it left, starting from `state`."""
    connection.ask("DEL", *KEYS)
    for key, value in state.items():
        equal(connection.ask("SET", key, value, "NX", "PX", "600000"), "OK")
    return answer(connection, *words), left(connection)


class Pair:
    """A redis-server and a node of ours, each with one connection."""

    def __init__(self, t):
        self.t = t

    def __enter__(self):
        program = shutil.which("redis-server")
        check(program, "redis-server is not installed; tools/setup.sh test does it")
        port = free_ports(1)[0]
        self.server = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", self.t.dir],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.cluster = Cluster(self.t.program, self.t.path("cluster")).start()
        self.redis = wait_until(lambda: self._connect(port), what="redis-server")
        self.picket = Connection(self.cluster.nodes[0].port)
        return self

    @staticmethod
    def _connect(port):
        try:
            return Connection(port)
        except OSError:
            return None

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait()
        self.cluster.close()

    def knows(self, script):
        return answer(self.picket, "SCRIPT", "LOAD", script) != "error"

    def same(self, state, *words):
        wanted = outcome(self.redis, state, *words)
        got = outcome(self.picket, state, *words)
        check(got == wanted, f"{words} in {state}: got {got}, Redis says {wanted}")

    def same_in_all_states(self, script):
        for state in STATES:
            self.same(state, "EVAL", script, len(KEYS), *KEYS, *arguments(script))


@test
def plain_commands_answer_as_in_redis(t):
    commands = ["SET a v NX PX 60000", "SET a v EX 60 NX", "GET a", "EXISTS a", "DEL a",
                "DEL a b c", "DEL b b", "UNLINK b a", "PEXPIRE a 120000", "EXPIRE a 120",
                "TTL a", "SET a v PX", "GET", "PEXPIRE a x", "DEL", "EVAL", "SET a",
                "EVALSHA 0000000000000000000000000000000000000000 1 a v"]
    with Pair(t) as pair:
        for state in STATES:
            for command in commands:
                pair.same(state, *command.split())


@test
def known_scripts_do_what_they_do_in_redis(t):
    with Pair(t) as pair:
        for script in OWN + ALL + [selecting(s) for s in ALL]:
            check(pair.knows(script), f"not known: {script}")
            pair.same_in_all_states(script)


@test(timeout=max(600, MUTANTS // 20))
def no_script_is_taken_for_another(t):
    rng = random.Random(SEED)
    scripts = OWN + ALL + [selecting(s) for s in ALL]
    words = sorted({w for s in scripts for w in TOKEN.findall(s)} | {
        ";", "(", ")", "--x\n", "'nx'", "KEYS[2]", "ARGV[2]", "tonumber(ARGV[1])", "not",
        "local k = KEYS[2] ", "0", "1", "true", "false", "key", "v", "redis.call"})
    known = 0
    with Pair(t) as pair:
        for _ in range(MUTANTS):
            script = mutate(rng.choice(scripts), rng, words)
            if pair.knows(script):
                known += 1
                pair.same_in_all_states(script)
    check(known > MUTANTS / 50, f"only {known} mutants were known: nothing was tried")


@test
def unknown_scripts_change_nothing(t):
    with Pair(t) as pair:
        for script in ("return redis.call('del', KEYS[1])", "return 1",
                       "redis.call('flushall')", OWN[0] + " redis.call('flushall')"):
            was = outcome(pair.picket, {"a": "mine"}, "GET", "a")[1]
            try:
                pair.picket.ask("EVAL", script, 1, "a", "mine")
                check(False, f"was run: {script}")
            except ServerError as e:
                contains(str(e), "not one of the lock scripts")
            equal(left(pair.picket), was)


main()
