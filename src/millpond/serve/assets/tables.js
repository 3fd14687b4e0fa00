// Tables: all of them, and one with its rows, changes, columns and statistics.

import { query, quoted } from "./api.js";
import { bar } from "./charts.js";
import { ago, bytes, count, grid, h, pill, problem, put, refresh } from "./dom.js";

const ROWS = 100;
const CHANGES_KEPT = 200;
const SORTED = 100000;

export function tables() {
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", "data-find": true, oninput: () => update(last) });
  const list = h("div", {});
  let last = null;
  const columns = [{ name: "table" }, { name: "state" }, { name: "rows", number: true }, { name: "version", number: true }, { name: "size", number: true }, { name: "backend" }, { name: "key" }, { name: "changed", number: true }];

  function update(state) {
    last = state;
    const wanted = filter.value.toLowerCase();
    const rows = state.stats.tables
      .filter((t) => t.name.toLowerCase().includes(wanted))
      .map((t) => [
        h("a", { href: `#/tables/${encodeURIComponent(t.name)}`, title: t.name }, t.name),
        t.state === "loading" ? h("span", {}, pill(t.state), t.load && t.load.total ? bar(t.load.done / t.load.total, `Loading ${t.name}`) : null) : pill(t.state),
        count(t.rows),
        count(t.version),
        bytes(t.bytes),
        t.backend,
        t.key || "–",
        ago(t.updated_at),
      ]);
    refresh(list, grid(columns, rows, { "aria-label": "Tables", keyed: true }));
  }
  return { element: h("section", { class: "card" }, h("div", { class: "bar-top" }, h("h2", {}, "Tables"), filter), list), update };
}

export function table(state, [name, tab = "rows"]) {
  const tabs = { rows, changes, columns, statistics };
  const head = h("div", { class: "bar-top title" });
  const figures = h("p", { class: "soft" });
  const body = h("div", {});
  const links = Object.keys(tabs).map((key) => h("a", { href: `#/tables/${encodeURIComponent(name)}/${key}`, role: "tab", "aria-selected": String(key === tab) }, key[0].toUpperCase() + key.slice(1)));
  const opened = (tabs[tab] || rows)(name, body);
  const element = h("section", { class: "card" }, h("p", {}, h("a", { href: "#/tables" }, "← All tables")), head, figures, h("div", { class: "tabs", role: "tablist" }, links), body);
  put(head, h("h2", {}, name));

  function update(now) {
    const found = now.stats.tables.find((t) => t.name === name);
    refresh(head, h("h2", {}, name), pill(found ? found.state : "missing"));
    if (!found) return put(figures, "There is no table of this name.");
    const load = found.load && found.load.total && found.state === "loading" ? bar(found.load.done / found.load.total, `Loading ${name}`) : null;
    refresh(figures, `${count(found.rows)} rows · version ${count(found.version)} · ${bytes(found.bytes)} · ${found.backend}${found.key ? ` · key ${found.key}` : ""} · changed ${ago(found.updated_at)}`, load);
    opened.update?.(found);
  }
  return { element, update, close: () => opened.close?.() };
}

const shown = (value) => (value === null ? h("span", { class: "null" }, "NULL") : typeof value === "object" ? JSON.stringify(value) : String(value));
const NUMBERS = /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/;

/** The answer to a query as a table. */
export function answer(found) {
  const columns = found.columns.map((column) => ({ name: column.name, title: column.type, number: NUMBERS.test(column.type) }));
  return grid(columns, found.rows.map((row) => row.map(shown)));
}

function rows(name, body) {
  const where = h("input", { type: "search", placeholder: "Filter: a condition, such as  tier = 'GOLD'", "aria-label": "Condition", "data-find": true, spellcheck: "false", autocapitalize: "off" });
  const live = h("input", { type: "checkbox", id: "live", checked: true });
  const result = h("div", { "aria-live": "off" });
  const note = h("span", { class: "soft" });
  let seen = null;
  let order = "";
  let busy = false;
  put(body, h("form", { class: "bar-top filter", onsubmit: (event) => event.preventDefault() }, where, h("label", { for: "live" }, live, " live"), note), result);

  async function ask() {
    if (busy) return;
    busy = true;
    const condition = where.value.trim();
    try {
      const found = await query(`SELECT * FROM ${quoted(name)}${condition ? ` WHERE ${condition}` : ""}${order}`, { limit: ROWS });
      put(result, found.rows.length ? answer(found) : h("p", { class: "soft empty" }, condition ? "No row satisfies the condition." : "The table is empty."));
      put(note, found.truncated ? `the first ${ROWS} rows` : `${count(found.row_count)} rows`);
    } catch (error) {
      put(result, (error.problems?.length ? error.problems : [{ code: "", message: error.message }]).map(problem));
      put(note, "");
    } finally {
      busy = false;
    }
  }
  where.addEventListener("change", ask);
  where.addEventListener("search", ask);
  return {
    update(found) {
      if (seen !== found.version && (seen === null || live.checked)) {
        seen = found.version;
        // So that rows stay where they are while the table changes; sorting a large one each second is too much.
        order = found.key && found.rows <= SORTED ? ` ORDER BY ${found.key.split(", ").map(quoted).join(", ")}` : "";
        ask();
      }
    },
  };
}

function changes(name, body) {
  const list = h("tbody", {});
  const note = h("p", { class: "soft" }, "Connecting …");
  const pause = h("button", { type: "button", onclick: () => put(pause, (paused = !paused) ? "Go on" : "Pause") }, "Pause");
  const heads = h("tr", {});
  let paused = false;
  put(body, h("div", { class: "bar-top" }, note, pause), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes" }, h("table", {}, h("thead", {}, heads), list)));
  const events = new EventSource(`/api/changes/${encodeURIComponent(name)}`);
  events.addEventListener("start", () => put(note, "Waiting for a commit that changes the table …"));
  events.addEventListener("change", (event) => {
    if (paused) return;
    const { version, rows: found } = JSON.parse(event.data);
    if (found.length && !heads.children.length) put(heads, h("th", {}, "version"), h("th", {}, "change"), ...Object.keys(found[0]).filter((key) => key !== "_op").map((key) => h("th", { scope: "col" }, key)));
    for (const { _op: op, ...row } of found.slice(-CHANGES_KEPT)) {
      list.prepend(h("tr", { class: `change ${op}` }, h("td", { class: "number" }, String(version)), h("td", {}, op), Object.values(row).map((value) => h("td", {}, shown(value)))));
    }
    while (list.children.length > CHANGES_KEPT) list.lastChild.remove();
    put(note, `Version ${count(version)}, ${new Date().toLocaleTimeString("en-GB")}`);
  });
  events.addEventListener("reset", () => put(note, "Some changes were missed; these are from now on."));
  events.addEventListener("gone", () => {
    put(note, "The table was dropped.");
    events.close();
  });
  return { close: () => events.close() };
}

function columns(name, body) {
  query(`DESCRIBE ${quoted(name)}`)
    .then((found) => put(body, answer(found)))
    .catch((error) => put(body, error.problems.map(problem)));
  return {};
}

function statistics(name, body) {
  let seen = null;
  return {
    async update(found) {
      if (seen === found.version) return;
      seen = found.version;
      try {
        const described = await query(`DESCRIBE EXTENDED ${quoted(name)}`);
        const values = described.rows.filter((row) => row[0].startsWith("# ")).map((row) => [row[0].slice(2), row[1]]);
        put(body, h("dl", { class: "figures" }, values.map(([key, value]) => h("div", {}, h("dt", {}, key.replaceAll("_", " ")), h("dd", {}, value || "–")))));
      } catch (error) {
        put(body, (error.problems || []).map(problem));
      }
    },
  };
}
