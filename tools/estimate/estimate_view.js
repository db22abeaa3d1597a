/* The picture of a stage's memory: events of the schedule across, bytes up, in coloured parts. */
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

function paint() {
  drawAreas();
  drawPeak();
  drawHovered();
  drawLevel(memory, "#0077bb", [7, 5], `GPU memory ${size(memory)}`, false);
  drawLevel(most, "#cc3311", [], `peak ${size(most)}`, true);
}

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

/* ---- what stands around it ---- */

function addColumn(name, value, colour) {
  const title = document.createElement("th"), cell = document.createElement("td");
  title.append(...colour ? [mark("box", colour), name] : [name]);
  cell.textContent = plain(value);
  byId("names").append(title);
  byId("values").append(cell);
}
if (count > 0)
  for (const part of parts)
    addColumn(part.name, part.of(highest), part.colour);
if (recompute > 0)
  addColumn("recompute", recompute, "#e0998d");
addColumn(transient > 0 ? `during ${data.during}` : "transient", transient, "#e0998d");
addColumn("peak", most);
addColumn("margin", memory - most);

const verdict = most <= memory ? `${size(memory - most)} to spare`
  : `${size(most - memory)} too many`;
const top1 = Math.max(memory, most, 1) * 1.06;
start({
  most: { x: Math.max(1, count), y: top1 },
  least: { x: 4, y: top1 }, /* always all of the memory */
  names: { x: "event of the schedule", y: "memory" },
  find: event => Math.floor(event) < count ? Math.floor(event) : -1,
  paint, describe,
}, `${plain(count)} events, peak ${size(most)} of ${size(memory)}: ${verdict}`);
