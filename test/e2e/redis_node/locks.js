// SPDX-License-Identifier: MIT
// The lock libraries of Node.js against a node of Picket, as their users use them:
//     node locks.js CASE PORT [PORT...]
// A case that fails throws; redis_clients.py runs them all.
'use strict';

const assert = require('assert');
const Redis = require('ioredis');

const MINUTE = 60000;
const open = [];

function connect(port) {
  const client = new Redis({ port, host: '127.0.0.1' });
  client.on('error', (e) => { throw e; });
  open.push(() => client.disconnect());
  return client;
}

/** The token of a key that `value` owns, by the one command that is Picket's own. */
function token(client, key, value) {
  return client.call('LOCK', 'TOKEN', key, value);
}

async function until(condition) {
  const end = Date.now() + 10000;
  while (!(await condition())) {
    assert(Date.now() < end, 'did not come true within 10 s');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** What redlock 5 and the fork of it do alike. */
async function redlock(Redlock, ResourceLockedError, port) {
  const client = connect(port);
  const locks = new Redlock([client], { retryCount: 0 });
  const busy = /quorum/;

  const lock = await locks.acquire(['a', 'b'], MINUTE);
  assert.strictEqual(await client.get('b'), lock.value);
  const first = await token(client, 'b', lock.value);
  await assert.rejects(locks.acquire(['b', 'c'], MINUTE), busy);
  assert.strictEqual(await client.exists('c'), 0); // all or none
  const attempts = await locks.acquire(['b'], MINUTE).catch((e) => e.attempts);
  const votes = await (await Promise.all(attempts))[0];
  assert([...votes.votesAgainst.values()][0] instanceof ResourceLockedError);

  const longer = await lock.extend(2 * MINUTE);
  assert(await client.pttl('a') > MINUTE);
  assert.strictEqual(await token(client, 'b', lock.value), first);
  await longer.release();
  assert.strictEqual(await client.exists('a'), 0);
  await assert.rejects(longer.release(), busy); // no longer ours

  const again = await locks.acquire(['b'], MINUTE);
  assert(await token(client, 'b', again.value) > first);
  await client.del('b'); // as an operator might
  await assert.rejects(again.extend(MINUTE), busy);

  // The lock is extended while the work lasts, longer than the first TTL.
  const ran = await locks.using(['a'], 1000, { automaticExtensionThreshold: 700 },
    async (signal) => {
      const before = await client.get('a');
      await new Promise((resolve) => setTimeout(resolve, 1500));
      assert.strictEqual(signal.aborted, false);
      assert.strictEqual(await client.get('a'), before);
      return 'ran';
    });
  assert.strictEqual(ran, 'ran');
  assert.strictEqual(await client.exists('a'), 0);
}

const cases = {
  async redlock5(port) {
    const { default: Redlock, ResourceLockedError } = require('redlock');
    await redlock(Redlock, ResourceLockedError, port);
  },

  async sesamecare(port) {
    const { Redlock, ResourceLockedError } = require('@sesamecare-oss/redlock');
    await redlock(Redlock, ResourceLockedError, port);
  },

  async redlock4(port) {
    const Redlock = require('redlock4');
    const client = connect(port);
    const locks = new Redlock([client], { retryCount: 0 });
    const lock = await locks.lock(['a', 'b'], MINUTE);
    const first = await token(client, 'a', lock.value);
    await assert.rejects(locks.lock('a', MINUTE), Redlock.LockError);
    const longer = await lock.extend(2 * MINUTE);
    assert(await client.pttl('b') > MINUTE);
    await longer.unlock();
    assert.strictEqual(await client.exists('a'), 0);
    const patient = new Redlock([client], { retryCount: 50, retryDelay: 50 });
    const held = await locks.lock('a', 400);
    const next = await patient.lock('a', MINUTE); // after the first one ran out
    assert(await token(client, 'a', next.value) > first);
    await assert.rejects(held.unlock(), Redlock.LockError);
    await next.unlock();
  },

  async semaphore_mutex(port) {
    const { Mutex, Semaphore } = require('redis-semaphore');
    const client = connect(port);
    const options = { lockTimeout: 600, refreshInterval: 150, acquireTimeout: 300 };
    const mutex = new Mutex(client, 'job', options);
    await mutex.acquire();
    const first = await token(client, 'mutex:job', mutex.identifier);
    const other = new Mutex(client, 'job', options);
    assert.strictEqual(await other.tryAcquire(), false);
    await new Promise((resolve) => setTimeout(resolve, 1000)); // refreshed meanwhile
    assert.strictEqual(mutex.isAcquired, true);
    assert.strictEqual(await token(client, 'mutex:job', mutex.identifier), first);
    await mutex.release();
    await other.acquire();
    assert(await token(client, 'mutex:job', other.identifier) > first);
    const lost = new Promise((resolve) => {
      const careless = new Mutex(client, 'careless', { ...options, onLockLost: resolve });
      careless.acquire().then(() => client.del('mutex:careless'));
    });
    assert(/Lost mutex/.test((await lost).message));
    await other.release();
    // A semaphore by clocks of clients is no part of the idiom, and says so.
    const places = new Semaphore(client, 'places', 2, options);
    await assert.rejects(places.acquire(), /not one of the lock scripts/);
  },

  async node_redis(port) {
    const { createClient } = require('redis');
    const client = createClient({ url: `redis://127.0.0.1:${port}` });
    await client.connect();
    open.push(() => client.disconnect());
    const unlock = 'if redis.call("get", KEYS[1]) == ARGV[1] then ' +
      'return redis.call("del", KEYS[1]) else return 0 end';
    assert.strictEqual(await client.set('k', 'mine', { NX: true, PX: MINUTE }), 'OK');
    assert.strictEqual(await client.set('k', 'other', { NX: true, EX: 60 }), null);
    assert(await client.sendCommand(['LOCK', 'TOKEN', 'k', 'mine']) >= 1);
    await assert.rejects(client.set('k', 'thief'), /without NX/);
    await assert.rejects(client.set('l', 'mine', { NX: true }), /without a TTL/);
    assert.strictEqual(await client.get('k'), 'mine');
    const ask = (value) => client.eval(unlock, { keys: ['k'], arguments: [value] });
    assert.strictEqual(await ask('other'), 0);
    assert.strictEqual(await ask('mine'), 1);
    assert.strictEqual(await client.get('k'), null);
  },

  // Redlock wants independent instances. Nodes of one cluster are one and the same, so
  // the second refuses what the first has granted.
  async redlock_over_one_cluster(...ports) {
    const { default: Redlock } = require('redlock');
    const locks = new Redlock(ports.map(connect), { retryCount: 0 });
    await assert.rejects(locks.acquire(['a'], MINUTE), /quorum/);
    const client = connect(ports[0]);
    await until(async () => await client.exists('a') === 0); // and it cleans up
  },

  // On independent Redis servers, beside our own redlock://, whose key of the lock `db`
  // this is: has it until standard input ends.
  async redlock_holds(...ports) {
    const { default: Redlock } = require('redlock');
    const lock = await new Redlock(ports.map(connect)).acquire(['picket:db'], MINUTE);
    console.log('held');
    for await (const _ of process.stdin);
    await lock.release();
  },

  async redlock_is_kept_out(...ports) {
    const { default: Redlock } = require('redlock');
    const locks = new Redlock(ports.map(connect), { retryCount: 0 });
    await assert.rejects(locks.acquire(['picket:db'], MINUTE), /quorum/);
  },
};

const [name, ...ports] = process.argv.slice(2);
cases[name](...ports.map(Number))
  .then(() => open.forEach((close) => close()))
  .catch((e) => {
    console.error(e);
    process.exit(1);
  });
