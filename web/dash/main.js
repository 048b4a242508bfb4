// SPDX-License-Identifier: MIT
// Puts what was told on the page, and keeps what runs running.

const TICK_MS = 200;

const SHOW = {
  cluster: showCluster, rates: showRates, times: () => { showTimes(); showSums(); },
  losses: showLosses, refusals: showRefusals, lock: showDetail,
};

function show(told) {
  for (const [part, display] of Object.entries(SHOW)) if (told[part]) display();
  if (told.totals || told.cluster || told.times) showNumbers();
  if (told.rows) showRows();
  showCount();
  showLink();
  tick();
}

function tick() {
  if (now.cluster) {
    tickRows();
    tickEvents();
    tickDetail();
  }
}

// ---- colours ----

const THEMES = ["auto", "light", "dark"];

function remembered() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  say($("theme-word"), theme);
  try { localStorage.setItem("theme", theme); } catch { /* then not */ }
}

function bindTheme() {
  let theme = THEMES.includes(remembered()) ? remembered() : "auto";
  setTheme(theme);
  $("theme").onclick = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    setTheme(theme);
  };
}

bindTheme();
bindFilter();
bindDetail();
showDetail();
connect();
setInterval(() => {
  watchSilence();
  if (isLive()) tick();
  else showLink();
}, TICK_MS);
