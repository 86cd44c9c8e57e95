// A canvas that fills its pane: sharp on every screen, drawn at most once a frame, with mouse and touch as gestures.

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", sans-serif';

// Colours come from the style sheet, so that light and dark are said in one place.
const ink = {};
const INKS = ["back", "pane", "band", "line", "text", "quiet", "faint", "wait", "critical", "focus", "onbar",
  "module", "function", "transfer", "other", "failed", "cancelled"];

function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of INKS) ink[name] = style.getPropertyValue(`--${name}`).trim();
  ink.hatch = hatch(ink.onbar, 1);
  ink.back_hatch = hatch(ink.onbar, -1);
}

function hatch(colour, slope) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const ctx = tile.getContext("2d");
  ctx.strokeStyle = colour;
  ctx.globalAlpha = 0.55;
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  for (const shift of [-8, 0, 8]) {
    ctx.moveTo(shift, slope > 0 ? 8 : 0);
    ctx.lineTo(shift + 8, slope > 0 ? 0 : 8);
  }
  ctx.stroke();
  return ctx.createPattern(tile, "repeat");
}

function surface(canvas, draw, resized) {
  const ctx = canvas.getContext("2d");
  const it = { canvas, ctx, width: 0, height: 0, asked: false };
  const paint = () => {
    it.asked = false;
    if (!it.width) return;
    const ratio = window.devicePixelRatio || 1;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, it.width, it.height);
    ctx.textBaseline = "middle";
    draw();
  };
  it.invalidate = () => {
    if (!it.asked) requestAnimationFrame(paint);
    it.asked = true;
  };
  new ResizeObserver(() => {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = canvas.parentElement;
    const first = !it.width;
    [it.width, it.height] = [clientWidth, clientHeight];
    [canvas.width, canvas.height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    resized(first);
    paint(); // at once: a canvas is emptied by its new size
  }).observe(canvas.parentElement);
  return it;
}

// `on`: over(x, y), out(), drag(dx, dy, x, y), press(x, y), whole(), wheel(x, y, dx, dy, event).
function gestures(canvas, on) {
  let from = null;
  let moved = false;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    [from, moved] = [place(event), false];
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!from) return on.over(x, y);
    if (!moved && Math.hypot(x - from[0], y - from[1]) < 4) return;
    if (!moved) canvas.classList.add("dragged");
    moved = true;
    on.drag(x - from[0], y - from[1], x, y);
    from = [x, y];
  });
  const release = (event) => {
    if (from && !moved && event.type === "pointerup") on.press(...place(event));
    from = null;
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => on.out());
  canvas.addEventListener("dblclick", () => on.whole());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    on.wheel(...place(event), event.deltaX * lines, event.deltaY * lines, event);
  }, { passive: false });
}

// A text that fits, with an ellipsis where it had to be cut; the empty one where not even two letters would. Names are
// cut at their beginning: of `layers.11.attn` and `layers.11.norm` it is the end that tells.
const widths = new Map();

function fitted(ctx, whole, room, isName = false) {
  const key = `${ctx.font} ${whole}`;
  let wide = widths.get(key);
  if (wide === undefined) {
    if (widths.size > 20000) widths.clear();
    widths.set(key, (wide = ctx.measureText(whole).width));
  }
  if (wide <= room) return whole;
  const letters = Math.floor((whole.length * (room - 8)) / wide);
  return letters < 2 ? "" : isName ? `…${whole.slice(-letters).replace(/^\.+/, "")}` : `${whole.slice(0, letters)}…`;
}
