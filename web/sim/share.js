// SPDX-License-Identifier: MIT
// Links, files, and the script as text.

const LINK_VERSION = "1";
const LINK_DELAY_MS = 250;
const PICTURE_WIDTH = 960; // as the command line draws it

function message(text) {
  const box = $("message");
  box.hidden = !text;
  say(box, text || "");
}

function explain(wrong) {
  return wrong.line ? `line ${wrong.line}: ${wrong.text}` : wrong.text;
}

// ---- links ----

// The script in a link: "_" is a blank and "~" a new line; both never stand for
// themselves there.
function decodeScript(text) {
  return decodeURIComponent(text.replaceAll("_", " ").replaceAll("~", "\n"));
}

function linkText() {
  const parts = [run.wasm && closedScript("write_link")];
  if (run.split) parts.push(`split=${run.split}`);
  if (run.open || run.now !== run.seen) parts.push(`t=${run.now / SECOND}`);
  return `#${parts.join("&")}`;
}

// What a link asks for; says so when it can't be had. True when it was a link.
function openLink(hash) {
  const fields = new Map(hash.replace(/^#/, "").split("&").map((field) => {
    const at = field.indexOf("=");
    return at < 0 ? [field, ""] : [field.slice(0, at), field.slice(at + 1)];
  }));
  if (fields.has("story")) {
    tellStep(0);
    return true;
  }
  if (fields.has("scenario")) {
    const split = fields.get("split") || "";
    loadScenario(fields.get("scenario"), { split });
    return scenarios.some((s) => s.name === fields.get("scenario"));
  }
  if (!fields.has("v")) return false;
  if (fields.get("v") !== LINK_VERSION) {
    message(`This link is of version ${fields.get("v")}; this page reads version `
      + `${LINK_VERSION}. A page of the version that made it can open it.`);
    return false;
  }
  return openLinkedScript(fields);
}

function openLinkedScript(fields) {
  let wrong = null;
  try {
    const split = ["fence", "flavour"].includes(fields.get("split"))
      ? fields.get("split") : "";
    wrong = load(decodeScript(fields.get("s") || ""), { split });
  } catch {
    wrong = { line: 0, text: "the link is cut short or damaged" };
  }
  if (wrong) {
    message(`The link can't be opened: ${explain(wrong)}.`);
    return false;
  }
  if (fields.has("t")) goTo(Math.round(Number(fields.get("t")) * SECOND) || 0);
  return true;
}

let linkTimer = 0;
let lastLink = "";

// The address follows what is shown, a little later.
function followLink() {
  if (run.playing || story.step >= 0) return;
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => {
    lastLink = linkText();
    history.replaceState(null, "", lastLink);
  }, LINK_DELAY_MS);
}

// ---- files ----

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function fileName(ending) {
  const words = run.title.toLowerCase().match(/[a-z0-9]+/g) || ["world"];
  return `${words.slice(0, 6).join("-")}.${ending}`;
}

// What the command line would write of the same script.
function exported(name, ...args) {
  run.wasm.read(1, closedScript());
  const text = run.wasm.ask(name, 1, ...args);
  derive();
  refresh();
  return text;
}

async function copyLink() {
  const url = location.href.replace(/#.*/, "") + linkText();
  history.replaceState(null, "", linkText());
  try {
    await navigator.clipboard.writeText(url);
    say($("share-status"), `Copied: ${plural(url.length, "character")}.`);
  } catch {
    say($("share-status"), "The link is in the address bar; copy it from there.");
  }
}

// A script, or a trace of a cluster.
function openText(text, name) {
  message("");
  leaveStory();
  if (isTrace(text)) return openTrace(text, name);
  if (trace.wasm) closeTrace();
  const wrong = load(text);
  if (wrong) message(`${name}: ${explain(wrong)}.`);
  return null;
}

async function openFile(file) {
  if (file) await openText(await file.text(), file.name);
}

function bindDrop() {
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) $("drop").hidden = true;
  });
  addEventListener("drop", (event) => {
    $("drop").hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    openFile(event.dataTransfer.files[0]);
  });
}

function runEditor() {
  const wrong = load($("script").value);
  say($("script-error"), wrong ? capital(explain(wrong)) : "");
}

function showEditor() {
  if (!$("editor").open || run.playing || document.activeElement === $("script")) return;
  const text = closedScript();
  if ($("script").value !== text) $("script").value = text;
}

function bindShare() {
  $("copy").onclick = copyLink;
  $("save-script").onclick = () => save(fileName("sim"), "text/plain", closedScript());
  $("save-svg").onclick = () => save(fileName("svg"), "image/svg+xml",
    exported("whole_picture", PICTURE_WIDTH));
  $("save-json").onclick = () =>
    save(fileName("json"), "application/json", exported("everything"));
  $("open").onchange = () => { openFile($("open").files[0]); $("open").value = ""; };
  $("run-script").onclick = runEditor;
  $("editor").ontoggle = showEditor;
  $("table-box").ontoggle = showTable;
  bindDrop();
  addEventListener("hashchange", () => {
    if (location.hash !== lastLink) {
      message("");
      openLink(location.hash);
    }
  });
}
