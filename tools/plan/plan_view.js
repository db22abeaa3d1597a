/* The picture of a static plan: instants across, addresses up, a box for each tensor. */
const count = data.id.length;
const numbers = list => Float64Array.from(list, Number);
const bytes = numbers(data.bytes), offset = numbers(data.offset);
const begin = numbers(data.begin), end = numbers(data.end);
const layer = numbers(data.layer); /* 0: none, 1: layer 0, ... */
const peak = Number(data.peak), bound = Number(data.bound), align = Number(data.align);
const lastInstant = end.reduce((a, b) => Math.max(a, b), 1);
const numLayers = layer.reduce((a, b) => Math.max(a, b), 0);
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

/* The live bytes after each instant at which it changes. */
const steps = (() => {
  const changes = [];
  for (let i = 0; i < count; i++) {
    const up = Math.ceil(bytes[i] / align) * align;
    changes.push([begin[i], up], [end[i], -up]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const at = [], live = [];
  let sum = 0;
  changes.forEach(([instant, change], i) => {
    sum += change;
    if (i + 1 === changes.length || changes[i + 1][0] !== instant) {
      at.push(instant);
      live.push(sum);
    }
  });
  return { at, live };
})();

/* ---- drawing ---- */

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
  canvas.dataset.drawn = String(drawn);
  return named;
}

function drawNames(named) {
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.font = font;
  for (const [i, colour, x, y, w, h] of named.slice(0, 2000)) {
    const x0 = Math.max(x, left), x1 = Math.min(x + w, width - right);
    const y0 = Math.max(y, above), y1 = Math.min(y + h, height - bottom);
    const text = [`${data.id[i]}: ${size(bytes[i])}`, size(bytes[i])]
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
function drawLive() {
  const first = Math.max(0, prefix(steps.at.length, k => steps.at[k] <= view.x0) - 1);
  const last = prefix(steps.at.length, k => steps.at[k] < view.x1);
  const column = k => Math.round(Math.max(left, toX(steps.at[k])));
  let live = steps.at[first] <= view.x0 ? steps.live[first] : 0;
  context.beginPath();
  context.moveTo(left, toY(live));
  for (let k = first; k < last;) {
    const x = column(k);
    let low = live, high = live;
    context.lineTo(x, toY(live));
    for (; k < last && column(k) === x; k++) {
      live = steps.live[k];
      low = Math.min(low, live);
      high = Math.max(high, live);
    }
    for (const value of [low, high, live])
      context.lineTo(x, toY(value));
  }
  context.lineTo(width - right, toY(live));
  for (const [style, line] of [["#ffffffc0", 3], ["#000", 1.2]]) {
    context.strokeStyle = style;
    context.lineWidth = line;
    context.stroke();
  }
}

/* The label of the bound stands above both lines where these are close. */
function paint() {
  const named = drawBoxes();
  if (hovered >= 0) {
    context.strokeStyle = "#000";
    context.lineWidth = 2;
    context.strokeRect(...rectangle(hovered));
  }
  if (byId("live").checked && steps.at.length > 0)
    drawLive();
  const over = toY(bound) - toY(peak) < 24 ? peak : bound;
  if (bound !== peak)
    drawLevel(bound, "#0077bb", [7, 5], `lower bound ${size(bound)}`, false, over);
  const text = `peak ${bound === peak ? "= lower bound " : ""}${size(peak)}`;
  drawLevel(peak, "#cc3311", [], text, true);
  drawNames(named);
}

function find(instant, address) {
  for (const list of groups.values()) {
    const started = prefix(list.length, k => begin[list[k]] <= instant);
    for (let k = 0; k < started; k++) {
      const i = list[k];
      if (end[i] > instant && offset[i] <= address && offset[i] + bytes[i] > address)
        return i;
    }
  }
  return -1;
}
function describe(i) {
  const lines = [`tensor ${exact(data.id[i]).replaceAll(",", "")}`,
    `${size(bytes[i])} (${exact(data.bytes[i])} bytes)`,
    `at ${size(offset[i])} (${exact(data.offset[i])})`,
    `live from ${exact(data.begin[i])} to ${exact(data.end[i])}`];
  const more = [];
  if (layer[i] > 0)
    more.push(`layer ${layer[i] - 1}`);
  if (data.phases[data.phase[i]])
    more.push(data.phases[data.phase[i]]);
  if (data.micro_batch[i] > 0)
    more.push(`micro-batch ${data.micro_batch[i] - 1}`);
  return lines.concat(more.length ? more.join(", ") : []).join("\n");
}

/* ---- what stands around it ---- */

function legend() {
  const holder = byId("layers");
  if (numLayers > few.length)
    holder.append("layer 0", mark("ramp", `linear-gradient(to right, ${ramp.join(",")})`),
      String(numLayers - 1));
  else
    for (let k = 1; k <= numLayers; k++)
      holder.append(mark("box", colourOf(k)), k === 1 ? "layer 0" : String(k - 1));
  if (layer.includes(0))
    holder.append(mark("box", none), numLayers > 0 ? "no layer" : "tensors");
}
legend();
byId("live").onchange = request;
const gap = plain(100 * (peak / bound - 1), 3);
const verdict = peak === bound ? "optimal" : `at most ${gap}% too high`;
start({
  most: { x: lastInstant, y: Math.max(peak, bound, 1) * 1.05 },
  least: { x: 2, y: 16 },
  names: { x: "instant (number of the request)", y: "address" },
  paint, find, describe,
}, `${plain(count)} tensors, peak ${size(peak)}, lower bound ${size(bound)}: ${verdict}`);
