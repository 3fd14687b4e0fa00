// A box for SQL: colours, and names completed from what the app has.

import { h, put } from "./dom.js";

const WORDS = new Set(
  "select distinct from where group by having order limit offset join left right full outer inner cross on using as and or not in exists between like is null true false case when then else end cast union all any some with values insert into update set delete upsert merge matched begin commit rollback create table view index primary key drop if replace show tables streams flows sources views connectors statements options for describe extended explain asc desc over partition rows range interval stream watermark window tumbling sliding session changes default".split(" "),
);
const TOKENS = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^'\\]|\\[\s\S]|'')*(?:'|$)|"(?:[^"\\]|\\[\s\S])*(?:"|$))|(`[^`]*(?:`|$))|\b(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\b|([A-Za-z_]\w*)/g;
const SHOWN = 12;

/** SQL as spans; the text stays what it was. */
export function highlighted(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    const [whole, comment, string, name, number, word] = found;
    const kind = comment ? "comment" : string ? "string" : name ? "name" : number ? "number" : WORDS.has(word.toLowerCase()) ? "keyword" : text[found.index + whole.length] === "(" ? "function" : null;
    parts.push(text.slice(at, found.index), kind ? h("span", { class: kind }, whole) : whole);
    at = found.index + whole.length;
  }
  parts.push(text.slice(at));
  return parts;
}

/** What fits the word before the cursor: columns after `table.`, otherwise all names. */
export function fitting(text, cursor, known) {
  const before = text.slice(0, cursor);
  const found = before.match(/(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)?$/);
  const [, owner, word = ""] = found;
  const start = cursor - word.length;
  const begins = (name) => name.toLowerCase().startsWith(word.toLowerCase()) && name.toLowerCase() !== word.toLowerCase();
  const tables = Object.entries(known.tables);
  const entry = (kind) => (name) => ({ name, kind });
  if (owner !== undefined) {
    const alias = [...text.matchAll(/\b(?:from|join)\s+([A-Za-z_]\w*)(?:\s+(?:as\s+)?([A-Za-z_]\w*))?/gi)].find((m) => m[2]?.toLowerCase() === owner.toLowerCase());
    const table = (alias ? alias[1] : owner).toLowerCase();
    const columns = tables.find(([name]) => name.toLowerCase() === table);
    return { start, items: (columns ? columns[1] : []).filter(begins).map(entry("column")).slice(0, SHOWN) };
  }
  if (!word) return { start, items: [] };
  const relation = /\b(from|join|into|update|table|describe)\s+\w*$/i.test(before);
  const used = new Set([...text.matchAll(/\b(?:from|join|into|update)\s+([A-Za-z_]\w*)/gi)].map((m) => m[1].toLowerCase()));
  const columns = [...new Set(tables.filter(([name]) => !used.size || used.has(name.toLowerCase())).flatMap(([, names]) => names))];
  const named = tables.map(([name]) => name).filter(begins).map(entry("table"));
  const others = [...columns.filter(begins).map(entry("column")), ...(relation ? [] : named), ...known.keywords.filter(begins).map(entry("keyword")), ...known.functions.filter(begins).map(entry("function"))];
  return { start, items: (relation ? [...named, ...others] : others).slice(0, SHOWN) };
}

/** The box; `known` are the names, `run` is called with the text. */
export function editor(known, run) {
  const paint = h("pre", { class: "paint sql", "aria-hidden": "true" });
  const list = h("ul", { class: "completions", role: "listbox", id: "completions", hidden: true });
  const box = h("textarea", { "aria-label": "SQL", "data-find": true, spellcheck: "false", autocapitalize: "off", autocomplete: "off", rows: 5, "aria-controls": "completions", "aria-autocomplete": "list" });
  const element = h("div", { class: "editor" }, paint, box, list);
  let offered = { start: 0, items: [] };
  let chosen = 0;

  function drawn() {
    put(paint, ...highlighted(box.value), "\n");
    box.rows = Math.min(20, Math.max(5, box.value.split("\n").length + 1));
  }

  function close() {
    offered = { start: 0, items: [] };
    list.hidden = true;
  }

  function offer() {
    offered = fitting(box.value, box.selectionStart, known());
    chosen = 0;
    list.hidden = !offered.items.length;
    put(list, offered.items.map((item, i) => h("li", { role: "option", "aria-selected": String(i === chosen), onpointerdown: (event) => (event.preventDefault(), take(i)) }, h("span", {}, item.name), h("span", { class: "soft" }, item.kind))));
    place();
  }

  /** Below the line of the cursor; the box has a fixed width per letter. */
  function place() {
    const before = box.value.slice(0, offered.start);
    const line = before.split("\n").length;
    const column = before.length - before.lastIndexOf("\n") - 1;
    list.style.top = `calc(${line} * 1.5em + 12px - ${box.scrollTop}px)`;
    list.style.left = `min(calc(${column} * 1ch + 12px), 100% - 220px)`;
  }

  function choose(step) {
    chosen = (chosen + step + offered.items.length) % offered.items.length;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
    list.children[chosen].scrollIntoView({ block: "nearest" });
  }

  function take(i) {
    const item = offered.items[i];
    const written = item.kind === "function" ? `${item.name}(` : /^[A-Za-z_]\w*$/.test(item.name) ? item.name : `\`${item.name.replaceAll("`", "``")}\``;
    box.setRangeText(written, offered.start, box.selectionStart, "end");
    close();
    drawn();
    box.focus();
  }

  box.addEventListener("input", () => {
    drawn();
    offer();
  });
  box.addEventListener("scroll", () => {
    paint.scrollTop = box.scrollTop;
    paint.scrollLeft = box.scrollLeft;
  });
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    const open = offered.items.length > 0;
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      event.preventDefault();
      close();
      run(box.value);
    } else if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      offer();
    } else if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      choose(event.key === "ArrowDown" ? 1 : -1);
    } else if (open && (event.key === "Tab" || event.key === "Enter")) {
      event.preventDefault();
      take(chosen);
    } else if (open && event.key === "Escape") {
      event.stopPropagation();
      close();
    }
  });
  drawn();
  return {
    element,
    box,
    set(text) {
      box.value = text;
      drawn();
    },
  };
}
