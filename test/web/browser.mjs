// SPDX-License-Identifier: MIT
// A browser for tests of pages: Debian's Chromium, driven by playwright-core. Tests are
// functions; what they say is TAP. A page that reports an error fails its test.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(join(process.cwd(), "package.json"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const ARGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
  "--disable-background-networking", "--disable-component-update", "--disable-quic"];
const PATIENCE_MS = 120000; // only a hang takes so long

const tests = [];
// `tolerate`: errors on the console that belong to what is tested.
export const test = (name, body, { tolerate = null } = {}) =>
  tests.push({ name, body, tolerate });

export function check(condition, message = "not true") {
  if (!condition) throw new Error(message);
}

export function equal(got, wanted) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
  check(a === b, `got ${a}, wanted ${b}`);
}

export function contains(text, part) {
  check(text.includes(part), `${JSON.stringify(part)} is not in ${JSON.stringify(text)}`);
}

// What axe finds, as lines; none is wanted.
export async function barriers(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate("axe.run()");
  return violations.map((v) => `${v.id}: ${v.help} (${v.nodes.length}: `
    + `${v.nodes.slice(0, 3).map((n) => n.target.join(" ")).join(", ")})`);
}

async function runOne(context, { body, tolerate }, options) {
  const errors = [];
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("pageerror", (e) => errors.push(`page error: ${e.message}`));
  page.on("console", (m) => {
    const expected = tolerate !== null && tolerate.test(m.text());
    if (m.type() === "error" && !expected) errors.push(m.text());
  });
  try {
    await body({ page, context, ...options });
    check(errors.length === 0, errors.join("; "));
    return null;
  } catch (e) {
    return [e.stack, ...errors].join("\n");
  } finally {
    await page.close();
  }
}

// Runs the tests in the order of the file; `options` is what each of them gets besides.
export async function main(options) {
  const folder = mkdtempSync(join(tmpdir(), "picket-browser-"));
  const context = await chromium.launchPersistentContext(folder, { args: ARGS,
    executablePath: options.chromium, headless: true, acceptDownloads: true,
    viewport: { width: 1280, height: 900 } });
  const chosen = tests.filter(({ name }) => name.includes(process.env.ONLY || ""));
  let failed = 0;
  console.log(`1..${chosen.length}`);
  for (const [i, one] of chosen.entries()) {
    const why = await runOne(context, one, options);
    for (const line of (why || "").split("\n").filter(Boolean)) console.log(`# ${line}`);
    console.log(`${why ? "not ok" : "ok"} ${i + 1} - ${one.name}`);
    failed += why ? 1 : 0;
  }
  await context.close();
  rmSync(folder, { recursive: true, force: true });
  process.exit(failed > 0 || chosen.length === 0 ? 1 : 0);
}
