"use strict";
const root = document.documentElement;
root.dataset.errors = "0";
addEventListener("error", () => { root.dataset.errors = String(1 + Number(root.dataset.errors)); });

const data = JSON.parse(document.getElementById("data").textContent);
const fields = 6; /* of an event */
const events = Float64Array.from(data.events, Number);
const count = events.length / fields;
const code = i => events[fields * i], microBatch = i => events[fields * i + 1];
const layers = i => events[fields * i + 2], saved = i => events[fields * i + 3];
const head = i => events[fields * i + 4], all = i => events[fields * i + 5];
const memory = Number(data.memory), overhead = Number(data.overhead), states = Number(data.states);
const most = Number(data.peak) + overhead;
const recompute = Number(data.recompute), transient = Number(data.transient);
const highest = (() => {
  let found = 0;
  for (let i = 1; i < count; i++)
    if (all(i) > all(found))
      found = i;
  return found;
})();

/* Bottom up. Told apart by the colour-blind too (after Paul Tol's light scheme). */
const parts = [
  { name: "overhead", colour: "#d4d4d4", of: () => overhead },
  { name: "states", colour: "#77aadd", of: () => states },
  { name: "paging", colour: "#44bb99", of: i => all(i) - states - saved(i) - head(i) },
  { name: "saved", colour: "#eedd88", of: saved },
  { name: "head", colour: "#ee8866", of: head },
];

/* ---- text ---- */

const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const unitOf = value => Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, value)) / 10));
const plain = (value, digits = 0) =>
  value.toLocaleString("en-US", { maximumFractionDigits: digits });
function size(value, unit = unitOf(Math.abs(value)), digits = 2) {
  return plain(value / 1024 ** unit, digits) + " " + units[unit];
}

/* ---- the view: events x0..x1, bytes 0..top ---- */

const canvas = document.getElementById("canvas");
const tip = document.getElementById("tip");
const context = canvas.getContext("2d");
const font = "12px system-ui, sans-serif";
const right = 14, above = 12, bottom = 46;
const top1 = Math.max(memory, most, 1) * 1.06;
let left = 92; /* wider where the labels are */
let view = { x0: 0, x1: Math.max(1, count) };
let width = 0, height = 0, hovered = -1, pending = false;
const toX = event => left + (event - view.x0) / (view.x1 - view.x0) * (width - left - right);
const fromX = x => view.x0 + (x - left) / (width - left - right) * (view.x1 - view.x0);
const toY = bytes => height - bottom - bytes / top1 * (height - above - bottom);

function request() {
  if (!pending)
    requestAnimationFrame(draw);
  pending = true;
}
function show(x0, x1) {
  const end = Math.max(1, count);
  const length = Math.min(end, Math.max(Math.min(end, 4), x1 - x0));
  const start = Math.min(end - length, Math.max(0, x0 + (x1 - x0 - length) / 2));
  view = { x0: start, x1: start + length };
  request();
}
function zoom(factor, x = (left + width - right) / 2) {
  const at = fromX(x);
  show(at - (at - view.x0) * factor, at + (view.x1 - at) * factor);
}
function pan(pixels) {
  const by = pixels / (width - left - right) * (view.x1 - view.x0);
  show(view.x0 - by, view.x1 - by);
}

/* ---- drawing ---- */

/* The highest event of each column of pixels; as rectangles, one for columns that are alike. */
function columns() {
  const found = [];
  for (let x = Math.ceil(left); x < width - right; x++) {
    const first = Math.max(0, Math.floor(fromX(x)));
    const end = Math.min(count, Math.max(first + 1, Math.ceil(fromX(x + 1))));
    let top = first;
    for (let i = first + 1; i < end; i++)
      if (all(i) > all(top))
        top = i;
    const last = found[found.length - 1];
    if (last && last.event === top && last.x + last.width === x)
      last.width++;
    else if (top < count)
      found.push({ event: top, x, width: 1 });
  }
  return found;
}

function drawAreas() {
  const found = columns();
  for (const { event, x, width: wide } of found) {
    let below = 0;
    for (const part of parts) {
      const bytes = part.of(event);
      const y = toY(below + bytes);
      context.fillStyle = part.colour;
      context.fillRect(x, y, wide, toY(below) - y);
      below += bytes;
    }
  }
  canvas.dataset.drawn = String(found.length);
}

function drawLevel(bytes, colour, dashes, text, isRight) {
  const y = toY(bytes);
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
  context.textAlign = isRight ? "right" : "left";
  const wide = context.measureText(text).width;
  const x = isRight ? width - right - 8 : left + 8;
  const at = y - 18 > above ? y - 10 : y + 11;
  context.fillStyle = "#ffffffe0";
  context.fillRect(isRight ? x - wide - 4 : x - 4, at - 8, wide + 8, 16);
  context.fillStyle = colour;
  context.fillText(text, x, at);
}

/* What comes on top of the highest event, as a bar, and a dot where it stands. */
function drawPeak() {
  if (count === 0)
    return;
  const wide = Math.max(3, toX(highest + 1) - toX(highest));
  const x = (toX(highest) + toX(highest + 1) - wide) / 2;
  const y = toY(most);
  context.fillStyle = "#cc331166";
  context.fillRect(x, y, wide, toY(all(highest) + overhead) - y);
  context.fillStyle = "#cc3311";
  context.beginPath();
  context.arc(x + wide / 2, toY(all(highest) + overhead), 4, 0, 2 * Math.PI);
  context.fill();
}

function drawHovered() {
  if (hovered < 0)
    return;
  const x = toX(hovered), wide = Math.max(1, toX(hovered + 1) - x);
  context.strokeStyle = "#000";
  context.lineWidth = 1;
  context.strokeRect(x, toY(all(hovered) + overhead), wide, toY(0) - toY(all(hovered) + overhead));
}

function chooseTicks() {
  const rough = top1 * 34 / (height - above - bottom);
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(rough)));
  const unit = unitOf(4 * step);
  context.font = font;
  left = 24 + Math.ceil(context.measureText(size(top1, unit)).width);
  return { step, unit };
}

function drawAxes({ step, unit }) {
  context.strokeStyle = "#555";
  context.fillStyle = "#222";
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, above + 0.5, width - left - right - 1,
    height - above - bottom - 1);
  context.font = font;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let bytes = 0; bytes <= top1; bytes += step) {
    context.fillRect(left - 4, Math.round(toY(bytes)), 4, 1);
    context.fillText(size(bytes, unit), left - 8, toY(bytes));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const rough = (view.x1 - view.x0) * 110 / (width - left - right);
  const power = 10 ** Math.floor(Math.log10(rough));
  const xStep = Math.max(1, power * [1, 2, 5, 10].find(f => f * power >= rough));
  for (let event = Math.ceil(view.x0 / xStep) * xStep; event <= view.x1; event += xStep) {
    context.fillRect(Math.round(toX(event)), height - bottom, 1, 5);
    context.fillText(plain(event), Math.min(toX(event), width - right - 20), height - bottom + 8);
  }
  context.fillText("event of the schedule", (left + width - right) / 2, height - 18);
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
  context.rect(left, above, width - left - right, height - above - bottom);
  context.clip();
  drawAreas();
  drawPeak();
  drawHovered();
  drawLevel(memory, "#0077bb", [7, 5], `GPU memory ${size(memory)}`, false);
  drawLevel(most, "#cc3311", [], `peak ${size(most)}`, true);
  context.restore();
  drawAxes(ticks);
  root.dataset.state = "drawn";
}

/* ---- hover ---- */

function describe(i) {
  const kind = code(i) % 2 ? "backward" : "forward";
  const lines = [`event ${plain(i)}: ${kind}, chunk ${Math.floor(code(i) / 2)}, ` +
    `micro-batch ${plain(microBatch(i))}`, `live layers ${plain(layers(i))}`];
  for (const part of parts)
    if (part.of(i) > 0)
      lines.push(`${part.name} ${size(part.of(i))}`);
  const sum = all(i) + overhead;
  lines.push(`all ${size(sum)} (${plain(sum)} bytes)`, `margin ${size(memory - sum)}`);
  return lines.join("\n");
}
function hover(x, y) {
  const inside = x >= left && x < width - right && y >= above && y <= height - bottom;
  const found = inside ? Math.floor(fromX(x)) : -1;
  if (found !== hovered)
    request();
  hovered = found < count ? found : -1;
  tip.style.display = hovered < 0 ? "none" : "block";
  if (hovered < 0)
    return;
  tip.textContent = describe(hovered);
  const isLate = x + 16 + tip.offsetWidth > width;
  tip.style.left = Math.max(0, isLate ? x - tip.offsetWidth - 12 : x + 16) + "px";
  tip.style.top = Math.max(0, Math.min(y + 12, height - tip.offsetHeight)) + "px";
}

/* ---- input ---- */

const place = event => {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
};
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const turn = event.deltaY || event.deltaX;
  zoom(Math.exp(Math.max(-240, Math.min(240, turn)) * 0.002), place(event)[0]);
}, { passive: false });
let held = null;
canvas.addEventListener("pointerdown", event => {
  held = place(event)[0];
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", event => {
  const at = place(event);
  if (held !== null) {
    pan(at[0] - held);
    held = at[0];
  }
  hover(...at);
});
for (const name of ["pointerup", "pointercancel"])
  canvas.addEventListener(name, () => { held = null; });
canvas.addEventListener("pointerleave", () => hover(-1, -1));
const reset = () => show(0, Math.max(1, count));
const actions = {
  "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": reset, "Home": reset,
  "ArrowLeft": () => pan(80), "ArrowRight": () => pan(-80),
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
addEventListener("resize", request);

/* ---- what stands around it ---- */

function addColumn(name, value, colour) {
  const head1 = document.createElement("th"), cell = document.createElement("td");
  if (colour) {
    const box = document.createElement("i");
    box.className = "box";
    box.style.background = colour;
    head1.append(box);
  }
  head1.append(name);
  cell.textContent = plain(value);
  document.getElementById("names").append(head1);
  document.getElementById("values").append(cell);
}
if (count > 0)
  for (const part of parts)
    addColumn(part.name, part.of(highest), part.colour);
if (recompute > 0)
  addColumn("recompute", recompute, "#e0998d");
addColumn(transient > 0 ? `during ${data.during}` : "transient", transient, "#e0998d");
addColumn("peak", most);
addColumn("margin", memory - most);

document.title = data.title;
document.getElementById("title").textContent = data.title;
const verdict = most <= memory ? `${size(memory - most)} to spare`
  : `${size(most - memory)} too many`;
const summary = `${plain(count)} events, peak ${size(most)} of ${size(memory)}: ${verdict}`;
document.getElementById("summary").textContent = summary;
canvas.setAttribute("aria-label", summary);
draw();
