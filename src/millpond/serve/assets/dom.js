// Elements, numbers and times. Text only ever becomes text: nothing here makes HTML of a value.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** Replaces what is in an element, unless it is the same text. */
export function put(element, ...children) {
  if (children.length === 1 && typeof children[0] === "string") {
    if (element.textContent !== children[0]) element.textContent = children[0];
  } else {
    element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  }
  return element;
}

/**
 * Makes what is in an element like these children, and keeps existing elements: what has the focus, is
 * selected or is being clicked stays. Not for children with listeners of their own, which would stay those of before.
 */
export function refresh(element, ...children) {
  const made = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  made.forEach((child, i) => {
    const node = typeof child === "string" ? document.createTextNode(child) : child;
    const old = found(element, i, node.dataset?.key);
    if (!old) element.insertBefore(node, element.childNodes[i] || null);
    else if (old.nodeName !== node.nodeName) old.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) {
      if (old.data !== node.data) old.data = node.data;
    } else {
      for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      if (node.style?.cssText !== undefined && old.style.cssText !== node.style.cssText) old.style.cssText = node.style.cssText;
      refresh(old, ...node.childNodes);
    }
  });
  while (element.childNodes.length > made.length) element.lastChild.remove();
  return element;
}

/** The child to be made like a node: the one at this place, or for a node with a key the one of that key. */
function found(element, place, key) {
  if (key === undefined) return element.childNodes[place];
  const later = [...element.childNodes].slice(place).find((child) => child.dataset?.key === key);
  // What stood before it is gone, or comes later; the child itself is not moved, and keeps the focus.
  while (later && element.childNodes[place] !== later) element.childNodes[place].remove();
  return later;
}

/** Replaces what is in an element when the key is another than before. */
export function keep(element, key, make) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  put(element, make());
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const compact = (value) =>
  value === null || value === undefined ? "–" : Math.abs(value) < 10 && value % 1 ? value.toFixed(1) : short.format(value);
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 60000) return duration(value / 1000);
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function ago(epoch) {
  if (epoch === null || epoch === undefined) return "never";
  const seconds = Date.now() / 1000 - epoch;
  return seconds < 1.5 ? "just now" : `${duration(seconds)} ago`;
}
export const clock = (epoch) => new Date(epoch * 1000).toLocaleTimeString("en-GB");

/** The colour of a state: one of six, the same everywhere. */
export function mood(state) {
  if (["ready", "running", "healthy", "finished"].includes(state)) return "ok";
  if (["loading", "starting", "catching up"].includes(state)) return "busy";
  if (["retrying", "waiting", "missing", "not_found", "disconnected"].includes(state)) return "warn";
  if (state === "stale") return "stale";
  return state === "failed" ? "bad" : "idle";
}

export const pill = (state) => h("span", { class: `pill ${mood(state)}` }, state || "–");

export function problem(found) {
  const where = found.file ? `${found.file}:${found.line}:${found.column}` : "";
  return h(
    "div",
    { class: `problem ${found.severity === "error" ? "bad" : "warn"}` },
    h("code", {}, found.code),
    h("div", {}, h("p", {}, where && h("span", { class: "soft" }, `${where}  `), found.message), found.hint && h("p", { class: "soft" }, found.hint)),
  );
}

// Longer texts may be cut off in a cell; the whole text is shown under the pointer.
const LONG = 24;

/** A table of text; `columns` are {name, number}, each row a list of nodes or texts; `keyed`: by its first cell. */
export function grid(columns, rows, attributes = {}) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": attributes["aria-label"] || "Rows" },
    h(
      "table",
      { class: attributes.keyed && "keyed" },
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: column.number && "number", scope: "col", title: column.title }, column.name)))),
      h("tbody", {}, rows.map((row) => h("tr", { "data-key": attributes.keyed && (row[0].textContent ?? row[0]) }, row.map((cell, i) => h("td", { class: columns[i].number && "number", title: typeof cell === "string" && cell.length > LONG ? cell : null }, cell))))),
    ),
  );
}
