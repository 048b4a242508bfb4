// SPDX-License-Identifier: MIT
// The scenario to run first: one pause, told step by step, without a fence and with one.
// Each step goes to a time of a real run; nothing here is drawn by hand.

const STORY = [
  { script: "gc-pause", at: 0, title: "Four clients, one lock, one number",
    text: "The clients below share a lock with a lease of 5 s, and a counter that "
      + "only the holder may change: read it, add one, write it back. Fencing is "
      + "off: the counter takes whatever it is sent. Let's see what can go wrong." },
  { script: "gc-pause", at: 0.7, title: "A takes the lock and writes",
    text: "The service gives A the lock, with token 1. A's card turns green. It reads "
      + "0 and writes 1. In the timeline, the solid bar is what the service says; "
      + "the dashed one is what A believes. They agree." },
  { script: "gc-pause", at: 2.5, title: "A stands still",
    text: "A garbage collection, a laptop that sleeps, a machine that swaps: for 8 s, "
      + "A does nothing at all. It can't renew its lease. B has asked for the lock, "
      + "and waits." },
  { script: "gc-pause", at: 5.4, title: "The lease ends, and B gets the lock",
    text: "The service has not heard of A for 5 s, and it must not wait for ever. B "
      + "gets the lock with token 2. So far all is well: A does nothing. But look "
      + "at A's lane: the solid bar has ended, and the dashed one goes on." },
  { script: "gc-pause", at: 7.8, title: "B works",
    text: "B reads 1, adds one, and writes 2; and once more: 3. It has every right to." },
  { script: "gc-pause", at: 9.1, title: "A wakes up",
    text: "Nothing has changed in A's memory. Its program is in the middle of what it "
      + "was doing, right before the write. It has no reason to ask anybody." },
  { script: "gc-pause", at: 9.8, title: "And writes",
    text: "A still knows the counter as 1, so it writes 2, over B's 3. Four writes, and "
      + "the counter stands at 2: what B did is lost. No lock service can prevent "
      + "this: the lock was given correctly all the time." },
  { script: "gc-pause-fenced", at: 9.1, title: "The same again, with a fence",
    text: "Now the counter remembers the highest token it has seen. When B read it "
      + "with token 2, the fence went up to 2: that is the blue line in the lowest "
      + "lane. A wakes up as before, with token 1." },
  { script: "gc-pause-fenced", at: 9.8, title: "Refused",
    text: "Token 1 is lower than 2: the write bounces off, and A learns the truth. "
      + "Nothing is lost. That is all that fencing is: a number that grows, and a "
      + "resource that looks at it." },
  { script: "gc-pause-fenced", at: 12, title: "Now you",
    text: "Go back in time and change something, choose another service, compare both "
      + "side by side, or let the page look for a counterexample. Everything above "
      + "is the lock machine that the server runs." },
];

const story = { step: -1 };

function tellStep(step) {
  const { script, at, title, text } = STORY[step];
  const scenario = scenarios.find((s) => s.name === script);
  story.step = step;
  load(scenario.text, { at: "start", told: scenario.about, split: "" });
  run.seen = at * SECOND; // what comes is not told yet
  goTo(at * SECOND);
  $("story").hidden = false;
  $("main").classList.add("telling");
  say($("story-count"), `The scenario to run first · ${step + 1} of ${STORY.length}`);
  say($("story-title"), title);
  say($("story-text"), text);
  setAttribute($("story-back"), "aria-disabled", String(step === 0));
  say($("story-next"), step === STORY.length - 1 ? "Finish" : "Continue →");
}

function leaveStory() {
  if (story.step < 0) return;
  story.step = -1;
  $("story").hidden = true;
  $("main").classList.remove("telling");
  run.seen = Math.max(run.seen, run.open ? 0 : facts().until);
  refresh();
}

function bindStory() {
  $("story-open").onclick = () => {
    tellStep(0);
    $("story-title").focus();
    $("story").scrollIntoView({ block: "start" });
  };
  $("story-next").onclick = () => {
    if (story.step === STORY.length - 1) leaveStory();
    else tellStep(story.step + 1);
  };
  $("story-back").onclick = () => { if (story.step > 0) tellStep(story.step - 1); };
  $("story-close").onclick = leaveStory;
}
