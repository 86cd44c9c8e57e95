// What the page knows of the trace: the lists that content.py writes, as objects with names, and texts for figures.

const data = JSON.parse(document.getElementById("data").textContent);
const text = (place) => data.texts[place];

const KINDS = { module: "module", function: "function", send: "transfer", receive: "transfer" };

function unit([name, what, role, column, row], place) {
  const known = { unit: place, name: text(name), what: text(what), role: text(role), column, row, into: [], from: [] };
  known.kind = KINDS[known.role] || KINDS[known.what.split(" ")[0]] || "other";
  return known;
}

const graphs = data.graphs.map(({ units, stitches }) => {
  const graph = { units: units.map(unit), given: [], taken: [] };
  for (const [producer, consumer, source, destination] of stitches) {
    const stitch = { producer, consumer, source: text(source), destination: text(destination) };
    if (producer >= 0) graph.units[producer].from.push(stitch);
    if (consumer >= 0) graph.units[consumer].into.push(stitch);
  }
  return graph;
});

// An item is what the timeline draws: a node that became ready at least, or a transfer. Times from the trace's begin.
const runs = data.runs.map((raw, place) => {
  const run = { ...raw, place, graph: graphs[raw.graph], drawing: `${raw.rank} ${raw.graph}`, byName: new Map() };
  run.end = run.begin + run.took;
  const at = (time) => (time === null ? null : run.begin + time);
  const path = new Map(run.path.map((number, position) => [number, position]));
  run.nodes = raw.nodes.map(([number, lane, status, awaited, thread, ready, begin, end, by, error, outputs]) => {
    const { name, what, kind } = run.graph.units[number];
    const item = {
      type: "node", run, unit: number, lane, name, what, kind, status: text(status), awaited: !!awaited,
      thread: text(thread), ready: at(ready), begin: at(begin), end: at(end) ?? run.end, ended: end !== null,
      by: text(by), error: text(error), critical: path.has(number), step: path.get(number),
      outputs: outputs.map(([port, time, value, bytes]) => ({
        port: text(port), time: at(time), value: text(value), bytes,
      })),
    };
    run.byName.set(name, item);
    return item;
  });
  run.transfers = raw.transfers.map(([lane, status, node, sends, peer, port, begin, end, value, bytes, error]) => ({
    type: "transfer", run, lane, status: text(status), name: text(node), kind: "transfer", sends: !!sends, peer,
    port: text(port), ready: null, begin: at(begin), end: at(end) ?? run.end, ended: end !== null,
    value: text(value), bytes, error: text(error), unit: run.byName.get(text(node))?.unit ?? -1, awaited: false,
  }));
  return run;
});

const pairs = data.pairs.map(([one, sent, other, received]) => ({
  from: runs[one].transfers[sent], to: runs[other].transfers[received],
}));

const startOf = (item) => item.begin ?? item.ready ?? Infinity;

// The runs that are looked at together. `lanes` of a run are lists of items by their begin, none on another.
function makeView(places) {
  const chosen = places.map((place) => runs[place]);
  const among = new Set(chosen);
  const view = { runs: chosen, items: [], begin: Infinity, end: -Infinity };
  for (const run of chosen) {
    run.rows ??= run.lanes.map((name) => ({ name, items: [], soonest: [] }));
    if (!run.filled) {
      run.filled = true;
      for (const item of [...run.nodes, ...run.transfers]) {
        if (item.lane >= 0 && item.begin !== null) run.rows[item.lane].items.push(item);
      }
      for (const row of run.rows) {
        row.items.sort((a, b) => a.begin - b.begin || a.end - b.end);
        let soonest = Infinity; // when the first of this and all later ones became ready
        for (let i = row.items.length - 1; i >= 0; i--) {
          soonest = Math.min(soonest, row.items[i].ready ?? row.items[i].begin);
          row.soonest[i] = soonest;
        }
      }
    }
    view.items.push(...run.nodes);
    view.begin = Math.min(view.begin, run.begin);
    view.end = Math.max(view.end, run.end);
    for (const row of run.rows) for (const item of row.items) view.end = Math.max(view.end, item.end);
  }
  if (!chosen.length) [view.begin, view.end] = [0, 1];
  view.end = Math.max(view.end, view.begin + 1);
  view.items.sort((a, b) => startOf(a) - startOf(b) || a.unit - b.unit);
  view.pairs = pairs.filter(({ from, to }) => among.has(from.run) && among.has(to.run));
  return view;
}

const digits = (value) => value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  const [size, name] = UNITS.find(([size]) => Math.abs(ns) >= size) || UNITS[3];
  return size === 1 ? `${Math.round(ns)} ns` : `${digits(ns / size)} ${name}`;
}

// A moment on an axis whose marks are `step` apart: as many digits as tell two marks from one another.
function moment(ns, step, largest) {
  if (ns === 0) return "0";
  const [size, name] = UNITS.find(([size]) => largest >= size) || UNITS[3];
  const places = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(ns / size).toFixed(Math.min(9, places))} ${name}`;
}

function bytes(count) {
  let size = count;
  for (const name of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1000) return name === "B" ? `${size} B` : `${digits(size)} ${name}`;
    size /= 1024;
  }
  return `${digits(size)} TiB`;
}

const counted = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
const SIGNS = { ok: "✓", failed: "✕", cancelled: "⊘", unfinished: "…" };
