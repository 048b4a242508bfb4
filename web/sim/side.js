// SPDX-License-Identifier: MIT
// What is shown of each world: numbers, verdict, timeline.

const SVG = "http://www.w3.org/2000/svg";
const LEAST_WIDTH = 560;
const REDRAW_MS = 60;
const NUMBERS = [
  ["holder", "holder"], ["token", "token"], ["left", "lease left"], ["clock", "clock"],
  ["highest", "highest token"], ["accepted", "accepted"], ["rejected", "rejected"],
  ["counter", "counter"],
];
// Which of several things that broke at once says most.
const GRAVITY = ["two-holders", "two-valid", "lost-update", "stale-write", "token-order",
  "fence-back", "queue-order", "digests"];

const shown = []; // the elements of each side

function buildNumbers() {
  const cells = {};
  const list = h("dl", { className: "numbers" });
  for (const [key, label] of NUMBERS) {
    cells[key] = h("dd", {}, "–");
    list.append(h("div", {}, h("dt", { title: label }, label), cells[key]));
  }
  return { list, cells };
}

function buildVerdict() {
  const v = {
    sign: h("span", { className: "sign", "aria-hidden": "true" }),
    head: h("strong", {}), text: h("p", {}), list: h("ul", { hidden: true }),
  };
  v.words = h("div", { role: "status" }, v.head, v.text);
  v.why = h("button", { "aria-expanded": "false", hidden: true,
    onclick: () => {
      v.list.hidden = !v.list.hidden;
      v.why.setAttribute("aria-expanded", String(!v.list.hidden));
    } }, "why?");
  v.box = h("div", { className: "verdict" }, v.sign, v.words, v.why, v.list);
  return v;
}

function buildTimeline() {
  const t = { drawn: "", at: 0 };
  t.scroll = h("div", { className: "scroll", role: "group", "aria-label": "Timeline" });
  t.scrub = h("input", { type: "range", className: "scrub", min: 0, max: 1000, step: 1,
    "aria-label": "Time",
    oninput: () => { pause(); goTo(Number(t.scrub.value) * 1000); } });
  t.zoom = h("select", { onchange: refresh },
    ...[["0", "all of it"], ["60", "60 s"], ["20", "20 s"], ["8", "8 s"], ["3", "3 s"]]
      .map(([value, label]) => h("option", { value }, label)));
  t.foot = h("div", { className: "foot" }, "Drag in the picture to go through time.",
    h("label", { className: "field" }, "Show ", t.zoom));
  t.box = h("div", { className: "timeline" }, t.scroll, t.scrub, t.foot);
  dragging(t);
  return t;
}

// The signs of the picture, drawn by the same classes.
function legend() {
  const sign = (shape, attributes) => {
    const svg = document.createElementNS(SVG, "svg");
    const mark = document.createElementNS(SVG, shape);
    for (const [key, value] of [["width", 26], ["height", 14], ["aria-hidden", "true"]]) {
      svg.setAttribute(key, value);
    }
    for (const [key, value] of Object.entries(attributes)) mark.setAttribute(key, value);
    svg.append(mark);
    return svg;
  };
  const rect = (kind) => sign("rect",
    { class: kind, x: 1, y: 2, width: 24, height: 10, rx: 2 });
  const line = (kind) => sign("line", { class: kind, x1: 1, y1: 7, x2: 25, y2: 7 });
  return [["hold", "service: holds", rect], ["belief", "client: believes", rect],
    ["trust", "its lease by its clock", line], ["wait", "waits", rect],
    ["pause", "stands still", rect], ["cut", "link cut", line],
    ["fence", "fence", line]].map(([kind, label, draw]) =>
    h("span", {}, draw(kind), label));
}

function buildSide() {
  const side = { title: h("h2", {}), numbers: buildNumbers(), verdict: buildVerdict(),
    timeline: buildTimeline() };
  side.box = h("section", { className: "side" }, side.title, side.numbers.list,
    side.verdict.box, side.timeline.box);
  return side;
}

// ---- numbers and verdict ----

function showNumbers(cells, side) {
  const v = side.view;
  const none = "–";
  const held = v.holder >= 0;
  say(cells.holder, held ? clientName(v.holder) : "nobody");
  say(cells.token, v.token ? String(v.token) : none);
  say(cells.left, held ? seconds(v.left) : none);
  say(cells.clock, seconds(v.now, 2));
  say(cells.highest, String(Math.max(v.fence, v.highest) || none));
  for (const key of ["accepted", "rejected", "counter"]) say(cells[key], String(v[key]));
  cells.holder.parentNode.className = held ? "lit" : "";
  cells.counter.parentNode.className = v.accepted > v.counter ? "alarm" : "";
}

function gravest(hits) {
  return [...hits].sort((a, b) => GRAVITY.indexOf(a.check) - GRAVITY.indexOf(b.check))[0];
}

// Without the number of the promise, which says something in the documents only.
function inWords(hit) {
  return hit.text.replace(/ \(P\d+\)$/, "");
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

// Why nothing is broken, if there is something to say about it.
function reassurance(side) {
  const { view, facts: f } = side;
  if (view.rejected > 0) {
    return `The resource refused ${plural(view.rejected, "request")} that came too late.`;
  }
  const astray = view.clients.findIndex((c, i) => c.believes && view.holder !== i);
  if (astray >= 0) {
    const fence = f.fence === 0 || f.flavour === REDLOCK;
    return `But ${clientName(astray)} believes that it holds the lock, and the service `
      + `says otherwise. ${fence ? "Nothing would stop its next write."
        : "Its token is older than the next holder's."}`;
  }
  return "One holder, tokens that grow, and no write got lost.";
}

function showVerdict(v, side) {
  const { hits } = side;
  const broken = hits.length > 0;
  v.box.className = `verdict ${broken ? "broken" : "fine"}`;
  v.why.hidden = !broken;
  if (!broken) v.list.hidden = true;
  say(v.sign, broken ? "✕" : "✓");
  if (!broken) {
    say(v.head, "Nothing is broken so far");
    say(v.text, reassurance(side));
    return;
  }
  const worst = gravest(hits);
  say(v.head, `Violation: ${inWords(worst)}`);
  say(v.text, worst.why);
  const key = `${run.generation} ${hits.length}`;
  if (v.listed !== key) {
    v.listed = key;
    v.list.replaceChildren(...hits.map((hit) => h("li", {},
      h("button", { "aria-label": `Go to ${seconds(hit.at, 3)}`,
        onclick: () => { pause(); goTo(hit.at); } }, seconds(hit.at, 3)),
      h("b", {}, `${capital(inWords(hit))}.`), ` ${hit.why}`)));
  }
}

// ---- the timeline ----

// From..to of what is drawn: all of it, or a part around now that moves in jumps.
function windowOf(t) {
  const grown = Math.max(12 * SECOND, Math.ceil((run.seen + SECOND) / 6e6) * 6e6);
  const all = run.open ? grown : Math.max(facts().until, SECOND);
  const span = Number(t.zoom.value) * SECOND || (run.open ? 60 * SECOND : all);
  if (span >= all) return [0, all];
  const jump = span / 4;
  const wanted = Math.floor((run.now - span * 0.6) / jump) * jump;
  const from = Math.min(Math.max(0, wanted), all - span);
  return [from, from + span];
}

function drawTimeline(t, i) {
  const [from, to] = windowOf(t);
  const width = Math.max(LEAST_WIDTH, Math.floor(t.box.clientWidth) - 2);
  const key = [run.generation, from, to, run.seen, width].join(" ");
  const fast = run.playing && performance.now() - t.at < REDRAW_MS;
  if (key !== t.drawn && !fast) {
    t.drawn = key;
    t.at = performance.now();
    run.wasm.x.picture(i, from, to, run.seen, width);
    const parsed = new DOMParser().parseFromString(run.wasm.text(), "image/svg+xml");
    const svg = document.importNode(parsed.documentElement, true);
    t.from = from;
    t.to = to;
    addNow(t, svg);
    t.scroll.replaceChildren(svg);
    t.scroll.tabIndex = t.scroll.scrollWidth > t.scroll.clientWidth ? 0 : -1;
  }
  placeNow(t);
  setAttribute(t.scrub, "max", Math.ceil(t.to / 1000));
  setAttribute(t.scrub, "min", Math.floor(t.from / 1000));
  t.scrub.value = Math.round(run.now / 1000);
  setAttribute(t.scrub, "aria-valuetext", seconds(run.now, 3));
}

function addNow(t, svg) {
  t.svg = svg;
  t.left = Number(svg.dataset.left);
  t.room = Number(svg.getAttribute("width")) - t.left - Number(svg.dataset.right);
  t.height = Number(svg.getAttribute("height"));
  const make = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      element.setAttribute(key, value);
    }
    svg.append(element);
    return element;
  };
  t.veil = make("rect", { class: "veil", y: 0, height: t.height - 24 });
  t.line = make("line", { class: "now", y1: 4, y2: t.height - 22 });
  t.knob = make("circle", { class: "now-knob", cy: t.height - 20, r: 5 });
}

function placeNow(t) {
  const share = (run.now - t.from) / (t.to - t.from);
  const x = t.left + Math.max(0, Math.min(1, share)) * t.room;
  t.veil.setAttribute("x", x);
  t.veil.setAttribute("width", Math.max(0, t.left + t.room - x + 2));
  for (const key of ["x1", "x2"]) t.line.setAttribute(key, x);
  t.knob.setAttribute("cx", x);
}

// Dragging anywhere in the picture goes through time.
function dragging(t) {
  const go = (event) => {
    const x = event.clientX - t.svg.getBoundingClientRect().left;
    const share = Math.max(0, Math.min(1, (x - t.left) / t.room));
    const at = Math.round((t.from + share * (t.to - t.from)) / 1000) * 1000;
    goTo(Math.min(at, Math.max(run.seen, run.now)));
  };
  t.scroll.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target === t.scroll) return;
    pause();
    t.scroll.setPointerCapture(event.pointerId);
    t.dragged = true;
    go(event);
  });
  t.scroll.addEventListener("pointermove", (event) => { if (t.dragged) go(event); });
  for (const end of ["pointerup", "pointercancel"]) {
    t.scroll.addEventListener(end, () => { t.dragged = false; });
  }
}

// ---- all of it ----

function showSides() {
  const box = $("sides");
  if (!$("legend").firstChild) $("legend").append(...legend());
  while (shown.length < run.sides.length) {
    shown.push(buildSide());
    box.append(shown[shown.length - 1].box);
  }
  while (shown.length > run.sides.length) shown.pop().box.remove();
  box.className = shown.length > 1 ? "two" : "";
  run.sides.forEach((side, i) => {
    const s = shown[i];
    const lost = side.dropped > 0
      ? ` (without ${plural(side.dropped, "act")} that it has no nodes for)` : "";
    say(s.title, side.label + lost);
    s.title.hidden = side.label === "";
    setAttribute(s.box, "aria-label", side.label || "The world");
    showNumbers(s.numbers.cells, side);
    showVerdict(s.verdict, side);
    drawTimeline(s.timeline, i);
  });
}
