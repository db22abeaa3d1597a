/* The picture of a simulated schedule: time across, ranks down, a row for each stream. */
const fields = 13; /* of an event */
const numbers = Float64Array.from(data.events, Number);
const count = numbers.length / fields;
const field = number => i => numbers[fields * i + number];
const [stage, lane, code, pass, chunk, layer, microBatch, begin, end, pages, hostPages, used,
  hostUsed] = Array.from({ length: fields }, (_, k) => field(k));
const kind = i => code(i) % 100, failed = i => code(i) >= 100;
const WORK = 0, STALL = 2, BUBBLE = 3, STASH = 4, PROMOTE = 7;
const movesPages = i => kind(i) >= STASH && kind(i) <= PROMOTE;

/* Told apart by the colour-blind too (after Paul Tol's light scheme). */
const passes = [
  { letter: "F", name: "forward", colour: "#77aadd" },
  { letter: "B", name: "backward", colour: "#ee8866" },
  { letter: "I", name: "input backward", colour: "#ee8866" },
  { letter: "W", name: "weight backward", colour: "#eedd88" },
];
const kinds = [
  { name: "work" },
  { name: "recompute", colour: "#ffaabb" },
  { name: "stall", colour: "#cc3311" },
  { name: "bubble", colour: "--pst-bubble" },
  { name: "stash", colour: "#44bb99" },
  { name: "restore", colour: "#99ddff" },
  { name: "demote", colour: "#bbcc33" },
  { name: "promote", colour: "#aaaa00" },
  { name: "swap out", colour: "#bbcc33" },
  { name: "swap in", colour: "#aaaa00" },
];
const colourOf = i => shade(failed(i) ? "--pst-ink"
  : kind(i) === WORK ? passes[pass(i)].colour : kinds[kind(i)].colour);

/* ---- rows: of each rank the main stream, the side streams that have something, the pages ---- */

const ranks = data.ranks;
const hasLane = data.lanes.map((_, k) => k < 3);
for (let i = 0; i < count; i++)
  hasLane[lane(i)] = true;
const mainHigh = 2, sideHigh = 1, pagesHigh = 3, apart = 0.8;
const side = data.lanes.map((_, k) => k).filter(k => k > 0 && hasLane[k]);
const rankHigh = mainHigh + side.length * sideHigh + pagesHigh + apart;
const foot = s => (ranks.length - 1 - s) * rankHigh; /* of a rank; the first is on top */
const pagesFoot = s => foot(s) + apart;
const sideFoot = (s, k) => pagesFoot(s) + pagesHigh + (side.length - 1 - side.indexOf(k)) * sideHigh;
const laneFoot = (s, k) => k === 0 ? foot(s) + rankHigh - mainHigh : sideFoot(s, k);
const laneHigh = k => k === 0 ? mainHigh : sideHigh;

/* Events of each rank and row by their begin; those that move pages in the order of the pages. */
const rows = ranks.map(() => data.lanes.map(() => []));
const steps = ranks.map(() => []);
for (let i = 0; i < count; i++) {
  rows[stage(i)][lane(i)].push(i);
  if (movesPages(i))
    steps[stage(i)].push(i);
}
const when = i => kind(i) === STASH ? begin(i) : end(i); /* pages are taken at the begin */
for (const list of rows.flat())
  list.sort((a, b) => begin(a) - begin(b) || a - b);
for (const list of steps)
  list.sort((a, b) => when(a) - when(b) || a - b);
let lastTime = 1, mostUsed = 1;
for (let i = 0; i < count; i++) {
  lastTime = Math.max(lastTime, end(i));
  mostUsed = Math.max(mostUsed, used(i) + hostUsed(i));
}
/* How many of the list satisfy before(), which turns false once. */
function prefix(list, before) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    before(list[middle]) ? low = middle + 1 : high = middle;
  }
  return low;
}
const isHidden = s => foot(s) + rankHigh < view.y0 || foot(s) > view.y1;

/* ---- drawing ---- */

function rectangle(i) {
  const base = laneFoot(stage(i), lane(i)), high = laneHigh(lane(i));
  const x = toX(begin(i)), y = toY(base + 0.92 * high);
  const w = toX(end(i)) - x, h = toY(base) - y;
  return [x, y, w > 3 ? w - 1 : Math.max(w, 0.5), h];
}

function drawRow(list, named) {
  let drawn = 0;
  const first = Math.max(0, prefix(list, i => end(i) < view.x0) - 1);
  const last = prefix(list, i => begin(i) < view.x1);
  for (let k = first; k < last; k++) {
    const i = list[k];
    if (end(i) < view.x0)
      continue;
    const [x, y, w, h] = rectangle(i);
    context.fillStyle = colourOf(i);
    context.fillRect(x, y, w, h);
    drawn++;
    if (kind(i) === WORK && w > 26 && h > 11)
      named.push([i, x, y, w, h]);
  }
  return drawn;
}

function drawPages(s) {
  const list = steps[s], base = toY(pagesFoot(s));
  const first = Math.max(0, prefix(list, i => when(i) <= view.x0) - 1);
  const last = prefix(list, i => when(i) < view.x1);
  const high = number => base - toY(pagesFoot(s) + 0.9 * pagesHigh * number / mostUsed);
  for (let k = first; k < last; k++) {
    const i = list[k], x = Math.max(left, toX(when(i)));
    const w = Math.max(0.5, toX(k + 1 < list.length ? when(list[k + 1]) : lastTime) - x);
    const device = high(used(i)), host = high(hostUsed(i));
    context.fillStyle = "#b7c9b0";
    context.fillRect(x, base - device, w, device);
    context.fillStyle = "#6f8f66";
    context.fillRect(x, base - device - host, w, host);
  }
  context.fillStyle = "#999999";
  context.fillRect(left, base, across(), 1);
}

function drawNames(named) {
  context.font = font;
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.fillStyle = "#222222";
  for (const [i, x, y, w, h] of named.slice(0, 2000)) {
    const letter = passes[pass(i)].letter;
    const x0 = Math.max(x, left), x1 = Math.min(x + w, width - right);
    const text = [`${letter}${chunk(i)}.${microBatch(i)} layer ${layer(i)}`,
      `${letter}${chunk(i)}.${microBatch(i)}`, `${letter}${microBatch(i)}`]
      .find(t => context.measureText(t).width < x1 - x0 - 4);
    if (text)
      context.fillText(text, (x0 + x1) / 2, y + h / 2);
  }
}

function paint() {
  const named = [];
  let drawn = 0;
  for (let s = 0; s < ranks.length; s++) {
    if (isHidden(s))
      continue;
    drawPages(s);
    for (const list of rows[s])
      drawn += drawRow(list, named);
  }
  canvas.dataset.drawn = String(drawn);
  if (hovered >= 0) {
    context.strokeStyle = shade("--pst-ink");
    context.lineWidth = 2;
    context.strokeRect(...rectangle(hovered));
  }
  drawNames(named);
}

function find(time, y) {
  for (let s = 0; s < ranks.length; s++) {
    for (const k of [0, ...side]) {
      const base = laneFoot(s, k), list = rows[s][k];
      if (y < base || y >= base + laneHigh(k))
        continue;
      const i = list[prefix(list, n => begin(n) <= time) - 1];
      return i !== undefined && end(i) >= time ? i : -1;
    }
    if (y >= pagesFoot(s) && y < pagesFoot(s) + pagesHigh)
      return steps[s][prefix(steps[s], n => when(n) <= time) - 1] ?? -1;
  }
  return -1;
}

function describe(i) {
  const what = kinds[kind(i)].name;
  const lines = [kind(i) === WORK ? passes[pass(i)].name
    : kind(i) === BUBBLE ? "waits for another rank"
    : kind(i) === STALL ? `waits for a copy before its ${passes[pass(i)].name}` : what];
  if (failed(i))
    lines[0] += ", failed";
  lines.push(`rank ${ranks[stage(i)]}, chunk ${chunk(i)}, layer ${layer(i)}, ` +
    `micro-batch ${microBatch(i)}`);
  lines.push(`${plain(begin(i))} to ${plain(end(i))} ns (${plain(end(i) - begin(i))})`);
  if (movesPages(i))
    lines.push(`pages ${plain(pages(i))} + ${plain(hostPages(i))} on the host`,
      `in use then ${plain(used(i))} + ${plain(hostUsed(i))}`);
  return lines.join("\n");
}

/* ---- what stands around it ---- */

function legend() {
  const holder = byId("kinds"), seen = new Set();
  for (let i = 0; i < count; i++)
    seen.add(kind(i) === WORK ? passes[pass(i)] : kinds[kind(i)]);
  for (const what of [...passes, ...kinds])
    if (seen.has(what)) {
      const item = document.createElement("span");
      item.append(mark("box", what.colour), what.name);
      holder.append(item);
    }
}
legend();
const shown = Number(data.shown);
if (shown > 0)
  byId("left-out").textContent = `Of ${plain(Number(data.visits))} visits the first and the last ` +
    `${plain(shown)} of each rank are shown. `;
const labels = [];
for (let s = 0; s < ranks.length; s++) {
  labels.push({ y: laneFoot(s, 0) + mainHigh / 2, text: `rank ${ranks[s]}`, first: true });
  for (const k of side)
    labels.push({ y: sideFoot(s, k) + sideHigh / 2, text: data.lanes[k], high: sideHigh });
  labels.push({ y: pagesFoot(s) + pagesHigh / 2, text: "pages", high: sideHigh });
}
start({
  most: { x: lastTime, y: ranks.length * rankHigh },
  least: { x: 10, y: rankHigh },
  names: { x: "time (ns)", y: "" },
  labels, paint, find, describe,
}, `${ranks.length} ranks, ${plain(Number(data.visits))} visits, ${plain(lastTime)} ns, ` +
  `most pages in use ${plain(mostUsed)}`);
