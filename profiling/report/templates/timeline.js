// The timeline of a report: a canvas to zoom, search, measure and click in, fed by timeline_data.js
// and drawn by timeline_draw.js. Its own module because no library that can lie inside a page does
// this: Perfetto's UI is an application with workers and wasm that wants a server, speedscope draws
// stacks of one thread, uPlot draws series, and plotly made an SVG element of each event.

const box = document.getElementById("timeline-view");
const [canvas, details, tip] = ["canvas", ".details", ".tip"].map((name) => box.querySelector(name));
const [search, stepNumber] = ["[type=search]", "[type=number]"].map((name) => box.querySelector(name));
const context = canvas.getContext("2d", { alpha: false });
const events = readEvents(JSON.parse(document.getElementById("timeline-data").textContent));
const SHORTEST = 50; // ns in view
const MARGIN = 0.02; // of the window, beyond its ends
const BORDER = 0.01; // of a step that is shown alone
const PRINTED = 700; // px: of the width of a sheet

const view = {
  from: 0, to: events.last, width: 0, chosen: -1, hovered: -1, selection: null, wanted: null,
  palette: readPalette(context, events.shades),
};
const found = { events: [], at: -1 }; // by the search
let [asked, printing, saving] = [false, false, 0];

// -- the view

function setView(from, to) {
  const margin = MARGIN * events.last;
  const whole = events.last + 2 * margin;
  const span = Math.min(Math.max(to - from, SHORTEST), whole);
  view.from = Math.min(Math.max((from + to - span) / 2, -margin), events.last + margin - span);
  view.to = view.from + span;
  canvas.dataset.t = [view.from, view.to].map((time) => (time / 1e6).toFixed(6)).join();
  clearTimeout(saving);
  saving = setTimeout(saveView, 250); // browsers allow few changes of the address
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

const wholeWindow = () => setView(0, events.last);

function goToStep(step) {
  const last = events.bounds.length - 2;
  step = Math.min(Math.max(step, 0), last);
  const [from, to] = [events.bounds[step], events.bounds[step + 1]];
  setView(from - BORDER * (to - from), to + BORDER * (to - from));
  stepNumber.value = events.firstStep + step;
  const which = [[events.median, "the median"], [events.slowest, "the slowest"]];
  const named = which.filter(([of]) => of === step && last).map(([, name]) => `, ${name}`).join("");
  const absent = events.shown[step] ? "" : "; its events are not in this page";
  say(`Step ${events.firstStep + step}${named}: ${durationText(to - from)}${absent}`, []);
}

function show(event) { // in the middle, wide enough to be seen
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

// -- the address: t=FROM,TO in ms beside what others keep there

function saveView() {
  const others = location.hash.slice(1).split("&").filter((part) => part && !part.startsWith("t="));
  const address = `#${[...others, `t=${canvas.dataset.t}`].join("&")}`;
  try { history.replaceState(history.state, "", address); } catch { /* a frame may forbid it */ }
}

function timesOf(address) {
  const times = address.slice(1).split("&").find((part) => part.startsWith("t="))?.slice(2).split(",").map(Number);
  return times?.length === 2 && times.every(Number.isFinite) && times[0] < times[1] ? times.map((ms) => ms * 1e6) : null;
}

function followAddress() {
  const times = timesOf(location.hash);
  if (times) setView(...times);
  return Boolean(times);
}

// A row of the idle table, or its link, leads to its gap.
function followLink(click) {
  const selector = "a[href^='#t=']";
  const link = click.target.closest(selector)
    ?? (click.target.closest("a, button") ? null : click.target.closest("tr")?.querySelector(selector));
  const times = link && timesOf(link.getAttribute("href"));
  if (!times || String(getSelection())) return;
  click.preventDefault();
  setView(...times);
  const idle = events.rows.find((row) => row.kind === "idle");
  choose(idle ? eventAt(events, idle, (times[0] + times[1]) / 2) : -1);
  canvas.scrollIntoView({ block: "center" });
  canvas.focus({ preventScroll: true });
}

// -- what is said of a slice and of a selection; texts alone, for names may come from anyone

function say(title, pairs, links = []) {
  const list = document.createElement("dl");
  for (const [what, told] of pairs) {
    const row = list.appendChild(document.createElement("div"));
    row.appendChild(document.createElement("dt")).textContent = what;
    row.appendChild(document.createElement("dd")).append(told);
  }
  const heading = Object.assign(document.createElement("strong"), { textContent: title });
  details.replaceChildren(heading, ...links.map(([words, href]) =>
    Object.assign(document.createElement("a"), { href, textContent: ` ${words}` })), ...(pairs.length ? [list] : []));
}

function choose(event) {
  view.chosen = event;
  if (event >= 0) {
    const { whole, label, links } = events.names[events.name[event]];
    say(whole || label, factsOf(event), links);
  }
  redraw();
}

const nameOf = (event) => events.names[events.name[event]].label;

function factsOf(event) {
  const row = events.rows[rowOf(events, event)];
  const step = stepAt(events, events.start[event]);
  const facts = [
    ["duration", durationText(events.end[event] - events.start[event])],
    ["at", `${(events.start[event] / 1e6).toFixed(6)} ms`],
    ["step", `${events.firstStep + step}, ${durationText(events.start[event] - events.bounds[step])} after it began`],
    ["row", row.label],
  ];
  const more = { stream: operationFacts, call: callFacts, idle: idleFacts }[row.kind];
  return [...facts, ...(more ? more(event) : [])];
}

function operationFacts(event) {
  const i = event - events.firstOperation;
  const call = callOf(events, event);
  const [blocks, threads, registers, shared, bytes] = events.geometries[events.geometry[i]];
  const name = (column) => (column[i] ? events.names[column[i] - 1].label : "–");
  const count = (value) => (value < 0 ? "–" : value.toLocaleString("en"));
  const launch = [["family", events.shades[events.shade[event]]], ["phase", name(events.phase)], ["operator", name(events.operator)]];
  if (call >= 0) {
    const late = events.start[event] - events.end[call];
    launch.push(["launched by", `${nameOf(call)}, ${durationText(events.end[call] - events.start[call])}`]);
    launch.push(["between call and begin", late >= 0 ? durationText(late) : "began before the call returned"]);
  } else launch.push(["launched by", "–"]);
  if (bytes >= 0) return [...launch, ["bytes", count(bytes)]];
  return [...launch, ["grid, blocks", count(blocks)], ["block, threads", count(threads)],
    ["registers a thread", count(registers)], ["shared memory a block", shared < 0 ? "–" : `${count(shared)} B`]];
}

function callFacts(event) {
  const ran = operationsOf(events, event);
  const host = events.rows.find((row) => row.kind === "host");
  const phase = host ? eventAt(events, host, events.start[event]) : -1;
  return [["phase", phase >= 0 ? nameOf(phase) : "–"],
    ["launched", ran.length ? nameOf(ran[0]) + (ran.length > 1 ? ` and ${ran.length - 1} more` : "") : "nothing"]];
}

function idleFacts(event) { // what ended before it, and began behind it
  const streams = events.rows.filter((row) => row.kind === "stream");
  const near = (time) => streams.map((row) => eventAt(events, row, time, 2)).find((i) => i >= 0) ?? -1;
  const said = (i) => (i >= 0 ? nameOf(i) : "–");
  return [["before", said(near(events.start[event] - 1))], ["after", said(near(events.end[event] + 1))]];
}

function measure(from, to) {
  view.selection = [Math.min(from, to), Math.max(from, to)];
  const { known, idle, busy, causes, families } = measured(events, ...view.selection);
  const share = (ns) => (known ? `${durationText(ns)}, ${((100 * ns) / known).toFixed(1)} %` : "–");
  const sums = (map) => [...map].sort(([, a], [, b]) => b.ns - a.ns);
  say(`Selection of ${durationText(view.selection[1] - view.selection[0])}`, [
    ["GPU busy", share(busy)], ["GPU idle", share(idle)],
    ...sums(causes).map(([shade, { count, ns }]) => [events.causes[events.shades[shade]], `${share(ns)}, ${count.toLocaleString("en")} gaps`]),
    ...sums(families).map(([shade, { count, ns }]) => [events.shades[shade], `${share(ns)}, ${count.toLocaleString("en")} times`]),
  ]);
  redraw();
}

// -- search

const SPECIAL = /[.*+?^${}()|[\]\\]/g;

function pattern(words) { // a regular expression where it is one: gemm|norm, else the text itself
  try { return new RegExp(words, "i"); } catch { return new RegExp(words.replace(SPECIAL, "\\$&"), "i"); }
}

function look() {
  const words = search.value.trim();
  const wanted = words && pattern(words);
  const shades = events.shades.map((shade) => Boolean(words) && shade === words.toLowerCase());
  view.wanted = words ? Uint8Array.from(events.names, ({ label, whole }) => wanted.test(label) || wanted.test(whole)) : null;
  if (words && shades.some(Boolean)) { // a family or a cause by its name, as the legend has it
    for (let i = 0; i < events.name.length; i++) if (shades[events.shade[i]]) view.wanted[events.name[i]] = 1;
  }
  found.events = words ? eventsCalled(events, view.wanted) : [];
  found.at = -1;
  const sum = found.events.reduce((ns, i) => ns + events.end[i] - events.start[i], 0);
  box.querySelector(".found").textContent = words ? `${found.events.length.toLocaleString("en")} found, ${durationText(sum)}` : "";
  redraw();
}

function nextFound(direction) {
  const count = found.events.length;
  if (!count) return;
  if (found.at < 0) { // the first in view or behind it
    const behind = found.events.findIndex((i) => events.start[i] >= view.from);
    found.at = behind < 0 ? 0 : behind;
    if (direction < 0) found.at = (found.at - 1 + count) % count;
  } else found.at = (found.at + direction + count) % count;
  const event = found.events[found.at];
  show(event);
  choose(event);
  box.querySelector(".found").textContent = `${(found.at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`;
}

// -- keys and buttons

function besides(direction) { // the slice before or behind the chosen one, in its row
  const rows = events.rows;
  const row = view.chosen >= 0 ? rows[rowOf(events, view.chosen)] : rows[rows.length - 1];
  if (!row) return;
  const inView = firstAbove(events.start, row.first, row.behind, view.from);
  const event = view.chosen >= 0 ? view.chosen + direction : Math.min(inView, row.behind - 1);
  if (event < row.first || event >= row.behind) return;
  show(event);
  choose(event);
}

function measureChosen() {
  if (view.chosen >= 0) measure(events.start[view.chosen], events.end[view.chosen]);
  else measure(view.from, view.to);
}

function leave() {
  Object.assign(view, { chosen: -1, hovered: -1, selection: null });
  search.value = "";
  box.querySelector(".help").hidden = true;
  details.replaceChildren();
  look();
}

function toggleHelp() {
  const help = box.querySelector(".help");
  help.hidden = !help.hidden;
  box.querySelector("[data-do=help]").ariaExpanded = String(!help.hidden);
}

const currentStep = () => stepAt(events, (view.from + view.to) / 2);
const zoomIn = () => zoom(1.4);
const zoomOut = () => zoom(1 / 1.4);
const ACTIONS = {
  median: () => goToStep(events.median), slowest: () => goToStep(events.slowest),
  previous: () => goToStep(currentStep() - 1), next: () => goToStep(currentStep() + 1),
  fit: wholeWindow, in: zoomIn, out: zoomOut, measure: measureChosen, help: toggleHelp,
};
const KEYS = {
  w: zoomIn, "+": zoomIn, "=": zoomIn, ArrowUp: zoomIn, s: zoomOut, "-": zoomOut, ArrowDown: zoomOut,
  a: () => pan(-0.15), ArrowLeft: () => pan(-0.15), d: () => pan(0.15), ArrowRight: () => pan(0.15),
  "[": ACTIONS.previous, "]": ACTIONS.next, f: wholeWindow, 0: ACTIONS.median, m: measureChosen,
  "/": () => search.focus(), n: () => nextFound(1), N: () => nextFound(-1),
  ".": () => besides(1), ",": () => besides(-1), "?": toggleHelp, Escape: leave,
};

function onKey(key) {
  const typing = key.target.matches("input");
  if (typing && key.key === "Escape") { leave(); canvas.focus(); }
  if (typing && key.key === "Enter" && key.target === search) { nextFound(key.shiftKey ? -1 : 1); canvas.focus(); }
  if (typing || key.ctrlKey || key.metaKey || key.altKey || !Object.hasOwn(KEYS, key.key)) return;
  KEYS[key.key]();
  key.preventDefault();
}

// -- mouse and fingers

const pointers = new Map(); // id -> where it is
let gesture = null; // {start, from, moved}: since the first pointer went down

const placeIn = (event) => {
  const at = canvas.getBoundingClientRect();
  return { x: event.clientX - at.left, y: event.clientY - at.top };
};
const timeAt = (x) => view.from + (x - placeOf(view).left) / placeOf(view).scale;

function eventUnder({ x, y }) { // -1: none; "step": one of the row of steps
  const number = Math.floor((y - AXIS) / ROW) - 1;
  if (number < -1 || number >= events.rows.length || x < placeOf(view).left) return -1;
  return number < 0 ? "step" : eventAt(events, events.rows[number], timeAt(x), 3 / placeOf(view).scale);
}

function onDown(event) {
  if (event.button) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, placeIn(event));
  gesture = { start: placeIn(event), measures: event.shiftKey, moved: pointers.size > 1 };
}

function onMove(event) {
  const [before, now] = [pointers.get(event.pointerId), placeIn(event)];
  if (!before) return hover(now);
  pointers.set(event.pointerId, now);
  gesture.moved ||= Math.abs(now.x - gesture.start.x) > 4;
  if (!gesture.moved) return;
  if (pointers.size === 2) return pinch(event.pointerId, before, now);
  if (gesture.measures) return measure(timeAt(gesture.start.x), timeAt(now.x));
  const by = (before.x - now.x) / placeOf(view).scale;
  setView(view.from + by, view.to + by);
}

function pinch(id, before, now) {
  const [, other] = [...pointers].find(([each]) => each !== id);
  const [apart, away] = [before, now].map(({ x }) => Math.max(8, Math.abs(x - other.x)));
  zoom(away / apart, timeAt((now.x + other.x) / 2));
}

function onUp(event) {
  const at = pointers.get(event.pointerId);
  pointers.delete(event.pointerId);
  if (!at || gesture.moved || event.type === "pointercancel") return;
  const under = eventUnder(at);
  if (under === "step") goToStep(stepAt(events, timeAt(at.x)));
  else if (under >= 0) choose(under);
  else { Object.assign(view, { chosen: -1, selection: null }); details.replaceChildren(); redraw(); }
}

function hover(at) {
  const under = eventUnder(at);
  const event = under === "step" ? -1 : under;
  tip.hidden = event < 0;
  if (event >= 0) {
    tip.textContent = `${nameOf(event)} · ${durationText(events.end[event] - events.start[event])}`;
    const left = Math.min(at.x + 12, view.width - tip.offsetWidth - 4);
    Object.assign(tip.style, { left: `${Math.max(0, left)}px`, top: `${canvas.offsetTop + at.y + 16}px` });
  }
  if (event !== view.hovered) { view.hovered = event; redraw(); }
}

function onWheel(wheel) {
  const whole = view.to - view.from >= (1 + 2 * MARGIN) * events.last * 0.999;
  const across = wheel.shiftKey || Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY);
  if (!across && whole && wheel.deltaY > 0) return; // nothing left to zoom out of: the page scrolls
  wheel.preventDefault();
  if (across) pan((wheel.deltaX || wheel.deltaY) / view.width);
  else zoom(Math.exp(-Math.min(Math.max(wheel.deltaY, -300), 300) / 400), timeAt(placeIn(wheel).x));
}

// -- colours, paper, legend

function repaint() {
  if (!printing) view.palette = readPalette(context, events.shades);
  redraw();
}

function beforePrint() { // in light colours, whatever the page has
  const root = document.documentElement.dataset;
  const theme = root.theme;
  root.theme = "light";
  view.palette = readPalette(context, events.shades);
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

function drawLegend() { // of the families and causes that occur: a click searches for them
  const present = new Set();
  const coloured = events.rows.filter((row) => row.kind === "idle" || row.kind === "stream");
  for (const row of coloured) for (let i = row.first; i < row.behind; i++) present.add(`${row.kind} ${events.shade[i]}`);
  box.querySelector(".legend").replaceChildren(...[...present].map((each) => {
    const [kind, shade] = [each.split(" ")[0], events.shades[each.split(" ")[1]]];
    const button = Object.assign(document.createElement("button"), { type: "button", title: "search for it" });
    const swatch = button.appendChild(document.createElement("span"));
    swatch.className = "swatch";
    swatch.style.background = `var(--${shade}, var(--other))`;
    button.append(kind === "idle" && shade !== "idle" ? `idle: ${shade}` : shade);
    button.addEventListener("click", () => { search.value = search.value === shade ? "" : shade; look(); });
    return button;
  }));
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
addEventListener("hashchange", () => { if (!followAddress()) saveView(); }); // a link to a section keeps it
addEventListener("beforeprint", beforePrint);
addEventListener("afterprint", afterPrint);
new ResizeObserver(() => { if (canvas.clientWidth !== view.width && !printing) redraw(); }).observe(canvas);
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
drawLegend();
canvas.style.height = `${heightOf(events)}px`;
if (!followAddress()) ACTIONS.median();
clearTimeout(saving); // the address changes with the reader's view alone
Object.assign(window, { timeline: {
  events, view, setView, drawNow, choose, measure, callOf, rowOf, topOf, placeOf, // for tests and benchmarks
} });
