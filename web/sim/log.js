// SPDX-License-Identifier: MIT
// The event log, and the timeline as a table.

const LOG_MOST = 600; // lines; what is older is not shown
const log = { count: 0, notes: 0, left: 0, side: 0, key: "", bad: new Map() };

const REFUSED = new Set(["wrote", "read"]);

function classOf(record) {
  if (record.kind === "note") return "note";
  if (REFUSED.has(record.kind) && record.code !== 0) return "refusal";
  if (record.kind === "granted" || record.kind === "believed") return "held";
  return record.weight === 0 ? "detail" : "";
}

const SIGNS = { note: "✎", refusal: "⊘", held: "●", bad: "✕" };

function line(at, kind, text) {
  return h("li", { className: kind }, h("time", {}, decimal(at, 3)),
    h("span", { "aria-hidden": "true" }, SIGNS[kind] || ""),
    h("span", {}, capital(text)));
}

function wanted(kind, weight, text) {
  const filter = $("log-filter").value;
  const find = $("log-find").value.trim().toLowerCase();
  if (filter === "events" && weight === 0) return false;
  if (filter === "bad" && !["bad", "refusal", "note"].includes(kind)) return false;
  return find === "" || text.toLowerCase().includes(find);
}

// The lines of one record: what happened, and what was broken by it.
function linesOf(record) {
  const kind = classOf(record);
  const lines = wanted(kind, record.weight, record.text)
    ? [line(record.at, kind, record.text)] : [];
  for (const hit of log.bad.get(record.n) || []) {
    const text = `Violation (${hit.check}): ${hit.why}`;
    if (wanted("bad", 1, text)) lines.push(line(record.at, "bad", text));
  }
  return lines;
}

function takeHits(side) {
  log.bad.clear();
  for (const hit of side.hits) {
    log.bad.set(hit.record, [...(log.bad.get(hit.record) || []), hit]);
  }
}

function showLog() {
  const [list, box] = [$("log"), $("log-box")];
  log.side = Math.min(Number($("log-side").value) || 0, run.sides.length - 1);
  const side = run.sides[log.side];
  const key = [run.generation, log.side, $("log-filter").value, $("log-find").value]
    .join("|");
  const again = key !== log.key || side.view.records < log.count;
  const notes = run.notes.filter((n) => n.at <= run.now);
  if (!again && side.view.records === log.count && notes.length === log.notes) return;
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  setAttribute(box, "aria-busy", String(again));
  takeHits(side);
  const records = run.wasm.askObject("records", log.side, again ? 0 : log.count);
  const entries = [...records, ...(again ? notes : notes.slice(log.notes))]
    .sort((a, b) => a.at - b.at);
  const lines = entries.flatMap(linesOf);
  if (again) log.left = 0;
  if (again) list.replaceChildren(...lines.slice(-LOG_MOST));
  else list.append(...lines.slice(-LOG_MOST));
  log.left += Math.max(0, lines.length - LOG_MOST);
  for (; list.children.length > LOG_MOST; log.left++) list.firstChild.remove();
  say($("log-left"), log.left
    ? `${plural(log.left, "older line")} not shown: find what you look for.` : "");
  Object.assign(log, { key, count: side.view.records, notes: notes.length });
  setAttribute(box, "aria-busy", "false");
  if (again || atEnd) box.scrollTop = box.scrollHeight;
}

function showLogSides() {
  const select = $("log-side");
  const labels = run.sides.map((side) => side.label);
  $("log-side-field").hidden = labels.length < 2;
  if (select.dataset.labels === labels.join()) return;
  select.dataset.labels = labels.join();
  select.replaceChildren(...labels.map((label, i) => h("option", { value: i }, label)));
}

// ---- the table ----

// What begins and what ends it, for who can't see the picture.
const SPANS = [["granted", ["ended"], "holds, says the service"],
  ["believed", ["doubted", "believed"], "believes that it holds"],
  ["queued", ["granted", "left"], "waits"], ["paused", ["resumed"], "stands still"],
  ["cut", ["healed"], "is cut off"]];

function nameOf(who) {
  if (who < 8) return `Client ${clientName(who)}`;
  if (who === SERVICE) return "Service";
  return who >= NODE && who < NODE + NODES ? `Node n${who - NODE + 1}` : "Resource";
}

function rowsOf(records) {
  const rows = [];
  records.forEach((r, i) => {
    const span = SPANS.find(([begin]) => begin === r.kind);
    if (span) {
      const end = records.slice(i + 1)
        .find((other) => other.who === r.who && span[1].includes(other.kind));
      const token = r.token ? ` (token ${r.token})` : "";
      rows.push([nameOf(r.who), span[2] + token, seconds(r.at, 3),
        end ? seconds(end.at, 3) : "still"]);
    } else if (r.kind === "wrote") {
      rows.push([nameOf(r.who), r.text, seconds(r.at, 3), ""]);
    }
  });
  return rows;
}

function showTable() {
  const box = $("table-box");
  if (!box.open || run.playing) return;
  const key = `${run.generation} ${run.now}`;
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const rows = run.sides.flatMap((side, i) =>
    rowsOf(run.wasm.askObject("records", i, 0)).map(([who, ...rest]) =>
      [side.label ? `${side.label}: ${who}` : who, ...rest]));
  $("table").replaceChildren(...rows.map((row) => h("tr", {}, ...row.map((cell, i) =>
    (i === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell))))));
}
