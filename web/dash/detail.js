// SPDX-License-Identifier: MIT
// One lock: who holds it, who waits, and who held it before, as lanes.

// The lock that the address names; "": none.
function chosenLock() {
  const hash = location.hash;
  if (!hash.startsWith("#lock=")) return "";
  try {
    return decodeURIComponent(hash.slice(6));
  } catch {
    return hash.slice(6);
  }
}

const detail = { ticks: [] }; // what runs: [element, moment, how to say it]

function stateWords(l) {
  const opens = l.closed_ms > 0
    ? `Closed for ${duration(l.closed_ms)} by a lock-delay. ` : "";
  const kind = l.slots > 0 ? ` of ${many(l.slots, "slot")}` : "";
  const holds = l.holders === 0 ? "Nobody holds it"
    : `${many(l.holders, "holder")}${kind}`;
  return `${opens}${holds}; ${l.waiters === 0 ? "nobody waits" : `${count(l.waiters)} ${
    l.waiters === 1 ? "waits" : "wait"}`}.`;
}

function running(tag, attributes, moment, words) {
  const element = h(tag, attributes);
  detail.ticks.push([element, moment, words]);
  return element;
}

function leaseCell(c, at) {
  const cell = leftCell();
  detail.ticks.push([cell, at + c.left_ms, c.ttl_ms]);
  return h("td", {}, cell.box);
}

function whoTd(c) {
  const who = owner(c.label, c.value, c.key);
  const more = [c.mode === "exclusive" ? "" : c.mode,
    c.parts > 1 ? `set of ${c.parts} locks` : "", who.more].filter(Boolean).join(" · ");
  const value = c.value !== "" && !c.key ? [h("small", {}, "value: ",
    h("code", {}, c.value))] : [];
  return h("td", { class: "who" }, who.name, brief(more), ...value);
}

const since = (ms) => duration(clock() - ms);

function holdRow(c, at) {
  return h("tr", {}, whoTd(c), h("td", { class: "n" }, count(c.token)), leaseCell(c, at),
    running("td", { class: "n" }, at - c.since_ms, since));
}

function waitRow(c, at, place) {
  return h("tr", {}, h("td", { class: "n" }, String(place)), whoTd(c),
    running("td", { class: "n" }, at - c.since_ms, since), leaseCell(c, at));
}

function pastRow(p, at) {
  const held = p.end ? duration(p.granted_ago_ms - p.ended_ago_ms) : null;
  return h("tr", {}, h("td", { class: "n" }, count(p.token)),
    h("td", { class: "who" }, named(p.label)), h("td", { class: "n" },
      duration(p.waited_ms)), held !== null ? h("td", { class: "n" }, held)
      : running("td", { class: "n" }, at - p.granted_ago_ms, since),
    h("td", {}, p.end ? endWords(p.end) : "holds it"),
    running("td", { class: "n" }, at - p.granted_ago_ms, (m) => ago(clock() - m)));
}

function rowsOr(id, rows, columns, none) {
  $(id).replaceChildren(...(rows.length > 0 ? rows
    : [h("tr", {}, h("td", { colspan: columns, class: "free" }, none))]));
}

// ---- lanes ----

const LEFT = 170, RIGHT = 16, LANE = 28, TOP = 6, AXIS = 22, LANES_MOST = 10;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400,
  172800, 604800];

// One lane per owner, in the order in which they first had the lock.
function lanesOf(past) {
  const lanes = [];
  for (const p of [...past].reverse()) {
    const who = named(p.label);
    const lane = lanes.find((l) => l.who === who);
    if (lane) lane.holds.push(p);
    else lanes.push({ who, holds: [p] });
  }
  return lanes.slice(-LANES_MOST);
}

// Everything in sight, a little more to its left, and a round step for the axis.
function scaleOf(lanes, width) {
  const oldest = Math.max(1000, ...lanes.flatMap((l) => l.holds.map((p) =>
    p.granted_ago_ms + p.waited_ms)));
  const span = oldest * 1.04;
  const step = 1000 * (STEPS.find((s) => span / (s * 1000) <= 8) || STEPS.at(-1));
  return { span, step, x: (ms) => LEFT + (1 - Math.min(ms, span) / span)
    * (width - LEFT - RIGHT) };
}

function holdShapes(p, y, scale) {
  const from = scale.x(p.granted_ago_ms);
  const to = scale.x(p.end ? p.ended_ago_ms : 0);
  const lost = p.end && !["released", "closed"].includes(p.end);
  const shapes = [];
  if (p.waited_ms > 0) {
    const w = scale.x(p.granted_ago_ms + p.waited_ms);
    shapes.push(svg("rect", { class: "wait", x: w, y: y + 9, height: 8,
      width: Math.max(1, from - w) }));
  }
  shapes.push(svg("rect", { class: "hold", x: from, y: y + 5, height: 16, rx: 2,
    width: Math.max(2, to - from) }, svg("title", {}, `token ${count(p.token)}, ${
    p.end ? endWords(p.end) : "holds it"}`)));
  if (to - from > 9 * String(p.token).length + 6) {
    shapes.push(svg("text", { class: "onhold", x: from + 5, y: y + 17 },
      count(p.token)));
  }
  if (lost) {
    shapes.push(svg("line", { class: "mark", x1: to, x2: to, y1: y + 1, y2: y + 25 }),
      svg("text", { class: "badink", x: to + 4, y: y + 17 }, `✕ ${p.end}`));
  }
  return shapes;
}

function axis(scale, bottom) {
  const shapes = [];
  for (let ms = 0; ms <= scale.span; ms += scale.step) {
    const x = scale.x(ms);
    shapes.push(svg("line", { class: "rule", x1: x, x2: x, y1: TOP, y2: bottom }),
      svg("text", { class: "tick", x, y: bottom + 15 }, ms === 0 ? "now"
        : `−${about(ms)}`));
  }
  return shapes;
}

const cut = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

function drawLanes(past) {
  const lanes = lanesOf(past);
  const width = Math.max(560, $("lanes").clientWidth);
  const bottom = TOP + lanes.length * LANE;
  const scale = scaleOf(lanes, width);
  const shapes = lanes.flatMap((lane, i) => {
    const y = TOP + i * LANE;
    return [svg("text", { class: "ink", x: 4, y: y + 17 }, cut(lane.who)),
      ...lane.holds.flatMap((p) => holdShapes(p, y, scale))];
  });
  const fresh = $("lanes").firstChild === null;
  $("lanes").hidden = $("legend").hidden = lanes.length === 0;
  $("lanes").replaceChildren(svg("svg", { width, height: bottom + AXIS, role: "img",
    "aria-label": `The last ${many(past.length, "hold")} of this lock; `
      + "a table of the same is below." }, ...axis(scale, bottom), ...shapes));
  if (fresh) $("lanes").scrollLeft = width; // where now is
}

// The past as the node knows it, and who holds now: a node that was started since then
// may not have seen the grant.
function pastOf(l) {
  const unseen = l.holds.filter((c) => !l.past.some((p) => p.token === c.token));
  return [...unseen.map((c) => ({ token: c.token, label: c.key ? c.value : c.label,
    granted_ago_ms: c.since_ms, waited_ms: 0 })), ...l.past];
}

// Moments that the picture was made at move on with the clock.
function movedOn(past, by) {
  return past.map((p) => ({ ...p, granted_ago_ms: p.granted_ago_ms + by,
    ...(p.end ? { ended_ago_ms: p.ended_ago_ms + by } : {}) }));
}

// ---- all of it ----

function showDetail() {
  const name = chosenLock();
  $("detail").hidden = name === "";
  if (name === "") return;
  say($("detail-name"), name);
  const l = now.lock;
  if (!l || l.name !== name) {
    say($("detail-state"), "Asking…");
    for (const id of ["holds", "queue", "past", "lanes"]) $(id).replaceChildren();
    return;
  }
  detail.ticks = [];
  say($("detail-state"), stateWords(l));
  rowsOr("holds", l.holds.map((c) => holdRow(c, l.at)), 4, "Nobody");
  rowsOr("queue", l.queue.map((c, i) => waitRow(c, l.at, i + 1)), 4, "Nobody");
  rowsOr("past", pastOf(l).map((p) => pastRow(p, l.at)), 6, "Nothing is known");
  tickDetail();
}

function tickDetail() {
  const l = now.lock;
  if ($("detail").hidden || !l || l.name !== chosenLock()) return;
  for (const [element, moment, how] of detail.ticks) {
    if (typeof how === "function") say(element, how(moment));
    else setLeft(element, moment, how);
  }
  drawLanes(movedOn(pastOf(l), clock() - l.at));
}

function bindDetail() {
  $("legend").replaceChildren(...[["hold", "held, with its token"], ["wait", "waited"],
    ["mark", "lost"]].map(([kind, text]) =>
    h("span", {}, h("i", { class: kind }), text)));
  window.addEventListener("hashchange", () => {
    now.lock = null;
    showDetail();
    askAgain();
    if (chosenLock() !== "") {
      $("detail-name").focus();
      $("detail").scrollIntoView({ block: "nearest" });
    } else {
      $("q").focus({ preventScroll: true });
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && chosenLock() !== "") location.hash = "";
  });
}
