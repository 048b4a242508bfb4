// SPDX-License-Identifier: MIT
// The simulator page in a real browser, from a file and from a real server.
//
//     node page.mjs CHROMIUM simulator.html http://127.0.0.1:7421/ SCREENSHOTS PICKET TRACE
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { barriers, check, contains, equal, main, test } from "./browser.mjs";

const [chromium, shots, file, server, picket, traceFile] = process.argv.slice(2);
const PAGE = `file://${file}`;

// ---- ways to look at the page ----

async function open(page, hash = "", url = PAGE) {
  await page.goto("about:blank");
  await page.goto(url + hash);
  await page.waitForSelector("html[data-ready=yes]");
}

const number = (page, label, side = 0) => page.locator(".numbers").nth(side)
  .locator(`div:has(dt[title="${label}"]) dd`).textContent();
const verdict = (page, side = 0) => page.locator(".verdict").nth(side).innerText();
const logText = (page) => page.locator("#log").innerText();
const client = (page, name) => page.getByRole("article", { name: `Client ${name}` });
const clock = async (page) => parseFloat(await page.locator("#clock").textContent());

async function press(page, who, what) {
  await page.getByRole("button", { name: `${who}: ${what}` }).click();
}

// Polls from outside: what polls within a page needs eval, which the page forbids.
async function until(page, condition) {
  const end = Date.now() + 20000;
  while (!await page.evaluate(condition)) {
    check(Date.now() < end, `this did not come true: ${condition}`);
    await page.waitForTimeout(20);
  }
}

// The clock runs until something is true.
async function playUntil(page, condition) {
  await page.locator("#speed").selectOption("8");
  await page.locator("#play").click();
  await condition();
  await page.locator("#play").click();
}

const scriptOf = async (page) => {
  await page.evaluate(() => { document.getElementById("editor").open = true; });
  await until(page, () => document.getElementById("script").value !== "");
  return page.locator("#script").inputValue();
};

const linkOf = async (page) => {
  await until(page, () => location.hash.startsWith("#v=1"));
  return page.evaluate(() => location.hash);
};

async function shoot(page, name) {
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
}

// ---- the canonical story ----

test("fence_off_the_late_write_is_a_violation", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  contains(await verdict(page), "Violation");
  contains(await verdict(page), "the update is lost");
  equal([await number(page, "accepted"), await number(page, "counter"),
    await number(page, "rejected")], ["4", "2", "0"]);
  contains(await client(page, "A").innerText(), "still believes");
  contains(await client(page, "B").innerText(), "holding");
  await page.getByRole("button", { name: "why?" }).click();
  equal(await page.locator(".verdict li").count(), 3);
  await shoot(page, "violation");
});

test("fence_on_the_late_write_is_refused", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  await page.locator("#fence label", { hasText: /^on$/ }).click();
  contains(await verdict(page), "Nothing is broken");
  equal([await number(page, "accepted"), await number(page, "counter"),
    await number(page, "rejected")], ["3", "3", "1"]);
  contains(await logText(page), "The resource refuses A's write of 2 with token 1");
});

test("played_by_hand_it_comes_to_the_same", async ({ page }) => {
  await open(page);
  await page.locator("#fresh").click();
  equal(await number(page, "holder"), "nobody");
  await press(page, "A", "acquire");
  await playUntil(page, () => client(page, "A").getByText("token 1").waitFor());
  await press(page, "B", "acquire");
  await press(page, "A", "GC pause");
  await playUntil(page, () => client(page, "B").getByText("token 2").waitFor());
  await press(page, "B", "write");
  await press(page, "A", "write"); // it will, when it wakes up
  await playUntil(page, () => page.getByText("Violation:").first().waitFor());
  equal(await number(page, "accepted"), "2");
  equal(await number(page, "counter"), "1");
});

test("the_story_is_told_step_by_step", async ({ page }) => {
  await open(page);
  await page.getByRole("button", { name: "The scenario to run first" }).click();
  const next = page.locator("#story-next");
  const titles = [];
  for (let i = 0; i < 7; i++) {
    titles.push(await page.locator("#story-title").textContent());
    if (i < 6) {
      contains(await verdict(page), "Nothing is broken");
      await next.click();
    }
  }
  equal(new Set(titles).size, 7);
  contains(await verdict(page), "Violation");
  await shoot(page, "story");
  await page.locator("#story-back").click();
  contains(await verdict(page), "Nothing is broken");
  for (let i = 0; i < 3; i++) await next.click();
  equal(await number(page, "rejected"), "1");
  contains(await verdict(page), "Nothing is broken");
  await page.locator("#story-close").click();
  check(await page.locator("#story").isHidden());
});

// ---- time ----

test("time_goes_forth_and_back_and_is_the_same_again", async ({ page }) => {
  await open(page, "#scenario=first-contact");
  const whole = await logText(page);
  await page.locator("#restart").click();
  equal(await clock(page), 0);
  equal(await logText(page), "");
  const steps = [];
  while (await clock(page) < 11) {
    await page.locator("#forth").click();
    steps.push(`${await clock(page)} ${await verdict(page)}`);
    check(steps.length < 100);
  }
  check(steps.length > 10, `${steps.length} steps`);
  equal(await logText(page), whole);
  for (let i = steps.length - 2; i >= 0; i--) {
    await page.locator("#back").click();
    equal(`${await clock(page)} ${await verdict(page)}`, steps[i]);
  }
});

test("dragging_in_the_picture_goes_through_time", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  const box = await page.locator(".timeline svg").boundingBox();
  await page.mouse.move(box.x + box.width * 0.9, box.y + 40);
  await page.mouse.down();
  const late = await clock(page);
  await page.mouse.move(box.x + box.width * 0.3, box.y + 40, { steps: 5 });
  const early = await clock(page);
  await page.mouse.up();
  check(late > 9 && early < 4 && early > 1, `${late} and ${early}`);
  contains(await verdict(page), "Nothing is broken");
  await page.mouse.move(box.x + box.width * 0.6, box.y + 40);
  equal(await clock(page), early);
});

test("acting_in_the_past_drops_the_future_and_says_so", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  await page.locator(".timeline > .scrub").fill("800");
  await press(page, "A", "release");
  contains(await logText(page), "5 later acts of the script are dropped");
  const script = await scriptOf(page);
  contains(script, "at 0.801 A release");
  check(!script.includes("pause"), script);
});

test("an_open_world_draws_nothing_that_has_not_come", async ({ page }) => {
  await open(page);
  await page.locator("#fresh").click();
  await press(page, "A", "acquire");
  for (let i = 0; i < 4; i++) await page.locator("#forth").click();
  const end = await page.locator(".timeline .hold").first().evaluate((bar) =>
    Number(bar.getAttribute("x")) + Number(bar.getAttribute("width")));
  const now = Number(await page.locator(".timeline .now").getAttribute("x1"));
  check(Math.abs(end - now) <= 2, `the bar ends at ${end}, now is at ${now}`);
});

// ---- settings ----

test("every_flavour_has_its_sentence_and_runs", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  const sentences = new Set();
  for (const label of ["etcd", "ZooKeeper", "Redlock", "Picket"]) {
    await page.locator("#flavour label", { hasText: label }).click();
    sentences.add(await page.locator("#sentence").textContent());
    contains(await page.locator("#sentence").textContent(), label);
    contains(await verdict(page), "Violation");
  }
  equal(sentences.size, 4);
});

test("lease_and_clock_check_change_the_world", async ({ page }) => {
  await open(page, "#scenario=partition");
  contains(await verdict(page), "Violation");
  await page.getByLabel("clients ask their clock first").check();
  contains(await verdict(page), "Nothing is broken");
  await page.getByLabel("clients ask their clock first").uncheck();
  await page.locator("#ttl").selectOption("30");
  contains(await verdict(page), "Nothing is broken"); // A holds it all the time
  equal(await number(page, "holder"), "A");
});

test("two_worlds_with_one_clock", async ({ page }) => {
  await open(page, "#scenario=gc-pause&split=fence");
  equal(await page.locator(".side").count(), 2);
  contains(await verdict(page, 0), "Violation");
  contains(await verdict(page, 1), "Nothing is broken");
  equal(await number(page, "rejected", 1), "1");
  await shoot(page, "split");
  await page.locator("#split").selectOption("flavour");
  contains(await page.locator(".side h2").first().textContent(), "Redlock");
  await page.locator("#scenario").selectOption("redlock-clock-jump");
  contains(await verdict(page, 0), "two running clients");
  contains(await verdict(page, 1), "Nothing is broken");
  contains(await page.locator(".side h2").nth(1).textContent(), "without 3 acts");
  await page.locator("#back").click();
  equal(await number(page, "clock", 0), await number(page, "clock", 1));
});

test("all_scenarios_end_as_they_say", async ({ page }) => {
  await open(page);
  const names = await page.locator("#scenario optgroup").first().locator("option")
    .evaluateAll((options) => options.map((o) => o.value));
  check(names.length >= 12, `${names.length} scenarios`);
  for (const name of names) {
    await page.locator("#scenario").selectOption(name);
    equal(await page.locator("#scenario").inputValue(), name);
    const expect = /^expect (.*)$/m.exec(await scriptOf(page))[1];
    contains(await verdict(page), expect === "nothing" ? "Nothing is broken" : "Violation");
    await page.locator("#log-filter").selectOption("bad");
    const bad = await logText(page);
    for (const check of expect.split(" ").filter((word) => word !== "nothing")) {
      contains(bad, `Violation (${check})`);
    }
    await page.locator("#log-filter").selectOption("events");
  }
});

test("random_worlds_can_be_looked_at", async ({ page }) => {
  await open(page);
  await page.locator("#scenario").selectOption("random-hell");
  contains(await page.locator("#about").textContent(), "seed");
  equal(await clock(page), 120);
  contains(await page.locator("#sentence").textContent(), "3 % of them get lost");
  await page.locator(".timeline select").selectOption("20");
  await page.locator("#back").click();
  check(await clock(page) < 120);
  await shoot(page, "random");
  await page.locator("#fresh").click();
  equal(await scriptOf(page), "sim 1\nflavour picket\nfence off\nttl 5s\nuntil 1s\n");
});

// ---- links and files ----

test("a_link_holds_everything", async ({ page, context }) => {
  await open(page, "#scenario=late-grant");
  await page.locator(".timeline > .scrub").fill("4000");
  await press(page, "D", "acquire");
  await press(page, "C", "cut link");
  await page.locator("#fence label", { hasText: /^check$/ }).click();
  await page.waitForTimeout(400);
  const hash = await linkOf(page);
  const [script, log] = [await scriptOf(page), await logText(page)];
  const other = await context.newPage();
  await open(other, hash);
  equal(await scriptOf(other), script);
  const events = (text) => text.split("\n").filter((line) => /[a-z]/.test(line)
    && !line.includes("dropped")); // what was told of the way here is not in the link
  equal(events(await logText(other)), events(log));
  check(events(log).length > 5, log);
  equal(await linkOf(other), hash);
  await other.close();
});

test("a_link_of_another_version_is_told", async ({ page }) => {
  await open(page, "#v=2&s=whatever");
  contains(await page.locator("#message").textContent(), "version 2");
  contains(await verdict(page), "Violation"); // the page is usable
  await press(page, "C", "acquire");
  contains(await scriptOf(page), "C acquire");
});

test("broken_links_and_scripts_say_the_line", async ({ page }) => {
  await open(page, "#v=1&s=sim_1~flavour_picket~at_0.2_A_dance~");
  contains(await page.locator("#message").textContent(), "line 3: nobody can do that: dance");
  await open(page, "#v=1&s=sim_1~%E0%A4%A");
  contains(await page.locator("#message").textContent(), "damaged");
  await open(page, "#scenario=nonesuch");
  contains(await page.locator("#message").textContent(), "nonesuch");
  await open(page, "#v=1&s=");
  contains(await page.locator("#message").textContent(), "sim 1");
  await scriptOf(page);
  await page.locator("#script").fill("sim 1\nfence off\nttl 9x\n");
  await page.locator("#run-script").click();
  contains(await page.locator("#script-error").textContent(), "Line 3");
  await page.locator("#script").fill("sim 1\nat 0.1 B acquire\nuntil 2s\n");
  await page.locator("#run-script").click();
  equal(await page.locator("#script-error").textContent(), "");
  equal(await number(page, "holder"), "B");
});

async function saved(page, id) {
  const [download] = await Promise.all([page.waitForEvent("download"),
    page.locator(id).click()]);
  return readFileSync(await download.path(), "utf8");
}

test("script_picture_and_trace_can_be_kept", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  contains(await saved(page, "#save-script"), "expect");
  const svg = await saved(page, "#save-svg");
  contains(svg, "<style>");
  const trace = JSON.parse(await saved(page, "#save-json"));
  equal(trace.hits.map((hit) => hit.check).sort(),
    ["fence-back", "lost-update", "stale-write"]);
  check(trace.trace.length > 50);
  contains(await verdict(page), "Violation");
  await page.goto("about:blank");
  equal(await page.evaluate((text) => new DOMParser().parseFromString(text,
    "image/svg+xml").querySelector("parsererror") === null, svg), true);
});

// Runs the script by the command line; what it writes for that option.
function byCommand(script, option) {
  writeFileSync("kept.sim", script);
  try {
    execFileSync(picket, ["sim", "run", "-q", "kept.sim", option, "kept.out"]);
  } catch (e) {
    equal(e.status, 1); // something is broken in it
  }
  return readFileSync("kept.out", "utf8");
}

test("the_command_line_says_the_same", async ({ page }) => {
  for (const hash of ["#scenario=gc-pause", "#scenario=redlock-clock-jump"]) {
    await open(page, hash);
    const script = await saved(page, "#save-script");
    equal(await saved(page, "#save-json") === byCommand(script, "--json"), true);
    equal(await saved(page, "#save-svg") === byCommand(script, "--svg"), true);
  }
  await page.locator("#back").click();
  await press(page, "D", "acquire");
  await page.locator("#forth").click();
  const script = await saved(page, "#save-script");
  contains(script, "D acquire");
  equal(await saved(page, "#save-json") === byCommand(script, "--json"), true);
});

test("links_of_the_command_line_open", async ({ page }) => {
  const script = "sim 1 # Ünder_score ~ & 100 % <b>\nat 0.1 C acquire\nuntil 1s\n";
  writeFileSync("linked.sim", script);
  const said = execFileSync(picket, ["sim", "run", "--link", "linked.sim"],
    { encoding: "utf8" });
  await open(page, /#v=1\S*/.exec(said)[0]);
  equal(await number(page, "holder"), "C");
  equal(await page.locator("#about").textContent(), "Ünder_score ~ & 100 % <b>");
});

async function drop(page, name, text) {
  const data = await page.evaluateHandle(([n, t]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([t], n));
    return transfer;
  }, [name, text]);
  await page.dispatchEvent("main", "dragover", { dataTransfer: data });
  await page.dispatchEvent("main", "drop", { dataTransfer: data });
}

test("files_can_be_dropped", async ({ page }) => {
  await open(page);
  await drop(page, "mine.sim", "sim 1 # Mine\nat 0.1 D acquire\nuntil 1s\n");
  await until(page, () =>
    document.getElementById("about").textContent === "Mine");
  equal(await number(page, "holder"), "D");
  await drop(page, "cat.jpg", "\u0001\u0002 no script");
  await page.getByText("cat.jpg: line 1").waitFor();
  equal(await number(page, "holder"), "D");
});

test("a_trace_of_a_cluster_is_judged_lock_by_lock", async ({ page }) => {
  const text = readFileSync(traceFile, "utf8");
  await open(page);
  await drop(page, "n1.trace", text);
  await page.getByText("Nothing is broken, as far as a service can know").waitFor();
  contains(await page.locator("#trace-about").textContent(), "2 locks, 4 grants");
  equal((await page.locator("#trace-lock option").allTextContents()).sort(),
    ["<b>bills", "orders"]);
  await page.locator("#trace-lock").selectOption({ label: "orders" });
  equal(await page.locator("#trace-picture .hold").count(), 3);
  equal(await page.locator("#trace-picture b").count(), 0);
  equal(await barriers(page), []);
  await shoot(page, "trace");
  await page.getByRole("button", { name: "Back to the simulator" }).click();
  contains(await verdict(page), "Violation");
});

test("a_trace_that_was_tampered_with_is_found", async ({ page }) => {
  const granted = /^(\d+ granted orders \d+ \d+ )(\d+)/gm;
  const text = readFileSync(traceFile, "utf8").replace(granted, (_, head, token) =>
    head + String(1000 - Number(token))); // they fall now
  await open(page);
  await drop(page, "bad.trace", text);
  await page.getByText(/^✕ \d+ violations? in \d locks?\./).waitFor();
  contains(await page.locator("#trace-lock option").first().textContent(), "✕ orders");
  contains(await page.locator("#trace-hits").innerText(), "tokens must grow");
  await page.locator("#trace-hits").getByRole("button").first().click();
  equal(await page.locator("#trace-span").inputValue(), "10");
  check(await page.locator("#trace-picture .violation").count() > 0);
});

test("a_long_trace_is_looked_at_in_parts", async ({ page }) => {
  const text = ["picket-trace 1 n1 77", "1000 opened 1 ann",
    "1000 granted orders 1 1 1 x 0", "2000 ended orders 1 1 1 released",
    "900000 granted orders 1 2 2 x 0", "901000 ended orders 1 2 2 released",
    "3600000 granted orders 1 3 3 x 0", "3601000 ended orders 1 3 3 released", ""];
  const holds = page.locator("#trace-picture .hold");
  const rows = page.locator("#trace-rows tr");
  await open(page);
  await drop(page, "hours.trace", text.join("\n"));
  await page.getByText("Nothing is broken").waitFor();
  equal([await holds.count(), await rows.count()], [3, 6]);
  await page.locator("#trace-span").selectOption("10");
  equal([await holds.count(), await rows.count()], [1, 2]);
  contains(await rows.first().innerText(), "3600.000");
  await page.locator("#trace-end").press("Home");
  equal([await holds.count(), await rows.count()], [1, 2]);
  contains(await rows.first().innerText(), "1.000");
  equal(await page.locator("#trace-end").getAttribute("aria-valuetext"), "11.000 s");
  equal(await barriers(page), []);
  await shoot(page, "trace-part");
});

test("a_trace_of_another_version_is_told", async ({ page }) => {
  await open(page);
  await drop(page, "new.trace", "picket-trace 2 n1 8f3a\n1 opened 5 a\n");
  await page.getByText("new.trace: line 1").waitFor();
  contains(await page.locator("#message").textContent(), "version");
  contains(await verdict(page), "Violation"); // the page stays as it was
});

// ---- counterexamples ----

test("a_counterexample_is_found_and_made_small", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  await page.locator("#hunt").click();
  await page.getByText(/^Found .* in world/).waitFor();
  contains(await verdict(page), "Violation");
  const acts = (await scriptOf(page)).match(/^at /gm).length;
  check(acts < 25, `${acts} acts`);
  await shoot(page, "counterexample");
});

test("with_the_fence_on_the_search_goes_on", async ({ page }) => {
  await open(page, "#scenario=gc-pause-fenced");
  await page.locator("#hunt").click();
  await until(page, () => {
    const worlds = /^([\d,]+) worlds/.exec(
      document.getElementById("hunt-status").textContent);
    return worlds && Number(worlds[1].replaceAll(",", "")) >= 200;
  });
  contains(await page.locator("#hunt-status").textContent(), "nothing broke yet");
  await page.locator("#hunt").click();
  equal(await page.locator("#hunt-status").textContent(), "Stopped.");
});

// ---- for everybody ----

test("the_keyboard_is_enough", async ({ page }) => {
  await open(page, "#scenario=gc-pause-fenced");
  await page.keyboard.press("Home");
  equal(await clock(page), 0);
  await page.keyboard.press(".");
  check(await clock(page) > 0);
  await page.keyboard.press("End");
  equal(await clock(page), 12);
  await page.locator("#fresh").focus();
  await page.keyboard.press("Enter");
  equal(await clock(page), 0);
  await page.keyboard.press("Shift+C");
  await page.keyboard.press("a");
  for (let i = 0; i < 4; i++) await page.keyboard.press(".");
  contains(await client(page, "C").innerText(), "holding");
  await page.keyboard.press("w");
  await page.keyboard.press(".");
  equal(await number(page, "accepted"), "1");
  await page.keyboard.press("p");
  contains(await client(page, "C").innerText(), "cut off");
  await page.keyboard.press("g");
  contains(await client(page, "C").innerText(), "paused");
  await page.keyboard.press("f");
  equal(await page.locator("input[name=fence]:checked").getAttribute("value"), "0");
  await page.keyboard.press("]");
  equal(await page.locator("#speed").inputValue(), "2");
  await page.keyboard.press("?");
  check(await page.locator("#help").isVisible());
  await page.keyboard.press("Escape");
  check(await page.locator("#help").isHidden());
});

test("tab_reaches_everything_and_shows_where_it_is", async ({ page }) => {
  await open(page);
  const wanted = await page.evaluate(() => [...document.querySelectorAll(
    "button, select, input, textarea, summary, [tabindex='0']")].filter((e) =>
    e.checkVisibility() && !(e.type === "radio" && !e.checked)).length);
  const seen = new Set();
  for (let i = 0; i < wanted + 10; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      e.dataset.visited = e.dataset.visited || String(Math.random());
      const shape = getComputedStyle(e.matches(".seg input") ? e.nextSibling
        : e.matches("label input[type=file]") ? e.parentNode : e);
      return { id: e.dataset.visited, body: e === document.body,
        outline: shape.outlineStyle !== "none", name: e.outerHTML.slice(0, 80) };
    });
    check(at.body || at.outline, `the focus does not show on ${at.name}`);
    if (!at.body) seen.add(at.id);
  }
  check(seen.size >= wanted, `Tab reached ${seen.size} of ${wanted}`);
});

test("single_keys_can_be_switched_off", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  await page.getByLabel("single-key").uncheck();
  await page.locator("h1").click();
  await page.keyboard.press("Home");
  await page.keyboard.press("f");
  equal(await clock(page), 12);
  equal(await page.locator("input[name=fence]:checked").getAttribute("value"), "0");
  await page.getByLabel("single-key").check();
  await page.locator("h1").click();
  await page.keyboard.press("Home");
  equal(await clock(page), 0);
});

test("no_barriers_in_light_and_dark_wide_and_narrow", async ({ page }) => {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [width, hash] of [[1280, "#scenario=gc-pause"],
      [1280, "#scenario=gc-pause&split=fence"], [390, "#scenario=redlock-clock-jump"],
      [1280, "#story"]]) {
      await page.setViewportSize({ width, height: 900 });
      await open(page, hash);
      await page.evaluate(() => document.querySelectorAll("details")
        .forEach((d) => { d.open = true; }));
      equal(await barriers(page), []);
      const over = await page.evaluate(() =>
        document.documentElement.scrollWidth - document.documentElement.clientWidth);
      check(over <= 0, `${over} px too wide at ${width} px, ${hash}`);
      await shoot(page, `${colorScheme}-${width}-${hash.replace(/\W+/g, "-")}`);
    }
  }
  await page.keyboard.press("?");
  equal(await barriers(page), []);
});

test("twice_as_large_and_very_narrow_nothing_is_cut", async ({ page }) => {
  for (const width of [640, 320]) {
    await page.setViewportSize({ width, height: 700 });
    await open(page, "#scenario=herd");
    const over = await page.evaluate(() => [...document.querySelectorAll("body *")]
      .filter((e) => !e.closest(".scroll, .hidden, .skip, #log, svg")
        && e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
      .map((e) => e.outerHTML.slice(0, 60)));
    equal(over, []);
  }
});

test("both_colour_schemes_by_the_system_and_by_hand", async ({ page }) => {
  const paper = () => page.evaluate(() =>
    getComputedStyle(document.documentElement).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  await open(page);
  const light = await paper();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await paper();
  check(light !== dark, light);
  const button = page.locator("#theme");
  await button.click();
  equal(await paper(), light);
  await button.click();
  await page.emulateMedia({ colorScheme: "light" });
  equal(await paper(), dark);
  await button.click();
  equal(await paper(), light);
});

test("the_timeline_is_a_table_too", async ({ page }) => {
  await open(page, "#scenario=gc-pause");
  await page.locator("#table-box summary").click();
  await page.locator("#table tr").first().waitFor();
  const text = await page.locator("#table-box table").innerText();
  contains(text, "holds, says the service (token 1)");
  contains(text, "believes that it holds (token 2)");
  contains(text, "stands still");
});

// ---- served ----

test("served_under_a_strict_policy_it_works_the_same", async ({ page }) => {
  const [answer] = await Promise.all([page.waitForResponse((r) => r.url()
    .startsWith(`${server}sim`)), open(page, "#scenario=gc-pause", `${server}sim`)]);
  const policy = answer.headers()["content-security-policy"];
  contains(policy, "default-src 'none'");
  check(!/'unsafe-(inline|eval)'/.test(policy), policy);
  contains(await verdict(page), "Violation");
  await page.locator("#hunt").click();
  await page.getByText(/^Found .* in world/).waitFor();
  equal(await page.locator("#version-note").textContent(), "");
});

test("another_version_of_the_server_is_told", async ({ page }) => {
  await page.route("**/version", (route) => route.fulfill({ body: "9.9.9\n" }));
  await open(page, "", `${server}sim`);
  await page.getByText("The server is 9.9.9").waitFor();
});

await main({ chromium });
