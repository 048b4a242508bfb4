// SPDX-License-Identifier: MIT
// A trace that a real cluster has recorded (picket serve --trace): the same checkers and
// the same picture, lock by lock. It is read by a module of its own, so that one that is
// too large for it takes nothing else along.

const TRACE_ROWS = 500;
const trace = { wasm: null, summary: null };

function isTrace(text) {
  return text.startsWith("picket-trace");
}

async function openTrace(text, name) {
  let wrong = null;
  trace.wasm = talkTo(await WebAssembly.instantiate(run.module, {}));
  try {
    trace.wasm.say(text);
    if (!trace.wasm.x.read_trace()) wrong = trace.wasm.object();
  } catch (error) {
    wrong = { line: 0, text: `it is too large for this page (${error.message})` };
  }
  if (wrong) {
    message(`${name}: ${explain(wrong)}.`);
    return;
  }
  trace.summary = trace.wasm.askObject("trace_summary");
  trace.name = name;
  showTrace();
}

function traceWords(s) {
  const parts = [plural(s.locks.length, "lock"), plural(s.grants, "grant"),
    plural(s.renewals, "renewal"), `${plural(s.refused, "token")} refused by fences`,
    plural(s.leaders, "leader"), `${((s.last - s.first) / 1000).toFixed(1)} s`];
  if (s.gaps) parts.push(`${plural(s.gaps, "gap")} in it`);
  if (s.cut) parts.push("the last line was still being written");
  return `${trace.name}: ${parts.join(", ")}.`;
}

function showTrace() {
  const { summary: s } = trace;
  const broken = s.locks.reduce((sum, lock) => sum + lock.hits, 0);
  $("main").classList.add("replaying");
  $("trace").hidden = false;
  say($("trace-about"), traceWords(s));
  say($("trace-verdict"), broken
    ? `✕ ${plural(broken, "violation")} in ${plural(s.locks.filter((l) => l.hits).length,
      "lock")}.`
    : "✓ Nothing is broken, as far as a service can know: what clients trusted and what "
      + "was written elsewhere is not in its trace.");
  $("trace-verdict").className = broken ? "bad" : "";
  const order = s.locks.map((lock, i) => ({ ...lock, i }))
    .sort((a, b) => b.hits - a.hits || a.name.localeCompare(b.name));
  $("trace-lock").replaceChildren(...order.map((lock) => h("option", { value: lock.i },
    lock.hits ? `✕ ${lock.name} (${lock.hits})` : lock.name)));
  $("trace-lock").parentNode.hidden = order.length === 0;
  setAttribute($("trace-end"), "min", s.first);
  setAttribute($("trace-end"), "max", s.last);
  $("trace-end").value = s.last;
  $("trace-span").value = "0";
  showTraceLock();
  $("trace-title").focus();
}

// From..to of what is shown: all up to where the slider is, or a part that ends there.
function traceWindow() {
  const { first, last } = trace.summary;
  const until = Number($("trace-end").value);
  const span = Number($("trace-span").value) * 1000;
  if (!span) return [0, until * 1000];
  const to = Math.min(last, Math.max(until, first + span));
  return [Math.max(1, to - span) * 1000, to * 1000];
}

// A violation that is clicked on comes into the middle of ten seconds.
function showHit(at) {
  $("trace-span").value = "10";
  $("trace-end").value = Math.ceil(at / 1000 + 5000);
  showTraceLock();
}

function showTraceLock() {
  const n = Number($("trace-lock").value);
  const { wasm } = trace;
  if (trace.summary.locks.length === 0) {
    ["trace-hits", "trace-picture", "trace-rows"].forEach((id) =>
      $(id).replaceChildren());
    return;
  }
  const [from, to] = traceWindow();
  setAttribute($("trace-end"), "aria-valuetext", seconds(to, 3));
  const lock = wasm.askObject("trace_lock", n, from, to, TRACE_ROWS);
  $("trace-hits").replaceChildren(...lock.hits.map((hit) => h("li", {}, hit.why, " ",
    h("button", { onclick: () => showHit(hit.at_us) }, "show"))));
  const width = Math.max(LEAST_WIDTH, $("trace-picture").clientWidth - 2);
  wasm.x.trace_picture(n, from, to, width);
  const parsed = new DOMParser().parseFromString(wasm.text(), "image/svg+xml");
  $("trace-picture").replaceChildren(
    document.importNode(parsed.documentElement, true));
  $("trace-rows").replaceChildren(...lock.trace.map((r) => h("tr", {},
    h("td", {}, decimal(r.at_us, 3)), h("td", {}, r.who),
    h("td", {}, r.kind), h("td", {}, r.token ? String(r.token) : ""))));
}

function closeTrace() {
  $("main").classList.remove("replaying");
  $("trace").hidden = true;
  trace.wasm = null;
  refresh();
}

function bindTrace() {
  for (const id of ["trace-lock", "trace-end", "trace-span"]) {
    $(id).oninput = showTraceLock;
  }
  $("trace-close").onclick = closeTrace;
}
