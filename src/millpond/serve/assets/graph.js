// The graph of an app, laid out by layers: what is read comes before what is written.

import { compact, count, milliseconds, mood, s } from "./dom.js";

const NODE = { width: 188, height: 56 };
const GAP = { along: 70, across: 18 };
const SWEEPS = 6;
const SMALLEST = 0.66;
// Nodes side by side in the rows below the graph: what nothing reads or writes.
const APART = { wide: 6, narrow: 2 };
const GLYPHS = {
  source: "M3 5h10v6H3zM6 3v2M10 3v2M6 11v2M10 11v2",
  flow: "M2 6c2 0 2-2 4-2s2 2 4 2 2-2 4-2M2 11c2 0 2-2 4-2s2 2 4 2 2-2 4-2",
  table: "M2 3h12v10H2zM2 7h12M7 3v10",
  view: "M1 8c3-5 11-5 14 0-3 5-11 5-14 0zM8 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4",
  sink: "M8 2v8M5 7l3 3 3-3M2 13h12",
};

/** Edges without those that would close a circle. */
function acyclic(nodes, edges) {
  const out = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) out.get(edge.source).push(edge);
  const state = new Map();
  const kept = new Set(edges);
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of out.get(id)) {
      if (state.get(edge.target) === "open") kept.delete(edge);
      else if (!state.has(edge.target)) visit(edge.target);
    }
    state.set(id, "done");
  };
  for (const node of nodes) if (!state.has(node.id)) visit(node.id);
  return edges.filter((edge) => kept.has(edge));
}

function ranked(nodes, edges) {
  const rank = new Map(nodes.map((node) => [node.id, 0]));
  for (let changed = true, round = 0; changed && round <= nodes.length; round += 1) {
    changed = false;
    for (const edge of edges) {
      if (rank.get(edge.target) <= rank.get(edge.source)) {
        rank.set(edge.target, rank.get(edge.source) + 1);
        changed = true;
      }
    }
  }
  // What only starts something stands right before it, not far away at the beginning.
  for (const node of nodes) {
    const after = edges.filter((edge) => edge.source === node.id).map((edge) => rank.get(edge.target));
    if (after.length && !edges.some((edge) => edge.target === node.id)) rank.set(node.id, Math.min(...after) - 1);
  }
  return rank;
}

/** Places of nodes, and the points that each edge passes; `down`: layers stand below each other. */
export function layout(nodes, edges, down) {
  const joined = new Set(edges.flatMap((edge) => [edge.source, edge.target]));
  const found = layered(nodes.filter((node) => joined.has(node.id)), edges, down);
  return below(found, nodes.filter((node) => !joined.has(node.id)), down);
}

/** Adds rows of nodes without edges, which would hide the others if they stood in the first layer. */
function below(found, apart, down) {
  if (!apart.length) return found;
  const across = Math.min(down ? APART.narrow : APART.wide, apart.length);
  const top = found.height ? found.height + GAP.across * 2 : 0;
  const [width, height] = [NODE.width + GAP.across, NODE.height + GAP.across];
  apart.forEach((node, i) => found.places.set(node.id, { x: (i % across) * width + NODE.width / 2, y: top + Math.floor(i / across) * height + NODE.height / 2 }));
  return { ...found, width: Math.max(found.width, across * width - GAP.across), height: top + Math.ceil(apart.length / across) * height - GAP.across };
}

function layered(nodes, edges, down) {
  const tree = acyclic(nodes, edges.filter((edge) => edge.source !== edge.target));
  const rank = ranked(nodes, tree);
  const layers = [];
  const put = (id, at) => (layers[at] ||= []).push(id);
  for (const node of nodes) put(node.id, rank.get(node.id));
  // An edge over several layers is led around the nodes between by points of its own.
  const chains = new Map();
  tree.forEach((edge, number) => {
    const chain = [edge.source];
    for (let at = rank.get(edge.source) + 1; at < rank.get(edge.target); at += 1) {
      chain.push(`point:${number}:${at}`);
      put(chain.at(-1), at);
    }
    chains.set(edge, [...chain, edge.target]);
  });
  const before = new Map();
  const after = new Map();
  for (const chain of chains.values()) {
    for (let i = 1; i < chain.length; i += 1) {
      after.set(chain[i - 1], [...(after.get(chain[i - 1]) || []), chain[i]]);
      before.set(chain[i], [...(before.get(chain[i]) || []), chain[i - 1]]);
    }
  }
  for (let i = 0; i < layers.length; i += 1) layers[i] ||= [];
  const order = new Map();
  const number = () => layers.forEach((layer) => layer.forEach((id, i) => order.set(id, i - layer.length / 2)));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const near = sweep % 2 ? after : before;
    const mean = (id) => {
      const found = (near.get(id) || []).map((other) => order.get(other));
      return found.length ? found.reduce((a, b) => a + b, 0) / found.length : order.get(id);
    };
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      layer.sort((a, b) => mean(a) - mean(b));
      number();
    }
  }
  return placed(layers, chains, before, down);
}

function placed(layers, chains, before, down) {
  const isPoint = (id) => id.startsWith("point:");
  const breadth = (id) => (isPoint(id) ? 10 : down ? NODE.width : NODE.height);
  const across = new Map();
  for (const layer of layers) {
    let at = 0;
    for (const id of layer) {
      const near = (before.get(id) || []).map((other) => across.get(other)).filter((x) => x !== undefined);
      const wanted = near.length ? near.reduce((a, b) => a + b, 0) / near.length - breadth(id) / 2 : at;
      at = Math.max(at, wanted);
      across.set(id, at + breadth(id) / 2);
      at += breadth(id) + GAP.across;
    }
  }
  const all = [...across.values()];
  const low = Math.min(0, ...layers.flat().map((id) => across.get(id) - breadth(id) / 2));
  const step = (down ? NODE.height : NODE.width) + GAP.along * (down ? 0.55 : 1);
  const places = new Map();
  layers.forEach((layer, i) => {
    for (const id of layer) {
      const along = i * step + (down ? NODE.height : NODE.width) / 2;
      const side = across.get(id) - low;
      places.set(id, down ? { x: side, y: along } : { x: along, y: side });
    }
  });
  const widest = all.length ? Math.max(...layers.flat().map((id) => across.get(id) - low + breadth(id) / 2)) : 0;
  const length = Math.max(0, layers.length * step - GAP.along * (down ? 0.55 : 1));
  const points = new Map([...chains].map(([edge, chain]) => [edge, chain.map((id) => places.get(id))]));
  return { places, points, width: down ? widest : length, height: down ? length : widest };
}

function curve(points, down) {
  const first = points[0];
  const last = points.at(-1);
  const ends = down ? NODE.height / 2 : NODE.width / 2;
  const start = down ? { x: first.x, y: first.y + ends } : { x: first.x + ends, y: first.y };
  const end = down ? { x: last.x, y: last.y - ends - 4 } : { x: last.x - ends - 4, y: last.y };
  const all = [start, ...points.slice(1, -1), end];
  let written = `M${all[0].x} ${all[0].y}`;
  for (let i = 1; i < all.length; i += 1) {
    const [a, b] = [all[i - 1], all[i]];
    const [mx, my] = [(a.x + b.x) / 2, (a.y + b.y) / 2];
    written += down ? `C${a.x} ${my} ${b.x} ${my} ${b.x} ${b.y}` : `C${mx} ${a.y} ${mx} ${b.y} ${b.x} ${b.y}`;
  }
  const middle = Math.floor((all.length - 1) / 2);
  return { written, label: { x: (all[middle].x + all[middle + 1].x) / 2, y: (all[middle].y + all[middle + 1].y) / 2 } };
}

// Of a path the end says most.
const tail = (text, length) => (text.length > length ? `…${text.slice(text.length - length + 1)}` : text);
const nodeName = (node) => (node.kind === "sink" ? tail(node.name.replace(/^[a-z0-9]+:\/\//, ""), 17) : cut(node.name, 18));
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** The picture of a graph; `update(state)` colours it and writes the figures of now. */
export function picture(graph, down, href) {
  const shown = graph.edges.filter((edge, i) => graph.edges.findIndex((e) => e.source === edge.source && e.target === edge.target && (e.kind === "lookup") === (edge.kind === "lookup")) === i);
  const { places, points, width, height } = layout(graph.nodes, shown, down);
  const svg = s("svg", { class: "graph", "data-width": Math.round(width + 16), width: width + 16, height: height + 16, viewBox: `-8 -8 ${width + 16} ${height + 16}`, role: "group", "aria-label": "Graph of the app" });
  svg.append(
    s("defs", {}, ["", "busy"].map((kind) => s("marker", { id: `arrow${kind}`, class: `arrow ${kind}`, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z" })))),
  );
  // It becomes smaller to fit, down to where it can still be read; beyond that it is scrolled.
  svg.style.minWidth = `${Math.min(width + 16, (width + 16) * SMALLEST)}px`;
  const edges = [...points].map(([edge, along]) => {
    const { written, label } = curve(along, down);
    const line = s("path", { d: written, class: `edge ${edge.kind}`, "marker-end": "url(#arrow)" });
    const rate = s("text", { x: label.x, y: label.y - 4, class: "rate" });
    svg.append(line, rate);
    return { edge, line, rate };
  });
  const nodes = graph.nodes.map((node) => {
    const place = places.get(node.id);
    const detail = s("text", { x: 32, y: 41, class: "detail" });
    const title = s("title", {});
    const group = s(
      "a",
      { href: href(node), class: "node idle", transform: `translate(${place.x - NODE.width / 2} ${place.y - NODE.height / 2})`, "data-node": node.id },
      title,
      s("rect", { width: NODE.width, height: NODE.height, rx: 10 }),
      s("rect", { class: "state", width: 4, height: NODE.height - 20, x: 0, y: 10, rx: 2 }),
      s("path", { class: "glyph", d: GLYPHS[node.kind], transform: "translate(11 12)" }),
      s("text", { x: 32, y: 24, class: "name" }, nodeName(node)),
      detail,
    );
    svg.append(group);
    return { node, group, detail, title };
  });

  function update(state) {
    for (const { node, group, detail, title } of nodes) {
      const now = state.of(node);
      group.setAttribute("class", `node ${node.kind} ${mood(now.state)}`);
      detail.textContent = cut(now.detail, 26);
      title.textContent = `${node.kind} ${node.name}: ${now.state}. ${now.detail}${now.error ? `. ${now.error}` : ""}`;
      group.setAttribute("aria-label", title.textContent);
    }
    for (const { edge, line, rate } of edges) {
      const now = state.rate(edge);
      const busy = now > 0.05;
      line.classList.toggle("busy", busy);
      line.setAttribute("marker-end", busy ? "url(#arrowbusy)" : "url(#arrow)");
      line.style.strokeWidth = busy ? String(1.5 + Math.min(2.5, Math.log10(1 + now) / 2)) : "";
      rate.textContent = busy ? `${compact(now)}/s` : "";
    }
  }
  return { element: svg, update };
}

/** What is written below the name of a node. */
export function details(node, found, rate) {
  if (!found) return { state: "idle", detail: node.detail };
  if (node.kind === "flow") return { state: found.state, detail: `${compact(rate)} rec/s · ${milliseconds(found.batch_ms)}`, error: found.error };
  if (node.kind === "source") return { state: found.health === "healthy" ? found.state : found.health, detail: found.lag === null ? found.type : `${found.type} · lag ${count(found.lag)}` };
  if (node.kind === "sink") return { state: "ready", detail: `${count(found.rows)} rows` };
  return { state: found.state, detail: found.state === "loading" && found.loaded ? found.loaded : `${count(found.rows)} rows · v${count(found.version)}` };
}
