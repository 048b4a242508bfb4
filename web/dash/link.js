// SPDX-License-Identifier: MIT
// The stream of events, and whether what the page shows is still true.
//
// A server that lives says something each second. When it is silent for longer, or
// the connection is gone, everything shown is old: the page turns grey and says so, and
// what was running stands where the server last said.

const SILENCE_MS = 2500;
const AGAIN_MS = 2000;
const OLD_MS = 2000; // of a follower's data

const link = { source: null, heard: 0, again: 0 };
// What the server has told, put together.
const now = { clock: 0, got: 0, ticking: false, age: null, rows: [], matched: 0 };

// Cluster time: stands still while nobody leads, and when we don't know.
function clock() {
  const runs = now.ticking && isLive();
  return runs ? now.clock + (performance.now() - now.got) : now.clock;
}

const isLive = () => document.documentElement.dataset.live !== "no";

function setLive(state) {
  const root = document.documentElement;
  if (root.dataset.live === state) return;
  root.dataset.live = state;
  if (state === "no") tick(); // back to what was said
}

function query() {
  const ask = new URLSearchParams({ sort: $("sort").value, show: $("show").value });
  if ($("q").value.trim() !== "") ask.set("q", $("q").value.trim());
  if (chosenLock() !== "") ask.set("lock", chosenLock());
  return ask;
}

// Moments in place of durations, so that rows which don't change can be kept.
function keepMoments(row) {
  row.since = now.clock - row.held_ms;
  row.ends = now.clock + row.left_ms;
  row.opens = row.closed_ms > 0 ? now.clock + row.closed_ms : 0;
  return row;
}

function takeRows(rows) {
  const before = now.rows;
  now.rows = rows.map((r) => (typeof r === "number" ? before[r] : keepMoments(r)));
}

function take(event) {
  const told = JSON.parse(event.data);
  link.heard = performance.now();
  setLive("yes"); // first: the clock runs again
  now.clock = told.clock_ms;
  now.got = link.heard;
  now.ticking = told.ticking;
  now.age = told.age_ms;
  now.matched = told.matched;
  if (told.rows) takeRows(told.rows);
  for (const part of ["cluster", "totals", "rates", "times", "losses", "refusals",
    "lock"]) {
    if (told[part]) { now[part] = told[part]; now[part].at = now.clock; }
  }
  setLive(now.age !== null && now.age < OLD_MS ? "yes" : "old");
  show(told);
}

function connect() {
  disconnect();
  link.source = new EventSource(`/events?${query()}`);
  link.source.addEventListener("snapshot", take);
  link.source.addEventListener("delta", take);
  link.source.onerror = () => {
    lose();
    // Refused, and not to be tried again, says the browser; we do.
    if (link.source.readyState === EventSource.CLOSED) {
      link.again = setTimeout(connect, AGAIN_MS);
    }
  };
}

function disconnect() {
  clearTimeout(link.again);
  if (link.source) link.source.close();
  link.source = null;
}

// Another question, the same server: what is shown stays true until the answer comes.
function askAgain() {
  if (!document.hidden) connect();
}

function lose() {
  setLive("no");
  showLink();
}

function watchSilence() {
  if (isLive() && performance.now() - link.heard > SILENCE_MS) {
    lose();
    connect();
  }
}

// Browsers have few connections for one server: a page that nobody sees takes none.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
    setLive("no");
  } else {
    connect();
  }
});
