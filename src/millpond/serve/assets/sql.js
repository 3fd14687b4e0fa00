// The SQL box: a statement, its rows, and the statements before.

import { get, query } from "./api.js";
import { compact, count, h, milliseconds, plural, problem, put } from "./dom.js";
import { editor } from "./editor.js";
import { answer } from "./tables.js";

const KEPT = 50;
const SAVED = "statements";
let names = { tables: {}, keywords: [], functions: [] };

const saved = () => {
  try {
    return JSON.parse(sessionStorage.getItem(SAVED)) || [];
  } catch {
    return [];
  }
};

export function sql(state) {
  const result = h("div", { "aria-live": "polite" });
  const note = h("span", { class: "soft" });
  const before = h("div", {});
  let asking = null;
  const box = editor(() => names, run);
  const start = h("button", { class: "main", type: "button", onclick: () => run(box.box.value) }, "Run");
  const stop = h("button", { type: "button", hidden: true, onclick: () => asking?.abort() }, "Cancel");
  const mode = h("span", { class: "soft" });
  const download = h("span", {});
  box.set(saved()[0] || "SHOW TABLES");
  get("/api/completions").then((found) => (names = found)).catch(() => {});
  remembered();

  function remembered() {
    const list = saved();
    put(before, list.length ? h("details", {}, h("summary", {}, "Previous statements"), h("ul", { class: "plain" }, list.map((text) => h("li", {}, h("button", { class: "link", type: "button", onclick: () => (box.set(text), box.box.focus()) }, text))))) : null);
  }

  async function run(text) {
    const wanted = text.trim();
    if (!wanted || asking) return;
    asking = new AbortController();
    start.disabled = true;
    stop.hidden = false;
    put(note, "Running …");
    const begun = performance.now();
    try {
      const found = await query(wanted, { limit: 1000 }, asking.signal);
      const took = milliseconds(performance.now() - begun);
      if (found.changed !== undefined) {
        put(result, h("p", { class: "empty" }, `${plural(found.changed, "row")} changed.`));
        put(note, took);
      } else {
        put(result, found.rows.length ? answer(found) : h("p", { class: "soft empty" }, "No rows."));
        put(note, `${found.truncated ? `the first ${compact(found.row_count)} rows` : `${count(found.row_count)} rows`} · ${took}`);
      }
      put(download, found.rows?.length ? h("button", { class: "link", type: "button", onclick: () => save(wanted) }, "Download as CSV") : null);
      sessionStorage.setItem(SAVED, JSON.stringify([wanted, ...saved().filter((other) => other !== wanted)].slice(0, KEPT)));
      remembered();
    } catch (error) {
      put(download);
      put(note, "");
      if (error.name === "AbortError") put(result, h("p", { class: "soft empty" }, "Cancelled."));
      else put(result, error.problems?.length ? error.problems.map(shown) : h("p", { class: "error" }, "The app does not answer."));
    } finally {
      asking = null;
      start.disabled = false;
      stop.hidden = true;
    }
  }

  if (!saved().length) run(box.box.value);
  return {
    element: h("section", { class: "card" }, h("div", { class: "bar-top" }, h("h2", {}, "SQL"), mode), box.element, h("p", { class: "bar-top" }, h("span", { class: "buttons" }, start, stop), h("span", {}, note, " ", download)), result, before),
    update: (now) => put(mode, now.stats.writable ? "Statements that change tables are allowed." : "Read-only: the app runs without --http-write."),
    close: () => asking?.abort(),
  };
}

/** A mistake with its line and a caret below it. */
function shown(found) {
  if (!found.excerpt) return problem(found);
  const caret = `${" ".repeat(Math.max(0, found.column - 1))}${"^".repeat(Math.max(1, found.length || 1))}`;
  return [problem({ ...found, file: null }), h("pre", { class: "excerpt" }, `${found.excerpt}\n`, h("span", { class: "error" }, caret))];
}

async function save(text) {
  const response = await fetch("/api/query", { method: "POST", headers: { "content-type": "application/json", accept: "text/csv" }, body: JSON.stringify({ sql: text, limit: 1000000 }) });
  const link = h("a", { href: URL.createObjectURL(await response.blob()), download: "rows.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}
