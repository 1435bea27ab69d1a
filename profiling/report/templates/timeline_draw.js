// Draws one frame of a timeline on a canvas: the visible slices. Those narrower than a pixel are merged
// into columns of one pixel, as opaque as the share of it that they cover.

const [AXIS, ROW, BAR, GUTTER, NARROW_GUTTER, NARROW] = [24, 22, 18, 112, 76, 640]; // px
const NAMED = 26; // px from which on a slice has its name
const DIGIT = 5; // px: nothing is written in less
const SHARES = [0.35, 0.55, 0.78, 1]; // opacities, by how much of a pixel is covered
const DIMMED = SHARES.length; // index for slices that a search does not find
const MOST_ARROWS = 200; // one call launches all of a CUDA graph
const SMALL_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";

// Reads the page's current colours: a shade has the name of its variable.
function readPalette(context, { shades, hatches }) {
  const style = getComputedStyle(document.documentElement);
  const hex = (name) => style.getPropertyValue(`--${name}`).trim() || "#7a8591";
  const card = channels(hex("card"));
  const mixed = (colour, share) =>
    `rgb(${channels(colour).map((part, i) => Math.round(share * part + (1 - share) * card[i])).join()})`;
  const named = Object.fromEntries(["card", "text", "muted", "line", "accent"].map((name) => [name, hex(name)]));
  named.area = mixed(named.accent, 0.75);
  const fills = shades.map((shade) => [...SHARES, 0.13].map((share) => mixed(hex(shade), share)));
  const tiles = shades.map((shade) => hatches[shade] && hatchTile(hatches[shade], named.card));
  const patterns = tiles.map((tile) => tile && context.createPattern(tile, "repeat"));
  return { ...named, fills, inks: shades.map((shade) => inkOn(hex(shade))), tiles, patterns };
}

// Distinguishes idle time from work, and its causes, without colours too: the hatches of the step's bar.
function hatchTile(hatch, colour) {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const pen = tile.getContext("2d");
  pen.strokeStyle = pen.fillStyle = colour;
  pen.globalAlpha = 0.55;
  const line = (x0, y0, x1, y1) => { pen.moveTo(x0, y0); pen.lineTo(x1, y1); };
  for (const x of [-6, 0, 6]) {
    if ("/x".includes(hatch)) line(x - 1, 7, x + 7, -1);
    if ("\\x".includes(hatch)) line(x - 1, -1, x + 7, 7);
  }
  if ("-+".includes(hatch)) line(0, 2.5, 6, 2.5);
  if ("|+".includes(hatch)) line(2.5, 0, 2.5, 6);
  pen.stroke();
  if (hatch === ".") pen.fillRect(1, 1, 2, 2);
  return tile;
}

// `view`: {from, to, width, chosen, hovered, selection, wanted, palette}. Returns the number of slices drawn.
function drawFrame(context, events, view) {
  const plot = placeOf(view);
  const height = heightOf(events);
  context.fillStyle = view.palette.card;
  context.fillRect(0, 0, view.width, height);
  context.font = SMALL_FONT;
  context.textBaseline = "middle";
  drawAxis(context, events, view, plot, height);
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.width, height);
  context.clip();
  drawSteps(context, events, view, plot);
  const slices = drawSlices(context, events, view, plot);
  events.lines.forEach(({ curve }, line) => { if (curve) drawCurve(context, events, view, plot, curve, topOfLine(line)); });
  drawSelection(context, view, plot, height);
  drawArrows(context, events, view, plot);
  for (const event of [view.hovered, view.chosen]) drawOutline(context, events, view, plot, event);
  context.restore();
  drawLabels(context, events, view, plot);
  return slices;
}

const heightOf = (events) => AXIS + ROW * (events.lines.length + 1) + 6;

const topOfLine = (line) => AXIS + ROW * (line + 1); // line -1: the steps

const topOf = (events, row) => topOfLine(events.lineOf[row]);

function placeOf({ from, to, width }) {
  const left = width < NARROW ? NARROW_GUTTER : GUTTER;
  const scale = (width - left) / (to - from);
  return { left, width: width - left, scale, x: (time) => left + (time - from) * scale };
}

function drawAxis(context, events, { from, to, palette }, plot, height) {
  const rough = (to - from) / Math.max(2, plot.width / 90);
  const power = 10 ** Math.floor(Math.log10(rough));
  const tick = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const decimals = Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(tick) + 1e-9)));
  context.textAlign = "center";
  for (let time = Math.ceil(from / tick) * tick; time <= to; time += tick) {
    const x = Math.round(plot.x(time)) + 0.5;
    context.fillStyle = palette.line;
    context.fillRect(x, AXIS - 6, 1, height);
    const label = `${(time / 1e6).toFixed(decimals)} ms`;
    const half = context.measureText(label).width / 2;
    context.fillStyle = palette.muted;
    if (x - half > plot.left && x + half < plot.left + plot.width) context.fillText(label, x, AXIS / 2);
  }
}

function drawSteps(context, events, view, plot) {
  const { bounds, shown, firstStep } = events;
  const [first, last] = [stepAt(events, view.from), stepAt(events, view.to)];
  const [top, pixel] = [topOfLine(-1), 1 / plot.scale];
  context.textAlign = "left";
  for (let step = first; step <= last; step++) {
    if (bounds[step + 1] - bounds[step] < 3 * pixel) continue;
    const [left, right] = [plot.x(bounds[step]), plot.x(bounds[step + 1])];
    context.fillStyle = view.palette.line;
    context.fillRect(left, top, Math.max(1, right - left - 1), BAR);
    const [a, b] = visiblePart(left, right, plot);
    if (b - a < DIGIT) continue;
    context.fillStyle = view.palette.text;
    const took = durationText(bounds[step + 1] - bounds[step]);
    const [number, more] = [`${firstStep + step}`, shown[step] ? "" : ", not on this page"];
    const said = [`step ${number} · ${took}${more}`, `step ${number} · ${took}`, `step ${number}`, number];
    const fits = said.find((text) => widthOf(context, text) <= b - a);
    if (fits) context.fillText(fits, a, top + BAR / 2 + 0.5); // a number is whole or not there
  }
}

// A counter as an area: in each pixel its mean, where the page has the step.
function drawCurve(context, events, view, plot, curve, top) {
  const { bounds, shown } = events;
  context.fillStyle = view.palette.line;
  context.fillRect(plot.left, top + BAR - 1, plot.width, 1);
  context.fillStyle = view.palette.area;
  let [step, before, from, high] = [stepAt(events, view.from), integralTo(curve, view.from), plot.left, 0];
  const flush = (x) => { if (high) context.fillRect(from, top + BAR - high, x - from, high); };
  for (let x = plot.left; x < plot.left + plot.width; x++) {
    const time = view.from + (x + 1 - plot.left) / plot.scale;
    while (step < shown.length - 1 && bounds[step + 1] < time) step += 1;
    const after = integralTo(curve, time);
    const inside = shown[step] && time > bounds[0] && time <= bounds[shown.length];
    const now = inside ? Math.round(2 * BAR * (after - before) * plot.scale / curve.most) / 2 : 0;
    if (now !== high) { flush(x); [from, high] = [x, now]; }
    before = after;
  }
  flush(plot.left + plot.width);
}

function drawSlices(context, events, view, plot) {
  const filled = events.shades.map(() => [...SHARES, 0].map(() => [])); // [x, y, width, ...] for each fill
  const [named, hatched] = [[], events.shades.map(() => [])];
  events.lines.forEach(({ rows }, line) => {
    for (const row of rows) collectRow(events, view, plot, events.rows[row], topOfLine(line), filled, named, hatched);
  });
  let count = 0;
  filled.forEach((levels, shade) => levels.forEach((rectangles, level) => {
    context.fillStyle = view.palette.fills[shade][level];
    for (let i = 0; i < rectangles.length; i += 3) {
      context.fillRect(rectangles[i], rectangles[i + 1], rectangles[i + 2], BAR);
    }
    count += rectangles.length / 3;
  }));
  hatched.forEach((rectangles, shade) => {
    if (rectangles.length) context.fillStyle = view.palette.patterns[shade];
    for (const [x, y, width] of rectangles) context.fillRect(x, y, width, BAR);
  });
  context.textAlign = "left";
  for (const [event, left, right, top] of named) {
    context.fillStyle = view.palette.inks[events.shade[event]];
    nameIn(context, events.names[events.name[event]].label, left, right, top, plot);
  }
  return count;
}

// Collects a row's rectangles: one for each slice of a pixel or more, the others merged by pixel.
function collectRow(events, view, plot, row, top, filled, named, hatched) {
  const { start, end, shade, name } = events;
  const { from, to, wanted } = view;
  const [right, dim] = [plot.left + plot.width, (i) => wanted && !wanted[name[i]]];
  let [pixel, covered, longest, best] = [-1, 0, -1, -1];
  const add = (i, level, x, width) => {
    const rectangles = filled[shade[i]][level];
    const end = rectangles.length;
    const joins = end && width === 1 && rectangles[end - 2] === top && rectangles[end - 3] + rectangles[end - 1] === x;
    if (joins) rectangles[end - 1] += 1; else rectangles.push(x, top, width);
  };
  const flush = () => {
    if (best < 0) return;
    const level = dim(best) ? DIMMED : wanted ? DIMMED - 1 : Math.min(3, Math.floor(covered * SHARES.length));
    add(best, level, pixel, 1);
    [pixel, covered, longest, best] = [-1, 0, -1, -1];
  };
  for (let i = firstAbove(events.reach, row.first, row.behind, from); i < row.behind && start[i] < to; i++) {
    if (end[i] < from) continue;
    const [x, width] = [plot.x(start[i]), (end[i] - start[i]) * plot.scale];
    if (width < 1) {
      const column = Math.floor(x);
      if (column !== pixel) { flush(); pixel = column; }
      covered += width;
      const weight = width + (wanted && !dim(i) ? 2 : 0); // search results are never hidden
      if (weight > longest) [longest, best] = [weight, i];
      continue;
    }
    flush();
    const [a, b] = [Math.max(x, plot.left - 2), Math.min(x + width, right + 2)];
    const drawn = Math.max(1, b - a - (width > 4 ? 1 : 0));
    add(i, dim(i) ? DIMMED : DIMMED - 1, a, drawn);
    if (row.kind === "idle" && drawn > 5 && !dim(i)) hatched[shade[i]].push([a, top, drawn]);
    else if (drawn >= NAMED && !dim(i)) named.push([i, a, b, top]);
  }
  flush();
}

// Writes a slice's name into its visible part, shortened, or not at all where it would be unreadable.
const widths = new Map();
function widthOf(context, name) {
  if (!widths.has(name)) widths.set(name, context.measureText(name).width);
  return widths.get(name);
}

const visiblePart = (left, right, plot) => [Math.max(left, plot.left) + 4, Math.min(right, plot.left + plot.width) - 4];

function nameIn(context, name, left, right, top, plot) {
  const [a, b] = visiblePart(left, right, plot);
  const width = widthOf(context, name);
  const letters = width <= b - a ? name.length : Math.floor((b - a) / (width / name.length)) - 1;
  if (letters < 3) return;
  context.fillText(letters >= name.length ? name : `${name.slice(0, letters)}…`, a, top + BAR / 2 + 0.5);
}

function drawSelection(context, { selection, palette }, plot, height) {
  if (!selection) return;
  const [a, b] = selection.map(plot.x);
  context.globalAlpha = 0.16;
  context.fillStyle = palette.accent;
  context.fillRect(a, AXIS - 4, Math.max(1, b - a), height);
  context.globalAlpha = 1;
  for (const x of [a, b]) context.fillRect(Math.round(x), AXIS - 4, 1, height);
}

function drawOutline(context, events, view, plot, event) {
  if (event < 0) return;
  const [left, right] = [plot.x(events.start[event]), plot.x(events.end[event])];
  context.lineWidth = event === view.chosen ? 2 : 1;
  context.strokeStyle = view.palette.text;
  const top = topOf(events, rowOf(events, event));
  context.strokeRect(Math.max(left, plot.left - 9) - 0.5, top - 0.5,
    Math.max(3, Math.min(right, plot.left + plot.width + 9) - Math.max(left, plot.left - 9)), BAR + 1);
}

// Draws arrows from a launching call to the operations that it launched.
function drawArrows(context, events, view, plot) {
  if (view.chosen < 0) return;
  const call = callOf(events, view.chosen);
  const pairs = call >= 0 ? [[call, view.chosen]]
    : operationsOf(events, view.chosen).slice(0, MOST_ARROWS).map((operation) => [view.chosen, operation]);
  context.strokeStyle = context.fillStyle = view.palette.text;
  context.lineWidth = 1.2;
  for (const [from, to] of pairs) {
    const [x0, y0] = [plot.x(events.end[from]), topOf(events, rowOf(events, from)) + BAR / 2];
    const [x1, y1] = [plot.x(events.start[to]), topOf(events, rowOf(events, to)) + BAR / 2];
    const bend = Math.min(60, Math.abs(x1 - x0) / 2 + 12);
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    context.stroke();
    context.beginPath();
    for (const [dx, dy] of [[0, 0], [-7, -4], [-7, 4]]) context.lineTo(x1 + dx, y1 + dy);
    context.fill();
  }
}

function drawLabels(context, events, { palette }, plot) {
  context.textAlign = "left";
  context.fillStyle = palette.muted;
  [{ label: "steps" }, ...events.lines].forEach(({ label, head, group, rows, curve }, i) => {
    const text = head ? `${group.folded ? "▸" : "▾"} ${label}` : label;
    const room = rows?.length || curve || !head ? plot.left - 6 : plot.width;
    const letters = Math.floor(text.length * 1.25 * room / widthOf(context, text)); // squeezed by a quarter at most
    context.fillText(letters < text.length ? `${text.slice(0, letters - 1)}…` : text, 2, topOfLine(i - 1) + BAR / 2, room);
  });
}
