// The first view: how the app is as a whole, its graph, and what needs attention.

import { bar, chart, rates } from "./charts.js";
import { bytes, compact, count, duration, h, milliseconds, mood, plural, problem, put, refresh } from "./dom.js";
import { details, picture } from "./graph.js";

const NARROW = 760;

function summed(history, name, combine) {
  const flows = Object.values(history.flows).map((found) => (name === "rows" ? rates(history.at, found.rows) : found[name]));
  return history.at.map((_, i) => {
    const known = flows.map((values) => values[i]).filter((v) => v !== null && v !== undefined);
    return known.length ? combine(known) : null;
  });
}

const sum = (values) => values.reduce((a, b) => a + b, 0);

export function overview(state) {
  const speed = chart("Records per second", (v) => compact(v));
  const batches = chart("Slowest batch", milliseconds, "second");
  const tiles = h("div", { class: "tiles" });
  const loading = h("div", {});
  const attention = h("div", {});
  const frame = h("div", { class: "graph-frame scroll", tabindex: "0", role: "region", "aria-label": "Graph" });
  const legend = h("p", { class: "legend soft" }, ["ok", "busy", "warn", "stale", "bad"].map((kind, i) => h("span", {}, h("i", { class: `dot ${kind}` }), ["ready", "loading", "waiting, retrying", "stale", "failed"][i])));
  const element = h(
    "div",
    { class: "stack" },
    attention,
    h("div", { class: "columns three" }, h("section", { class: "card" }, speed.element), h("section", { class: "card" }, batches.element), h("section", { class: "card" }, tiles)),
    loading,
    h("section", { class: "card" }, h("h2", {}, "From sources to sinks"), frame, legend),
  );
  let drawn = { graph: null };

  function draw(now) {
    const down = innerWidth < NARROW;
    if (drawn.graph === now.graph && drawn.down === down) return;
    drawn = { graph: now.graph, down, ...picture(now.graph, down, href) };
    put(frame, now.graph.nodes.length ? drawn.element : h("p", { class: "soft" }, "The app has no tables yet."));
  }

  function update(now) {
    if (!now.graph) return;
    draw(now);
    drawn.update(nodes(now));
    speed.show(now.history.at, summed(now.history, "rows", sum));
    batches.show(now.history.at, summed(now.history, "batch_ms", (values) => Math.max(...values)));
    refresh(tiles, figures(now.stats));
    refresh(loading, loads(now.stats));
    refresh(attention, worries(now.stats));
  }
  const resized = () => state.stats && update(state);
  addEventListener("resize", resized);
  return { element, update, close: () => removeEventListener("resize", resized) };
}

function href(node) {
  if (node.kind === "table" || node.kind === "view") return `#/tables/${encodeURIComponent(node.key)}`;
  if (node.kind === "flow") return `#/flows/${encodeURIComponent(node.key)}`;
  return node.kind === "source" ? "#/sources" : "#/plan";
}

/** What the graph asks for: the figures of a node, and rows per second along an edge. */
function nodes(state) {
  const { stats } = state;
  const by = (items, key) => new Map(items.map((item) => [item[key], item]));
  const found = { source: by(stats.sources, "id"), flow: by(stats.flows, "id"), table: by(stats.tables, "name"), view: by(stats.tables, "name"), sink: by(stats.sinks, "id") };
  const flowNames = new Map(stats.flows.map((f) => [f.id, f.name]));
  return {
    of: (node) => details(node, found[node.kind].get(node.key), state.rate(`flow:${node.key}`)),
    rate(edge) {
      const [kind, id] = split(edge.source);
      if (edge.target.startsWith("flow:") && kind === "source") return state.rate(edge.target);
      if (edge.target.startsWith("sink:")) return state.rate(edge.target);
      if (kind === "flow" && edge.line !== null) return ["arrow", "spark"].reduce((total, engine) => total + state.rate(`statement:${flowNames.get(id)}:${edge.line}:${engine}`), 0);
      return 0;
    },
  };
}

const split = (id) => [id.slice(0, id.indexOf(":")), id.slice(id.indexOf(":") + 1)];

function figures(stats) {
  const ready = stats.tables.filter((t) => t.state === "ready").length;
  const lag = stats.flows.map((f) => f.lag).filter((v) => v !== null);
  const dead = stats.tables.find((t) => t.name === "dead_letters");
  const memory = (stats.memory.python || 0) + (stats.memory.java || 0);
  const tile = (value, label, target, kind) => h("a", { class: `tile ${kind || ""}`, href: target }, h("strong", {}, value), h("span", { class: "soft" }, label));
  return [
    tile(`${ready}/${stats.tables.length}`, "tables ready", "#/tables", ready === stats.tables.length ? "" : "warn"),
    tile(lag.length ? compact(sum(lag)) : "–", "records behind", "#/flows"),
    tile(count(dead ? dead.rows : 0), "dead letters", "#/dead-letters", dead && dead.rows ? "warn" : ""),
    tile(memory ? bytes(memory) : "–", "memory", "#/plan"),
  ];
}

function loads(stats) {
  const loading = stats.tables.filter((t) => t.state === "loading");
  if (!loading.length) return null;
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Loading"),
    loading.map((t) => {
      const load = t.load || {};
      const share = load.total ? load.done / load.total : 0;
      const left = load.seconds_left === null || load.seconds_left === undefined ? "" : `, ${duration(load.seconds_left)} left`;
      return h("div", { class: "load" }, h("a", { href: `#/tables/${encodeURIComponent(t.name)}` }, t.name), bar(share, `Loading ${t.name}`), h("span", { class: "soft" }, `${t.loaded || plural(t.rows, "row")}${t.loaded ? "" : left}`));
    }),
  );
}

function worries(stats) {
  const found = [...stats.failures, ...stats.warnings.slice(-5).reverse()];
  if (!found.length) return null;
  const bad = stats.flows.filter((f) => mood(f.state) === "bad").length;
  return h("section", { class: "card attention" }, h("h2", {}, stats.failures.length ? `Needs attention${bad ? `: ${plural(bad, "flow")} failed` : ""}` : "Last warnings"), found.map(problem));
}
