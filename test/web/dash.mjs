// SPDX-License-Identifier: MIT
// The dashboard in a real browser, of a real cluster of three that loses nodes.
//
//     node dash.mjs CHROMIUM OPERATOR-PORT SCREENSHOTS
import { join } from "node:path";
import { barriers, check, contains, equal, main, test } from "./browser.mjs";

const [chromium, shots, port] = process.argv.slice(2);
const LONG_MS = 3600000;
const EVIL = "<img src=x onerror=alert(1)>";
// What the browser itself says when a server is gone.
const GONE = { tolerate: /net::ERR_|Failed to load resource/ };

// ---- the cluster ----

async function operator(...words) {
  const answer = await fetch(`http://127.0.0.1:${port}/`,
    { method: "POST", body: JSON.stringify(words) });
  const body = await answer.json();
  check(answer.ok, `${words}: ${body}`);
  return body;
}

const ask = (...words) => operator("ask", ...words);
const nodes = () => operator("nodes");
const leader = async () => (await nodes()).find((n) => n.leader);
const follower = async () => (await nodes()).find((n) => !n.leader);
const openLease = async (label, ttl = LONG_MS) =>
  (await ask("LEASE", "OPEN", ttl, "LABEL", label)).lease;
const labelOf = (user) => `host=h1\npid=7\nuser=${user}\ncommand=job`;

// A lock with a holder and waiters of these names.
async function queueUp(name, ...users) {
  for (const user of users) {
    await operator("acquire", await openLease(labelOf(user)), name);
  }
}

// ---- ways to look at the page ----

const live = (page, is = "yes") => page.waitForSelector(`html[data-live="${is}"]`);

async function open(page, url, hash = "") {
  await page.goto("about:blank");
  await page.goto(url + hash);
  await live(page);
}

const row = (page, name) => page.locator("#rows tr")
  .filter({ has: page.getByRole("link", { name, exact: true }) });
const cell = (page, name, n) => row(page, name).locator("td").nth(n);
const seconds = async (locator) => parseFloat((await locator.innerText())
  .replace(/[^\d.]/g, ""));

async function until(condition, what) {
  for (let i = 0; i < 2400; i++) { // two minutes: only a hang takes so long
    if (await condition()) return;
    await new Promise((done) => { setTimeout(done, 50); });
  }
  throw new Error(`${what} did not come true`);
}

async function shoot(page, name) {
  await page.screenshot({ path: join(shots, `dash-${name}.png`), fullPage: true });
}

// ---- locks ----

test("a_real_holder_appears_and_its_lease_is_renewed", async ({ page }) => {
  const node = await leader();
  await open(page, node.url);
  await operator("run", "orders/export");
  await row(page, "orders/export").waitFor();
  contains(await cell(page, "orders/export", 1).innerText(), "@");
  contains(await cell(page, "orders/export", 1).innerText(), "sleep");
  check(await seconds(cell(page, "orders/export", 2)) > 0, "no token");
  const lease = cell(page, "orders/export", 3);
  const first = await seconds(lease);
  await until(async () => await seconds(lease) < first, "the lease running down");
  const low = await seconds(lease);
  await until(async () => await seconds(lease) > low, "its renewal");
  // A busy machine may have made another node the leader meanwhile.
  await until(async () => {
    const role = (await leader()).name === node.name ? "leader" : "follower";
    const said = await page.locator("#link").innerText();
    return said.includes(`node ${node.name}, ${role}`);
  }, "the node's role");
});

test("a_countdown_runs_and_a_held_time_grows", async ({ page }) => {
  await open(page, (await leader()).url);
  await operator("acquire", await openLease(labelOf("ann"), 9000), "short");
  await row(page, "short").waitFor();
  const [left, held] = [cell(page, "short", 3), cell(page, "short", 4)];
  const [before, since] = [await seconds(left), await held.innerText()];
  await until(async () => await seconds(left) < before, "the lease running down");
  await until(async () => await held.innerText() !== since, "the held time growing");
  await row(page, "short").waitFor({ state: "detached" }); // it expires
  await until(async () => (await page.locator("#losses").innerText()).includes("expired"),
    "the loss being told");
});

test("names_are_text_and_nothing_else", async ({ page }) => {
  let alarmed = false;
  page.on("dialog", (d) => { alarmed = true; d.dismiss(); });
  await operator("acquire", await openLease(`${EVIL}\nuser=${EVIL}`), EVIL);
  await open(page, (await leader()).url);
  await row(page, EVIL).waitFor();
  await page.getByRole("link", { name: EVIL, exact: true }).click();
  await page.locator("#holds tr").first().waitFor();
  equal(await page.locator("#detail-name").innerText(), EVIL);
  contains(await page.locator("#holds").innerText(), EVIL);
  equal(await page.locator("img").count(), 0);
  equal(alarmed, false);
});

test("the_filter_is_answered_by_the_server", async ({ page }) => {
  await queueUp("reports/daily", "ann", "bob", "eve");
  await open(page, (await follower()).url);
  await row(page, "reports/daily").waitFor();
  await page.getByLabel("Filter").fill("reports/*");
  await until(async () => await page.locator("#rows tr").count() === 1, "one row");
  contains(await cell(page, "reports/daily", 5).innerText(), "bob@h1, eve@h1");
  await page.getByLabel("Filter").fill("no such lock");
  await until(async () => await page.locator("#rows tr").count() === 0, "no row");
  contains(await page.locator("#empty").innerText(), "No lock fits");
  await page.getByLabel("Filter").fill("");
  await page.getByLabel("Show").selectOption("waiting");
  await until(async () => await page.locator("#rows tr").count() === 1, "one queue");
});

test("one_lock_by_keyboard_alone", async ({ page }) => {
  await queueUp("db/main", "ann", "bob", "eve");
  await open(page, (await leader()).url);
  await page.getByLabel("Filter").focus();
  await page.keyboard.type("db/main");
  await until(async () => await page.locator("#rows tr").count() === 1, "one row");
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate("document.activeElement.textContent === 'db/main'")) break;
  }
  await page.keyboard.press("Enter");
  await page.locator("#lanes rect.hold").first().waitFor();
  equal(await page.evaluate("document.activeElement.id"), "detail-name");
  contains(await page.locator("#detail-state").innerText(), "1 holder; 2 wait.");
  contains(await page.locator("#holds").innerText(), "ann@h1");
  const queue = await page.locator("#queue tr").allInnerTexts();
  equal(queue.map((t) => /[a-z]+@h1/.exec(t)[0]), ["bob@h1", "eve@h1"]);
  await page.keyboard.press("Escape");
  await page.locator("#detail").waitFor({ state: "hidden" });
  equal(await page.evaluate("location.hash"), "");
});

test("ten_thousand_locks_are_two_hundred_rows", async ({ page }) => {
  const lease = await openLease(labelOf("many"));
  const names = Array.from({ length: 10000 }, (_, i) => `many/${i}`);
  await operator("acquire", lease, ...names);
  await open(page, (await leader()).url);
  await until(async () => /200 of 10.\d{3}/.test(
    await page.locator("#count").innerText()), "the count");
  equal(await page.locator("#rows tr").count(), 200);
  await page.getByLabel("Filter").fill("many/999*");
  await until(async () => await page.locator("#rows tr").count() === 11, "eleven rows");
  await ask("LEASE", "CLOSE", lease);
  await page.getByLabel("Filter").fill("");
  await row(page, "db/main").waitFor();
});

// ---- nodes that go ----

test("another_leader_is_shown_and_nothing_is_lost", async ({ page }) => {
  const leads = page.locator("#nodes .leads");
  const shown = async (name) => await leads.count() === 1
    && (await leads.innerText()).includes(name);
  await open(page, (await follower()).url);
  await row(page, "db/main").waitFor();
  await until(async () => shown((await leader()).name), "the leader");
  const old = await leader();
  await operator("node", old.name, "kill");
  check((await leader()).name !== old.name, "the dead lead");
  await until(async () => shown((await leader()).name), "the new leader");
  await live(page);
  await row(page, "db/main").waitFor();
  await operator("node", old.name, "start");
});

test("a_node_that_dies_turns_its_page_grey_until_it_is_back", async ({ page }) => {
  const node = await follower();
  const lease = await openLease(labelOf("ann"), LONG_MS);
  await operator("acquire", lease, "held");
  await open(page, node.url);
  await row(page, "held").waitFor();
  await operator("node", node.name, "kill");
  await live(page, "no");
  contains(await page.locator("#link").innerText(), `not connected · to ${node.name}`);
  contains(await page.locator("#message").innerText(), `${node.name} does not answer`);
  contains(await page.locator("#message").innerText(), "Other nodes");
  check(await page.evaluate(
    "getComputedStyle(document.querySelector('main')).filter.includes('grayscale')"),
  "it is not grey");
  equal(await barriers(page), []); // and as readable as before
  const held = await cell(page, "held", 4).innerText();
  const said = await page.locator("#message").innerText();
  await until(async () => await page.locator("#message").innerText() !== said,
    "the age growing");
  equal(await cell(page, "held", 4).innerText(), held); // what ran stands still
  await shoot(page, "gone");
  await operator("node", node.name, "start");
  await live(page);
  equal(await page.locator("#message").isVisible(), false);
  await until(async () => await cell(page, "held", 4).innerText() !== held,
    "the time running again");
}, GONE);

test("a_node_that_stands_still_is_noticed", async ({ page }) => {
  const node = await follower();
  await open(page, node.url);
  await operator("node", node.name, "stop");
  try {
    await live(page, "no");
    contains(await page.locator("#message").innerText(), "does not answer");
  } finally {
    await operator("node", node.name, "cont");
  }
  await live(page);
}, GONE);

test("without_a_leader_the_page_says_so", async ({ page }) => {
  const [a, b, c] = await nodes();
  await open(page, a.url);
  await operator("node", b.name, "kill");
  await operator("node", c.name, "kill");
  await live(page, "old");
  await until(async () => (await page.locator("#message").innerText())
    .includes("There is no leader"), "the message");
  await operator("node", b.name, "start");
  await operator("node", c.name, "start");
  await live(page);
});

// ---- for everybody ----

for (const colorScheme of ["light", "dark"]) {
  test(`no_barriers_and_pictures_${colorScheme}`, async ({ page }) => {
    await ask("FENCE", "CLAIM", "volume", 900000);
    await operator("acquire", await openLease(labelOf("zed")), `set/${colorScheme}`);
    await page.emulateMedia({ colorScheme });
    const url = (await leader()).url;
    for (const [name, width] of [["wide", 1280], ["narrow", 390]]) {
      await page.setViewportSize({ width, height: 900 });
      await open(page, url);
      await row(page, "db/main").waitFor();
      equal(await barriers(page), []);
      check(await page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"),
      `${name}: the page is wider than the screen`);
      await shoot(page, `${name}-${colorScheme}`);
      await open(page, url, "#lock=db%2Fmain");
      await page.locator("#lanes rect.hold").first().waitFor();
      equal(await barriers(page), []);
      await shoot(page, `lock-${name}-${colorScheme}`);
    }
  });
}

await main({ chromium });
