// The page: what it shows, what it asks the app, once a second.

import { Failed, get, post } from "./api.js";
import { compact, duration, h, mood, pill, plural, put, refresh } from "./dom.js";
import { flow, flows } from "./flows.js";
import { letters } from "./letters.js";
import { overview } from "./overview.js";
import { plan } from "./plan.js";
import { sql } from "./sql.js";
import { sources } from "./sources.js";
import { table, tables } from "./tables.js";

const INTERVAL_MS = 1000;
const HISTORY_S = 900;
// In the order of the keys 1 to 7.
const VIEWS = [
  { path: "", name: "Overview", open: overview },
  { path: "tables", name: "Tables", open: tables, detail: table },
  { path: "flows", name: "Flows", open: flows, detail: flow },
  { path: "sources", name: "Sources", open: sources },
  { path: "dead-letters", name: "Dead letters", open: letters },
  { path: "sql", name: "SQL", open: sql },
  { path: "plan", name: "Plan", open: plan },
];

/** All that is known of the app; views read it, nobody else writes it. */
const state = { stats: null, graph: null, history: { at: [], flows: {} }, rates: new Map(), connected: false };

state.rate = (key) => state.rates.get(key) || 0;

function measured(before, now) {
  const seconds = now.seconds - before.seconds;
  if (seconds <= 0 || before.app !== now.app) return;
  const totals = (stats) => [
    ...stats.flows.map((f) => [`flow:${f.id}`, f.rows]),
    ...stats.sinks.map((f) => [`sink:${f.id}`, f.rows]),
    ...stats.statements.map((f) => [`statement:${f.flow}:${f.line}:${f.engine}`, f.rows]),
    ...stats.tables.map((t) => [`table:${t.name}`, t.version]),
  ];
  const old = new Map(totals(before));
  for (const [key, total] of totals(now)) {
    const rate = Math.max(0, total - (old.get(key) ?? total)) / seconds;
    // Smoothed over some seconds, so that batches do not make it jump.
    state.rates.set(key, 0.6 * state.rate(key) + 0.4 * rate);
  }
}

function remember(stats) {
  const { history } = state;
  const at = Date.now() / 1000;
  history.at.push(at);
  for (const found of stats.flows) {
    const kept = (history.flows[found.id] ||= { rows: [], batch_ms: [], lag: [] });
    const before = state.stats?.flows.find((f) => f.id === found.id);
    // A batch time is that of the last batch: without a new one there is none to show.
    const now = { ...found, batch_ms: !before || before.batches === found.batches ? 0 : found.batch_ms };
    for (const name of ["rows", "batch_ms", "lag"]) {
      while (kept[name].length < history.at.length - 1) kept[name].push(null);
      kept[name].push(now[name]);
    }
  }
  while (history.at.length && history.at[0] < at - HISTORY_S) {
    history.at.shift();
    for (const kept of Object.values(history.flows)) for (const values of Object.values(kept)) values.shift();
  }
}

// Around the views

const top = document.getElementById("top");
const nav = document.getElementById("nav");
const view = document.getElementById("view");
const status = h("span", { class: "status" });
const links = VIEWS.map((found, i) => h("a", { href: `#/${found.path}`, title: `Key ${i + 1}` }, h("span", {}, found.name), h("span", { class: "badge" })));

function theme(wanted) {
  if (wanted) localStorage.setItem("theme", wanted);
  const kept = localStorage.getItem("theme");
  if (kept) document.documentElement.dataset.theme = kept;
  return kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function frame() {
  theme();
  const name = h("h1", {}, "Millpond");
  put(
    top,
    h("a", { class: "brand", href: "#/" }, h("img", { src: "/page/icon.svg", alt: "", width: 28, height: 28 }), name),
    status,
    h("button", { class: "quiet", type: "button", title: "Light or dark", "aria-label": "Light or dark", onclick: () => theme(theme() === "dark" ? "light" : "dark") }, "◐"),
    h("button", { class: "quiet", type: "button", title: "Keys", "aria-label": "Keys", onclick: help }, "?"),
  );
  put(nav, ...links);
  return name;
}
const appName = frame();

function head() {
  const { stats, connected } = state;
  if (!stats) return;
  put(appName, stats.app);
  document.title = `${stats.failures.length ? "! " : ""}${stats.app} · Millpond`;
  const trouble = stats.failures.length ? h("a", { class: "pill bad", href: "#/" }, plural(stats.failures.length, "failure")) : null;
  refresh(status, connected ? pill(stats.state) : h("span", { class: "pill bad" }, "not connected"), trouble, h("span", { class: "soft wide" }, `up ${duration(stats.seconds)}`));
  const badge = (i, text, kind) => {
    const element = links[i].querySelector(".badge");
    element.className = `badge ${kind || ""}`;
    put(element, text || "");
  };
  const worst = (items) => items.filter((item) => ["bad", "stale", "warn"].includes(mood(item.state)));
  for (const [i, items] of [[1, stats.tables], [2, stats.flows], [3, stats.sources]]) {
    const found = worst(items);
    badge(i, found.length ? String(found.length) : "", found.some((item) => item.state === "failed") ? "bad" : "warn");
  }
  const dead = stats.tables.find((t) => t.name === "dead_letters");
  badge(4, dead && dead.rows ? compact(dead.rows) : "", "warn");
}

// Views

let current = { update() {}, close() {} };

function go() {
  const [path = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const found = VIEWS.find((v) => v.path === path) || VIEWS[0];
  links.forEach((link, i) => (VIEWS[i] === found ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
  links[VIEWS.indexOf(found)].scrollIntoView({ block: "nearest", inline: "center" });
  current.close();
  const open = rest.length && found.detail ? found.detail : found.open;
  current = { update() {}, close() {}, ...open(state, rest) };
  put(view, current.element);
  view.scrollTop = 0;
  if (state.stats) current.update(state);
}

async function look() {
  try {
    const stats = await get("/api/stats");
    if (!state.graph || changed(stats)) state.graph = await get("/api/graph");
    const first = !state.stats;
    if (first) state.history = await get("/api/history");
    else measured(state.stats, stats);
    remember(stats);
    state.stats = stats;
    state.connected = true;
    if (first) go();
  } catch (error) {
    if (error instanceof Failed && error.status === 401) {
      login();
      return;
    }
    state.connected = false;
  }
  head();
  if (state.stats) current.update(state);
  setTimeout(look, INTERVAL_MS);
}

/** Whether the app has other flows or tables than before: it may take an edited file while it runs. */
function changed(stats) {
  const names = (found) => [...found.flows.map((f) => f.id), ...found.tables.map((t) => t.name), ...found.sinks.map((x) => x.id)].join("\n");
  return state.stats !== null && names(stats) !== names(state.stats);
}

function login() {
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const said = h("p", { class: "error", role: "alert" });
  const form = h(
    "form",
    {
      class: "card login",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await post("/api/login", { token: token.value });
          put(view);
          look();
        } catch (error) {
          put(said, error.message);
        }
      },
    },
    h("h2", {}, "This app needs a token"),
    h("label", { for: "token" }, "Token"),
    token,
    h("p", { class: "soft" }, "The value of --http-token, or of MILLPOND_HTTP_TOKEN where the app runs."),
    said,
    h("button", { class: "main" }, "Log in"),
  );
  put(view, form);
  token.focus();
}

// Keys

function help() {
  const keys = [
    ["1 – 7", "the views"],
    ["/", "the filter, or the SQL box"],
    ["Ctrl Enter", "run the statement"],
    ["Ctrl Space", "complete a name"],
    ["Esc", "leave a box, close this"],
  ];
  const dialog = h(
    "dialog",
    { onclose: () => dialog.remove(), onclick: (event) => event.target === dialog && dialog.close() },
    h("h2", {}, "Keys"),
    h("dl", {}, keys.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}

addEventListener("keydown", (event) => {
  const writing = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && writing) writing.blur();
  if (writing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const number = Number(event.key);
  if (number >= 1 && number <= VIEWS.length) location.hash = `#/${VIEWS[number - 1].path}`;
  else if (event.key === "/") {
    event.preventDefault();
    const box = view.querySelector("[data-find]");
    if (box) box.focus();
    else location.hash = "#/sql";
  } else if (event.key === "?") help();
});

addEventListener("hashchange", () => {
  go();
  view.focus({ preventScroll: true });
});

look();
