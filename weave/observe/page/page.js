// The page: which run is shown, which node is pointed at, the header, and the keys.

const byId = (id) => document.getElementById(id);
const tip = byId("tip");

let view = null;
let viewPlace = -1;
let pointed = null; // under the mouse, or stepped to: an item, or a box of the graph
let kept = null; // what stays when the mouse goes
let onlyCritical = false;
let wanted = "";
let spot = null; // where the tooltip is, if the mouse says so

const state = {
  found: new Set(),
  shown: () => pointed || kept,
  isFocus: (item) => state.shown() === item,
  focusBox: () => (state.shown()?.type === "box" ? state.shown() : state.shown()?.box ?? null),
  focusItems: () => (!state.shown() ? [] : state.shown().type === "box" ? state.shown().items.slice(0, 100) : [state.shown()]),
  dimmed: () => onlyCritical || wanted !== "",
  alpha: (item) => ((onlyCritical && !item.critical) || (wanted && !state.found.has(item)) ? 0.2 : 1),
  alphaBox: (box) => {
    if (wanted && !box.name.toLowerCase().includes(wanted)) return 0.25;
    return onlyCritical && !box.items.some((item) => item.critical) ? 0.3 : 1;
  },
  hover(thing, canvas, x, y) {
    const changed = thing !== pointed;
    pointed = thing;
    const box = canvas?.getBoundingClientRect();
    spot = thing ? [box.left + x, box.top + y] : null;
    canvas?.classList.toggle("over", !!thing);
    if (thing && changed) linked(thing, false);
    refresh(changed);
  },
  keep(thing) {
    kept = thing === kept ? null : thing;
    if (kept) say(sentence(kept));
    refresh(true);
  },
};

const timeline = makeTimeline(document.querySelector("#timeline canvas"), state);
const graph = makeGraph(document.querySelector("#graph canvas"), state);

// Brings the other picture of what is pointed at into sight.
function linked(thing, close) {
  if (thing.type === "box") {
    if (thing.items.length && !thing.items.some(timeline.inSight)) timeline.reveal(thing.items[0], close);
  } else if (thing.box) {
    graph.reveal(thing.box, close);
  }
}

function refresh(changed) {
  const thing = state.shown();
  if (!thing) tip.hidden = true;
  else {
    if (changed || tip.hidden) fillTip(tip, thing);
    placeTip(tip, ...(spot || beside(thing)), timeline.canvas.getBoundingClientRect().right);
  }
  timeline.invalidate();
  graph.invalidate();
}

// Where the tooltip stands without a mouse: at the start of the bar, or at the box.
function beside(thing) {
  const item = thing.type === "box" ? thing.items[0] : thing;
  const onTime = thing.type !== "box" && item && timeline.inSight(item);
  const { canvas } = onTime ? timeline : graph;
  const pane = canvas.getBoundingClientRect();
  const box = state.focusBox();
  const place = onTime ? timeline.rect(item) : box ? graph.rect(box) : { x: 0, y: 0, w: 0, h: 0 };
  const left = onTime ? Math.max(timeline.gutter, place.x) : Math.max(0, place.x);
  return [pane.left + left, pane.top + place.y + place.h];
}

function say(what) {
  byId("said").textContent = what;
}

function step(by) {
  const nodes = wanted ? view.items.filter((item) => state.found.has(item)) : view.items;
  if (!nodes.length) return;
  const now = state.shown()?.type === "box" ? state.shown().items[0] : state.shown();
  const at = nodes.indexOf(now);
  go(nodes[at < 0 ? (by > 0 ? 0 : nodes.length - 1) : (at + by + nodes.length) % nodes.length]);
}

function go(item, close = false) {
  [pointed, kept, spot] = [null, item, null];
  timeline.reveal(item, close);
  if (item.box) graph.reveal(item.box, close);
  say(sentence(item));
  refresh(true);
}

function find(words) {
  wanted = words.trim().toLowerCase();
  state.found = new Set(wanted ? view.items.filter((item) => item.name.toLowerCase().includes(wanted)) : []);
  byId("found").textContent = wanted ? `${state.found.size.toLocaleString("en")} of ${view.items.length.toLocaleString("en")}` : "";
  refresh(false);
}

function show(place) {
  viewPlace = place;
  view = makeView(data.views[place] || []);
  [pointed, kept, spot] = [null, null, null];
  graph.show(view);
  timeline.show(view);
  byId("views").value = String(place);
  fillFacts();
  fillLegend();
  find(byId("search").value);
  const what = `${counted(view.items.length, "node")}, ${duration(view.end - view.begin)}`;
  timeline.canvas.setAttribute("aria-label", `Timeline: ${what}. j and k step through the nodes`);
  graph.canvas.setAttribute("aria-label", `Graph: ${counted(graph.boxes.length, "node")}`);
}

function label(places) {
  const some = places.map((place) => runs[place]);
  if (data.views.length > 1 && some.length === runs.length) return `all ${counted(runs.length, "run")}`;
  const took = duration(Math.max(...some.map((run) => run.end)) - Math.min(...some.map((run) => run.begin)));
  const ranks = some.map((run) => (run.rank === null ? "" : `rank ${run.rank}`)).filter(Boolean).join(" + ");
  return [some[0].run, ranks, overall(some), took].filter(Boolean).join(" · ");
}

function overall(some) {
  return ["failed", "unfinished", "cancelled"].find((status) => some.some((run) => run.status === status)) || "ok";
}

// A figure of one run; of several, from the least to the most.
function spread(place, written) {
  const values = view.runs.map((run) => run.figures[place]).filter((value) => value !== null);
  if (!values.length) return "–";
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return least === most ? written(least) : `${written(least)} – ${written(most)}`;
}

function fillFacts() {
  const sum = (place) => view.runs.reduce((total, run) => total + run.figures[place], 0);
  const status = overall(view.runs);
  const facts = [
    ["status", element("span", `sign ${status}`, `${SIGNS[status]} ${status}`), ""],
    ["duration", view.runs.length > 1 ? duration(view.end - view.begin) : spread(0, duration), "from start to end"],
    ["critical path", spread(1, duration), "the longest chain of nodes that waited for one another"],
    ["busy", spread(2, duration), "while at least one node computed or was awaited"],
    ["compute", duration(sum(3)), "the nodes' own times together"],
    ["waited", duration(sum(4)), "between ready and started, all nodes together"],
    ["overlap", spread(5, (value) => `${value} %`), "of the time in which something was awaited or transferred: the share in which something else computed"],
    ["nodes", sum(6).toLocaleString("en"), "that have finished"],
    ["bytes", bytes(sum(7)), "of all tensors handed on"],
  ];
  byId("facts").replaceChildren(...facts.map(([name, value, hint]) => {
    const fact = element("div", name.replace(" ", "-"), element("dt", "", name), element("dd", "", value));
    fact.title = hint;
    return fact;
  }));
  const notes = view.runs.filter((run) => run.error).map((run) => `${runName(run)}: ${run.error}`);
  for (const file of data.cut) notes.push(`${file} ends in the middle of a line: its program was stopped while it wrote.`);
  byId("note").textContent = notes.join("\n");
  byId("note").hidden = !notes.length;
}

function fillLegend() {
  const has = (test) => view.runs.some((run) => run.nodes.some(test));
  const way = view.runs.some((run) => run.transfers.length) || has((item) => item.kind === "transfer");
  const entries = [
    ["module", "module", has((item) => item.kind === "module")],
    ["function", "function", has((item) => item.kind === "function")],
    ["other", "other node", has((item) => item.kind === "other")],
    ["transfer", "send, receive", way],
    ["awaited", "awaited", has((item) => item.awaited)],
    ["critical", "critical path", has((item) => item.critical)],
    ["wait", "ready, waiting", has((item) => waited(item))],
    ["failed", "✕ failed", has((item) => item.status === "failed")],
    ["cancelled", "⊘ cancelled", has((item) => item.status === "cancelled")],
    ["unfinished", "… unfinished", has((item) => item.status === "unfinished")],
  ];
  byId("legend").replaceChildren(...entries.filter(([, , shown]) => shown).map(([name, words]) =>
    element("li", "", element("span", `swatch ${name}`), words)));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  readInk();
  timeline.invalidate();
  graph.invalidate();
}

function other() {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

function critical() {
  onlyCritical = !onlyCritical;
  byId("critical").setAttribute("aria-pressed", String(onlyCritical));
  refresh(false);
}

function letGo() {
  byId("search").value = "";
  [pointed, kept] = [null, null];
  find("");
}

function close() {
  const thing = state.shown();
  const item = thing?.type === "box" ? thing.items[0] : thing;
  if (item) go(item, true);
}

const inGraph = () => document.activeElement === graph.canvas;

function zoom(by) {
  (inGraph() ? graph : timeline).zoom(by);
  refresh(false);
}

function pan(x, y) {
  if (inGraph()) graph.pan(x * 80, y * 80);
  else timeline.pan(x * (timeline.canvas.clientWidth - timeline.gutter) * 0.12, y * 60);
  refresh(false);
}

function fit() {
  if (!inGraph()) timeline.fit();
  graph.fit();
  refresh(false);
}

const KEYS = {
  j: () => step(1), k: () => step(-1), Enter: close, Escape: letGo,
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: fit,
  ArrowLeft: () => pan(-1, 0), ArrowRight: () => pan(1, 0), ArrowUp: () => pan(0, -1), ArrowDown: () => pan(0, 1),
  "/": () => byId("search").focus(), c: critical, t: other, "?": () => byId("helping").showModal(),
  "[": () => show(Math.max(0, viewPlace - 1)), "]": () => show(Math.min(data.views.length - 1, viewPlace + 1)),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("helping").open) return;
  const { id, tagName } = event.target;
  if (id === "search") {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") [letGo, () => event.target.blur()].forEach((does) => does());
    return;
  }
  if (tagName === "SELECT" || (tagName === "BUTTON" && event.key === "Enter") || (id === "split" && event.key.startsWith("Arrow"))) return;
  const does = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});

for (const [id, does] of Object.entries({
  critical, theme: other, fit: () => (timeline.fit(), graph.fit()), in: () => timeline.zoom(1.5), out: () => timeline.zoom(1 / 1.5),
  help: () => byId("helping").showModal(),
})) byId(id).addEventListener("click", does);
byId("search").addEventListener("input", (event) => find(event.target.value));
byId("views").addEventListener("change", (event) => show(Number(event.target.value)));
for (const { canvas } of [timeline, graph]) canvas.addEventListener("wheel", () => kept && !pointed && refresh(false));
addEventListener("resize", () => refresh(false));

function divide(share) {
  const now = Math.max(20, Math.min(85, share));
  document.querySelector("main").style.setProperty("--share", `${now}%`);
  byId("split").setAttribute("aria-valuenow", String(Math.round(now)));
}

const split = byId("split");
split.addEventListener("pointerdown", (event) => split.setPointerCapture(event.pointerId));
split.addEventListener("pointermove", (event) => {
  const box = document.querySelector("main").getBoundingClientRect();
  if (split.hasPointerCapture(event.pointerId)) divide(((event.clientX - box.left) / box.width) * 100);
});
split.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -3, ArrowRight: 3 }[event.key];
  if (by) divide(Number(split.getAttribute("aria-valuenow")) + by);
});

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
theme(dark.matches ? "dark" : "light");
byId("program").textContent = data.program;
byId("program").title = [...data.versions, data.began ? new Date(data.began / 1e6).toISOString() : ""].filter(Boolean).join(" · ");
byId("views").append(...data.views.map((places, place) => {
  const option = element("option", "", label(places));
  option.value = String(place);
  return option;
}));
byId("choosing").hidden = data.views.length < 2;
show(0);

// For tests, and for the browser's console: what is to be seen, read only.
//   range     {begin, end} in ns since the trace began: the part of the time that is visible; whole: all there is
//   hovered   name of the node that is pointed at or kept, or null;  found: how many the search finds
//   drawn     what the last frame drew: {bars, waits, arrows, boxes, edges};  counts: what there is: {items, boxes, runs}
//   theme     "light" or "dark"; eye: the graph's {x, y, scale}
//   at(name)  where the first node of that name is, in the window: {timeline: {x, y} or null, graph: {x, y}}
window.weavePage = Object.freeze({
  get range() { return { ...timeline.range }; },
  get whole() { return { begin: view.begin, end: view.end }; },
  get hovered() { return state.shown()?.name ?? null; },
  get found() { return state.found.size; },
  get drawn() { return { ...timeline.drawn, ...graph.drawn }; },
  get counts() { return { items: view.items.length, boxes: graph.boxes.length, runs: view.runs.length }; },
  get theme() { return document.documentElement.dataset.theme; },
  get eye() { return { ...graph.eye }; },
  at(name) {
    const middle = (canvas, { x, y, w, h }) => {
      const pane = canvas.getBoundingClientRect();
      return { x: pane.left + x + w / 2, y: pane.top + y + h / 2 };
    };
    const item = view.items.find((item) => item.name === name);
    const box = graph.boxes.find((box) => box.name === name);
    return {
      timeline: item && timeline.inSight(item) ? middle(timeline.canvas, timeline.rect(item)) : null,
      graph: box ? middle(graph.canvas, graph.rect(box)) : null,
    };
  },
});
