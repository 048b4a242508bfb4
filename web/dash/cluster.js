// SPDX-License-Identifier: MIT
// Which node this is, whom it knows, and what it counts.

function linkWords() {
  const c = now.cluster;
  if (!c) return ["connecting", ""];
  if (!isLive()) return ["not connected", `to ${c.node}`];
  const standing = c.serving ? "leader" : c.standing;
  const age = now.age === null ? "no leader"
    : c.serving ? "" : `data ${duration(now.age)} old`;
  const fresh = document.documentElement.dataset.live === "yes";
  return [fresh ? "live" : "not up to date",
    [`node ${c.node}`, standing, age].filter(Boolean).join(", ")];
}

// Other nodes may know more; the browser may go there.
function otherNodes() {
  const others = now.cluster.members.filter((m) => !m.self && m.http !== "");
  return others.flatMap((m, i) => [i > 0 ? ", " : "",
    h("a", { href: `http://${m.http}/${location.hash}` }, m.name)]);
}

function message() {
  const c = now.cluster;
  if (!isLive()) {
    if (!c) return ["No answer yet; trying again."];
    return [`Node ${c.node} does not answer. What you see is what it said ${
      duration(performance.now() - link.heard)} ago. Trying again.`,
    ...(c.members.length > 1 ? [" Other nodes: ", ...otherNodes(), "."] : [])];
  }
  if (c && now.age === null) {
    return ["There is no leader. Until there is one, nothing is granted, nothing "
      + "expires, and cluster time stands still."];
  }
  return [];
}

let lastMessage = "";
function showMessage() {
  const parts = message();
  const text = parts.map((p) => p.textContent || p).join("");
  const kind = text.replace(/\d+(\.\d)? (ms|s|min|h|d) ago/, "");
  $("message").hidden = text === "";
  if (kind !== lastMessage) {
    lastMessage = kind;
    $("message").replaceChildren(...parts);
  } else if (text !== "" && $("message").firstChild) {
    $("message").firstChild.textContent = parts[0]; // the time alone
  }
}

let lastWord = "";
function showLink() {
  const [word, more] = linkWords();
  say($("link-word"), word);
  say($("link-more"), more === "" ? "" : `· ${more}`);
  if (word !== lastWord) say($("spoken"), `${word} ${more}`);
  lastWord = word;
  showMessage();
}

// ---- nodes ----

const LAG_MUCH = 200; // entries; fewer are just on their way

function nodeState(m) {
  if (m.silent_ms === "away") return ["away", "✕ not connected"];
  if (m.silent_ms !== null && m.silent_ms >= 2000) {
    return ["away", `✕ silent for ${duration(m.silent_ms)}`];
  }
  if (m.leader) return ["leads", "◆ leader"];
  if (m.role !== "voter") return ["", m.role];
  return [m.lag > LAG_MUCH ? "behind" : "", "follower"];
}

function nodeItem(m) {
  const [kind, word] = nodeState(m);
  const lag = m.lag === null ? (m.leader ? "heard just now" : "the leader knows more")
    : m.lag <= LAG_MUCH ? `up to date, lag ${m.lag}` : `▲ ${count(m.lag)} entries behind`;
  const name = m.self || m.http === "" ? h("b", {}, m.name)
    : h("a", { href: `http://${m.http}/` }, h("b", {}, m.name));
  return h("li", { class: kind }, h("span", {}, name, m.self ? " (this one)" : ""),
    h("span", { class: "role" }, word), h("small", {}, kind === "away" ? "" : lag));
}

function showCluster() {
  const c = now.cluster;
  say($("title-node"), c.node);
  say($("version"), `Picket ${c.version}.`);
  document.title = `Picket ${c.node}`;
  $("nodes").replaceChildren(...c.members.map(nodeItem));
}

// ---- numbers ----

function number(label, text, alarm = false) {
  return h("div", alarm ? { class: "alarm" } : {}, h("dt", {}, label), h("dd", {}, text));
}

function showNumbers() {
  const { totals: t, cluster: c, times } = now;
  $("numbers").replaceChildren(number("Locks", count(t.locks)),
    number("Holds", count(t.holds)), number("Waiting", count(t.waits)),
    number("Leases", count(t.leases)), number("Last token", count(t.token)),
    number("Refusals", count(times.rejected), times.rejected > 0),
    number("Term", count(c.term)), number("Commit", count(c.commit)));
}
