// Handles keys, buttons, mouse and touch in a timeline.

function besides(direction) { // the slice before or after the chosen one, in its row
  const rows = events.rows;
  const row = view.chosen >= 0 ? rows[rowOf(events, view.chosen)] : rows[rowsInOrder().at(-1)];
  if (!row) return;
  const inView = firstAbove(events.start, row.first, row.behind, view.from);
  const event = view.chosen >= 0 ? view.chosen + direction : Math.min(inView, row.behind - 1);
  if (event < row.first || event >= row.behind) return;
  show(event);
  choose(event);
}

const rowsInOrder = () => events.lines.flatMap(({ rows }) => rows); // those that are not folded away

function otherRow(direction) { // the slice at the same time in the next row that has any
  const [{ rows, start }, order] = [events, rowsInOrder()];
  const time = view.chosen >= 0 ? start[view.chosen] : (view.from + view.to) / 2;
  const number = (view.chosen >= 0 ? order.indexOf(rowOf(events, view.chosen)) : order.length) + direction;
  if (!rows[order[number]]) return;
  const event = eventAt(events, rows[order[number]], time, Infinity);
  show(event);
  choose(event);
}

const foldable = () => events.groups.filter(({ label, rows, curves }) => label !== null && (label || rows.length + curves.length > 1));

function fold(groups, folded) {
  for (const group of groups) group.folded = folded;
  layOut(events);
  canvas.style.height = `${heightOf(events)}px`;
  saveSoon();
  redraw();
}

function foldChosen() {
  const group = view.chosen >= 0 ? events.groups[events.rows[rowOf(events, view.chosen)].group] : foldable()[0];
  if (!foldable().includes(group)) return;
  fold([group], !group.folded);
  say(`${group.label || events.rows[group.rows[0]].label}: ${group.folded ? "folded" : "unfolded"}`, []);
}

const foldAll = () => fold(foldable(), foldable().some(({ folded }) => !folded));

function measureChosen() {
  if (view.chosen >= 0) measure(events.start[view.chosen], events.end[view.chosen]);
  else measure(view.from, view.to);
}

function leave() {
  Object.assign(view, { chosen: -1, hovered: -1, selection: null });
  setEngaged(false);
  offerWays(-1);
  search.value = "";
  showHelp(false);
  details.replaceChildren();
  look();
}

function showHelp(shown) {
  box.querySelector(".help").hidden = !shown;
  box.querySelector("[data-do=help]").ariaExpanded = String(shown);
}

const toggleHelp = () => showHelp(box.querySelector(".help").hidden);

const currentStep = () => stepAt(events, (view.from + view.to) / 2);
const zoomIn = () => zoom(1.4);
const zoomOut = () => zoom(1 / 1.4);
const ACTIONS = {
  median: () => goToStep(events.median), slowest: () => goToStep(events.slowest),
  previous: () => goToStep(currentStep() - 1), next: () => goToStep(currentStep() + 1),
  fit: wholeWindow, in: zoomIn, out: zoomOut, measure: measureChosen, help: toggleHelp, fold: foldAll,
};
const KEYS = {
  w: zoomIn, "+": zoomIn, "=": zoomIn, ArrowUp: zoomIn, s: zoomOut, "-": zoomOut, ArrowDown: zoomOut,
  a: () => pan(-0.15), ArrowLeft: () => pan(-0.15), d: () => pan(0.15), ArrowRight: () => pan(0.15),
  "[": ACTIONS.previous, "]": ACTIONS.next, f: wholeWindow, 0: ACTIONS.median, m: measureChosen,
  c: foldChosen, C: foldAll, "/": () => search.focus(), n: () => nextFound(1), N: () => nextFound(-1),
  ".": () => besides(1), ",": () => besides(-1), PageDown: () => otherRow(1), PageUp: () => otherRow(-1), "?": toggleHelp, Escape: leave,
};

function onKey(key) {
  const typing = key.target.matches("input");
  if (typing && key.key === "Escape") { leave(); canvas.focus(); }
  if (typing && key.key === "Enter" && key.target === search) { nextFound(key.shiftKey ? -1 : 1); canvas.focus(); }
  if (typing || key.ctrlKey || key.metaKey || key.altKey || !Object.hasOwn(KEYS, key.key)) return;
  KEYS[key.key]();
  key.preventDefault();
}

// -- mouse and touch

const pointers = new Map(); // id -> position
let gesture = null; // {start, from, moved}: since the first pointer went down

const placeIn = (event) => {
  const at = canvas.getBoundingClientRect();
  return { x: event.clientX - at.left, y: event.clientY - at.top };
};
const timeAt = (x) => view.from + (x - placeOf(view).left) / placeOf(view).scale;

const lineUnder = ({ y }) => Math.floor((y - AXIS) / ROW) - 1; // -1 for the steps

function eventUnder(at) { // -1 without one
  const line = events.lines[lineUnder(at)];
  if (!line || at.x < placeOf(view).left) return -1;
  const near = line.rows.map((row) => eventAt(events, events.rows[row], timeAt(at.x), 3 / placeOf(view).scale));
  return near.find((event) => event >= 0) ?? -1;
}

const headUnder = (at) => (at.x < placeOf(view).left && events.lines[lineUnder(at)]?.head ? events.lines[lineUnder(at)].group : null);

function onDown(event) {
  if (event.button) return;
  setEngaged(true);
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
  const [under, head, curve] = [eventUnder(at), headUnder(at), events.lines[lineUnder(at)]?.curve];
  if (head && foldable().includes(head)) fold([head], !head.folded);
  else if (lineUnder(at) === -1 && at.x >= placeOf(view).left) goToStep(stepAt(events, timeAt(at.x)));
  else if (under >= 0) choose(under);
  else {
    view.selection = null;
    choose(-1);
    if (curve) say(curveText(curve, at.x), [["at", `${(timeAt(at.x) / 1e6).toFixed(6)} ms`],
      ["mean of the view", `${numberText(meanOf(events, curve, view.from, view.to))} ${curve.unit}`]]);
    else details.replaceChildren();
  }
}

function hover(at) {
  const [event, line] = [eventUnder(at), events.lines[lineUnder(at)]];
  const curve = at.x >= 0 ? line?.curve : null;
  tip.hidden = event < 0 && !curve;
  canvas.style.cursor = headUnder(at) ? "pointer" : "";
  if (!tip.hidden) {
    tip.textContent = curve ? curveText(curve, at.x) : `${nameOf(event)} · ${durationText(events.end[event] - events.start[event])}`;
    const left = Math.min(at.x + 12, view.width - tip.offsetWidth - 4);
    Object.assign(tip.style, { left: `${Math.max(0, left)}px`, top: `${canvas.offsetTop + at.y + 16}px` });
  }
  if (event !== view.hovered) { view.hovered = event; redraw(); }
}

// Once the reader has clicked into the timeline the wheel zooms, until Escape or a click elsewhere.
function setEngaged(engaged) {
  view.engaged = engaged;
  canvas.classList.toggle("engaged", engaged);
  if (engaged) hint.hidden = true;
}

let hiding = 0;
function showHint() {
  hint.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { hint.hidden = true; }, 1500);
}

function onWheel(wheel) {
  const whole = view.to - view.from >= (1 + 2 * MARGIN) * events.last * 0.999;
  const across = wheel.shiftKey || Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY);
  const asked = wheel.ctrlKey || wheel.metaKey;
  if (!across && !asked && !view.engaged) return showHint(); // and the page scrolls
  if (!across && !asked && whole && wheel.deltaY > 0) return; // nothing left to zoom out of: the page scrolls
  wheel.preventDefault();
  if (across) pan((wheel.deltaX || wheel.deltaY) / view.width);
  else zoom(Math.exp(-Math.min(Math.max(wheel.deltaY, -300), 300) / 400), timeAt(placeIn(wheel).x));
}
