/* The picture of a stage's memory: events of the schedule across, bytes up, in coloured parts. */
const fields = 6; /* of an event */
const events = Float64Array.from(data.events, Number);
const count = events.length / fields;
const [code, microBatch, layers, saved, head, all] =
  Array.from({ length: fields }, (_, k) => i => events[fields * i + k]);
const memory = Number(data.memory);
const GIB = 3; /* the unit of everything here */
const gib = value => (value / 1024 ** GIB).toFixed(2);
const stages = data.stages.map(stage => Object.fromEntries(Object.entries(stage).map(
  ([key, value]) => [key, key === "during" ? value : Number(value)])));
const shown = stages[data.stage], overhead = shown.overhead;
const most = shown.peak + overhead;
const kept = shown.weights + shown.gradients + shown.optimizer + shown.empty_gradients + shown.fp8_weights +
  shown.gathered + shown.workspaces;
/* Of events from first up to end. */
function highestOf(first, end) {
  let found = first;
  for (let i = first + 1; i < end; i++)
    if (all(i) > all(found))
      found = i;
  return found;
}
const highest = highestOf(0, count);

/* Bottom up: of an event of the stage shown, and of any stage at its peak. Told apart by the colour-blind
 * too (after Paul Tol's light scheme). */
const part = (name, colour, key, of) => ({ name, colour, of, at: stage => stage[key] });
const parts = [
  { name: "reserve", colour: "#d4d4d4", of: () => overhead, at: stage => stage.overhead },
  part("weights", "#77aadd", "weights", () => shown.weights),
  part("gradients", "#99ddff", "gradients", () => shown.gradients),
  part("optimizer", "#5577aa", "optimizer", () => shown.optimizer),
  part("empty gradients", "#bbcc33", "empty_gradients", () => shown.empty_gradients),
  part("weights in fp8", "#aaaa00", "fp8_weights", () => shown.fp8_weights),
  part("gathered weights", "#bbddee", "gathered", () => shown.gathered),
  part("workspaces", "#b0b0b0", "workspaces", () => shown.workspaces),
  part("paging", "#44bb99", "paging", i => all(i) - kept - saved(i) - head(i)),
  part("saved", "#eedd88", "activations", saved),
  part("head", "#ee8866", "head", head),
];
const peaks = [part("recompute", "#e0998d", "recompute"), part("reloaded", "#d69f90", "reloaded"),
  part("transient", "#cc8076", "transients")];

/* ---- drawing ---- */

/* The highest event of each column of pixels; as rectangles, one for columns that are alike. */
function columns() {
  const found = [];
  for (let x = Math.ceil(left); x < width - right; x++) {
    const first = Math.max(0, Math.floor(fromX(x)));
    const end = Math.min(count, Math.max(first + 1, Math.ceil(fromX(x + 1))));
    const top = highestOf(first, end);
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

/* What comes on top of the highest event, as a bar, and a dot where it stands. */
function drawPeak() {
  if (count === 0)
    return;
  const wide = Math.max(3, toX(highest + 1) - toX(highest));
  const x = (toX(highest) + toX(highest + 1) - wide) / 2;
  const y = toY(most);
  context.fillStyle = "#cc331166";
  context.fillRect(x, y, wide, toY(all(highest) + overhead) - y);
  context.fillStyle = shade("--pst-peak");
  context.beginPath();
  context.arc(x + wide / 2, toY(all(highest) + overhead), 4, 0, 2 * Math.PI);
  context.fill();
}

function drawHovered() {
  if (hovered < 0)
    return;
  const x = toX(hovered), wide = Math.max(1, toX(hovered + 1) - x);
  context.strokeStyle = shade("--pst-ink");
  context.lineWidth = 1;
  context.strokeRect(x, toY(all(hovered) + overhead), wide, toY(0) - toY(all(hovered) + overhead));
}

function paint() {
  drawAreas();
  drawPeak();
  drawHovered();
  drawLevel(memory, "--pst-bound", [7, 5], `GPU memory ${size(memory)}`, false);
  drawLevel(most, "--pst-peak", [], `peak ${size(most)}`, true);
}

function describe(i) {
  const kind = code(i) % 2 ? "backward" : "forward";
  const lines = [`event ${plain(i)}: ${kind}, chunk ${Math.floor(code(i) / 2)}, ` +
    `micro-batch ${plain(microBatch(i))}`, `live layers ${plain(layers(i))}`];
  for (const part of parts)
    if (part.of(i) > 0)
      lines.push(`${part.name} ${size(part.of(i))}`);
  const sum = all(i) + overhead;
  lines.push(`all ${size(sum)}`, `margin ${size(memory - sum)}`);
  return lines.join("\n");
}

/* ---- what stands around it ---- */

function add(to, kind, ...what) {
  const made = document.createElement(kind);
  made.append(...what);
  to.append(made);
  return made;
}

/* Of the stage shown: each kind and its GiB, which wrap. */
for (const of of [...parts, ...peaks]) {
  const name = of.name === "transient" && shown.transients > 0 ? `during ${shown.during}` : of.name;
  if (of.at(shown) > 0)
    add(byId("parts"), "span", mark("box", of.colour), `${name} ${gib(of.at(shown))}`);
}
add(byId("parts"), "span", `peak ${gib(most)}`);
add(byId("parts"), "span", `margin ${gib(memory - most)} GiB`);

/* Each stage as a bar, all to one scale. */
const longest = Math.max(memory, ...stages.map(stage => stage.peak + stage.overhead));
for (const stage of stages) {
  const row = add(byId("stages"), "div");
  row.setAttribute("role", "listitem");
  row.className = stage === shown ? "shown" : "";
  add(row, "span", `stage ${stage.stage}`).className = "name";
  const track = add(row, "span");
  track.className = "track";
  for (const of of [...parts, ...peaks]) {
    const bar = mark("", of.colour);
    bar.style.width = `${of.at(stage) / longest * 100}%`;
    bar.title = `${of.name} ${gib(of.at(stage))} GiB`;
    track.append(bar);
  }
  const limit = mark("limit", "transparent");
  limit.style.left = `${memory / longest * 100}%`;
  track.append(limit);
  add(row, "span", gib(stage.peak + stage.overhead)).className = "sum";
}

const verdict = most <= memory ? `${gib(memory - most)} GiB to spare`
  : `${gib(most - memory)} GiB too many`;
const top1 = Math.max(memory, most, 1) * 1.06;
start({
  most: { x: Math.max(1, count), y: top1 },
  least: { x: 4, y: top1 }, /* always all of the memory */
  names: { x: `event of stage ${data.stage}`, y: "memory" },
  unit: GIB,
  find: event => Math.floor(event) < count ? Math.floor(event) : -1,
  paint, describe,
}, `${plain(count)} events, stage ${data.stage} of ${stages.length}: peak ${gib(most)} of ${gib(memory)} GiB, ${verdict}`);
