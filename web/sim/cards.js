// SPDX-License-Identifier: MIT
// The clients' cards and buttons, and the service's.

const PAUSES = [1, 2, 5, 8, 15, 30];
const cards = [];

// How a client is doing: a class, a sign and a word, and what there is to add.
function stateOf(client, i, view) {
  const holds = view.holder === i;
  let state = ["idle", "○", "idle"];
  if (client.believes && holds) state = ["holding", "●", "holding"];
  else if (client.believes) state = ["stale", "!", "still believes"];
  else if (holds) state = ["stale", "?", "holds, and does not know"];
  else if (client.phase === "queued") state = ["waiting", "◔", "waiting"];
  else if (client.phase === "asking") state = ["waiting", "…", "asking"];
  const extras = [];
  if (client.paused) extras.push("‖ paused");
  if (client.cut) extras.push("✂ cut off");
  if (client.cutData) extras.push("✂ no way to the data");
  return { kind: state[0], sign: state[1], word: state[2], extras };
}

function leaseLine(client) {
  if (!client.believes && client.phase !== "queued") return "";
  return client.left >= 0 ? `own lease: ${seconds(client.left)} left`
    : `own lease: over for ${seconds(-client.left)}`;
}

function showState(element, client, i, side) {
  const s = stateOf(client, i, side.view);
  const paused = client.paused ? " paused" : "";
  const token = client.token ? `token ${client.token}` : "";
  const key = [s.kind, s.word, paused, s.extras, token, leaseLine(client), side.label,
    client.ready && client.value].join("|");
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.className = `state ${s.kind}${paused}`;
  element.replaceChildren(
    ...(side.label ? [h("small", {}, side.label)] : []),
    h("b", {}, `${s.sign} ${[s.word, ...s.extras].join(", ")}`),
    ...(token ? [h("div", { className: "token" }, token)] : []),
    h("small", {}, leaseLine(client) || "\u00a0"),
    ...(client.ready ? [h("small", {}, `knows the counter as ${client.value}`)] : []));
}

// Why a button would do nothing, or null.
function idleReason(op, clients) {
  if (op === "acquire" && clients.every((c) => c.phase !== "idle")) {
    return "it has the lock, or is asking for it";
  }
  if ((op === "write" || op === "release") && clients.every((c) => !c.believes)) {
    return "it does not believe that it holds the lock";
  }
  return null;
}

const viewsOf = (i) => run.sides.map((side) => side.view.clients[i]);

function press(i, op) {
  const card = cards[i];
  const reason = idleReason(op, viewsOf(i));
  choose(i);
  if (reason) {
    note(`${clientName(i)} can't ${op}: ${reason}.`);
    refresh();
  } else if (op === "pause") {
    act(i, "pause", Number(card.seconds.value) * SECOND);
  } else if (op === "cut") {
    act(i, viewsOf(i).some((c) => c.cut) ? "heal" : "cut");
  } else {
    act(i, op);
  }
}

function choose(i) {
  run.chosen = i;
  cards.forEach((card, k) => card.box.classList.toggle("chosen", k === i));
}

function buildCard(i) {
  const name = clientName(i);
  const button = (op, label, key) => h("button", { onclick: () => press(i, op),
    "aria-label": `${name}: ${label}`, "aria-keyshortcuts": key }, label);
  const card = { states: h("div", { className: "states" }), buttons: {} };
  for (const [op, label, key] of [["acquire", "acquire", "a"], ["write", "write", "w"],
    ["release", "release", "r"], ["pause", "GC pause", "g"], ["cut", "cut link", "p"]]) {
    card.buttons[op] = button(op, label, key);
  }
  card.seconds = h("select", { "aria-label": `${name}: length of the pause` },
    ...PAUSES.map((s) => h("option", { value: s, selected: s === 8 }, `${s} s`)));
  const b = card.buttons;
  card.box = h("article", { className: "card", "aria-label": `Client ${name}` },
    h("h3", {}, `Client ${name}`), card.states,
    h("div", { className: "row" }, b.acquire, b.write, b.release),
    h("div", { className: "row" }, b.pause, card.seconds, b.cut));
  return card;
}

function showCard(card, i) {
  while (card.states.children.length < run.sides.length) {
    card.states.append(h("div", { className: "state" }));
  }
  while (card.states.children.length > run.sides.length) card.states.lastChild.remove();
  card.states.classList.toggle("two-states", run.sides.length > 1);
  run.sides.forEach((side, k) => {
    showState(card.states.children[k], side.view.clients[i], i, side);
  });
  const clients = viewsOf(i);
  for (const [op, button] of Object.entries(card.buttons)) {
    const off = idleReason(op, clients) !== null;
    setAttribute(button, "aria-disabled", String(off));
  }
  const cut = clients.some((c) => c.cut);
  say(card.buttons.cut, cut ? "heal link" : "cut link");
  setAttribute(card.buttons.cut, "aria-pressed", String(cut));
  setAttribute(card.buttons.cut, "aria-label",
    `${clientName(i)}: ${cut ? "heal link" : "cut link"}`);
}

// ---- the service ----

let serviceCard = null;

function buildService() {
  const card = {
    failover: h("button", { onclick: () => act(SERVICE, "failover", 3 * SECOND) },
      "new leader in 3 s"),
    pause: h("button", { onclick: () => act(SERVICE, "pause", 3 * SECOND) },
      "pause for 3 s"),
    node: h("select", { "aria-label": "Node" },
      ...[...Array(NODES)].map((_, i) => h("option", { value: NODE + i }, `n${i + 1}`))),
    jump: h("button", { onclick: () => act(Number(card.node.value), "jump", 6 * SECOND) },
      "clock +6 s"),
    crash: h("button", { onclick: () => act(Number(card.node.value), "crash") },
      "restart empty"),
    text: h("small", {}),
  };
  card.box = h("article", { className: "card service", "aria-label": "The service" },
    h("h3", {}, "The service"), card.text,
    h("div", { className: "row" }, card.failover, card.pause),
    h("div", { className: "row" }, card.node, card.jump, card.crash));
  return card;
}

function showService() {
  const f = facts();
  const nodes = f.flavour === REDLOCK && run.split !== "flavour";
  const whole = f.flavour !== REDLOCK && run.split !== "flavour";
  const c = serviceCard;
  c.failover.parentNode.hidden = !whole;
  c.node.parentNode.hidden = !nodes;
  c.box.hidden = !nodes && !whole;
  say(c.text, run.sides.map(serviceWords).join(" · "));
}

function serviceWords({ label, view }) {
  return [label, view.paused ? "‖ stands still" : "runs",
    view.waiting ? `${plural(view.waiting, "client")} waiting` : ""]
    .filter(Boolean).join(", ");
}

function showCards() {
  const count = run.sides[0].view.clients.length;
  if (!serviceCard) {
    serviceCard = buildService();
    $("cards").append(serviceCard.box);
  }
  while (cards.length < count) {
    cards.push(buildCard(cards.length));
    serviceCard.box.before(cards[cards.length - 1].box);
  }
  while (cards.length > count) cards.pop().box.remove();
  cards.forEach(showCard);
  choose(run.chosen);
  showService();
}
