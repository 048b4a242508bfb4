// SPDX-License-Identifier: MIT
// The table of locks. Rows are kept by name: what does not change is not touched.

const LOW_MS = 1000;
const BAR = 74;
const rowOf = new Map(); // by name: { tr, and what is inside it }

// A bar and a number that run down; tick() moves them.
function leftCell() {
  const bar = svg("rect", { height: "8", width: "0" });
  const text = h("span", {});
  const box = h("div", { class: "left" },
    svg("svg", { width: BAR, height: "8", "aria-hidden": "true" }, bar), text);
  return { box, bar, text };
}

function setLeft(cell, ends, ttl) {
  const ms = Math.max(0, ends - clock());
  const part = ttl > 0 ? Math.min(1, ms / ttl) : 0;
  setAttribute(cell.bar, "width", (part * BAR).toFixed(1));
  cell.box.classList.toggle("low", ms < LOW_MS);
  say(cell.text, left(ms));
}

function whoCell(cell, row) {
  const who = owner(row.label, row.value, row.key);
  const more = [row.holders > 1 ? `and ${many(row.holders - 1, "other")}` : "",
    row.mode === "exclusive" ? "" : row.mode, who.more].filter(Boolean).join(" · ");
  cell.replaceChildren(who.name, brief(more));
}

function freeCell(cell, row) {
  cell.replaceChildren(h("span", { class: "free" }, row.opens > 0
    ? "nobody: closed by a lock-delay" : "nobody"));
}

function queueCell(cell, row) {
  if (row.waiters === 0) { cell.replaceChildren(); return; }
  const more = row.waiters - row.first.length;
  cell.replaceChildren(h("b", {}, count(row.waiters)),
    h("span", {}, row.first.map(named).join(", ") + (more > 0 ? ",\u00a0…" : "")));
}

function newRow(name) {
  const r = { left: leftCell(), data: null, who: h("td", { class: "who" }),
    token: h("td", { class: "n", "data-label": "token" }), lease: h("td"),
    held: h("td", { class: "n", "data-label": "held" }), queue: h("td", { class: "q" }) };
  r.tr = h("tr", {}, h("td", {}, h("a", { href: `#lock=${encodeURIComponent(name)}` },
    name)), r.who, r.token, r.lease, r.held, r.queue);
  return r;
}

function fillRow(r, row) {
  if (r.data === row) return;
  r.data = row;
  const isHeld = row.holders > 0;
  (isHeld ? whoCell : freeCell)(r.who, row);
  say(r.token, isHeld ? count(row.token) : "");
  r.lease.replaceChildren(...(isHeld || row.opens > 0 ? [r.left.box] : []));
  r.left.box.classList.toggle("closed", !isHeld);
  queueCell(r.queue, row);
}

function showRows() {
  const names = new Set(now.rows.map((row) => row.name));
  for (const [name, r] of rowOf) {
    if (!names.has(name)) { r.tr.remove(); rowOf.delete(name); }
  }
  let at = $("rows").firstChild;
  for (const row of now.rows) {
    if (!rowOf.has(row.name)) rowOf.set(row.name, newRow(row.name));
    const r = rowOf.get(row.name);
    fillRow(r, row);
    if (r.tr === at) at = at.nextSibling;
    else $("rows").insertBefore(r.tr, at);
  }
}

function showCount() {
  const shown = now.rows.length;
  const all = now.matched;
  say($("count"), all > shown ? `${count(shown)} of ${count(all)}` : count(shown));
  $("empty").hidden = shown > 0;
  say($("empty"), now.totals.locks === 0 ? "Nobody holds a lock or waits for one."
    : "No lock fits the filter.");
}

function tickRows() {
  for (const row of now.rows) {
    const r = rowOf.get(row.name);
    if (row.holders > 0) {
      setLeft(r.left, row.ends, row.ttl_ms);
      say(r.held, duration(clock() - row.since));
    } else {
      say(r.held, "");
      if (row.opens > 0) setLeft(r.left, row.opens, row.closed_ms);
    }
  }
}

// ---- filter ----

const FILTER_MS = 250;
let filterTimer = 0;

function bindFilter() {
  $("filter").addEventListener("submit", (e) => { e.preventDefault(); askAgain(); });
  $("q").addEventListener("input", () => {
    clearTimeout(filterTimer);
    filterTimer = setTimeout(askAgain, FILTER_MS);
  });
  for (const id of ["show", "sort"]) $(id).addEventListener("change", askAgain);
}
