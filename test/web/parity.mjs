// SPDX-License-Identifier: MIT
// What random worlds come to in the page's module, a line each, as parity.c prints them.
//
//     node parity.mjs WORLD.wasm SEEDS
import { readFileSync } from "node:fs";

const [file, seeds] = process.argv.slice(2);
const module = new WebAssembly.Module(readFileSync(file));
const world = new WebAssembly.Instance(module, {}).exports;
const lines = [];
for (let flavour = 0; flavour < 4; flavour++) {
  for (let seed = 1; seed <= Number(seeds); seed++) {
    const sum = BigInt.asUintN(64, world.parity(flavour, seed % 3, seed));
    lines.push(`${flavour} ${seed % 3} ${seed} ${sum.toString(16).padStart(16, "0")}`);
  }
}
console.log(lines.join("\n"));
