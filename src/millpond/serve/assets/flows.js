// Flows: speed and batch times over the last minutes, lag, watermark, engine, and their statements.

import { post } from "./api.js";
import { bar, chart, rates } from "./charts.js";
import { ago, compact, count, duration, h, keep, milliseconds, pill, plural, problem, put, refresh } from "./dom.js";
import { highlighted } from "./editor.js";

export function flows() {
  const list = h("div", { class: "stack" });
  const cards = new Map();
  function update(state) {
    for (const found of state.stats.flows) {
      if (!cards.has(found.id)) {
        cards.set(found.id, card(found.id, state));
        list.append(cards.get(found.id).element);
      }
      cards.get(found.id).update(state, found);
    }
    for (const [id, one] of cards) {
      if (!state.stats.flows.some((f) => f.id === id)) {
        one.element.remove();
        cards.delete(id);
      }
    }
    if (!cards.size) put(list, h("section", { class: "card" }, h("p", { class: "soft" }, "No stream drives a statement in this app.")));
  }
  return { element: list, update };
}

export function flow(state, [id]) {
  const one = card(id, state, true);
  return {
    element: h("div", { class: "stack" }, h("p", {}, h("a", { href: "#/flows" }, "← All flows")), one.element),
    update(now) {
      const found = now.stats.flows.find((f) => f.id === id);
      if (found) one.update(now, found);
    },
  };
}

function card(id, state, open = false) {
  const speed = chart("Records per second", (v) => compact(v));
  const batches = chart("Batch time", milliseconds, "second");
  const head = h("div", { class: "bar-top" });
  const failure = h("div", {});
  const figures = h("dl", { class: "figures" });
  const statements = h("div", { class: "statements" });
  const details = h("details", { open }, h("summary", {}, "Statements"), statements);
  const element = h("section", { class: "card flow", "data-flow": id }, head, failure, h("div", { class: "columns two" }, speed.element, batches.element), figures, details);
  let drawn = null;

  function update(now, found) {
    refresh(head, h("h2", {}, h("a", { href: `#/flows/${encodeURIComponent(id)}` }, found.name)), pill(found.state));
    const lines = (now.graph?.statements || []).filter((x) => x.flow === id).map((x) => x.line);
    const full = now.stats.failures.find((p) => `${p.code} ${p.message}` === found.error && (p.line === null || lines.includes(p.line)));
    keep(failure, `${found.state} ${found.error} ${full?.line} ${now.stats.writable}`, () => (found.error ? failed(found, full, now.stats.writable) : null));
    const history = now.history.flows[id];
    if (history) {
      speed.show(now.history.at, rates(now.history.at, history.rows));
      batches.show(now.history.at, history.batch_ms, found.batch_ms);
    }
    refresh(figures, facts(found).map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    if (drawn !== now.graph || open) {
      drawn = now.graph;
      const own = now.graph.statements.filter((x) => x.flow === id);
      if (statements.children.length !== own.length) put(statements, own.map(statement));
      own.forEach((x, i) => used(statements.children[i], now.stats.statements.filter((y) => y.flow === found.name && y.line === x.line)));
    }
  }
  return { element, update };
}

/** The error of a flow, with its place and hint if the statistics have them, and a button for another try. */
function failed(found, full, writable) {
  const [code, ...rest] = found.error.split(" ");
  const said = h("span", { class: "soft", role: "status" });
  const again = h(
    "button",
    {
      type: "button",
      disabled: !writable,
      title: writable ? "Go on from the last finished batch" : "Start the app with --http-write, or run: millpond restart",
      onclick: async () => {
        put(said, "Restarting …");
        try {
          await post("/api/restart", { flow: found.name });
          put(said, "Restarted.");
        } catch (error) {
          put(said, error.message);
        }
      },
    },
    "Restart",
  );
  const shown = full || { code, message: rest.join(" ") };
  return [problem({ ...shown, severity: found.state === "failed" ? "error" : "warning" }), found.state === "failed" ? h("p", { class: "again" }, again, " ", said) : null];
}

function facts(found) {
  const batches = found.arrow_batches + found.spark_batches;
  const share = batches ? found.arrow_batches / batches : 0;
  const facts = [
    ["records", count(found.rows)],
    ["batches", count(found.batches)],
    ["behind", found.lag === null ? "–" : plural(found.lag, "record"), found.lag_s ? ` for ${duration(found.lag_s)}` : ""],
    ["last batch", ago(found.updated_at)],
    ["bad records", count(found.bad_records)],
  ];
  if (found.watermark !== null) facts.push(["watermark", `${duration(Math.max(0, Date.now() / 1000 - found.watermark))} behind the clock`]);
  if (batches) facts.push(["engine", `${Math.round(share * 100)} % Arrow (driver), ${Math.round((1 - share) * 100)} % Spark`, bar(share, "Share of Arrow")]);
  return facts;
}

function statement(found) {
  return h("article", {}, h("p", { class: "soft" }, `line ${found.line} · ${found.kind} → ${found.target}`), h("p", { class: "used soft" }), h("pre", { class: "sql" }, highlighted(found.sql)));
}

function used(element, uses) {
  if (!element) return;
  put(element.querySelector(".used"), uses.map((use) => `${use.engine}: ${plural(use.batches, "batch").replace("batchs", "batches")}, ${milliseconds(use.batch_ms)} each`).join(" · "));
}
