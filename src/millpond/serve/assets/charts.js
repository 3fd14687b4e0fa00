// Small charts: an area over time, with the value under the pointer.

import { clock, h, s } from "./dom.js";

const WIDTH = 300;

/** A chart whose `show(times, values)` draws it anew; gaps are null. */
export function chart(label, format, kind = "") {
  const area = s("path", { class: "area" });
  const line = s("path", { class: "line" });
  const mark = s("line", { class: "mark", y1: 0, y2: 60, visibility: "hidden" });
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} 60`, preserveAspectRatio: "none", role: "img", "aria-label": label }, area, line, mark);
  const value = h("strong", {});
  const note = h("span", { class: "soft" });
  const element = h("figure", { class: `chart ${kind}` }, h("figcaption", {}, h("span", {}, label), value, note), picture);
  let shown = { times: [], values: [] };

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const { times, values } = shown;
    if (times.length < 2) return;
    const x = (event.clientX - box.left) / box.width;
    const at = times[0] + x * (times.at(-1) - times[0]);
    const nearest = times.reduce((best, time, i) => (Math.abs(time - at) < Math.abs(times[best] - at) ? i : best), 0);
    const place = ((times[nearest] - times[0]) / (times.at(-1) - times[0])) * WIDTH;
    mark.setAttribute("x1", place);
    mark.setAttribute("x2", place);
    mark.setAttribute("visibility", "visible");
    value.textContent = format(values[nearest]);
    note.textContent = clock(times[nearest]);
  });
  picture.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    show(shown.times, shown.values, shown.last);
  });

  /** `last` is written in place of the last value, where that is another thing than the newest sample. */
  function show(times, values, last = values.at(-1)) {
    shown = { times, values, last };
    if (mark.getAttribute("visibility") === "visible") return;
    const known = values.filter((v) => v !== null && v !== undefined);
    const top = Math.max(...known, 1e-9);
    value.textContent = known.length ? format(last) : "–";
    note.textContent = known.length ? `max ${format(top)}` : "";
    const span = times.length > 1 ? times.at(-1) - times[0] : 1;
    const points = times.map((time, i) => [((time - times[0]) / span) * WIDTH, values[i] === null || values[i] === undefined ? null : 57 - (values[i] / top) * 52]);
    line.setAttribute("d", path(points));
    area.setAttribute("d", filled(points));
  }
  return { element, show };
}

function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point[1] === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((run) => run.length > 1);
}

const written = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
const path = (points) => runs(points).map((run) => `M${run.map(written).join("L")}`).join("");
const filled = (points) => runs(points).map((run) => `M${run[0][0].toFixed(1)} 60L${run.map(written).join("L")}L${run.at(-1)[0].toFixed(1)} 60Z`).join("");

/** Values per second from totals; null where there is no value before. */
export function rates(times, totals) {
  return totals.map((total, i) => {
    const before = totals[i - 1];
    if (i === 0 || total === null || before === null || before === undefined || total < before) return null;
    return (total - before) / Math.max(times[i] - times[i - 1], 0.001);
  });
}

export function bar(share, label) {
  const inner = h("span", {});
  inner.style.width = `${Math.round(Math.min(Math.max(share, 0), 1) * 100)}%`;
  return h("div", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuenow": Math.round(share * 100), "aria-valuemin": 0, "aria-valuemax": 100 }, inner);
}
