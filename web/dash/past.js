// SPDX-License-Identifier: MIT
// What was lost, and what fences have refused.

const lockLink = (name) =>
  h("a", { href: `#lock=${encodeURIComponent(name)}` }, name);

function lossItem(l) {
  const who = owner(l.label, "", false);
  const by = l.by === "" && l.why === "" ? ""
    : ` by ${l.by || "an operator"}${l.why === "" ? "" : `: “${l.why}”`}`;
  const ending = l.end === "broken" ? `broken${by}` : endWords(l.end);
  return h("li", {}, h("span", {}, lockLink(l.name), " ",
    h("span", { class: "why" }, `✕ ${ending}`)), h("span", { class: "ago" }),
  h("span", { class: "more" }, `token ${count(l.token)} of ${who.name}, held for ${
    duration(l.held_ms)}${who.more === "" ? "" : ` · ${who.more}`}`));
}

function refusalItem(r) {
  const why = r.why === "UNCLAIMED" ? `token ${count(r.token)} has not claimed it`
    : `token ${count(r.token)} < ${count(r.highest)}`;
  return h("li", {}, h("span", {}, h("b", {}, r.name), " ",
    h("span", { class: "why" }, `⊘ ${why}`)), h("span", { class: "ago" }),
  h("span", { class: "more" }, [r.by && `asked by ${r.by}`,
    r.shadow && "shadow mode: let through"].filter(Boolean).join(" · ")));
}

function showEvents(id, list, item, none) {
  $(id).replaceChildren(...(list.length > 0 ? list.map(item)
    : [h("li", { class: "none" }, none)]));
}

function showLosses() {
  showEvents("losses", now.losses, lossItem, "No hold was lost of late.");
}

function showRefusals() {
  showEvents("refusals", now.refusals, refusalItem,
    "No token was refused of late. Fences kept elsewhere are not seen here.");
}

function showSums() {
  const { lost, rejected, shadowed } = now.times;
  say($("losses-sum"), `${count(lost)} since this node started`);
  say($("refusals-sum"), `${count(rejected)} since this node started${
    shadowed > 0 ? `, ${count(shadowed)} in shadow mode` : ""}`);
}

function tickEvents() {
  for (const id of ["losses", "refusals"]) {
    const list = now[id] || [];
    for (const [i, item] of [...$(id).children].entries()) {
      if (list[i]) {
        say(item.querySelector(".ago"), ago(clock() - list.at + list[i].ago_ms));
      }
    }
  }
}
