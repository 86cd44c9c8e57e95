// The timeline: a lane a thread, more where nodes were awaited at once, a pale line for what was ready and waited.

const AXIS = 36;
const GAP = 6;

function makeTimeline(canvas, state) {
  const range = { begin: 0, end: 1 };
  const drawn = { bars: 0, waits: 0, arrows: 0 };
  let view = null;
  let rows = [];
  let tall = 0; // all rows together
  let scroll = 0;
  let gutter = 120;

  const it = surface(canvas, draw, (first) => {
    lay();
    if (first) fit();
    clamp();
  });

  function show(next) {
    view = next;
    scroll = 0;
    lay();
    fit();
  }

  // Rows from top to bottom. Few lanes are drawn tall, so that a small run fills its pane.
  function lay() {
    if (!view) return;
    const count = view.runs.reduce((sum, run) => sum + run.rows.length, 0);
    const titles = view.runs.length > 1 ? view.runs.length : 0;
    const room = (it.height - AXIS - titles * 26 - 40) / Math.max(1, count) - GAP;
    const high = Math.max(20, Math.min(38, Math.floor(room)));
    rows = [];
    let top = GAP;
    for (const run of view.runs) {
      if (titles) {
        rows.push({ run, title: true, top, high: 22, items: [] });
        top += 26;
      }
      let before = null;
      for (const row of run.rows) {
        const again = row.name === before;
        rows.push({ run, top, high, name: row.name, again, items: row.items, soonest: row.soonest });
        for (const item of row.items) item.row = rows.length - 1;
        before = row.name;
        top += high + GAP;
      }
      if (titles) top += 8;
    }
    tall = top;
    it.ctx.font = `12px ${FONT}`;
    const named = rows.reduce((most, row) => Math.max(most, row.title ? 0 : it.ctx.measureText(row.name).width), 0);
    gutter = Math.ceil(Math.max(84, Math.min(named + 28, 190, it.width * 0.25)));
  }

  const wide = () => Math.max(1, it.width - gutter - 12);
  const x = (time) => gutter + ((time - range.begin) / (range.end - range.begin)) * wide();
  const timeAt = (px) => range.begin + ((px - gutter) / wide()) * (range.end - range.begin);
  const topOf = (row) => AXIS + row.top - scroll;

  function fit() {
    if (!view) return;
    const span = view.end - view.begin;
    range.begin = view.begin;
    range.end = view.end + span * 0.01;
    scroll = 0;
    it.invalidate();
  }

  function clamp() {
    if (!view) return;
    const pad = (view.end - view.begin) * 0.02;
    const [least, most] = [view.begin - pad, view.end + pad];
    const span = Math.max(20, Math.min(range.end - range.begin, most - least));
    range.begin = Math.max(least, Math.min(range.begin, most - span));
    range.end = range.begin + span;
    scroll = Math.max(0, Math.min(scroll, tall - (it.height - AXIS)));
    it.invalidate();
  }

  // `by` above 1 zooms in; what is under `px` stays there.
  function zoom(by, px = gutter + wide() / 2) {
    const here = timeAt(Math.max(gutter, px));
    const span = Math.max(20, (range.end - range.begin) / by);
    const share = (Math.max(gutter, px) - gutter) / wide();
    range.begin = here - span * share;
    range.end = range.begin + span;
    clamp();
  }

  function pan(dx, dy) {
    const time = (dx / wide()) * (range.end - range.begin);
    range.begin += time;
    range.end += time;
    scroll += dy;
    clamp();
  }

  // Brings an item into sight where it isn't; `close`: as large as can be read.
  function reveal(item, close) {
    if (!rows[item.row] || item.begin === null) return;
    const row = rows[item.row];
    const span = range.end - range.begin;
    if (close) {
      const asked = Math.max(20, (item.end - item.begin) * 5);
      if (span > asked || x(item.end) - x(item.begin) > wide()) {
        range.begin = (item.begin + item.end) / 2 - asked / 2;
        range.end = range.begin + asked;
      }
    }
    if (item.end < range.begin || item.begin > range.end) {
      const now = range.end - range.begin;
      range.begin = (item.begin + item.end) / 2 - now / 2;
      range.end = range.begin + now;
    }
    if (topOf(row) < AXIS || topOf(row) + row.high > it.height) scroll = row.top - (it.height - AXIS - row.high) / 2;
    clamp();
  }

  // The first of a row that ends after a time.
  function firstAfter(items, time) {
    let [low, high] = [0, items.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (items[middle].end < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function itemAt(px, py) {
    if (px < gutter || py < AXIS) return null;
    const row = rows.find((row) => !row.title && py >= topOf(row) - GAP / 2 && py < topOf(row) + row.high + GAP / 2);
    if (!row) return null;
    let best = null;
    let near = 5; // px: narrow bars can be hit as well
    for (let i = firstAfter(row.items, timeAt(px - near)); i < row.items.length; i++) {
      const item = row.items[i];
      if (x(item.begin) > px + near) break;
      const away = Math.max(0, x(item.begin) - px, px - Math.max(x(item.end), x(item.begin) + 1));
      if (away < near) [best, near] = [item, away];
    }
    return best;
  }

  function rect(item) {
    const row = rows[item.row];
    if (!row || item.begin === null) return null;
    const [left, right] = [x(item.begin), x(item.end)];
    return { x: left, y: topOf(row), w: Math.max(1, right - left), h: row.high - 4 };
  }

  function inSight(item) {
    const box = rect(item);
    return box && box.x + box.w >= gutter && box.x <= it.width && box.y + box.h > AXIS && box.y < it.height;
  }

  function draw() {
    const { ctx } = it;
    drawn.bars = drawn.waits = drawn.arrows = 0;
    if (!view) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(gutter, AXIS, it.width - gutter, it.height - AXIS);
    ctx.clip();
    drawGrid(ctx);
    const seen = rows.filter((row) => topOf(row) < it.height && topOf(row) + row.high > AXIS);
    for (const row of seen) if (!row.title) drawBack(ctx, row);
    for (const row of seen) drawWaits(ctx, row);
    for (const row of seen) drawBars(ctx, row);
    drawPath(ctx);
    for (const pair of view.pairs) drawArrow(ctx, pair.from, pair.to);
    drawFocus(ctx);
    ctx.restore();
    drawNames(ctx, seen);
    drawAxis(ctx);
    drawThumb(ctx);
  }

  function marks() {
    const asked = (range.end - range.begin) / Math.max(2, wide() / 110);
    const power = 10 ** Math.floor(Math.log10(asked));
    const step = Math.max(1, power * [1, 2, 5, 10].find((by) => by * power >= asked));
    const times = [];
    const zero = view.begin;
    for (let n = Math.ceil((range.begin - zero) / step); zero + n * step <= range.end; n++) times.push(n * step);
    return { step, times };
  }

  function drawGrid(ctx) {
    ctx.fillStyle = ink.line;
    for (const time of marks().times) ctx.fillRect(Math.round(x(view.begin + time)), AXIS, 1, it.height);
  }

  function drawBack(ctx, row) {
    ctx.fillStyle = ink.band;
    ctx.fillRect(gutter, topOf(row) - 2, it.width, row.high);
  }

  function drawWaits(ctx, row) {
    if (row.title) return;
    const y = topOf(row) + row.high - 5;
    let [from, to] = [Infinity, -Infinity]; // px that are drawn already
    for (let i = firstAfter(row.items, range.begin); i < row.items.length && row.soonest[i] <= range.end; i++) {
      const item = row.items[i];
      if (item.ready === null || item.ready >= item.begin || item.ready > range.end) continue;
      const left = Math.max(gutter - 2, x(item.ready));
      const right = Math.min(it.width + 2, x(item.begin));
      if (right - left < 1 || (left >= from && right <= to)) continue;
      [from, to] = [Math.min(from, left), Math.max(to, right)];
      ctx.fillStyle = ink.wait;
      ctx.fillRect(left, y, right - left, 3);
      ctx.fillRect(left, y - 3, 1.5, 6);
      drawn.waits++;
    }
  }

  function drawBars(ctx, row) {
    let until = -Infinity; // px: what would lie within one that is drawn already isn't
    const items = row.items;
    for (let i = firstAfter(items, range.begin); i < items.length && items[i].begin <= range.end; i++) {
      const item = items[i];
      const [left, right] = [x(item.begin), x(item.end)];
      const stands = item.status !== "ok" || item.critical || state.found.has(item);
      if (right < until && !stands) continue;
      until = Math.max(until, Math.floor(left) + 1);
      drawBar(ctx, item, left, right, topOf(row), row.high - 6);
      drawn.bars++;
    }
  }

  function drawBar(ctx, item, left, right, y, high) {
    const gap = right - left > 4 ? 1 : 0; // between two that touch
    const bad = item.status === "failed" || item.status === "cancelled";
    const from = Math.max(gutter - 4, left);
    const room = Math.max(bad ? 5 : state.found.has(item) ? 3 : 1, Math.min(it.width + 4, right - gap) - from);
    ctx.globalAlpha = state.alpha(item);
    const colour = bad ? ink[item.status] : ink[item.kind];
    const faint = item.awaited || item.status === "unfinished";
    ctx.fillStyle = colour;
    if (faint) ctx.globalAlpha *= 0.38;
    ctx.beginPath();
    ctx.roundRect(from, y, room, high, Math.min(3, room / 3));
    ctx.fill();
    ctx.globalAlpha = state.alpha(item);
    if (bad) {
      ctx.fillStyle = item.status === "failed" ? ink.hatch : ink.back_hatch;
      ctx.fill();
    }
    if (faint && room > 3) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = 1;
      ctx.setLineDash(item.status === "unfinished" ? [4, 3] : []);
      ctx.beginPath();
      ctx.roundRect(from + 0.5, y + 0.5, room - 1, high - 1, 3);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    if (item.critical && room > 1) {
      ctx.fillStyle = ink.critical;
      ctx.fillRect(from, y + high - 3, room, 3);
    }
    if (bad && room < 24) {
      sign(ctx, item, from + room / 2, y - 1);
    } else if (room > 26) {
      ctx.font = `500 12px ${FONT}`;
      const sure = item.status === "ok" ? "" : `${SIGNS[item.status]} `;
      const name = item.type === "node" ? item.name : `${item.port} ${item.sends ? "→" : "←"} ${item.peer}`;
      const label = sure + fitted(ctx, name, room - (sure ? 26 : 12), true);
      if (bad && label) {
        ctx.fillStyle = colour; // a plain ground for the text
        ctx.fillRect(from + 4, y + 2, Math.min(room - 8, ctx.measureText(label).width + 5), high - 4 - (item.critical ? 2 : 0));
      }
      ctx.fillStyle = faint ? ink.text : ink.onbar;
      if (label) ctx.fillText(label, from + 6, y + high / 2 - (item.critical ? 1 : 0), room - 10);
    }
    ctx.globalAlpha = 1;
  }

  function sign(ctx, item, px, y) {
    ctx.fillStyle = ink[item.status];
    ctx.beginPath();
    ctx.moveTo(px - 5, y - 5);
    ctx.lineTo(px + 5, y - 5);
    ctx.lineTo(px, y + 2);
    ctx.fill();
  }

  // From each node of a critical path to the next: down at the moment at which the later one could begin.
  function drawPath(ctx) {
    if (state.found.size) return;
    ctx.strokeStyle = ink.critical;
    ctx.lineWidth = 1.5;
    for (const run of view.runs) {
      const steps = [];
      for (const item of run.nodes) if (item.critical) steps[item.step] = item;
      for (let i = 1; i < steps.length; i++) {
        const [one, next] = [steps[i - 1], steps[i]];
        if (!one || !next || one.row === next.row || (one.end < range.begin && next.begin < range.begin)) continue;
        const [a, b] = [rect(one), rect(next)];
        if (!a || !b || Math.min(a.x, b.x) > it.width || a.w + b.w < 12) continue; // too dense to be followed
        const px = Math.max(a.x, Math.min(a.x + a.w, b.x));
        ctx.globalAlpha = 0.8 * Math.min(state.alpha(one), state.alpha(next));
        ctx.beginPath();
        ctx.moveTo(px, a.y + a.h / 2);
        ctx.lineTo(px, b.y + b.h / 2);
        ctx.lineTo(b.x, b.y + b.h / 2);
        ctx.stroke();
      }
    }
    ctx.globalAlpha = 1;
  }

  // A send to its receive: from when it was handed over until it had come.
  function drawArrow(ctx, from, to) {
    const [a, b] = [rect(from), rect(to)];
    if (!a || !b) return;
    const [px, py, qx, qy] = [a.x + 2, a.y + a.h / 2, b.x + b.w, b.y + b.h / 2];
    if (Math.max(px, qx) < gutter || Math.min(px, qx) > it.width || Math.max(py, qy) < AXIS || Math.min(py, qy) > it.height) return;
    const strong = state.isFocus(from) || state.isFocus(to);
    ctx.strokeStyle = ctx.fillStyle = strong ? ink.text : ink.transfer;
    ctx.lineWidth = strong ? 2 : 1.4;
    const bend = Math.max(14, Math.abs(qx - px) * 0.4);
    ctx.beginPath();
    ctx.moveTo(px, py);
    ctx.bezierCurveTo(px + bend * 0.2, py + (qy - py) * 0.5, qx - bend * 0.2, py + (qy - py) * 0.5, qx, qy);
    ctx.stroke();
    const down = qy > py ? 1 : -1;
    ctx.beginPath();
    ctx.moveTo(qx, qy);
    ctx.lineTo(qx - 4, qy - 7 * down);
    ctx.lineTo(qx + 4, qy - 7 * down);
    ctx.fill();
    drawn.arrows++;
  }

  // The node that is pointed at, how long it waited, and from whom the last of its values came.
  function drawFocus(ctx) {
    for (const item of state.focusItems()) {
      const box = rect(item);
      if (!box || !inSight(item)) continue;
      const row = rows[item.row];
      ctx.strokeStyle = ctx.fillStyle = ink.focus;
      if (item.ready !== null && item.ready < item.begin) ctx.fillRect(x(item.ready), box.y + row.high - 5, box.x - x(item.ready), 3);
      const giver = item.by && item.run.byName.get(item.by);
      if (giver && rect(giver)) {
        const given = rect(giver);
        const px = x(item.ready ?? item.begin);
        ctx.lineWidth = 1.5;
        ctx.setLineDash([4, 3]);
        ctx.beginPath();
        ctx.moveTo(Math.min(px, given.x + given.w), given.y + given.h / 2);
        ctx.lineTo(px, box.y + box.h - 1);
        ctx.stroke();
        ctx.setLineDash([]);
      }
      const grow = Math.max(0, 7 - box.w) / 2;
      const left = Math.max(gutter - 6, box.x - grow);
      ctx.lineWidth = 2.5;
      ctx.beginPath();
      ctx.roundRect(left - 1.5, box.y - 2, Math.min(it.width + 6, box.x + box.w + grow) - left + 2, row.high - 2, 4);
      ctx.stroke();
    }
  }

  function drawNames(ctx, seen) {
    ctx.fillStyle = ink.pane;
    ctx.fillRect(0, AXIS, gutter - 1, it.height);
    ctx.fillStyle = ink.line;
    ctx.fillRect(gutter - 1, AXIS, 1, it.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, AXIS, it.width, it.height - AXIS);
    ctx.clip();
    for (const row of seen) {
      const y = topOf(row) + row.high / 2 - 2;
      if (row.title) drawTitle(ctx, row.run, y);
      else if (!row.again) {
        ctx.font = `12px ${FONT}`;
        ctx.fillStyle = ink.quiet;
        ctx.fillText(fitted(ctx, row.name, gutter - 24), 14, y, gutter - 22);
      }
    }
    ctx.restore();
  }

  function drawTitle(ctx, run, y) {
    ctx.font = `600 12px ${FONT}`;
    const name = runName(run);
    ctx.fillStyle = ink.pane;
    ctx.fillRect(12, y - 11, ctx.measureText(name).width + 8, 22);
    ctx.fillStyle = ink.text;
    ctx.fillText(name, 14, y);
    const after = 14 + ctx.measureText(name).width + 14;
    ctx.font = `12px ${FONT}`;
    ctx.fillStyle = ink.quiet;
    const [took, critical, , , , overlap] = run.figures;
    const parts = [`${SIGNS[run.status] || ""} ${run.status}`, duration(took), `critical path ${duration(critical)}`];
    if (overlap !== null) parts.push(`overlap ${overlap} %`);
    ctx.fillText(fitted(ctx, parts.join("  ·  "), it.width - after - 8), after, y);
  }

  function drawAxis(ctx) {
    ctx.fillStyle = ink.pane;
    ctx.fillRect(0, 0, it.width, AXIS);
    ctx.fillStyle = ink.line;
    ctx.fillRect(0, AXIS - 1, it.width, 1);
    ctx.font = `11px ${FONT}`;
    ctx.fillStyle = ink.quiet;
    const { step, times } = marks();
    const largest = Math.max(Math.abs(range.end - view.begin), step);
    for (const time of times) {
      const px = x(view.begin + time);
      if (px < gutter - 2) continue;
      const label = moment(time, step, largest);
      const end = px + ctx.measureText(label).width;
      if (end < it.width) ctx.fillText(label, px + 4, AXIS - 11);
      ctx.fillRect(Math.round(px), AXIS - 6, 1, 5);
    }
    ctx.fillText(`${duration(range.end - range.begin)} shown`, 14, AXIS - 11, gutter - 18);
  }

  // Where in the whole the visible part is.
  function drawThumb(ctx) {
    const span = view.end - view.begin;
    const from = Math.max(0, (range.begin - view.begin) / span);
    const to = Math.min(1, (range.end - view.begin) / span);
    ctx.fillStyle = ink.line;
    ctx.fillRect(gutter, 4, wide(), 5);
    ctx.fillStyle = ink.faint;
    ctx.fillRect(gutter + from * wide(), 4, Math.max(6, (to - from) * wide()), 5);
    const room = it.height - AXIS;
    if (tall > room) ctx.fillRect(it.width - 6, AXIS + 2 + (scroll / tall) * room, 4, Math.max(12, (room / tall) * room - 4));
  }

  gestures(canvas, {
    over: (px, py) => state.hover(itemAt(px, py), canvas, px, py),
    out: () => state.hover(null),
    drag: (dx, dy) => pan(-dx, -dy),
    press: (px, py) => state.keep(itemAt(px, py)),
    whole: fit,
    wheel: (px, py, dx, dy, event) => {
      if (px < gutter) pan(0, dy);
      else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) pan(dx || dy, 0);
      else zoom(Math.exp(-dy * (event.ctrlKey ? 0.01 : 0.002)), px);
    },
  });

  return {
    show, fit, zoom, pan, reveal, rect, inSight, range, drawn, canvas, invalidate: it.invalidate,
    get gutter() { return gutter; },
  };
}
