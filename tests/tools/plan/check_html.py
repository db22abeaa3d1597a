#!/usr/bin/env python3
"""check_html.py PICTURE_MAIN FOLDER: opens pictures in a headless Chromium. All must be drawn, the
console silent, zoom, keys and hovering work; the screenshots, left in FOLDER, must not be
blank."""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

LARGE = (80, 25)  # layers, micro-batches: 60,000 tensors

# Runs in the page, after it was drawn first.
PROBE = """
<script>
(() => {
  const said = root.dataset, shown = () => { draw(); return canvas.dataset.drawnBoxes; };
  const at = canvas.getBoundingClientRect();
  const send = (name, Kind, x, y, more) => canvas.dispatchEvent(new Kind(name, {
    clientX: at.left + x, clientY: at.top + y, bubbles: true, cancelable: true, ...more }));
  const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const start = performance.now();
  said.first = shown();
  said.milliseconds = (performance.now() - start).toFixed(1);
  for (let i = 0; i < 6; i++)
    send("wheel", WheelEvent, 600, 500, { deltaY: -240 });
  said.wheel = shown();
  said.both = view.x0 > 0 && view.x1 < lastInstant && view.y0 > 0 && view.y1 < top1;
  const before = view.x0;
  press("ArrowRight");
  said.moved = view.x0 > before;
  press("0");
  said.reset = shown();
  for (let i = 0; i < 9; i++)
    send("wheel", WheelEvent, 600, 500, { deltaY: -240, shiftKey: true });
  said.time = shown();
  said.tall = view.y0 === 0 && view.x0 > 0;
  document.getElementById("reset").click();
  press("+");
  said.key = shown();
  press("Home");
  const i = groups.values().next().value[0];
  const [x, y, w, h] = rectangle(i);
  send("pointermove", PointerEvent, x + w / 2, y + h / 2, {});
  said.tip = tip.style.display + "|" + tip.textContent.replaceAll("\\n", "|");
  said.hovered = String(hovered === i);
  draw();
})();
</script>
</body>"""


# The same for the memory of a stage.
STAGE_PROBE = """
<script>
(() => {
  const said = root.dataset, shown = () => { draw(); return canvas.dataset.drawn; };
  const at = canvas.getBoundingClientRect();
  const send = (name, Kind, x, y, more) => canvas.dispatchEvent(new Kind(name, {
    clientX: at.left + x, clientY: at.top + y, bubbles: true, cancelable: true, ...more }));
  const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const start = performance.now();
  said.first = shown();
  said.milliseconds = (performance.now() - start).toFixed(1);
  for (let i = 0; i < 12; i++)
    send("wheel", WheelEvent, 600, 400, { deltaY: -240 });
  said.wheel = shown();
  said.zoomed = view.x1 - view.x0 < count && view.x0 > 0 && view.x1 < count;
  const before = view.x0;
  press("ArrowRight");
  said.moved = view.x0 > before;
  press("0");
  said.reset = shown() === said.first && view.x0 === 0 && view.x1 === count;
  document.getElementById("in").click();
  press("+");
  said.key = view.x1 - view.x0 < count;
  show(highest - 2, highest + 2);
  shown();
  const middle = Math.round((toX(highest) + toX(highest + 1)) / 2);
  const column = context.getImageData(middle, 0, 1, height).data;
  const pixel = bytes => column.slice(4 * Math.round(toY(bytes))).slice(0, 4).join(",");
  said.states = pixel(overhead + states / 2);
  said.saved = pixel(overhead + states + saved(highest) / 2);
  said.events = count;
  send("pointermove", PointerEvent, (toX(highest) + toX(highest + 1)) / 2, toY(states), {});
  said.tip = tip.style.display + "|" + tip.textContent.replaceAll("\\n", "|");
  said.hovered = String(hovered === highest);
  said.table = document.getElementById("values").textContent;
  said.sum = String(parts.reduce((sum, part) => sum + part.of(highest), 0)
    + recompute + transient === most);
  draw();
})();
</script>
</body>"""


def fail(text):
    sys.exit(f"check_html.py: {text}")


def browse(page, *flags):
    """The page's DOM, or what the flags ask for; no line on its console."""
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--window-size=1400,900", f"--user-data-dir={profile}",
                   "--enable-logging=stderr", *flags, page.resolve().as_uri()]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    if done.returncode != 0:
        fail(f"chromium: {done.returncode}: {done.stderr[-500:]}")
    if console:
        fail(f"{page.name}: " + "\n".join(console))
    return done.stdout


def data_of(dom):
    """The data- attributes of <html> and <canvas>."""
    tags = re.findall(r"<(?:html|canvas)\b[^>]*>", dom)
    return dict(re.findall(r'data-([\w-]+)="([^"]*)"', " ".join(tags)))


def pixels(path):
    """Rows of RGB(A) pixels of an 8-bit PNG."""
    data = path.read_bytes()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            packed += body
        at += 12 + length
    step = {2: 3, 6: 4}[colour]
    if depth != 8:
        fail(f"{path.name}: {depth} bits")
    raw, size, rows = zlib.decompress(packed), width * step, []
    above = bytearray(size)
    for at in range(0, len(raw), size + 1):
        row = bytearray(raw[at + 1:at + 1 + size])
        for i in range(size):
            a = row[i - step] if i >= step else 0
            b = above[i]
            c = above[i - step] if i >= step else 0
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            row[i] = row[i] + (0, a, b, (a + b) // 2, near)[raw[at]] & 255
        rows.append([bytes(row[i:i + 3]) for i in range(0, size, step)])
        above = row
    return rows


def check_screenshot(path):
    rows = pixels(path)
    flat = [pixel for row in rows for pixel in row]
    painted = sum(pixel != b"\xff\xff\xff" for pixel in flat) / len(flat)
    colours = len(set(flat))
    if painted < 0.15 or colours < 50:
        fail(f"{path.name}: {painted:.1%} painted, {colours} colours: blank?")


def check(main, folder, name, layers, num_micro_batches):
    page, picture = folder / f"{name}.html", folder / f"{name}.png"
    with page.open("wb") as file:
        subprocess.run([main, "html", str(layers), str(num_micro_batches), "Plan </script> & \u00fc"],
                       stdout=file, check=True)
    count = str(30 * layers * num_micro_batches)
    data = data_of(browse(page, "--dump-dom"))
    if (data.get("state"), data.get("errors"), data.get("drawn-boxes")) != ("drawn", "0", count):
        fail(f"{name}: not all {count} drawn: {data}")
    picture.unlink(missing_ok=True)
    browse(page, f"--screenshot={picture}")
    check_screenshot(picture)

    probed = folder / f"{name}-probed.html"
    probed.write_text(page.read_text().replace("</body>", PROBE))
    data = data_of(browse(probed, "--dump-dom"))
    wanted = {"errors": "0", "first": count, "reset": count, "moved": "true", "both": "true",
              "tall": "true", "hovered": "true"}
    wrong = {key: data.get(key) for key, value in wanted.items() if data.get(key) != value}
    for key in ("wheel", "time", "key"):
        if not 0 < int(data.get(key, 0)) < int(count):
            wrong[key] = data.get(key)
    if not re.fullmatch(r"block\|tensor 100\|128 MiB \(134,217,728 bytes\)\|at 0 bytes \(0\)\|"
                        r"live from 0 to [\d,]+\|layer 0, forward, micro-batch 0", data["tip"]):
        wrong["tip"] = data["tip"]
    if wrong:
        fail(f"{name}: {wrong}")
    browse(probed, f"--screenshot={folder / name}-probed.png")
    print(f"{name}: {count} tensors, {page.stat().st_size} bytes, "
          f"drawn again in {data['milliseconds']} ms")


def check_stage(main, folder, name, chunks, num_micro_batches):
    page = folder / f"{name}.html"
    with page.open("wb") as file:
        subprocess.run([main, "stage", str(chunks), str(num_micro_batches), "Stage </script> & \u00fc"],
                       stdout=file, check=True)
    data = data_of(browse(page, "--dump-dom"))
    if (data.get("state"), data.get("errors")) != ("drawn", "0"):
        fail(f"{name}: not drawn: {data}")
    browse(page, f"--screenshot={folder / name}.png")
    check_screenshot(folder / f"{name}.png")

    probed = folder / f"{name}-probed.html"
    probed.write_text(page.read_text().replace("</body>", STAGE_PROBE))
    data = data_of(browse(probed, "--dump-dom"))
    count = 2 * chunks * num_micro_batches
    wanted = {"errors": "0", "events": str(count), "zoomed": "true", "moved": "true",
              "reset": "true", "key": "true", "hovered": "true", "sum": "true",
              "states": "119,170,221,255", "saved": "238,221,136,255"}
    wrong = {key: data.get(key) for key, value in wanted.items() if data.get(key) != value}
    if not 0 < int(data.get("wheel", 0)) < int(data["first"]) <= min(count, 1400):
        wrong["columns"] = (data["first"], data.get("wheel"))
    if not re.fullmatch(r"block\|event [\d,]+: forward, chunk \d+, micro-batch \d+\|"
                        r"live layers \d+\|overhead 1 GiB\|states [\d.]+ GiB\|saved [\d.]+ GiB\|"
                        r"(head [\d.]+ [GM]iB\|)?all [\d.]+ GiB \([\d,]+ bytes\)\|"
                        r"margin -?[\d.]+ GiB", data.get("tip", "")):
        wrong["tip"] = data.get("tip")
    if wrong:
        fail(f"{name}: {wrong}")
    browse(probed, f"--screenshot={folder / name}-probed.png")
    print(f"{name}: {count} events, {page.stat().st_size} bytes, "
          f"drawn again in {data['milliseconds']} ms")


def main():
    if len(sys.argv) != 3:
        fail("usage: check_html.py PICTURE_MAIN FOLDER")
    if shutil.which("chromium") is None:
        fail("no chromium: third_party/install.sh --browser")
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    check(sys.argv[1], folder, "large", *LARGE)
    check(sys.argv[1], folder, "small", 6, 1)
    check_stage(sys.argv[1], folder, "stage", 16, 512)
    check_stage(sys.argv[1], folder, "short-stage", 6, 8)


main()
