/* What the pictures share: scales, axes, levels, zoom, keys, the tip, and texts of numbers. */
"use strict";
const root = document.documentElement;
root.dataset.errors = "0";
addEventListener("error", () => { root.dataset.errors = String(1 + Number(root.dataset.errors)); });
const byId = id => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

/* What a picture's script hands to start(). */
let picture = {
  most: { x: 1, y: 1 },   /* the whole of it is 0..x, 0..y */
  least: { x: 1, y: 1 },  /* the closest look at it */
  names: { x: "", y: "" }, /* of the axes */
  unit: null,             /* of all sizes, an index of units; null: by what they are */
  labels: null,           /* text at y of the upright axis, shown where `high` of its units are high
                           * enough to read it, those that are first before all; null: sizes */
  paint() {},             /* what is within the axes */
  find: (x, y) => -1,     /* the number of what stands there, in units of the axes */
  describe: number => "", /* that, for the tip */
};

/* A colour of the page's style, whose name begins with --, as a canvas wants it: another one in the dark. */
let shades = {};
const shade = colour => colour.startsWith("--")
  ? shades[colour] ??= getComputedStyle(root).getPropertyValue(colour).trim() : colour;

/* ---- text ---- */

const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const unitOf = value => Math.min(units.length - 1,
  Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10));
const plain = (value, digits = 0) =>
  value.toLocaleString("en-US", { maximumFractionDigits: digits });
function size(value, unit = picture.unit ?? unitOf(value), digits = -1) {
  const number = value / 1024 ** unit;
  const four = 3 - Math.floor(Math.log10(Math.max(1, Math.abs(number)))); /* digits in all */
  return plain(number, digits < 0 ? Math.max(0, four) : digits) + " " + units[unit];
}

/* ---- the view: x0..x1 across, y0..y1 up ---- */

const canvas = byId("canvas"), tip = byId("tip"), context = canvas.getContext("2d");
const font = `12px ${shade("--pst-sans")}`;
const right = 14, above = 12, bottom = 46;
let left = 92; /* wider where the labels are */
let width = 0, height = 0, hovered = -1, pending = false, view;
const across = () => width - left - right, upward = () => height - above - bottom;
const toX = x => left + (x - view.x0) / (view.x1 - view.x0) * across();
const toY = y => height - bottom - (y - view.y0) / (view.y1 - view.y0) * upward();
const fromX = x => view.x0 + (x - left) / across() * (view.x1 - view.x0);
const fromY = y => view.y0 + (height - bottom - y) / upward() * (view.y1 - view.y0);

function request() {
  if (!pending)
    requestAnimationFrame(draw);
  pending = true;
}
/* Keeps a span within 0..most, at least `least` long. */
function clamp(low, high, most, least) {
  const length = Math.min(most, Math.max(Math.min(most, least), high - low));
  const start = Math.min(most - length, Math.max(0, low + (high - low - length) / 2));
  return [start, start + length];
}
function show(next) {
  const { most, least } = picture;
  const [x0, x1] = clamp(next.x0, next.x1, most.x, least.x);
  const [y0, y1] = clamp(next.y0, next.y1, most.y, least.y);
  view = { x0, x1, y0, y1 };
  request();
}
const reset = () => show({ x0: 0, x1: picture.most.x, y0: 0, y1: picture.most.y });
/* factor below 1 zooms in, around a point of the picture. */
function zoom(factor, x = left + across() / 2, y = above + upward() / 2, axes = "xy") {
  const across1 = axes === "y" ? 1 : factor, upward1 = axes === "x" ? 1 : factor;
  const at = fromX(x), level = fromY(y);
  show({ x0: at - (at - view.x0) * across1, x1: at + (view.x1 - at) * across1,
    y0: level - (level - view.y0) * upward1, y1: level + (view.y1 - level) * upward1 });
}
function pan(dx, dy) {
  const x = dx / across() * (view.x1 - view.x0), y = dy / upward() * (view.y1 - view.y0);
  show({ x0: view.x0 - x, x1: view.x1 - x, y0: view.y0 + y, y1: view.y1 + y });
}

/* ---- drawing ---- */

/* A line across, and its label above the level `over`, so that it hides no other line. */
function drawLevel(value, colour, dashes, text, isRight, over = value) {
  if (value < view.y0 || value > view.y1)
    return;
  context.strokeStyle = shade(colour);
  context.lineWidth = 2;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(left, toY(value));
  context.lineTo(width - right, toY(value));
  context.stroke();
  context.setLineDash([]);
  context.font = "bold " + font;
  context.textBaseline = "middle";
  context.textAlign = isRight ? "right" : "left";
  const wide = context.measureText(text).width;
  const x = isRight ? width - right - 8 : left + 8;
  const at = toY(over) - 18 > above ? toY(over) - 10 : toY(over) + 11;
  context.fillStyle = shade("--pst-veil");
  context.fillRect(isRight ? x - wide - 4 : x - 4, at - 8, wide + 8, 16);
  context.fillStyle = shade(colour);
  context.fillText(text, x, at);
}

/* Powers of two, at least 34 pixels apart, with at most two decimals. */
function chooseTicks() {
  if (picture.labels) {
    context.font = font;
    const widths = picture.labels.map(label => context.measureText(label.text).width);
    left = 24 + Math.ceil(Math.max(0, ...widths));
    return {};
  }
  const step = 2 ** Math.max(0, Math.ceil(Math.log2((view.y1 - view.y0) * 34 / upward())));
  const unit = picture.unit ?? unitOf(4 * step);
  const digits = Math.max(0, Math.round(Math.log2(1024 ** unit / step)));
  context.font = font;
  left = 40 + Math.ceil(context.measureText(size(view.y1, unit, digits)).width);
  return { step, unit, digits };
}

function visibleLabels() {
  const shown = [];
  const isFree = y => shown.every(other => Math.abs(toY(other.y) - toY(y)) > 13);
  const hasRoom = high => toY(0) - toY(high) > 12;
  for (const isFirst of [true, false])
    for (const label of picture.labels ?? [])
      if (!label.first !== isFirst && (isFirst || hasRoom(label.high)) && label.y >= view.y0 &&
          label.y <= view.y1 && isFree(label.y))
        shown.push(label);
  return shown;
}

function drawAxes({ step, unit, digits }) {
  context.strokeStyle = shade("--pst-faint");
  context.fillStyle = shade("--pst-ink");
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, above + 0.5, across() - 1, upward() - 1);
  context.font = font;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const label of visibleLabels())
    context.fillText(label.text, left - 8, toY(label.y));
  for (let y = Math.ceil(view.y0 / step) * step; y <= view.y1; y += step) {
    context.fillRect(left - 4, Math.round(toY(y)), 4, 1);
    context.fillText(size(y, unit, digits), left - 8, toY(y));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const apart = Math.max(110, 1.5 * context.measureText(plain(view.x1)).width + 24);
  const rough = (view.x1 - view.x0) * apart / across();
  const power = 10 ** Math.floor(Math.log10(rough));
  const xStep = Math.max(1, power * [1, 2, 5, 10].find(f => f * power >= rough));
  for (let x = Math.ceil(view.x0 / xStep) * xStep; x <= view.x1; x += xStep) {
    const text = plain(x);
    const last = width - right - context.measureText(text).width / 2;
    context.fillRect(Math.round(toX(x)), height - bottom, 1, 5);
    context.fillText(text, Math.min(toX(x), last), height - bottom + 8);
  }
  context.fillText(picture.names.x, left + across() / 2, height - 18);
  context.save();
  context.translate(14, above + upward() / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(picture.names.y, 0, -8);
  context.restore();
}

function draw() {
  pending = false;
  const scale = devicePixelRatio || 1;
  const frame = canvas.getBoundingClientRect();
  width = frame.width;
  height = frame.height;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = shade("--pst-page");
  context.fillRect(0, 0, width, height);
  const ticks = chooseTicks();
  context.save();
  context.beginPath();
  context.rect(left, above, across(), upward());
  context.clip();
  picture.paint();
  context.restore();
  drawAxes(ticks);
  root.dataset.state = "drawn";
}

/* ---- input ---- */

function hover(x, y) {
  const inside = x >= left && x < width - right && y >= above && y <= height - bottom;
  const found = inside ? picture.find(fromX(x), fromY(y)) : -1;
  if (found !== hovered)
    request();
  hovered = found;
  tip.style.display = found < 0 ? "none" : "block";
  if (found < 0)
    return;
  tip.textContent = picture.describe(found);
  const isLate = x + 16 + tip.offsetWidth > width;
  tip.style.left = Math.max(0, isLate ? x - tip.offsetWidth - 12 : x + 16) + "px";
  tip.style.top = Math.max(0, Math.min(y + 12, height - tip.offsetHeight)) + "px";
}

const place = event => {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
};
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const turn = event.deltaY || event.deltaX; /* Shift makes some browsers scroll sideways */
  zoom(Math.exp(Math.max(-240, Math.min(240, turn)) * 0.002), ...place(event),
    event.shiftKey ? "x" : event.altKey ? "y" : "xy");
}, { passive: false });
let held = null;
canvas.addEventListener("pointerdown", event => {
  held = place(event);
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", event => {
  const at = place(event);
  if (held) {
    pan(at[0] - held[0], at[1] - held[1]);
    held = at;
  }
  hover(...at);
});
for (const name of ["pointerup", "pointercancel"])
  canvas.addEventListener(name, () => { held = null; });
canvas.addEventListener("pointerleave", () => hover(-1, -1));
const actions = {
  "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": reset, "Home": reset,
  "ArrowLeft": () => pan(80, 0), "ArrowRight": () => pan(-80, 0),
  "ArrowUp": () => pan(0, 60), "ArrowDown": () => pan(0, -60),
};
canvas.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key])
    return;
  event.preventDefault();
  actions[event.key]();
});
byId("in").onclick = actions["+"];
byId("out").onclick = actions["-"];
byId("reset").onclick = reset;
addEventListener("resize", request);

/* ---- another style: dark or light, and always light on paper ---- */

function restyle() {
  shades = {};
  draw();
}
for (const query of ["print", "(prefers-color-scheme: dark)"])
  matchMedia(query).addEventListener("change", restyle);
for (const name of ["beforeprint", "afterprint"])
  addEventListener(name, () => {
    root.classList.toggle("pst-print", name === "beforeprint");
    restyle();
  });

/* ---- what stands around it ---- */

/* An <i> of a class of the page's style. */
function mark(kind, colour) {
  const made = document.createElement("i");
  made.className = kind;
  made.style.background = colour.startsWith("--") ? `var(${colour})` : colour;
  return made;
}

function start(own, summary) {
  picture = own;
  document.title = byId("title").textContent = data.title;
  byId("summary").textContent = summary;
  canvas.setAttribute("aria-label", summary);
  reset();
  draw();
}
