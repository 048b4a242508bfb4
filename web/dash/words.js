// SPDX-License-Identifier: MIT
// Words, numbers and elements. Names and labels are other people's text: they go into the
// page as text only.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const h = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// ---- numbers ----

const count = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

// A duration, as exact as one looks at it.
function duration(ms) {
  if (ms < SECOND) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10 * SECOND) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < 2 * MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < 2 * HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

// For bounds and axes, which are round.
const about = (ms) => duration(ms).replace(".0 s", " s");
// The same for a count-down: tenths below ten seconds, so that it is seen to run.
const left = (ms) => (ms < 10 * SECOND
  ? `${(Math.max(0, Math.floor(ms / 100)) / 10).toFixed(1)} s` : duration(ms));
const ago = (ms) => (ms < SECOND ? "now" : `${duration(ms)} ago`);

// ---- owners ----

// A label of Picket's own clients is lines of KEY=VALUE; others write what they like.
function fieldsOf(label) {
  const fields = {};
  for (const line of label.split("\n")) {
    const at = line.indexOf("=");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1);
  }
  return fields;
}

// Who that is: in short, and what else is known.
function owner(label, value, key) {
  const of = fieldsOf(label);
  if (key) return { name: value || "unnamed", more: "a key of Redis' idiom" };
  if (!of.host) return { name: label.replace(/\s+/g, " ") || "unnamed", more: "" };
  const command = (of.command || "").replace(/^\S*\//, ""); // the folder of the program
  const more = [of.note, of.pid && `pid ${of.pid}`, command];
  return { name: `${of.user}@${of.host}`, more: more.filter(Boolean).join(" · ") };
}

// So much of a text that it stays on a line or two; all of it when pointed at.
function brief(text) {
  return text.length <= 72 ? h("small", {}, text)
    : h("small", { title: text }, `${text.slice(0, 71)}…`);
}

const named = (label) => owner(label, "", false).name;

const ENDS = {
  released: "released", closed: "closed", expired: "expired: not renewed in time",
  overheld: "held for longer than its max-hold", broken: "broken by an operator",
  restored: "ended by a restore from backup",
};
const endWords = (end) => ENDS[end] || end;
