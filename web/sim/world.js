// SPDX-License-Identifier: MIT
// The WebAssembly module, and the page's way of talking to it (glue.c has the other end).

const SECOND = 1e6;
const OPS = { acquire: 0, write: 1, release: 2, pause: 3, cut: 4, heal: 5, cutData: 6,
  delay: 7, jump: 8, drift: 9, failover: 10, crash: 11 };
const SETTINGS = { flavour: 0, fence: 1, ttl: 2, checkpoint: 3, until: 4, seed: 5 };
const FENCES = ["off", "check", "on"];
const REDLOCK = 3;
const SERVICE = 16;
const NODE = 17;
const NODES = 5;

// The bytes of the module: packed by gzip, and as text, because a page that is opened
// from a file may load nothing.
async function unpackModule() {
  const text = document.getElementById("module").textContent.trim();
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Calls into an instance: strings in and out, objects as JSON. Also runs in the worker.
function talkTo(instance) {
  const x = instance.exports;
  const bytes = (at, len) => new Uint8Array(x.memory.buffer, at, len);
  const text = () => new TextDecoder().decode(bytes(x.text(), x.text_len()));
  const say = (string) => {
    const data = new TextEncoder().encode(string);
    bytes(x.room(data.length), data.length).set(data);
  };
  const object = () => JSON.parse(text());
  const whyStopped = () => {
    const all = bytes(x.stopped_at(), 256);
    return new TextDecoder().decode(all.slice(0, all.indexOf(0)));
  };
  return {
    x, text, say, object, whyStopped,
    ask(name, ...args) { x[name](...args); return text(); },
    askObject(name, ...args) { x[name](...args); return object(); },
    // Null when it was read, or what is wrong: { line, text }.
    read(side, script) {
      say(script);
      return x.read_script(side) ? null : object();
    },
  };
}

// ---- small things that all files use ----

const $ = (id) => document.getElementById(id);

// An element with properties and children; a child may be text.
function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && !key.startsWith("aria")) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// Writes only what changes, so that screen readers hear news and nothing else.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// Cut off, not rounded, as the module writes times.
function decimal(us, digits) {
  const unit = SECOND / 10 ** digits;
  return (Math.trunc(us / unit) * unit / SECOND).toFixed(digits);
}

const seconds = (us, digits = 1) => `${decimal(us, digits)} s`;
const clientName = (i) => String.fromCharCode(65 + i);
const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;
