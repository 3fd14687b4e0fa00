// Dead letters: why records were rejected, what they were, and sending them again.

import { post, query } from "./api.js";
import { count, grid, h, plural, problem, put } from "./dom.js";

const SHOWN = 100;
const COUNTS = "SELECT code, flow, source, COUNT(*) AS letters, MAX(at) AS last FROM dead_letters GROUP BY code, flow, source ORDER BY letters DESC";
const LAST = "SELECT at, code, flow, line, source, position, reason, raw FROM dead_letters ORDER BY at DESC";

/** The bytes of a record as text; what is not UTF-8 is marked. */
function decoded(base64) {
  if (base64 === null) return "";
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

/** A time to the second; all times are UTC. */
const moment = (at) => at.replace("T", " ").replace(/(\.\d+)?Z?$/, "");
const literal = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

export function letters(state) {
  const counts = h("div", {});
  const list = h("div", {});
  const said = h("p", { class: "soft", role: "status" });
  let seen = null;

  async function replay(where) {
    put(said, "Sending them again …");
    try {
      const done = await post("/api/dead-letters/replay", { where });
      put(said, `${plural(done.sent, "record")} sent again, ${count(done.refused)} rejected again, ${count(done.left)} cannot be sent.`);
    } catch (error) {
      put(said, error.message);
    }
  }

  function button(where, label) {
    const writable = state.stats?.writable;
    return h("button", { type: "button", disabled: !writable, title: writable ? "" : "Start the app with --http-write, or run: millpond dead-letters replay", onclick: () => replay(where) }, label);
  }

  async function ask() {
    try {
      const [grouped, last] = await Promise.all([query(COUNTS), query(LAST, { limit: SHOWN })]);
      if (!last.rows.length) {
        put(counts, h("p", { class: "empty soft" }, "No record was rejected."));
        put(list);
        return;
      }
      put(
        counts,
        grid(
          [{ name: "code" }, { name: "flow" }, { name: "source" }, { name: "letters", number: true }, { name: "last" }, { name: "" }],
          grouped.rows.map(([code, flow, source, number, at]) => [h("code", {}, code), flow ?? "", source ?? "", count(number), moment(at), button(`code = ${literal(code)} AND flow = ${literal(flow ?? "")}`, "Replay")]),
          { "aria-label": "Reasons" },
        ),
        h("p", {}, button(null, "Replay all"), " ", h("span", { class: "soft" }, "Records that succeed leave the table in the same commit.")),
      );
      put(list, h("h3", {}, `The last ${Math.min(SHOWN, last.rows.length)}`), last.rows.map(letter));
    } catch (error) {
      put(counts, (error.problems || [{ code: "", message: error.message }]).map(problem));
    }
  }

  function update(now) {
    const found = now.stats.tables.find((t) => t.name === "dead_letters");
    if (found && found.version !== seen) {
      seen = found.version;
      ask();
    }
  }
  return { element: h("section", { class: "card" }, h("h2", {}, "Dead letters"), counts, said, list), update };
}

function letter([at, code, flow, line, source, position, reason, raw]) {
  return h(
    "details",
    { class: "letter" },
    h("summary", {}, h("code", {}, code), " ", h("span", {}, reason), h("span", { class: "soft" }, ` ${moment(at)}`)),
    h("p", { class: "soft" }, `${flow ?? ""}${line === null ? "" : `, line ${line}`} · ${source ?? ""}${position === null ? "" : ` at ${position}`}`),
    h("pre", {}, decoded(raw)),
  );
}
