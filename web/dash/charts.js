// SPDX-License-Identifier: MIT
// Small pictures of numbers: the last minute, and how long things take.

const WIDE = 560, HIGH = 120, SECONDS = 60;

// Sixty seconds to now, newest at the right edge.
function pathOf(values, most) {
  return values.map((v, i) => {
    const x = WIDE - (values.length - 1 - i) * (WIDE / (SECONDS - 1));
    return `${i === 0 ? "M" : "L"}${x.toFixed(1)} ${(HIGH - 4
      - (v / most) * (HIGH - 20)).toFixed(1)}`;
  }).join("");
}

function showRates() {
  const rates = now.rates;
  const [grants, ends] = [rates.map((r) => r[0]), rates.map((r) => r[1])];
  const sum = (i) => rates.reduce((a, r) => a + r[i], 0);
  const last = rates.length > 0 ? rates[rates.length - 1] : [0, 0, 0, 0];
  const most = Math.max(4, ...grants, ...ends);
  const step = WIDE / (SECONDS - 1);
  const marks = rates.map((r, i) => [r[2] + r[3], WIDE - (rates.length - 1 - i) * step])
    .filter(([n]) => n > 0)
    .map(([, x]) => svg("circle", { class: "loss", cx: x.toFixed(1), cy: 7, r: 3.5 }));
  const edge = (WIDE - (rates.length - 1) * step).toFixed(1);
  const words = `${count(last[0])} grants/s, ${count(last[1])} ends/s`;
  const bad = `${count(sum(2))} lost, ${count(sum(3))} refused by fences`;
  say($("rates-now"), words);
  $("rates").replaceChildren(
    svg("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img",
      "aria-label": `Now ${words}. In the last minute ${bad}.` },
    svg("path", { class: "area",
      d: `${pathOf(grants, most) || "M0 0"}L${WIDE} ${HIGH - 4}L${edge} ${HIGH - 4}Z` }),
    svg("line", { class: "base", x1: 0, x2: WIDE, y1: HIGH - 4, y2: HIGH - 4 }),
    svg("path", { class: "line", d: pathOf(grants, most) }),
    svg("path", { class: "ends", d: pathOf(ends, most) }), ...marks,
    svg("text", { x: 0, y: 12 }, `${count(most)}/s`)),
    h("p", { class: "legend" }, "grants (solid), ends (dashed), ",
      `● a loss or a refusal: ${bad}`));
}

// ---- how long things take ----

// The bound that so many of a hundred are within.
function within(counts, bounds, percent) {
  const all = counts.reduce((a, b) => a + b, 0);
  let sum = 0;
  for (const [i, n] of counts.entries()) {
    sum += n;
    if (sum * 100 >= all * percent) return i < bounds.length ? bounds[i] : null;
  }
  return null;
}

function boundWords(ms) {
  if (ms === null) return "over an hour";
  return ms === 0 ? "at once" : `within ${about(ms)}`;
}

function bars(id, counts, bounds, kind) {
  const [wide, high, foot] = [300, 96, 14];
  const step = wide / counts.length;
  const most = Math.max(1, ...counts);
  const parts = counts.map((n, i) => {
    const tall = n === 0 ? 0 : Math.max(2, (n / most) * (high - foot - 4));
    const to = i < bounds.length ? boundWords(bounds[i]) : "longer";
    return svg("rect", { class: kind, x: (i * step + 1).toFixed(1),
      y: (high - foot - tall).toFixed(1), width: (step - 2).toFixed(1),
      height: tall.toFixed(1) }, svg("title", {}, `${to}: ${count(n)}`));
  });
  const labels = [[0, "0", "start"], [4, "50 ms", "middle"], [7, "1 s", "middle"],
    [11, "1 min", "middle"], [15, "1 h+", "end"]].map(([i, text, anchor]) =>
    svg("text", { x: anchor === "start" ? 0 : anchor === "end" ? wide
      : ((i + .5) * step).toFixed(1), y: high - 2, "text-anchor": anchor }, text));
  const all = counts.reduce((a, b) => a + b, 0);
  const words = all === 0 ? "none yet" : `half ${boundWords(within(counts, bounds, 50))
  }, 99 % ${boundWords(within(counts, bounds, 99))}`;
  say($(`${id}-words`), `${words} · ${count(all)}`);
  $(id).replaceChildren(svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`,
    role: "img", "aria-label": `${id === "wait" ? "Waiting" : "Holding"}: ${words}` },
  ...parts, svg("line", { class: "base", x1: 0, x2: wide, y1: high - foot,
    y2: high - foot }), ...labels));
}

function showTimes() {
  const { wait, hold, bounds_ms: bounds } = now.times;
  bars("wait", wait, bounds, "bar");
  bars("hold", hold, bounds, "hold");
}
