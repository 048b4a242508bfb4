// SPDX-License-Identifier: MIT
// The run: one script (BASE), shown in one or two worlds that share a clock.
//
//   now    the time that everything on the page is about
//   seen   up to where the world is known; the timeline draws that far, and veils what
//          comes after now
//   open   the world goes on as long as the clock runs; else it ends with its script
//
// Going to a time is running to it, from the beginning if it is in the past. Acting is
// adding a line to the script; whatever stood in it after now is dropped.

const BASE = 2;
const OPEN_UNTIL = 3600 * SECOND;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];

const run = {
  wasm: null, module: null, about: null,
  now: 0, seen: 0, open: true, playing: false, speed: 1,
  split: "", sides: [], chosen: 0, generation: 0, notes: [], title: "", told: "",
};

const listeners = [];
const onChange = (listener) => listeners.push(listener);

function facts() {
  return run.wasm.askObject("facts", BASE);
}

// ---- worlds out of the script ----

// What each world of a comparison differs by.
function variants() {
  if (run.split === "fence") {
    return [{ label: "Fencing off", fence: 0 }, { label: "Fencing on", fence: 2 }];
  }
  if (run.split === "flavour") {
    return [{ label: "Redlock", flavour: REDLOCK }, { label: "Picket", flavour: 0 }];
  }
  return [{ label: "" }];
}

// The script changed, or how it is shown: worlds are made anew.
function derive() {
  const { x } = run.wasm;
  run.sides = variants().map((variant, side) => {
    let dropped = 0;
    x.copy_side(side, BASE);
    for (const key of ["flavour", "fence"]) {
      if (key in variant) dropped += x.set(side, SETTINGS[key], variant[key]);
    }
    return { ...variant, dropped, facts: run.wasm.askObject("facts", side) };
  });
  run.generation++;
}

function look() {
  const { wasm } = run;
  run.sides.forEach((side, i) => {
    wasm.x.go(i, run.now);
    side.view = wasm.askObject("view", i);
    if (!side.hits || side.hits.length !== side.view.hits) {
      side.hits = wasm.askObject("hits", i);
    }
  });
}

function refresh() {
  look();
  for (const listener of listeners) listener();
}

function rebuild() {
  derive();
  refresh();
}

// ---- loading ----

// Takes a script; what is wrong with it, or null. `at`: "start" or "end".
function load(text, { at = "end", told = "", split = run.split } = {}) {
  const wrong = run.wasm.read(BASE, text);
  if (wrong) return wrong;
  message("");
  pause();
  const f = facts();
  run.title = f.title;
  run.told = told;
  run.notes = [];
  run.split = split;
  run.chosen = Math.min(run.chosen, f.clients - 1);
  run.open = f.acts === 0;
  if (run.open) run.wasm.x.set(BASE, SETTINGS.until, OPEN_UNTIL);
  run.seen = run.open ? 0 : f.until;
  run.now = at === "end" ? run.seen : 0;
  rebuild();
  return null;
}

// The script as it can be kept: an open world ends where it has been seen to.
function closedScript(write = "write_script") {
  const f = facts();
  if (!run.open) return run.wasm.ask(write, BASE);
  const until = Math.max(run.seen, f.last + SECOND, SECOND);
  run.wasm.x.set(BASE, SETTINGS.until, Math.ceil(until / 1e5) * 1e5);
  const text = run.wasm.ask(write, BASE);
  run.wasm.x.set(BASE, SETTINGS.until, OPEN_UNTIL);
  return text;
}

// ---- time ----

function goTo(us) {
  const most = run.open ? OPEN_UNTIL : facts().until;
  run.now = Math.max(0, Math.min(us, most));
  run.seen = Math.max(run.seen, run.now);
  refresh();
}

function stepOn() {
  pause();
  const most = run.open ? run.now + 10 * SECOND : facts().until;
  goTo(Math.min(...run.sides.map((_, i) => run.wasm.x.step_on(i, most))));
}

function stepBack() {
  pause();
  goTo(Math.max(...run.sides.map((_, i) => run.wasm.x.step_back(i))));
}

function pause() {
  run.playing = false;
}

function play() {
  if (!run.open && run.now >= facts().until) openUp();
  run.playing = true;
  let last = performance.now();
  const tick = (time) => {
    if (!run.playing) return;
    const passed = Math.min(time - last, 250) * 1000 * run.speed;
    last = time;
    const before = run.now;
    goTo(Math.round(run.now + passed));
    if (run.now === before && passed > 0) {
      pause();
      refresh();
    } else {
      requestAnimationFrame(tick);
    }
  };
  requestAnimationFrame(tick);
  refresh();
}

// From here on the world goes on beyond its script.
function openUp() {
  if (run.open) return;
  run.open = true;
  run.wasm.x.set(BASE, SETTINGS.until, OPEN_UNTIL);
  derive();
}

// ---- acting ----

function note(text) {
  run.notes.push({ at: run.now, kind: "note", text, weight: 1, n: -1 });
}

// The future that was in the script is gone once somebody does something else.
function fork(at) {
  const dropped = run.wasm.x.drop_after(BASE, at);
  if (dropped > 0) {
    note(`From here on it is your story: ${plural(dropped, "later act")} of the script `
      + `${dropped === 1 ? "is" : "are"} dropped.`);
  }
  run.seen = at;
}

// Somebody does something right after now. Whole milliseconds: scripts stay readable, and
// what has happened until now stays as it was.
function act(who, op, arg = 0) {
  const at = (Math.floor(run.now / 1000) + 1) * 1000;
  const { x } = run.wasm;
  fork(at);
  if (!x.act(BASE, at, who, OPS[op], arg)) {
    note(`That can't be done: ${run.wasm.text()}.`);
    refresh();
    return;
  }
  run.open = true;
  x.set(BASE, SETTINGS.until, OPEN_UNTIL);
  run.now = at;
  rename("");
  rebuild();
}

// What was told of the script is no longer true of it.
function rename(title) {
  run.wasm.say(title);
  run.wasm.x.name_script(BASE);
  run.title = title;
  run.told = "";
}

function change(setting, value) {
  const dropped = run.wasm.x.set(BASE, SETTINGS[setting], value);
  if (dropped < 0) return;
  if (dropped > 0) {
    note(`${plural(dropped, "act")} made no sense with this service and went away.`);
  }
  rebuild();
}
