// SPDX-License-Identifier: MIT
// Looking for a counterexample: random worlds in a worker, until one of them breaks.

const HUNT_BATCH = 20;

// Runs in the worker, from its own text: it knows talkTo and nothing else of the page.
function huntInWorker(talk) {
  self.onmessage = async ({ data }) => {
    const { module, script, rough, jumps, first, batch } = data;
    const wasm = talk(await WebAssembly.instantiate(module, {}));
    wasm.read(0, script);
    const began = Date.now();
    for (let seed = first; ; seed++) {
      const mask = wasm.x.hunt(1, seed, rough, jumps);
      const worlds = seed - first + 1;
      const rate = Math.round(worlds / Math.max(0.001, (Date.now() - began) / 1000));
      if (mask !== 0) {
        self.postMessage({ found: false, worlds, rate, shrinking: true });
        const before = wasm.askObject("facts", 1).acts;
        const runs = wasm.x.shrink(1, mask);
        self.postMessage({ found: true, worlds, rate, seed, runs, before,
          acts: wasm.askObject("facts", 1).acts, script: wasm.ask("write_script", 1) });
        return;
      }
      if (worlds % batch === 0) self.postMessage({ found: false, worlds, rate });
    }
  };
}

const hunt = { worker: null, next: 1 };

function stopHunt(why) {
  if (hunt.worker) hunt.worker.terminate();
  hunt.worker = null;
  say($("hunt"), "Search");
  if (why) say($("hunt-status"), why);
}

// What it breaks is said of the small one: of several things, one may have been enough.
function onFound(data) {
  stopHunt("");
  hunt.next = data.seed + 1;
  leaveStory();
  load(data.script, { split: "" });
  const names = [...new Set(run.sides[0].hits.map((hit) => hit.check))].join(", ");
  rename(`Counterexample: ${names} (seed ${data.seed})`);
  run.told = `${run.title}. All that was not needed for it is left out.`;
  say($("hunt-status"), `Found ${names} in world ${data.worlds}; ${data.acts} of `
    + `${data.before} acts were needed for it, as ${plural(data.runs, "run")} showed.`);
  rebuild();
  $("sides").scrollIntoView({ block: "center" });
}

function startHunt() {
  const text = `${talkTo}\n(${huntInWorker})(talkTo);`;
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  hunt.worker = new Worker(url);
  URL.revokeObjectURL(url);
  hunt.worker.onmessage = ({ data }) => {
    if (data.found) {
      onFound(data);
      return;
    }
    const so = `${data.worlds.toLocaleString("en")} worlds, `
      + `${data.rate.toLocaleString("en")} per second`;
    say($("hunt-status"), data.shrinking ? `${so}: something broke; making it smaller …`
      : `${so}: nothing broke yet.`);
  };
  hunt.worker.onerror = (event) => stopHunt(`The search failed: ${event.message}`);
  hunt.worker.postMessage({ module: run.module, script: emptyScript(), first: hunt.next,
    rough: Number($("hunt-rough").value), jumps: $("hunt-jumps").checked ? 1 : 0,
    batch: HUNT_BATCH });
  say($("hunt"), "Stop");
  say($("hunt-status"), "Searching …");
}

function bindHunt() {
  $("hunt").onclick = () => (hunt.worker ? stopHunt("Stopped.") : startHunt());
}
