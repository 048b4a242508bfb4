// SPDX-License-Identifier: MIT
// A trace that a real cluster has recorded (picket serve --trace), shown as a world.

function isTrace(text) {
  return /^picket trace\b/.test(text);
}

function openTrace(text, name) {
  message(`${name}: this page can't read traces of clusters yet.`);
}
