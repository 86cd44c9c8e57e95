// What is said of a node: in the tooltip with everything, in one sentence for those who listen. Text, never markup.

const MOST = 8; // lines of a list

function element(tag, className, ...inside) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...inside.filter((part) => part !== null));
  return made;
}

const runName = (run) => (run.rank === null ? `run ${run.run}` : `rank ${run.rank} · run ${run.run}`);

function waited(item) {
  return item.ready === null || item.begin === null ? null : Math.max(0, item.begin - item.ready);
}

function sentence(thing) {
  const item = thing.type === "box" ? worst(thing.items) : thing;
  if (!item) return `${thing.name}, never ran`;
  const parts = [item.name, item.status];
  if (item.begin !== null) parts.push(`took ${duration(item.end - item.begin)}`);
  if (waited(item)) parts.push(`waited ${duration(waited(item))}`);
  if (item.by) parts.push(`last input from ${item.by}`);
  if (item.critical) parts.push("on the critical path");
  return parts.join(", ");
}

function fillTip(tip, thing) {
  const item = thing.type === "box" ? worst(thing.items) : thing;
  tip.replaceChildren();
  tip.append(element("div", "name", thing.name));
  if (thing.type === "transfer") return fillTransfer(tip, thing);
  const about = element("div", "about", thing.what);
  if (item?.thread) about.append(` · ${item.thread}`);
  if (item?.awaited) about.append(" · awaited");
  tip.append(about);
  const marks = element("div", "marks");
  if (item) marks.append(element("span", `sign ${item.status}`, `${SIGNS[item.status] || ""} ${item.status}`));
  if (item?.critical) marks.append(element("span", "sign critical", "critical path"));
  if (thing.type === "box" && thing.items.length > 1) marks.append(element("span", "sign", `1 of ${thing.items.length} runs`));
  if (!item) marks.append(element("span", "sign", "never became ready"));
  tip.append(marks);
  if (item) fillTimes(tip, item);
  const into = (item ? item.run.graph : thing.run.graph).units[thing.unit].into;
  const units = (item ? item.run.graph : thing.run.graph).units;
  list(tip, "Inputs", into, ({ producer, source, destination }) => [
    producer < 0 ? `caller ${source}` : `${units[producer].name} ${source}`,
    `→ ${destination}`,
  ]);
  if (item) {
    list(tip, "Outputs", item.outputs, (output) => [output.port, output.value, bytes(output.bytes), `+${duration(output.time - item.begin)}`]);
  }
}

function fillTimes(tip, item) {
  const facts = [];
  if (item.begin !== null) {
    facts.push(["took", duration(item.end - item.begin) + (item.ended ? "" : ", and no end is recorded")]);
  }
  if (item.begin === null) facts.push(["waited", "and never started"]);
  else if (item.ready !== null) facts.push(["waited", `${duration(waited(item))} from ready to started`]);
  facts.push(["last input", item.by ? `from ${item.by}` : "ready without another node"]);
  if (item.begin !== null) facts.push(["started", `at ${duration(item.begin - item.run.begin)}`]);
  if (item.error) facts.push(["error", item.error]);
  pairsOf(tip, facts);
}

function fillTransfer(tip, item) {
  tip.append(element("div", "about", item.sends ? `sends '${item.port}' to rank ${item.peer}` : `receives '${item.port}' from rank ${item.peer}`));
  tip.append(element("div", "marks", element("span", `sign ${item.status}`, `${SIGNS[item.status] || ""} ${item.status}`)));
  const facts = [["took", duration(item.end - item.begin)], ["started", `at ${duration(item.begin - item.run.begin)}`]];
  if (item.value) facts.push(["value", `${item.value} · ${bytes(item.bytes)}`]);
  if (item.error) facts.push(["error", item.error]);
  pairsOf(tip, facts);
}

function pairsOf(tip, facts) {
  const table = element("table", "facts");
  for (const [name, value] of facts) table.append(element("tr", name, element("th", "", name), element("td", "", value)));
  tip.append(table);
}

function list(tip, title, entries, cells) {
  if (!entries.length) return;
  tip.append(element("div", "title", title));
  const table = element("table", `list ${title.toLowerCase()}`);
  for (const entry of entries.slice(0, MOST)) table.append(element("tr", "", ...cells(entry).map((cell) => element("td", "", cell))));
  tip.append(table);
  if (entries.length > MOST) tip.append(element("div", "about", `and ${entries.length - MOST} more`));
}

// Beside a point, inside the window: below and to the right where there is room, and not over the edge of the timeline,
// since what is pointed at is marked on its other side.
function placeTip(tip, x, y, edge) {
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const over = x < edge && x + 16 + width > edge && width + 24 < x;
  const left = over || x + 16 + width > innerWidth - 8 ? x - 16 - width : x + 16;
  const top = y + 18 + height > innerHeight - 8 ? y - 14 - height : y + 18;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(8, Math.min(top, innerHeight - height - 8))}px`;
}
