// The timeline of a report: its view, its address, its colours. timeline_data.js reads the events,
// timeline_draw.js draws them, the others handle input, search and details. It is our own because no
// library that fits inside a page does this: Perfetto's UI is an application with workers and wasm that
// needs a server, speedscope draws stacks of one thread, uPlot draws series, and plotly made an SVG
// element of each event.

const box = document.getElementById("timeline-view");
const [canvas, details, tip, hint, ways] = ["canvas", ".details", ".tip", ".hint", ".ways"].map((name) => box.querySelector(name));
const [search, stepNumber] = ["[type=search]", "[type=number]"].map((name) => box.querySelector(name));
const context = canvas.getContext("2d", { alpha: false });
const packed = withBytes("timeline-data").catch((error) => { details.textContent = error.message; throw error; });
const events = readEvents(await packed);
const SHORTEST = 50; // least ns in view
const MARGIN = 0.02; // room beyond the window's ends, as a share of the window
const BORDER = 0.01; // room beside a step that is shown alone, as a share of the step
const AHEAD = "; the host was ahead: it had finished this step before the GPU started it";
const PRINTED = 660; // px: width of a section on a sheet

const view = {
  from: 0, to: events.last, width: 0, chosen: -1, hovered: -1, selection: null, wanted: null, engaged: false,
  palette: readPalette(context, events),
};
const found = { events: [], at: -1 }; // results of the search
let [asked, printing] = [false, false];

// -- the view

function setView(from, to) {
  const margin = MARGIN * events.last;
  const whole = events.last + 2 * margin;
  const span = Math.min(Math.max(to - from, SHORTEST), whole);
  view.from = Math.min(Math.max((from + to - span) / 2, -margin), events.last + margin - span);
  view.to = view.from + span;
  saveSoon();
  redraw();
}

function zoom(factor, at = (view.from + view.to) / 2) {
  const span = Math.min(Math.max((view.to - view.from) / factor, SHORTEST), (1 + 2 * MARGIN) * events.last);
  const share = (at - view.from) / (view.to - view.from);
  setView(at - share * span, at + (1 - share) * span);
}

function pan(share) {
  const by = share * (view.to - view.from);
  setView(view.from + by, view.to + by);
}

function wholeWindow() {
  setView(0, events.last);
}

function goToStep(step) {
  const last = events.bounds.length - 2;
  step = Math.min(Math.max(step, 0), last);
  const [from, to] = [events.bounds[step], events.bounds[step + 1]];
  setView(from - BORDER * (to - from), to + BORDER * (to - from));
  stepNumber.value = events.firstStep + step;
  const which = [[events.median, "the median"], [events.slowest, "the slowest"]];
  const named = which.filter(([of]) => of === step && last).map(([, name]) => `, ${name}`).join("");
  const more = !events.shown[step] ? "; its events are not on this page" : events.ahead[step] ? AHEAD : "";
  say(`Step ${events.firstStep + step}${named}: ${durationText(to - from)}${more}`, []);
  offerWays(-1);
}

function show(event) { // centres it, wide enough to be seen
  const row = rowOf(events, event);
  const { group, rows } = events.lines[events.lineOf[row]];
  if (group.folded && !rows.includes(row)) fold([group], false);
  const [start, end, span] = [events.start[event], events.end[event], view.to - view.from];
  const inView = start >= view.from && end <= view.to && (end - start) / span > 0.005;
  if (inView) return;
  const wanted = Math.min(Math.max(span, end - start), 60 * (end - start) + SHORTEST);
  setView((start + end - wanted) / 2, (start + end + wanted) / 2);
}

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  asked = false;
  view.width = printing ? PRINTED : canvas.clientWidth;
  if (!view.width) return;
  const ratio = Math.min(Math.max(devicePixelRatio, printing ? 2 : 1), 3);
  const [width, height] = [Math.round(view.width * ratio), Math.round(heightOf(events) * ratio)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  canvas.style.height = `${heightOf(events)}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const begun = performance.now();
  view.slices = drawFrame(context, events, view);
  view.drawMs = performance.now() - begun; // read by benchmarks.timeline_frames
}

// -- colours, paper, legend

function repaint() {
  if (!printing) view.palette = readPalette(context, events);
  hatchLegend();
  redraw();
}

function beforePrint() { // in light colours, whatever the page has
  const root = document.documentElement.dataset;
  const theme = root.theme;
  root.theme = "light";
  view.palette = readPalette(context, events);
  root.theme = theme;
  printing = true;
  canvas.style.width = `${PRINTED}px`;
  drawNow();
}

function afterPrint() {
  printing = false;
  canvas.style.width = "";
  repaint();
}

function shadesOf(kind) { // returns the shades that occur in rows of this kind
  const present = new Set();
  for (const row of events.rows) if (row.kind === kind) for (let i = row.first; i < row.behind; i++) present.add(events.shade[i]);
  return [...present].map((shade) => [kind, events.shades[shade]]);
}

function drawLegend() { // a click searches for the family or the cause
  box.querySelector(".legend").replaceChildren(...[...shadesOf("idle"), ...shadesOf("stream"), ...shadesOf("rank")].map(([kind, shade]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", title: "search for it" });
    const swatch = button.appendChild(document.createElement("span"));
    swatch.className = "swatch";
    swatch.style.backgroundColor = `var(--${shade}, var(--other))`;
    if (kind === "idle") swatch.dataset.shade = shade;
    const label = kind === "idle" ? events.causes[shade] : events.called[shade] ?? shade;
    button.append(label);
    button.addEventListener("click", () => { search.value = search.value === label ? "" : label; look(); });
    return button;
  }));
  hatchLegend();
}

function hatchLegend() { // as on the canvas
  for (const swatch of box.querySelectorAll(".legend [data-shade]")) {
    swatch.style.backgroundImage = `url(${view.palette.tiles[events.shades.indexOf(swatch.dataset.shade)].toDataURL()})`;
  }
}

for (const button of box.querySelectorAll("[data-do]")) button.addEventListener("click", () => ACTIONS[button.dataset.do]());
stepNumber.addEventListener("change", () => {
  if (stepNumber.value) goToStep(Math.round(+stepNumber.value) - events.firstStep);
});
Object.assign(stepNumber, { min: events.firstStep, max: events.firstStep + events.bounds.length - 2 });
search.addEventListener("input", look);
box.addEventListener("keydown", onKey);
canvas.addEventListener("wheel", onWheel, { passive: false });
canvas.addEventListener("pointerdown", onDown);
canvas.addEventListener("pointermove", onMove);
for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, onUp);
canvas.addEventListener("pointerleave", () => hover({ x: -1, y: -1 }));
document.addEventListener("click", followLink);
document.addEventListener("pointerdown", ({ target }) => { if (!box.contains(target)) setEngaged(false); });
addEventListener("hashchange", () => { if (!followAddress()) saveState(); }); // a link to a section keeps it
addEventListener("beforeprint", beforePrint);
addEventListener("afterprint", afterPrint);
new ResizeObserver(() => { if (canvas.clientWidth !== view.width && !printing) redraw(); }).observe(canvas);
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
drawLegend();
prepareWays();
foldedAtFirst = foldedText();
if (!foldable().length) box.querySelector("[data-do=fold]").remove();
canvas.style.height = `${heightOf(events)}px`;
if (!followAddress()) goToStep(events.shown[events.median] ? events.median : events.shown.indexOf(1));
clearTimeout(saving); // the address changes with the reader's view alone
Object.assign(window, { timeline: {
  events, view, setView, drawNow, choose, measure, callOf, rowOf, topOf, placeOf, fold, meanOf, // for tests and benchmarks
} });
