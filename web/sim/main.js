// SPDX-License-Identifier: MIT
// Keys, colours, and the beginning.

const THEMES = ["auto", "light", "dark"];

// Files opened from a disk may have no storage.
function remember(key, value) {
  try { localStorage.setItem(`picket-${key}`, value); } catch { /* then not */ }
}

function recall(key) {
  try { return localStorage.getItem(`picket-${key}`); } catch { return null; }
}

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  say($("theme").querySelector("span"), theme);
  setAttribute($("theme"), "aria-label", `Colours: ${theme}`);
  remember("theme", theme);
}

function bindTheme() {
  let theme = THEMES.includes(recall("theme")) ? recall("theme") : "auto";
  setTheme(theme);
  $("theme").onclick = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    setTheme(theme);
  };
}

// ---- keys ----

const CLIENT_KEYS = { a: "acquire", w: "write", r: "release", g: "pause", p: "cut" };

const KEYS = {
  ".": stepOn, ",": stepBack, "[": () => faster(-1), "]": () => faster(1),
  f: () => change("fence", (facts().fence + 1) % FENCES.length),
  "?": () => $("help").showModal(),
  Home: () => { pause(); goTo(0); }, End: () => { pause(); goTo(run.seen); },
  " ": togglePlay,
};

function isTyping(target) {
  return target.matches("textarea, select, input:not([type=checkbox]):not([type=radio])");
}

// Space presses a button that has the focus, and the arrows are the slider's.
function ownKey(event) {
  return event.key === " " && event.target.matches("button, summary, input, label");
}

function onKey(event) {
  const plain = !event.ctrlKey && !event.altKey && !event.metaKey;
  if (!plain || !$("keys-on").checked || $("help").open) return;
  if (isTyping(event.target) || ownKey(event)) return;
  const letter = event.key.length === 1 ? event.key.toUpperCase().charCodeAt(0) - 65 : -1;
  if (trace.wasm) return;
  const isClient = event.shiftKey && letter >= 0 && letter < cards.length;
  if (isClient) {
    choose(letter);
    cards[letter].buttons.acquire.focus();
  } else if (CLIENT_KEYS[event.key]) {
    press(run.chosen, CLIENT_KEYS[event.key]);
  } else if (KEYS[event.key]) {
    KEYS[event.key]();
  } else {
    return;
  }
  event.preventDefault();
}

function bindKeys() {
  $("keys-on").checked = recall("keys") !== "off";
  $("keys-on").onchange = () => remember("keys", $("keys-on").checked ? "on" : "off");
  $("help-open").onclick = () => $("help").showModal();
  document.addEventListener("keydown", onKey);
}

// ---- the beginning ----

// A server that shows this page may be newer than the machine in it.
async function compareVersions() {
  if (!location.protocol.startsWith("http")) return;
  const own = $("version").textContent;
  try {
    const answer = await fetch("version");
    const server = answer.ok ? (await answer.text()).trim() : "";
    if (server && server !== own) {
      say($("version-note"), `The server is ${server}: what it does may differ.`);
    }
  } catch { /* served by something else */ }
}

function giveUp(error) {
  const why = run.wasm && error instanceof WebAssembly.RuntimeError
    ? `${error.message}: ${run.wasm.whyStopped()}` : error.message || error;
  message(`The simulator stopped: ${why}`);
  pause();
}

async function begin() {
  bindTheme();
  run.module = await WebAssembly.compile(await unpackModule());
  run.wasm = talkTo(await WebAssembly.instantiate(run.module, {}));
  run.about = run.wasm.askObject("about");
  say($("version"), run.wasm.ask("version"));
  for (const bind of [buildSettings, bindBar, bindStory, bindHunt, bindTrace, bindShare,
    bindKeys]) {
    bind();
  }
  for (const show of [showSides, showCards, showSettings, showLogSides, showLog,
    showTable, showEditor, followLink]) {
    onChange(show);
  }
  for (const id of ["log-filter", "log-find", "log-side"]) $(id).oninput = showLog;
  addEventListener("resize", refresh);
  loadScenario("gc-pause");
  openLink(location.hash);
  document.documentElement.dataset.ready = "yes";
  await compareVersions();
}

addEventListener("error", (event) => giveUp(event.error || event));
addEventListener("unhandledrejection", (event) => giveUp(event.reason));
begin();
