// SPDX-License-Identifier: MIT
// Scenario, service, fencing, lease, and the bar with the clock.

const TTLS = [1, 2, 3, 5, 8, 10, 15, 30];
const FLAVOUR_LABELS = { picket: "Picket", etcd: "etcd", zookeeper: "ZooKeeper",
  redlock: "Redlock" };
const FENCE_TITLES = ["the resource takes every write",
  "the resource refuses writes with an older token than it has seen in a write",
  "the same, and reading already raises the fence: claim before you read"];
const WEATHER = [["calm", 1], ["rough", 2], ["hell", 3]];
const ORDER = ["gc-pause", "gc-pause-fenced", "first-contact", "delayed-write",
  "partition", "checkpoint", "late-grant", "late-grant-mistaken", "release-lost",
  "failover", "herd", "etcd-leader-change", "zookeeper-disconnected", "redlock-pause",
  "redlock-clock-jump", "redlock-restart"];

let scenarios = []; // { name, title, about, text }

function readScenarios() {
  const found = JSON.parse($("scenarios").textContent);
  const place = (s) => (ORDER.includes(s.name) ? ORDER.indexOf(s.name) : ORDER.length);
  scenarios = found.sort((a, b) => place(a) - place(b)
    || a.title.localeCompare(b.title));
}

function segment(box, name, choices, choose) {
  choices.forEach(({ label, title, mark }, i) => {
    box.append(h("label", { className: "seg", title: title || "" },
      h("input", { type: "radio", name, value: i, onchange: () => choose(i) }),
      h("span", {}, label, ...(mark ? [h("small", {}, ` ${mark}`)] : []))));
  });
}

function setSegment(name, value) {
  document.querySelectorAll(`input[name="${name}"]`).forEach((input) => {
    input.checked = Number(input.value) === value;
  });
}

function buildScenarios() {
  $("scenario").append(
    h("option", { value: "" }, "your own"),
    h("optgroup", { label: "Stories" },
      ...scenarios.map((s) => h("option", { value: s.name }, s.title))),
    h("optgroup", { label: "Random worlds, two minutes" },
      ...WEATHER.map(([name]) => h("option", { value: `random-${name}` },
        `Random: ${name}`))));
}

// A random world of the present service, with a seed of its own.
function loadRandom(name) {
  const rough = WEATHER.find(([word]) => word === name)[1];
  const seed = 1 + Math.floor(Math.random() * 1e6);
  const { wasm } = run;
  wasm.x.copy_side(0, BASE);
  wasm.x.hunt(1, seed, rough, 1);
  const script = wasm.ask("write_script", 1)
    .replace("sim 1", `sim 1 # Random: ${name}, seed ${seed}`);
  return load(script, { told: `Two minutes of ${name} weather, from seed ${seed}.` });
}

function loadScenario(name, options = {}) {
  const random = /^random-(\w+)$/.exec(name);
  if (random) return loadRandom(random[1]);
  const scenario = scenarios.find((s) => s.name === name);
  if (!scenario) return null;
  return load(scenario.text, { told: scenario.about, ...options });
}

function buildSettings() {
  readScenarios();
  buildScenarios();
  segment($("flavour"), "flavour", run.about.flavours.map((f, i) => ({
    label: FLAVOUR_LABELS[f.name] || f.name, mark: i === 0 ? "" : "model",
    title: f.sentence })), (i) => change("flavour", i));
  segment($("fence"), "fence", FENCES.map((label, i) =>
    ({ label, title: FENCE_TITLES[i] })), (i) => change("fence", i));
  $("ttl").append(...TTLS.map((s) => h("option", { value: s }, `${s} s`)));
  $("speed").append(...SPEEDS.map((s) => h("option", { value: s }, `${s}×`)));
  $("ttl").onchange = () => change("ttl", Number($("ttl").value) * SECOND);
  $("checkpoint").onchange = () => change("checkpoint", $("checkpoint").checked ? 1 : 0);
  $("scenario").onchange = () => { if ($("scenario").value) leaveStory(); };
  $("scenario").addEventListener("change", () => loadScenario($("scenario").value));
  $("split").onchange = () => { run.split = $("split").value; rebuild(); };
  $("fresh").onclick = () => {
    leaveStory();
    load(emptyScript(), { at: "start", told: "An empty world: let a client acquire." });
  };
}

// Nothing happens in it; the settings stay.
function emptyScript() {
  return run.wasm.ask("write_script", BASE).replace(/^sim 1.*/, "sim 1")
    .replace(/^until .*\n/m, "").replace(/^expect .*\n/m, "")
    .replace(/^at .*\n/gm, "");
}

function bindBar() {
  $("play").onclick = () => togglePlay();
  $("restart").onclick = () => { pause(); goTo(0); };
  $("end").onclick = () => { pause(); goTo(run.seen); };
  $("back").onclick = stepBack;
  $("forth").onclick = stepOn;
  $("speed").onchange = () => { run.speed = Number($("speed").value); };
}

function togglePlay() {
  if (run.playing) {
    pause();
    refresh();
  } else {
    play();
  }
}

function faster(by) {
  const at = SPEEDS.indexOf(run.speed) + by;
  run.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at))];
  refresh();
}

function showSentence(f) {
  const about = run.about.flavours;
  const label = (i) => FLAVOUR_LABELS[about[i].name];
  const which = run.split === "flavour" ? [REDLOCK, 0] : [f.flavour];
  const key = which.join();
  const box = $("sentence");
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  box.replaceChildren(...which.flatMap((i) =>
    [h("b", {}, `${label(i)}. `), `${about[i].sentence} `]));
}

function showPlay() {
  const ended = !run.open && run.now >= facts().until;
  say($("play"), run.playing ? "❚❚ Pause the clock"
    : ended ? "▶ Go on from here" : "▶ Start the clock");
}

function showSettings() {
  const f = facts();
  const named = scenarios.find((s) => s.title === run.title && run.told === s.about);
  $("scenario").value = named ? named.name : "";
  $("split").value = run.split;
  say($("about"), run.told || (run.open
    ? "Your own story: the clock, the clients and the settings are yours." : run.title));
  setSegment("flavour", run.split === "flavour" ? -1 : f.flavour);
  setSegment("fence", run.split === "fence" ? -1 : f.fence);
  const ttl = String(f.ttl / SECOND);
  if (![...$("ttl").options].some((o) => o.value === ttl)) {
    $("ttl").append(h("option", { value: ttl }, `${ttl} s`));
  }
  $("ttl").value = ttl;
  $("checkpoint").checked = f.checkpoint;
  $("speed").value = String(run.speed);
  showSentence(f);
  showPlay();
  say($("clock"), seconds(run.now, 3));
}
