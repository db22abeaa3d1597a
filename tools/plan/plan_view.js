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
const none = "#c4c4c4";
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

const mostInstants = 2000; /* across: of more, the load would be a mass of spikes */

/* The live bytes, an area behind the boxes. Whether it is shown. */
function drawLoad() {
  if (!byId("live").checked || view.x1 - view.x0 >= mostInstants)
    return false;
  const first = prefix(steps.at.length, k => steps.at[k] <= view.x0);
  const last = prefix(steps.at.length, k => steps.at[k] < view.x1);
  let live = first > 0 ? steps.live[first - 1] : 0;
  context.beginPath();
  context.moveTo(left, toY(0));
  context.lineTo(left, toY(live));
  for (let k = first; k < last; k++) {
    context.lineTo(toX(steps.at[k]), toY(live));
    live = steps.live[k];
    context.lineTo(toX(steps.at[k]), toY(live));
  }
  context.lineTo(width - right, toY(live));
  context.lineTo(width - right, toY(0));
  context.fillStyle = shade("--pst-load");
  context.fill();
  return true;
}

const isVisible = i => begin[i] < view.x1 && end[i] > view.x0 && offset[i] < view.y1 &&
  offset[i] + bytes[i] > view.y0;
/* A pixel is left free beside boxes that have the room. */
const withGap = length => length > 5 ? length - 1 : length;
function rectangle(i) {
  const x = toX(begin[i]), y = toY(offset[i] + bytes[i]);
  const w = withGap(toX(end[i]) - x), h = toY(offset[i]) - y;
  return [x, y + h - withGap(h), w, withGap(h)];
}

/* The boxes as pixels. Where several share one it has the colour of which there is most, and is as
 * opaque as they cover it: boxes below a pixel merge by colour instead of blending. They do not
 * overlap, so the work is the number of pixels, however many there are. */
class Raster {
  constructor(scale) {
    this.scale = scale;
    this.columns = Math.max(1, Math.round(across() * scale));
    this.rows = Math.max(1, Math.round(upward() * scale));
    const size = this.columns * this.rows;
    this.share = new Float32Array(size); /* of the colour at work */
    this.most = new Float32Array(size);  /* of the pixel's colour */
    this.all = new Float32Array(size);
    this.image = new ImageData(this.columns, this.rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }
  /* left, right, top, bottom of a box in pixels, within the raster. */
  edges(i) {
    const [x, y, w, h] = rectangle(i);
    const cut = (value, most) => Math.min(most, Math.max(0, value * this.scale));
    return [cut(x - left, this.columns), cut(x + w - left, this.columns),
      cut(y - above, this.rows), cut(y + h - above, this.rows)];
  }
  add(i) {
    const [x0, x1, y0, y1] = this.edges(i);
    for (let row = Math.floor(y0); row < y1; row++) {
      const high = Math.min(y1, row + 1) - Math.max(y0, row);
      const first = row * this.columns;
      for (let column = Math.floor(x0); column < x1; column++)
        this.share[first + column] +=
          high * (Math.min(x1, column + 1) - Math.max(x0, column));
    }
  }
  /* After all boxes of a colour. */
  take(i, colour) {
    const [x0, x1, y0, y1] = this.edges(i);
    for (let row = Math.floor(y0); row < y1; row++) {
      const first = row * this.columns, end = first + Math.ceil(x1);
      for (let at = first + Math.floor(x0); at < end; at++) {
        const share = this.share[at];
        this.share[at] = 0;
        this.all[at] += share;
        if (share > this.most[at]) {
          this.most[at] = share;
          this.pixels[at] = colour;
        }
      }
    }
  }
  /* Nothing is so thin that it is not seen. */
  canvas() {
    for (let at = 0; at < this.all.length; at++)
      if (this.all[at] > 0)
        this.image.data[4 * at + 3] = Math.round(255 * Math.min(1, Math.max(0.2, this.all[at])));
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [this.columns, this.rows];
    sheet.getContext("2d").putImageData(this.image, 0, 0);
    return sheet;
  }
}

/* As the pixels of an image have it. */
function packed(colour) {
  context.fillStyle = colour;
  const bytes = [1, 3, 5].map(k => parseInt(context.fillStyle.slice(k, k + 2), 16));
  return new Uint32Array(new Uint8Array([...bytes, 0]).buffer)[0];
}

let sheet = { key: "" }; /* kept while only the pointer moves */
function makeSheet(scale) {
  const key = [view.x0, view.x1, view.y0, view.y1, left, width, height, scale].join();
  if (sheet.key === key)
    return;
  const raster = new Raster(scale), named = [];
  let drawn = 0;
  for (const [colour, list] of groups) {
    const started = prefix(list.length, k => begin[list[k]] < view.x1);
    const visible = list.slice(0, started).filter(isVisible);
    const value = packed(colour);
    visible.forEach(i => raster.add(i));
    visible.forEach(i => raster.take(i, value));
    drawn += visible.length;
    for (const i of visible) {
      const [x, y, w, h] = rectangle(i);
      if (w > 60 && h > 15)
        named.push([i, colour, x, y, w, h]);
    }
  }
  sheet = { key, image: raster.canvas(), drawn, named };
}

function drawBoxes() {
  const scale = devicePixelRatio || 1;
  makeSheet(scale);
  canvas.dataset.drawn = String(sheet.drawn);
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(sheet.image, Math.round(left * scale), Math.round(above * scale));
  context.restore();
  return sheet.named;
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

/* The label of the bound stands above both lines where these are close. */
function paint() {
  canvas.dataset.load = String(drawLoad());
  const named = drawBoxes();
  if (hovered >= 0) {
    context.strokeStyle = shade("--pst-ink");
    context.lineWidth = 2;
    context.strokeRect(...rectangle(hovered));
  }
  const over = toY(bound) - toY(peak) < 24 ? peak : bound;
  if (bound !== peak)
    drawLevel(bound, "--pst-bound", [7, 5], `lower bound ${size(bound)}`, false, over);
  const text = `peak ${bound === peak ? "= lower bound " : ""}${size(peak)}`;
  drawLevel(peak, "--pst-peak", [], text, true);
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
