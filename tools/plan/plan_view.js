"use strict";
const root = document.documentElement;
root.dataset.errors = "0";
addEventListener("error", () => { root.dataset.errors = String(1 + Number(root.dataset.errors)); });

const plan = JSON.parse(document.getElementById("plan").textContent);
const count = plan.id.length;
const numbers = list => Float64Array.from(list, Number);
const bytes = numbers(plan.bytes), offset = numbers(plan.offset);
const begin = numbers(plan.begin), end = numbers(plan.end);
const layer = numbers(plan.layer); /* 0: none, 1: layer 0, ... */
const peak = Number(plan.peak), bound = Number(plan.bound), align = Number(plan.align);
const lastInstant = end.reduce((a, b) => Math.max(a, b), 1);
const numLayers = layer.reduce((a, b) => Math.max(a, b), 0);

/* ---- text ---- */

const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const unitOf = value => Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, value)) / 10));
const plain = (value, digits) => value.toLocaleString("en-US", { maximumFractionDigits: digits });
function size(value, unit = unitOf(value), digits = -1) {
  const number = value / 1024 ** unit;
  const four = 3 - Math.floor(Math.log10(Math.max(1, number))); /* digits in all */
  return plain(number, digits < 0 ? Math.max(0, four) : digits) + " " + units[unit];
}
const exact = value => BigInt(value).toLocaleString("en-US");

/* ---- colours, told apart by the colour-blind too (after Paul Tol's light and iridescent) ---- */

const few = ["#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33",
  "#aaaa00"];
const ramp = ["#eaf0b5", "#d0e7ca", "#b5ddd8", "#9bd2e1", "#81c4e7", "#7eb2e4",
  "#9398d2", "#9d7db2", "#906388", "#805770"];
const none = "#d4d4d4";
function colourOf(number) {
  if (number === 0)
    return none;
  if (numLayers <= few.length)
    return few[number - 1];
  const at = (number - 1) / (numLayers - 1) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(at));
  const part = k => [ramp[low], ramp[low + 1]].map(c => parseInt(c.slice(k, k + 2), 16));
  const mixed = [1, 3, 5].map(k => part(k)).map(([a, b]) => Math.round(a + (b - a) * (at - low)));
  return `rgb(${mixed.join(",")})`;
}

/* Tensors by colour, within by begin, so that a view is a prefix of each list. */
const groups = new Map();
for (const i of Array.from(begin.keys()).sort((a, b) => begin[a] - begin[b])) {
  const colour = colourOf(layer[i]);
  groups.has(colour) ? groups.get(colour).push(i) : groups.set(colour, [i]);
}
/* How many of the list satisfy before(), which turns false once. */
function prefix(length, before) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    before(middle) ? low = middle + 1 : high = middle;
  }
  return low;
}

/* The load after each instant at which it changes. */
const steps = (() => {
  const changes = [];
  for (let i = 0; i < count; i++) {
    const up = Math.ceil(bytes[i] / align) * align;
    changes.push([begin[i], up], [end[i], -up]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const at = [], load = [];
  let sum = 0;
  changes.forEach(([instant, change], i) => {
    sum += change;
    if (i + 1 === changes.length || changes[i + 1][0] !== instant) {
      at.push(instant);
      load.push(sum);
    }
  });
  return { at, load };
})();

/* ---- the view: instants x0..x1, addresses y0..y1 ---- */

const canvas = document.getElementById("canvas");
const tip = document.getElementById("tip");
const context = canvas.getContext("2d");
const right = 14, top_ = 12, bottom = 46;
let left = 92; /* wider where the labels are */
const top1 = Math.max(peak, bound, 1) * 1.05;
const all = () => ({ x0: 0, x1: lastInstant, y0: 0, y1: top1 });
let view = all();
let width = 0, height = 0;
const toX = t => left + (t - view.x0) / (view.x1 - view.x0) * (width - left - right);
const toY = a => height - bottom - (a - view.y0) / (view.y1 - view.y0) * (height - top_ - bottom);
const fromX = x => view.x0 + (x - left) / (width - left - right) * (view.x1 - view.x0);
const fromY = y => view.y0 + (height - bottom - y) / (height - top_ - bottom) * (view.y1 - view.y0);

/* Keeps a span within 0..most, at least `least` long. */
function clamp(low, high, most, least) {
  const length = Math.min(most, Math.max(least, high - low));
  const start = Math.min(most - length, Math.max(0, low + (high - low - length) / 2));
  return [start, start + length];
}
function show(next) {
  [view.x0, view.x1] = clamp(next.x0, next.x1, lastInstant, Math.min(lastInstant, 2));
  [view.y0, view.y1] = clamp(next.y0, next.y1, top1, Math.min(top1, 16));
  request();
}
/* factor below 1 zooms in, around a point of the picture. */
function zoom(factor, x, y, axes = "xy") {
  const t = fromX(x), a = fromY(y);
  const next = { ...view };
  if (axes !== "y") {
    next.x0 = t - (t - view.x0) * factor;
    next.x1 = t + (view.x1 - t) * factor;
  }
  if (axes !== "x") {
    next.y0 = a - (a - view.y0) * factor;
    next.y1 = a + (view.y1 - a) * factor;
  }
  show(next);
}
function pan(dx, dy) {
  const t = dx / (width - left - right) * (view.x1 - view.x0);
  const a = dy / (height - top_ - bottom) * (view.y1 - view.y0);
  show({ x0: view.x0 - t, x1: view.x1 - t, y0: view.y0 + a, y1: view.y1 + a });
}

/* ---- drawing ---- */

const font = "12px system-ui, sans-serif";
let hovered = -1;
let pending = false;
function request() {
  if (!pending)
    requestAnimationFrame(draw);
  pending = true;
}

const isVisible = i => end[i] > view.x0 && offset[i] < view.y1 && offset[i] + bytes[i] > view.y0;
function rectangle(i) {
  const x = toX(begin[i]), y = toY(offset[i] + bytes[i]);
  const w = toX(end[i]) - x, h = toY(offset[i]) - y;
  return [x, y, w > 3 ? w - 1 : Math.max(w, 0.4), h > 3 ? h - 1 : Math.max(h, 0.4)];
}

function drawBoxes() {
  let drawn = 0;
  const named = [];
  for (const [colour, list] of groups) {
    context.fillStyle = colour;
    const visible = prefix(list.length, k => begin[list[k]] < view.x1);
    for (let k = 0; k < visible; k++) {
      const i = list[k];
      if (!isVisible(i))
        continue;
      const [x, y, w, h] = rectangle(i);
      context.fillRect(x, y, w, h);
      drawn++;
      if (w > 60 && h > 15)
        named.push([i, colour, x, y, w, h]);
    }
  }
  canvas.dataset.drawnBoxes = String(drawn);
  return named;
}

function drawNames(named) {
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.font = font;
  for (const [i, colour, x, y, w, h] of named.slice(0, 2000)) {
    const x0 = Math.max(x, left), x1 = Math.min(x + w, width - right);
    const y0 = Math.max(y, top_), y1 = Math.min(y + h, height - bottom);
    const text = [`${plan.id[i]}: ${size(bytes[i])}`, size(bytes[i])]
      .find(t => context.measureText(t).width < x1 - x0 - 6);
    if (!text || y1 - y0 < 13)
      continue;
    const isDark = numLayers > few.length && layer[i] > 0.75 * numLayers;
    context.strokeStyle = colour; /* what crosses the text gives way */
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeText(text, (x0 + x1) / 2, (y0 + y1) / 2);
    context.fillStyle = isDark ? "#fff" : "#222";
    context.fillText(text, (x0 + x1) / 2, (y0 + y1) / 2);
  }
}

/* One vertical stroke per column of pixels, however many steps fall into it. */
function drawLoad() {
  const first = Math.max(0, prefix(steps.at.length, k => steps.at[k] <= view.x0) - 1);
  const last = prefix(steps.at.length, k => steps.at[k] < view.x1);
  const column = k => Math.round(Math.max(left, toX(steps.at[k])));
  let load = steps.at[first] <= view.x0 ? steps.load[first] : 0;
  context.beginPath();
  context.moveTo(left, toY(load));
  for (let k = first; k < last;) {
    const x = column(k);
    let low = load, high = load;
    context.lineTo(x, toY(load));
    for (; k < last && column(k) === x; k++) {
      load = steps.load[k];
      low = Math.min(low, load);
      high = Math.max(high, load);
    }
    for (const value of [low, high, load])
      context.lineTo(x, toY(value));
  }
  context.lineTo(width - right, toY(load));
  for (const [style, line] of [["#ffffffc0", 3], ["#000", 1.2]]) {
    context.strokeStyle = style;
    context.lineWidth = line;
    context.stroke();
  }
}

/* Labels stand above both lines where these are close, so that they hide nothing. */
function drawLevel(value, colour, dashes, text) {
  if (value < view.y0 || value > view.y1)
    return;
  const isPeak = dashes.length === 0;
  const y = toY(value);
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(left, y);
  context.lineTo(width - right, y);
  context.stroke();
  context.setLineDash([]);
  context.font = "bold " + font;
  context.textBaseline = "middle";
  context.textAlign = isPeak ? "right" : "left";
  const wide = context.measureText(text).width;
  const x = isPeak ? width - right - 8 : left + 8;
  const line = !isPeak && y - toY(peak) < 24 ? toY(peak) : y;
  const at = line - 18 > top_ ? line - 10 : line + 11;
  context.fillStyle = "#ffffffe0";
  context.fillRect(isPeak ? x - wide - 4 : x - 4, at - 8, wide + 8, 16);
  context.fillStyle = colour;
  context.fillText(text, x, at);
}

/* Powers of two, at least 34 pixels apart, with at most two decimals. */
function chooseTicks() {
  const rough = (view.y1 - view.y0) * 34 / (height - top_ - bottom);
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(rough)));
  const unit = unitOf(4 * step);
  const digits = Math.max(0, Math.round(Math.log2(1024 ** unit / step)));
  context.font = font;
  left = 40 + Math.ceil(context.measureText(size(view.y1, unit, digits)).width);
  return { yStep: step, unit, digits };
}

function drawAxes({ yStep, unit, digits }) {
  context.strokeStyle = "#555";
  context.fillStyle = "#222";
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, top_ + 0.5, width - left - right - 1, height - top_ - bottom - 1);
  context.font = font;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let a = Math.ceil(view.y0 / yStep) * yStep; a <= view.y1; a += yStep) {
    context.fillRect(left - 4, Math.round(toY(a)), 4, 1);
    context.fillText(size(a, unit, digits), left - 8, toY(a));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const apart = Math.max(110, 1.5 * context.measureText(plain(view.x1, 0)).width + 24);
  const rough = (view.x1 - view.x0) * apart / (width - left - right);
  const power = 10 ** Math.floor(Math.log10(rough));
  const xStep = Math.max(1, power * [1, 2, 5, 10].find(f => f * power >= rough));
  for (let t = Math.ceil(view.x0 / xStep) * xStep; t <= view.x1; t += xStep) {
    const x = toX(t);
    context.fillRect(Math.round(x), height - bottom, 1, 5);
    const text = plain(t, 0);
    const most = width - right - context.measureText(text).width / 2;
    context.fillText(text, Math.min(x, most), height - bottom + 8);
  }
  context.fillText("instant (number of the request)", (left + width - right) / 2, height - 18);
  context.save();
  context.translate(14, (top_ + height - bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("address", 0, -8);
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
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  const ticks = chooseTicks();
  context.save();
  context.beginPath();
  context.rect(left, top_, width - left - right, height - top_ - bottom);
  context.clip();
  const named = drawBoxes();
  if (hovered >= 0) {
    context.strokeStyle = "#000";
    context.lineWidth = 2;
    context.strokeRect(...rectangle(hovered));
  }
  if (document.getElementById("load").checked && steps.at.length > 0)
    drawLoad();
  if (bound !== peak)
    drawLevel(bound, "#0077bb", [7, 5], `lower bound ${size(bound)}`);
  drawLevel(peak, "#cc3311", [], `peak ${bound === peak ? "= lower bound " : ""}${size(peak)}`);
  drawNames(named);
  context.restore();
  drawAxes(ticks);
  root.dataset.state = "drawn";
}

/* ---- hover ---- */

function find(x, y) {
  if (x < left || x > width - right || y < top_ || y > height - bottom)
    return -1;
  const t = fromX(x), a = fromY(y);
  for (const list of groups.values()) {
    const started = prefix(list.length, k => begin[list[k]] <= t);
    for (let k = 0; k < started; k++) {
      const i = list[k];
      if (end[i] > t && offset[i] <= a && offset[i] + bytes[i] > a)
        return i;
    }
  }
  return -1;
}
function describe(i) {
  const lines = [`tensor ${exact(plan.id[i]).replaceAll(",", "")}`,
    `${size(bytes[i])} (${exact(plan.bytes[i])} bytes)`,
    `at ${size(offset[i])} (${exact(plan.offset[i])})`,
    `live from ${exact(plan.begin[i])} to ${exact(plan.end[i])}`];
  const more = [];
  if (layer[i] > 0)
    more.push(`layer ${layer[i] - 1}`);
  if (plan.phases[plan.phase[i]])
    more.push(plan.phases[plan.phase[i]]);
  if (plan.micro_batch[i] > 0)
    more.push(`micro-batch ${plan.micro_batch[i] - 1}`);
  return lines.concat(more.length ? more.join(", ") : []).join("\n");
}
function hover(x, y) {
  const found = find(x, y);
  if (found !== hovered)
    request();
  hovered = found;
  tip.style.display = found < 0 ? "none" : "block";
  if (found < 0)
    return;
  tip.textContent = describe(found);
  const isLate = x + 16 + tip.offsetWidth > width;
  tip.style.left = Math.max(0, isLate ? x - tip.offsetWidth - 12 : x + 16) + "px";
  tip.style.top = Math.max(0, Math.min(y + 12, height - tip.offsetHeight)) + "px";
}

/* ---- input ---- */

const place = event => {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
};
const middle = () => [(left + width - right) / 2, (top_ + height - bottom) / 2];
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
  "+": () => zoom(0.7, ...middle()), "=": () => zoom(0.7, ...middle()),
  "-": () => zoom(1 / 0.7, ...middle()), "0": () => show(all()), "Home": () => show(all()),
  "ArrowLeft": () => pan(80, 0), "ArrowRight": () => pan(-80, 0),
  "ArrowUp": () => pan(0, 60), "ArrowDown": () => pan(0, -60),
};
canvas.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key])
    return;
  event.preventDefault();
  actions[event.key]();
});
document.getElementById("in").onclick = actions["+"];
document.getElementById("out").onclick = actions["-"];
document.getElementById("reset").onclick = actions["0"];
document.getElementById("load").onchange = request;
addEventListener("resize", request);

/* ---- what stands around it ---- */

function legend() {
  const holder = document.getElementById("layers");
  const add = (kind, colour, text) => {
    const mark = document.createElement("i");
    mark.className = kind;
    mark.style.background = colour;
    holder.append(mark, text);
  };
  if (numLayers > few.length) {
    holder.append("layer 0");
    add("ramp", `linear-gradient(to right, ${ramp.join(",")})`, String(numLayers - 1));
  } else {
    for (let k = 1; k <= numLayers; k++)
      add("box", colourOf(k), k === 1 ? "layer 0" : String(k - 1));
  }
  if (layer.includes(0))
    add("box", none, numLayers > 0 ? "no layer" : "tensors");
}
document.title = plan.title;
document.getElementById("title").textContent = plan.title;
const gap = plain(100 * (peak / bound - 1), 3);
const verdict = peak === bound ? "optimal" : `at most ${gap}% too high`;
const summary = `${plain(count, 0)} tensors, peak ${size(peak)}, ` +
  `lower bound ${size(bound)}: ${verdict}`;
document.getElementById("summary").textContent = summary;
canvas.setAttribute("aria-label", summary);
legend();
draw();
