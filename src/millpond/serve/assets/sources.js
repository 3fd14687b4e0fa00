// Sources and sinks: health, lag, retries, what was read and written.

import { ago, bytes, compact, count, duration, grid, h, pill, refresh } from "./dom.js";

export function sources() {
  const read = h("div", {});
  const written = h("div", {});
  const from = [{ name: "source" }, { name: "type" }, { name: "state" }, { name: "health" }, { name: "records", number: true }, { name: "per second", number: true }, { name: "read", number: true }, { name: "behind", number: true }, { name: "waiting", number: true }, { name: "retries", number: true }, { name: "bad", number: true }, { name: "last record", number: true }];
  const to = [{ name: "sink" }, { name: "type" }, { name: "guarantee" }, { name: "rows", number: true }, { name: "per second", number: true }, { name: "batches", number: true }, { name: "last", number: true }];

  function update({ stats }) {
    refresh(read, stats.sources.length ? grid(from, stats.sources.map(source), { "aria-label": "Sources" }) : h("p", { class: "soft" }, "The app reads no source."));
    refresh(written, stats.sinks.length ? grid(to, stats.sinks.map(sink), { "aria-label": "Sinks" }) : h("p", { class: "soft" }, "The app writes to no sink."));
  }
  return { element: h("div", { class: "stack" }, h("section", { class: "card" }, h("h2", {}, "Sources"), read), h("section", { class: "card" }, h("h2", {}, "Sinks"), written)), update };
}

const source = (x) => [x.name, x.type, pill(x.state), pill(x.health), count(x.rows), compact(x.rows_per_s), bytes(x.bytes), count(x.lag), x.lag_s === null ? "–" : duration(x.lag_s), count(x.retries), count(x.bad_records), ago(x.updated_at)];
const sink = (x) => [x.name, x.type, x.guarantee, count(x.rows), compact(x.rows_per_s), count(x.batches), ago(x.updated_at)];
