#!/usr/bin/env python3
"""check_html.py PICTURE_MAIN PAGESTASH FOLDER: opens pictures in a headless Chromium. All must be drawn, the
console silent, the canvas not blank, zoom, keys and hovering work; light, dark, on one sheet of paper and on a
narrow screen, too. Screenshots are left in FOLDER."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LARGE = (80, 25)  # layers, micro-batches: 60,000 tensors

# Runs in the page, after it was drawn first: what a picture says of itself, zoomed and moved.
PROBE = """
<script>
(() => {
  const said = root.dataset, whole = picture.most;
  const shown = () => { draw(); return canvas.dataset.drawn; };
  const at = canvas.getBoundingClientRect();
  const send = (name, Kind, x, y, more) => canvas.dispatchEvent(new Kind(name, {
    clientX: at.left + x, clientY: at.top + y, bubbles: true, cancelable: true, ...more }));
  const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const turn = (times, more) => {
    for (let i = 0; i < times; i++)
      send("wheel", WheelEvent, 600, 500, { deltaY: -240, ...more });
  };
  const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (x, width) => {
    [copy.canvas.width, copy.canvas.height] = [canvas.width, canvas.height];
    copy.drawImage(canvas, 0, 0);
    return copy.getImageData(x, 0, width, canvas.height).data;
  };
  said.first = shown();
  const pixels = new Uint32Array(read(0, canvas.width).buffer);
  said.painted = pixels.filter(pixel => pixel !== 0xffffffff).length / pixels.length;
  said.colours = new Set(pixels).size;
  said.large = at.width > 1300 && at.height > 500;
  turn(6);
  said.wheel = shown();
  said.zoomed = view.x0 > 0 && view.x1 < whole.x;
  said.upward = view.y0 > 0 && view.y1 < whole.y;
  const before = view.x0;
  press("ArrowRight");
  said.moved = view.x0 > before;
  press("0");
  const began = performance.now();
  said.reset = shown() === said.first && view.x0 === 0 && view.x1 === whole.x;
  said.milliseconds = (performance.now() - began).toFixed(1);
  turn(9, { shiftKey: true });
  said.time = shown();
  said.tall = view.y0 === 0 && view.y1 === whole.y && view.x0 > 0;
  byId("reset").click();
  byId("in").click();
  press("+");
  said.key = view.x1 - view.x0 < whole.x / 2;
  press("Home");
  const [x, y, wanted] = (OWN)(said, shown, read);
  send("pointermove", PointerEvent, x, y, {});
  said.tip = tip.style.display + "|" + tip.textContent.replaceAll("\\n", "|");
  said.hovered = String(hovered === wanted);
  draw();
})();
</script>
</body>"""

# Where the pointer goes, and the number of what it must meet. Before: at first glance the passes stand apart, and
# what shares a pixel has a colour of the legend; closer, tensors stand apart, the load lies behind them.
PLAN_PROBE = """(said, shown, read) => {
  const plot = () => {
    const pixels = new Uint32Array(read(Math.ceil(left), Math.floor(across())).buffer);
    return (x, y) => pixels[Math.round(y) * Math.floor(across()) + Math.round(x - left)];
  };
  const rgb = pixel => [pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255];
  shown();
  said.far = canvas.dataset.load;
  let at = plot();
  const legend = new Set([...groups.keys()].map(colour => packed(colour)));
  let painted = 0, dark = 0, pure = 0, towers = 0;
  for (let y = Math.ceil(toY(0.9 * bound)); y < toY(0) - 2; y++)
    for (let x = left + 2; x < width - right - 3; x++) {
      const pixel = at(x, y);
      painted += (pixel & 0xffffff) !== 0xffffff;
      dark += Math.max(...rgb(pixel)) < 70;
      pure += legend.has(pixel & 0xffffff);
    }
  said.dark = dark / painted;
  said.pure = pure / painted;
  /* Pixels at corners of boxes: the colour of which there is most, the more opaque the more there is. */
  const boxes = Array.from(begin.keys(), rectangle);
  const isMerged = corner => {
    const x = Math.floor(toX(begin[corner])), y = Math.floor(toY(offset[corner]));
    const shares = new Map();
    boxes.forEach(([x0, y0, w, h], i) => {
      const share = Math.max(0, Math.min(x0 + w, x + 1) - Math.max(x0, x)) *
        Math.max(0, Math.min(y0 + h, y + 1) - Math.max(y0, y));
      if (share > 0)
        shares.set(colourOf(layer[i]), share + (shares.get(colourOf(layer[i])) ?? 0));
    });
    const [most, second] = [...shares].sort((a, b) => b[1] - a[1]);
    const all = [...shares.values()].reduce((a, b) => a + b, 0);
    const isClear = most && most[1] > 1.001 * (second?.[1] ?? 0) && y > toY(bound) + 3 && y < toY(0) - 1 && x > left + 1;
    if (!isClear || said.far === "true") /* the load may be behind */
      return true;
    checked++;
    return rgb(at(x, y)).every((value, k) => Math.abs(value -
      (255 + Math.min(1, Math.max(0.2, all)) * (rgb(packed(most[0]))[k] - 255))) < 4);
  };
  let checked = 0, merged = true;
  for (let k = 0; k < 200; k++)
    merged = isMerged((k * 7919) % count) && merged;
  said.merged = merged && (said.far === "true" || checked > 100);
  const isFree = x => (at(x, toY(0.45 * peak)) & 0xffffff) === 0xffffff;
  for (let x = left + 3; x < width - right - 3; x++)
    towers += isFree(x - 1) && !isFree(x);
  said.towers = towers;

  const i = groups.values().next().value[0], next = i + 1;
  show({ x0: 0, x1: 400, y0: 0, y1: 16 * bytes[i] });
  shown();
  at = plot();
  said.closer = canvas.dataset.load;
  const beside = toX(begin[next]) + 20; /* the name is in the middle */
  const colour = packed([...groups].find(([, list]) => list.includes(i))[0]);
  const inside = tensor => (at(beside, toY(offset[tensor] + bytes[tensor] / 2)) & 0xffffff) === colour;
  said.inside = inside(i) && inside(next);
  said.apart = (at(beside, toY(offset[next]) + 0.5) & 0xffffff) !== colour;
  const free = [];
  for (let k = 0; steps.at[k] < 400; k++)
    for (let y = bytes[i] / 4; y < Math.min(steps.live[k], view.y1); y += bytes[i] / 2)
      if (find(steps.at[k] + 0.5, y) < 0)
        free.push([toX(steps.at[k] + 0.5), toY(y)]);
  const behind = [230, 236, 242]; /* a tenth of 0, 60, 120 on white */
  said.behind = free.length > 0 &&
    free.every(([x, y]) => rgb(at(x, y)).every((value, k) => Math.abs(value - behind[k]) < 3));
  return [beside, toY(offset[i] + bytes[i] / 2), i];
}"""
STAGE_PROBE = """(said, shown, read) => {
  const shown_ = stages[data.stage];
  show({ x0: highest - 2, x1: highest + 2, y0: 0, y1: top1 });
  shown();
  const middle = (toX(highest) + toX(highest + 1)) / 2;
  const column = read(Math.round(middle), 1);
  const pixel = bytes => column.slice(4 * Math.round(toY(bytes))).slice(0, 4).join(",");
  said.weights = pixel(overhead + shown_.weights / 2);
  said.optimizer = pixel(overhead + shown_.weights + shown_.gradients + shown_.optimizer / 2);
  said.saved = pixel(overhead + kept + saved(highest) / 2);
  said.sum = String(parts.reduce((sum, part) => sum + part.of(highest), 0)
    + shown_.recompute + shown_.transients === most);
  said.stages = String(stages.length === byId("stages").children.length);
  return [middle, toY(kept), highest];
}"""


# Stalls are dark red; the pages of the first rank, half of its pages up, are green.
TIMELINE_PROBE = """(said, shown, read) => {
  const look = (time, length) => {
    show({ x0: time - length, x1: time + length, y0: foot(0), y1: foot(0) + rankHigh });
    shown();
  };
  const colour = (x, y) => read(Math.round(x), 1).slice(4 * Math.round(y)).slice(0, 3).join(",");
  const most = steps[0].reduce((a, b) => used(b) > used(a) ? b : a);
  look(when(most), 20);
  said.used = colour(toX(when(most)) + 2, toY(pagesFoot(0) + 0.4 * pagesHigh));
  const stall = rows[0][0].find(k => kind(k) === STALL);
  look(begin(stall), 2 * (end(stall) - begin(stall)));
  const [x, y, w, h] = rectangle(stall);
  said.stall = colour(x + w / 2, y + h / 2);
  return [x + w / 2, y + h / 2, stall];
}"""


# What a canvas has behind it on the screen, for paper, and after that; what the page has there. Whether it is wider
# than its window goes to the page that shows it in a frame.
STYLE_PROBE = """
<script>
(() => {
  const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const behind = () => {
    copy.drawImage(canvas, 0, 0);
    return [...copy.getImageData(2, 2, 1, 1).data].slice(0, 3).join(",");
  };
  const turn = name => { dispatchEvent(new Event(name)); return behind(); };
  root.dataset.screen = behind();
  root.dataset.body = getComputedStyle(document.body).backgroundColor.replace(/[^0-9,]/g, "");
  root.dataset.paper = turn("beforeprint");
  root.dataset.after = turn("afterprint");
  parent.postMessage([root.scrollWidth, innerWidth], "*");
})();
</script>
</body>"""
FRAME = """<!DOCTYPE html><html><body><script>
const said = document.documentElement.dataset;
onmessage = event => { [said.wide, said.inner] = event.data; };
</script><iframe src="PAGE" style="width: 420px; height: 800px; border: 0"></iframe></body></html>"""
WHITE, DARK = "255,255,255", "22,24,28"


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
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
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


def check_styles(page):
    """Light, dark, on paper, where it is one sheet, and 420 pixels wide."""
    styled, frame = page.with_name(f"{page.stem}-styled.html"), page.with_name(f"{page.stem}-frame.html")
    styled.write_text(page.read_text().replace("</body>", STYLE_PROBE))
    for scheme, screen in ((1, WHITE), (0, DARK)):
        flag = f"--blink-settings=preferredColorScheme={scheme}"
        data = data_of(browse(styled, "--dump-dom", flag))
        wanted = {"screen": screen, "body": screen, "paper": WHITE, "after": screen, "errors": "0"}
        if {key: data.get(key) for key in wanted} != wanted:
            fail(f"{page.name}, scheme {scheme}: {data}")
        browse(page, f"--screenshot={page.with_name(page.stem)}-scheme-{scheme}.png", flag)
    sheet = page.with_suffix(".pdf")
    browse(page, f"--print-to-pdf={sheet}", "--no-pdf-header-footer", flag)
    if len(re.findall(rb"/Type\s*/Page\b", sheet.read_bytes())) != 1:
        fail(f"{page.name}: printed on more than one sheet")
    frame.write_text(FRAME.replace("PAGE", styled.name))
    data = data_of(browse(frame, "--dump-dom"))
    if (data.get("wide"), data.get("inner")) != ("420", "420"):
        fail(f"{page.name}: scrolls sideways: {data}")


def draw(main, kind, sizes):
    """For check: a picture of picture_main."""
    def to(page):
        with page.open("wb") as file:
            subprocess.run([main, kind, *map(str, sizes), "Picture </script> & \u00fc"],
                           stdout=file, check=True)
    return to


def check(folder, draw_to, name, own, wanted, tip):
    """Looks at a picture, and at what its probe said. Returns that."""
    page, probed = folder / f"{name}.html", folder / f"{name}-probed.html"
    draw_to(page)
    data = data_of(browse(page, "--dump-dom"))
    if (data.get("state"), data.get("errors")) != ("drawn", "0"):
        fail(f"{name}: not drawn: {data}")
    browse(page, f"--screenshot={folder / name}.png")

    probed.write_text(page.read_text().replace("</body>", PROBE.replace("OWN", own)))
    data = data_of(browse(probed, "--dump-dom"))
    wanted = {"errors": "0", "zoomed": "true", "moved": "true", "reset": "true", "tall": "true",
              "key": "true", "hovered": "true", "large": "true", **wanted}
    wrong = {key: data.get(key) for key, value in wanted.items() if data.get(key) != value}
    for key in ("wheel", "time"):
        if not 0 < int(data.get(key, 0)) < int(data["first"]):
            wrong[key] = data.get(key)
    if float(data.get("painted", 0)) < 0.15 or int(data.get("colours", 0)) < 50:
        wrong["blank"] = (data.get("painted"), data.get("colours"))
    if not re.fullmatch(tip, data.get("tip", "")):
        wrong["tip"] = data.get("tip")
    if wrong:
        fail(f"{name}: {wrong}")
    browse(probed, f"--screenshot={folder / name}-probed.png")
    if page.stat().st_size < 1 << 20:
        check_styles(page)
    print(f"{name}: {data['first']} drawn, {page.stat().st_size} bytes, "
          f"drawn again in {data['milliseconds']} ms")
    return data


def check_plan(main, folder, name, layers, num_micro_batches):
    tip = (r"block\|tensor 100\|128 MiB \(134,217,728 bytes\)\|at 0 bytes \(0\)\|"
           r"live from 0 to [\d,]+\|layer 0, forward, micro-batch 0")
    is_far = 60 * layers * num_micro_batches >= 2000  # instants across
    data = check(folder, draw(main, "html", (layers, num_micro_batches)), name, PLAN_PROBE,
                 {"first": str(30 * layers * num_micro_batches), "upward": "true", "closer": "true",
                  "far": "false" if is_far else "true", "towers": str(num_micro_batches),
                  "merged": "true", "inside": "true", "apart": "true", "behind": "true"}, tip)
    if float(data["dark"]) > 0.01 or float(data["pure"]) < (0.85 if is_far else 0.75):
        fail(f"{name}: {data['dark']} of the pixels are dark, {data['pure']} have a colour of the legend")


def check_stage(main, folder, name, chunks, num_micro_batches):
    tip = (r"block\|event [\d,]+: forward, chunk \d+, micro-batch \d+\|"
           r"live layers \d+\|reserve 1 GiB\|weights [\d.]+ GiB\|gradients [\d.]+ GiB\|"
           r"optimizer [\d.]+ GiB\|saved [\d.]+ GiB\|"
           r"(head [\d.]+ GiB\|)?all [\d.]+ GiB\|margin -?[\d.]+ GiB")
    data = check(folder, draw(main, "stage", (chunks, num_micro_batches)), name, STAGE_PROBE,
                 {"sum": "true", "upward": "false", "weights": "119,170,221,255", "stages": "true",
                  "optimizer": "85,119,170,255", "saved": "238,221,136,255"}, tip)
    if int(data["first"]) > min(2 * chunks * num_micro_batches, 1400):
        fail(f"{name}: {data['first']} columns")


def check_timeline(pagestash, folder, name, stages, layers, num_micro_batches):
    """16 ranks, and 20,000 visits, are what a page has to show."""
    def draw_to(page):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as table:
            table.write("chunk,layer,micro_batch,pages\n" + "".join(
                f"0,{n},{i},{1 + (5 * i + 3 * n) % 3}\n" for n in range(layers)
                for i in range(num_micro_batches)))
            table.flush()
            subprocess.run([pagestash, "simulate", "--schedule", "1f1b", "--stages", str(stages),
                            "--micro-batches", str(num_micro_batches), "--layers", str(layers),
                            "--visit-pages", table.name, "--forward-ns", "10,40,10",
                            "--backward-ns", "20,80,20", "--stash-ns", "90", "--restore-ns", "120",
                            "--html", page], check=True, stdout=subprocess.DEVNULL)
    tip = (r"block\|waits for a copy before its \w+\|rank 0, chunk 0, layer \d+, micro-batch \d+\|"
           r"[\d,]+ to [\d,]+ ns \(\d+\)")
    check(folder, draw_to, name, TIMELINE_PROBE,
          {"upward": "true", "stall": "204,51,17",
           "used": "183,201,176"}, tip)


def main():
    if len(sys.argv) != 4:
        fail("usage: check_html.py PICTURE_MAIN PAGESTASH FOLDER")
    if shutil.which("chromium") is None:
        fail("no chromium: third_party/install.sh --browser")
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    check_plan(sys.argv[1], folder, "large", *LARGE)
    check_plan(sys.argv[1], folder, "small", 6, 1)
    check_stage(sys.argv[1], folder, "stage", 16, 512)
    check_stage(sys.argv[1], folder, "short-stage", 6, 8)
    check_timeline(sys.argv[2], folder, "timeline", 16, 9, 64)
    check_timeline(sys.argv[2], folder, "short-timeline", 8, 4, 16)


main()
