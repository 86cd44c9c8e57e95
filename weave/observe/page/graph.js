// The graph: boxes for nodes, curves for what is stitched, values going down; one drawing a rank beside the other.

const BOX = { w: 132, h: 40, across: 74 }; // `across` is half a column, as content.py counts

function makeGraph(canvas, state) {
  const drawn = { boxes: 0, edges: 0 };
  let down = 84; // from row to row: more where the pane is high and the graph is not
  const eye = { x: 0, y: 0, scale: 1 }; // what stands in the middle of the pane
  let drawings = [];
  let boxes = [];
  let edges = [];
  let all = null; // the boxes' bounds
  const it = surface(canvas, draw, (first) => first && begin());

  function show(view) {
    drawings = [];
    [boxes, edges] = [[], []];
    const made = new Map();
    let right = 0;
    for (const run of view.runs) {
      let drawing = made.get(run.drawing);
      if (!drawing) {
        drawing = makeDrawing(run, right);
        made.set(run.drawing, drawing);
        drawings.push(drawing);
        right = drawing.right + 70;
      }
      for (const item of [...run.nodes, ...run.transfers]) {
        item.box = drawing.boxes[item.unit] ?? null;
        if (item.box && item.type === "node") item.box.items.push(item);
      }
      run.path.forEach((unit, i) => i && drawing.critical.add(`${run.path[i - 1]} ${unit}`));
    }
    for (const drawing of drawings) {
      for (const edge of drawing.edges) edge.critical = drawing.critical.has(`${edge.from.unit} ${edge.to.unit}`);
    }
    const crossing = new Set(); // one arrow for all runs
    for (const { from, to } of view.pairs) {
      if (!from.box || !to.box || crossing.has(`${from.run.drawing} ${from.unit} ${to.run.drawing} ${to.unit}`)) continue;
      crossing.add(`${from.run.drawing} ${from.unit} ${to.run.drawing} ${to.unit}`);
      edges.push({ from: from.box, to: to.box, crossing: true });
    }
    right = Math.max(BOX.w, right - 70);
    const edge = drawings.length > 1 ? 34 : 0; // for the frames
    all = { left: -edge, right: right + edge, top: -40, bottom: 0, rows: 0 };
    for (const box of boxes) all.rows = Math.max(all.rows, box.row);
    begin();
  }

  // Spreads the rows over the pane, and shows everything; of a graph so long that nothing could be told apart, its top.
  function begin() {
    if (!all || !it.width) return;
    const wished = ((all.right - all.left) * it.height) / it.width - BOX.h - 80;
    down = Math.max(76, Math.min(150, wished / Math.max(1, all.rows)));
    for (const box of boxes) box.y = box.row * down;
    for (const drawing of drawings) drawing.bottom = drawing.boxes.reduce((low, box) => Math.max(low, box.y + BOX.h), 0);
    all.bottom = all.rows * down + BOX.h + 40;
    fit();
    const across = (it.width - 24) / (all.right - all.left);
    if (eye.scale < 0.12 && across > 0.12) {
      eye.scale = Math.min(0.5, across);
      eye.y = all.top + it.height / eye.scale / 2;
    }
  }

  function makeDrawing(run, left) {
    const drawing = { run, left, right: left + BOX.w, bottom: 0, critical: new Set(), edges: [] };
    drawing.boxes = run.graph.units.map((unit) => {
      const box = { ...unit, run, type: "box", items: [], x: left + unit.column * BOX.across, y: 0 };
      drawing.right = Math.max(drawing.right, box.x + BOX.w);
      return box;
    });
    for (const box of drawing.boxes) {
      for (const other of new Set(box.into.map((stitch) => stitch.producer))) {
        if (other >= 0) drawing.edges.push({ from: drawing.boxes[other], to: box });
      }
      box.given = box.into.filter((stitch) => stitch.producer < 0).map((stitch) => stitch.source);
      box.taken = box.from.filter((stitch) => stitch.consumer < 0).map((stitch) => stitch.destination);
    }
    boxes.push(...drawing.boxes);
    edges.push(...drawing.edges);
    return drawing;
  }

  function fit() {
    if (!all || !it.width) return;
    eye.scale = Math.min(1.25, (it.width - 24) / (all.right - all.left), (it.height - 24) / (all.bottom - all.top));
    eye.x = (all.left + all.right) / 2;
    eye.y = (all.top + all.bottom) / 2;
    it.invalidate();
  }

  const px = (x) => (x - eye.x) * eye.scale + it.width / 2;
  const py = (y) => (y - eye.y) * eye.scale + it.height / 2;

  function zoom(by, atX = it.width / 2, atY = it.height / 2) {
    const scale = Math.max(0.005, Math.min(3, eye.scale * by));
    const change = 1 / eye.scale - 1 / scale;
    eye.x += (atX - it.width / 2) * change;
    eye.y += (atY - it.height / 2) * change;
    eye.scale = scale;
    keepInside();
  }

  function pan(dx, dy) {
    eye.x += dx / eye.scale;
    eye.y += dy / eye.scale;
    keepInside();
  }

  function keepInside() {
    if (!all) return;
    eye.x = Math.max(all.left, Math.min(all.right, eye.x));
    eye.y = Math.max(all.top, Math.min(all.bottom, eye.y));
    it.invalidate();
  }

  function reveal(box, close) {
    if (close) eye.scale = Math.max(eye.scale, 0.9);
    const here = rect(box);
    const hidden = here.x < 4 || here.y < 4 || here.x + here.w > it.width - 4 || here.y + here.h > it.height - 4;
    if (close || hidden) [eye.x, eye.y] = [box.x + BOX.w / 2, box.y + BOX.h / 2];
    it.invalidate();
  }

  const rect = (box) => ({ x: px(box.x), y: py(box.y), w: BOX.w * eye.scale, h: BOX.h * eye.scale });

  function boxAt(x, y) {
    const slack = Math.max(0, 4 - (BOX.h * eye.scale) / 2); // small ones can be hit as well
    return boxes.find((box) => {
      const { x: left, y: top, w, h } = rect(box);
      return x >= left - slack && x <= left + w + slack && y >= top - slack && y <= top + h + slack;
    }) || null;
  }

  function draw() {
    const { ctx } = it;
    drawn.boxes = drawn.edges = 0;
    const focus = state.focusBox();
    for (const drawing of drawings) if (drawings.length > 1) drawFrame(ctx, drawing);
    drawEdges(ctx, focus);
    for (const box of boxes) {
      const here = rect(box);
      if (here.x > it.width || here.y > it.height || here.x + here.w < 0 || here.y + here.h < 0) continue;
      drawBox(ctx, box, here);
      drawn.boxes++;
    }
    if (focus) drawFocus(ctx, focus);
    ctx.globalAlpha = 1;
  }

  function drawFrame(ctx, drawing) {
    const [x, y] = [px(drawing.left - 24), py(-40)];
    ctx.strokeStyle = ink.line;
    ctx.fillStyle = ink.quiet;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.roundRect(x, y, (drawing.right - drawing.left + 48) * eye.scale, (drawing.bottom + 70) * eye.scale, 8);
    ctx.stroke();
    ctx.font = `600 12px ${FONT}`;
    const name = drawing.run.rank === null ? runName(drawing.run) : `rank ${drawing.run.rank}`;
    ctx.fillText(fitted(ctx, name, (drawing.right - drawing.left) * eye.scale), x + 8, y - 9);
  }

  function drawEdges(ctx, focus) {
    const plain = new Path2D();
    const special = [];
    for (const edge of edges) {
      const [ax, ay] = [px(edge.from.x + BOX.w / 2), py(edge.from.y + BOX.h)];
      const [bx, by] = [px(edge.to.x + BOX.w / 2), py(edge.to.y)];
      if (Math.max(ax, bx) < 0 || Math.min(ax, bx) > it.width || by < 0 || ay > it.height) {
        if (!edge.crossing || Math.max(ay, by) < 0 || Math.min(ay, by) > it.height) continue;
      }
      drawn.edges++;
      const strong = focus && (edge.from === focus || edge.to === focus);
      if (strong || edge.critical || edge.crossing) special.push([edge, strong, ax, ay, bx, by]);
      else curve(plain, ax, ay, bx, by);
    }
    ctx.strokeStyle = ink.faint;
    ctx.lineWidth = Math.max(0.4, Math.min(1.3, eye.scale * 1.6));
    ctx.globalAlpha = state.dimmed() ? 0.25 : eye.scale < 0.15 ? 0.5 : 0.9;
    ctx.stroke(plain);
    for (const [edge, strong, ax, ay, bx, by] of special) {
      ctx.globalAlpha = 1;
      ctx.strokeStyle = ctx.fillStyle = strong ? ink.focus : edge.crossing ? ink.transfer : ink.critical;
      ctx.lineWidth = strong ? 2 : Math.max(1, Math.min(2.2, 3 * eye.scale));
      ctx.setLineDash(edge.crossing ? [6, 4] : []);
      const way = new Path2D();
      if (edge.crossing) {
        const fromX = ax + (bx > ax ? 1 : -1) * (BOX.w / 2) * eye.scale;
        const toX = bx - (bx > ax ? 1 : -1) * (BOX.w / 2) * eye.scale;
        const [fromY, toY] = [ay - (BOX.h / 2) * eye.scale, by + (BOX.h / 2) * eye.scale];
        way.moveTo(fromX, fromY);
        way.bezierCurveTo((fromX + toX) / 2, fromY, (fromX + toX) / 2, toY, toX, toY);
      } else {
        curve(way, ax, ay, bx, by);
      }
      ctx.stroke(way);
      ctx.setLineDash([]);
      if (eye.scale > 0.35 && !edge.crossing) head(ctx, bx, by);
    }
  }

  function curve(path, ax, ay, bx, by) {
    path.moveTo(ax, ay);
    if (eye.scale < 0.12) return path.lineTo(bx, by);
    const bend = Math.min(Math.abs(by - ay) * 0.5, 60 * eye.scale);
    path.bezierCurveTo(ax, ay + bend, bx, by - bend, bx, by);
  }

  function head(ctx, x, y) {
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(x - 4, y - 7);
    ctx.lineTo(x + 4, y - 7);
    ctx.fill();
  }

  function drawBox(ctx, box, { x, y, w, h }) {
    const item = worst(box.items);
    const status = item ? item.status : "never";
    const bad = status === "failed" || status === "cancelled";
    const ran = item && item.begin !== null;
    ctx.globalAlpha = state.alphaBox(box);
    const colour = bad ? ink[status] : ink[box.kind];
    if (w < 44) { // too small for words
      ctx.fillStyle = ran ? colour : ink.faint;
      const grow = bad ? Math.max(0, 7 - h) / 2 : 0;
      ctx.fillRect(x - grow, y - grow, Math.max(1.5, w) + 2 * grow, Math.max(1.5, h) + 2 * grow);
      if (item?.critical && w > 5) {
        ctx.fillStyle = ink.critical;
        ctx.fillRect(x, y + h - Math.max(1.5, h * 0.2), w, Math.max(1.5, h * 0.2));
      }
      return;
    }
    ends(ctx, box, x + w / 2, y, h);
    const round = 6 * Math.min(1, eye.scale);
    ctx.beginPath();
    ctx.roundRect(x, y, w, h, round);
    ctx.fillStyle = ink.pane;
    ctx.fill();
    ctx.save();
    ctx.clip();
    ctx.fillStyle = colour;
    ctx.fillRect(x, y, 7 * eye.scale, h);
    if (bad) {
      ctx.globalAlpha *= 0.3;
      ctx.fillRect(x, y, w, h);
      ctx.globalAlpha = state.alphaBox(box);
      ctx.fillStyle = status === "failed" ? ink.hatch : ink.back_hatch;
      ctx.fillRect(x, y, 7 * eye.scale, h);
    }
    ctx.restore();
    ctx.strokeStyle = item?.critical ? ink.critical : bad ? colour : ink.faint;
    ctx.lineWidth = item?.critical ? 2.4 : 1.2;
    ctx.setLineDash(ran ? [] : [4, 3]);
    ctx.stroke();
    ctx.setLineDash([]);
    const size = Math.min(15, 12.5 * Math.max(0.7, eye.scale));
    const two = h > 30;
    ctx.font = `600 ${size}px ${FONT}`;
    ctx.fillStyle = ran ? ink.text : ink.quiet;
    const [from, room] = [x + 7 * eye.scale + 6, w - 7 * eye.scale - 12];
    const sure = status === "ok" || status === "never" ? "" : `${SIGNS[status]} `;
    ctx.fillText(sure + fitted(ctx, box.name, room - (sure ? 14 : 0), true), from, y + h * (two ? 0.34 : 0.52), room);
    if (two) {
      ctx.font = `${size - 1.5}px ${FONT}`;
      ctx.fillStyle = ink.quiet;
      const took = ran ? duration(item.end - item.begin) : "never ran";
      const more = box.items.length > 1 ? ` · ${box.items.length} ×` : "";
      ctx.fillText(fitted(ctx, `${took}${more} · ${box.what}`, room), from, y + h * 0.7, room);
    }
  }

  // What the caller gives, above its box, and takes, below.
  function ends(ctx, box, middle, y, h) {
    const long = 15 * eye.scale;
    ctx.strokeStyle = ink.faint;
    ctx.fillStyle = ink.quiet;
    ctx.lineWidth = 1.2;
    ctx.font = `${Math.min(12, 11 * Math.max(0.75, eye.scale))}px ${FONT}`;
    for (const [names, from, to] of [[box.given, y, y - long], [box.taken, y + h, y + h + long]]) {
      if (!names.length) continue;
      ctx.beginPath();
      ctx.moveTo(middle, from);
      ctx.lineTo(middle, to);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(middle, to, 3 * Math.min(1, eye.scale), 0, 7);
      ctx.fillStyle = ink.pane;
      ctx.fill();
      ctx.stroke();
      ctx.fillStyle = ink.quiet;
      if (eye.scale > 0.55) ctx.fillText(fitted(ctx, names.join(", "), 75 * eye.scale), middle + 8, to, 80 * eye.scale);
    }
  }

  function drawFocus(ctx, box) {
    const { x, y, w, h } = rect(box);
    const grow = Math.max(2, (12 - h) / 2);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = ink.focus;
    ctx.lineWidth = 2.5;
    ctx.beginPath();
    ctx.roundRect(x - grow, y - grow, w + 2 * grow, h + 2 * grow, 7);
    ctx.stroke();
  }

  gestures(canvas, {
    over: (x, y) => state.hover(boxAt(x, y), canvas, x, y),
    out: () => state.hover(null),
    drag: (dx, dy) => pan(-dx, -dy),
    press: (x, y) => state.keep(boxAt(x, y)),
    whole: fit,
    wheel: (x, y, dx, dy, event) => {
      if (event.shiftKey) pan(dx || dy, 0);
      else zoom(Math.exp(-dy * (event.ctrlKey ? 0.01 : 0.002)), x, y);
    },
  });

  return { show, fit, zoom, pan, reveal, rect, drawn, eye, canvas, invalidate: it.invalidate, get boxes() { return boxes; } };
}

// Of several firings of one node, the one that most wants to be seen.
function worst(items) {
  const order = ["failed", "cancelled", "unfinished", "ok"];
  return items.reduce((a, b) => (a && order.indexOf(a.status) <= order.indexOf(b.status) ? a : b), null);
}
