// Draws the dashboard's charts as the reader chose: axes, smoothing, runs, zoom.
// The choices are kept in the address. charts.js, which does the drawing, runs after this script, so the
// rest waits until the whole page is loaded.
"use strict";

const state = {
  x: "iteration", log: false, end: false, runs: true, smooth: 0,
  by: "", where: "", // the key to group by, "" for configurations; the filter of runs
  columns: {}, scatter: {}, // section -> headings of the table of runs: those switched, those of x and y
  hidden: new Set(), // s0:LABEL of a group, or the name of a run
  zoom: {}, // "iteration" or "time" -> range, shared by all charts with that axis
  y: {}, // chart -> range
};
const inView = new Set();
let charts = []; // their elements in the page

function takeOver(root) {
  for (const chart of root.querySelectorAll("[data-chart]")) {
    chart.dataset.lazy = chart.dataset.chart; // charts.js would draw it with another figure
    delete chart.dataset.chart;
  }
}
takeOver(document);

// --- the address

const numbers = (text) => text.split(",").map(Number);

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  state.x = said.get("x") === "time" ? "time" : "iteration";
  for (const name of ["log", "end"]) state[name] = said.get(name) === "1";
  state.runs = said.get("runs") !== "0";
  state.smooth = Math.min(0.99, Math.max(0, Number(said.get("smooth")) || 0));
  state.hidden = new Set(said.getAll("hide"));
  state.by = said.get("by") ?? "";
  state.where = said.get("where") ?? "";
  for (const name of ["zoom", "y", "columns", "scatter"]) state[name] = {};
  for (const [key, value] of said) {
    const [list, section] = key.split(".");
    if (list === "columns" || list === "scatter") state[list][section] = value.split("|");
    const [kind, name] = [key.slice(0, 2), key.slice(2)];
    const range = numbers(value);
    if (range.length !== 2 || !range.every(Number.isFinite)) continue;
    if (kind === "z.") state.zoom[name] = range;
    if (kind === "y.") state.y[name] = range;
  }
}

function writeAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const key of [...said.keys()]) {
    if (/^(x|log|end|runs|smooth|hide|by|where|(z|y|columns|scatter)\..*)$/.test(key)) said.delete(key);
  }
  if (state.x === "time") said.set("x", "time");
  if (state.log) said.set("log", "1");
  if (state.end) said.set("end", "1");
  if (!state.runs) said.set("runs", "0");
  if (state.smooth) said.set("smooth", state.smooth);
  for (const name of state.hidden) said.append("hide", name);
  if (state.by) said.set("by", state.by);
  if (state.where.trim()) said.set("where", state.where.trim());
  for (const list of ["columns", "scatter"]) {
    for (const [section, headings] of Object.entries(state[list])) if (headings.length) said.set(`${list}.${section}`, headings.join("|"));
  }
  const short = (range) => range.map((value) => +value.toPrecision(6)).join(",");
  for (const [axis, range] of Object.entries(state.zoom)) said.set(`z.${axis}`, short(range));
  for (const [name, range] of Object.entries(state.y)) said.set(`y.${name}`, short(range));
  const text = said.toString().replace(/=(?=&|$)/g, ""); // a section's name has no value
  const address = text ? `#${text}` : location.pathname + location.search;
  try { history.replaceState(null, "", address); } catch { /* a frame may forbid it, and browsers many of them at once */ }
}

// A link to a section replaces the whole fragment, so the choices are appended to it again.
function keepAddress() {
  const section = location.hash.slice(1);
  if (section && document.getElementById(decodeURIComponent(section))) return writeAddress();
  readAddress();
  followRuns();
}

// --- what a chart shows

const sectionOf = (name) => name.split("-")[0];

function hiddenGroups(section) {
  const buttons = document.querySelectorAll(`[data-section="${section}"] [data-group]`);
  return new Set([...buttons].filter((b) => state.hidden.has(b.dataset.name)).map((b) => b.dataset.group));
}

const isShown = (section, run) => !state.hidden.has(run) && isFound(section, run);

// Returns the names of a configuration's runs, by its number in the legend.
function runNamesOf(section, number) {
  const label = toolbarOf(section).querySelector(`[data-group="${number}"]`)?.dataset.name.slice(section.length + 1);
  return runsOf(section).filter(({ values }) => String(values.configuration) === label).map(({ name }) => name);
}

function tracesOf(figure, section, hidden) {
  const { over_time, metric } = figure.layout.meta ?? {}, grouped = isGrouped(section);
  if (grouped && metric) return regrouped(figure, section);
  const isRun = (trace) => trace.meta?.kind === "run";
  return figure.data.map((trace) => {
    const names = runNamesOf(section, trace.legendgroup);
    const off = hidden.has(trace.legendgroup) || !names.some((run) => isShown(section, run));
    if (grouped) return { ...recoloured(trace, section, names), visible: !off };
    if (off || isRun(trace)) return { ...trace, visible: !off && state.runs && isShown(section, trace.meta.run) };
    const runs = figure.data.filter((other) => isRun(other) && other.legendgroup === trace.legendgroup);
    const shown = runs.filter((run) => isShown(section, run.meta.run));
    if (runs.length && !shown.length) return { ...trace, visible: false };
    const same = !runs.length || (shown.length === runs.length && !figure.grown); // the mean of a group of one run is that run
    return { ...(same ? trace : remade(trace, shown, over_time)), visible: true };
  });
}

// Returns the zoom that an axis shares, "iteration" or "time"; nothing for an axis of its own.
function axisOf(name) {
  const meta = figures[name].layout.meta;
  return meta?.metric && (meta.over_time || state.x === "time" ? "time" : "iteration");
}

function shownFigure(name) {
  const figure = figures[name];
  let { layout } = figure;
  const section = sectionOf(name), hidden = hiddenGroups(section), axis = axisOf(name);
  const height = usualHeight(document.querySelector(`[data-lazy="${name}"]`));
  const forPaper = (shown) => (onPaper ? withLegend(shown, PAPER, height) : shown);
  if (layout.meta?.points) return forPaper(scattered(name));
  let data = tracesOf(figure, section, hidden);
  ({ data, layout } = forPaper({ data, layout }));
  if (!axis) return { data, layout };
  const switched = axis === "time" && !layout.meta.over_time;
  data = data.map((trace) => ({
    ...trace,
    x: switched ? trace.meta.elapsed_s : trace.x,
    y: trace.meta.kind === "spread" ? trace.y : smoothed(trace.y, state.smooth),
  }));
  const title = switched ? { text: toolbarOf(section).querySelector("[data-axis=time]").dataset.title } : layout.xaxis.title;
  const zoom = state.zoom[axis];
  const y = state.y[name] ?? (state.end ? rangeOfEnd(data, zoom, state.log) : undefined);
  const fixed = (range, otherwise) => (range ? { range: [...range], autorange: false, uirevision: String(range) } : otherwise);
  const usual = state.log ? { range: undefined, autorange: true } : {};
  return { data, layout: {
    ...layout,
    xaxis: { ...layout.xaxis, title, ...fixed(zoom, { autorange: true, uirevision: axis }) },
    yaxis: { ...layout.yaxis, type: state.log ? "log" : "linear", ...usual, ...fixed(y, { uirevision: `free ${state.log}` }) },
  } };
}

async function drawLazily(chart) {
  chart.dataset.drawn = "1";
  delete chart.dataset.stale;
  await draw(chart, () => shownFigure(chart.dataset.lazy));
  if (!chart.on || chart.dataset.heard) return;
  chart.dataset.heard = "1";
  chart.on("plotly_relayout", (change) => zoomed(chart, change));
  chart.on("plotly_doubleclick", () => { chart.dataset.reset = "1"; });
  chart.on("plotly_hover", (event) => hoverAll(chart, event));
  chart.on("plotly_unhover", () => unhoverAll(chart));
}

// Draws the charts in view now, and the others when they come into view.
function redraw(changed = () => true) {
  for (const chart of charts) {
    if (!changed(chart.dataset.lazy)) continue;
    if (inView.has(chart)) drawLazily(chart);
    else chart.dataset.stale = "1";
  }
}

function zoomed(chart, change) {
  const name = chart.dataset.lazy, axis = axisOf(name);
  const range = (of) => (`${of}.range[0]` in change ? [change[`${of}.range[0]`], change[`${of}.range[1]`]] : change[`${of}.range`]);
  const whole = chart.dataset.reset || change["xaxis.autorange"] || change["yaxis.autorange"];
  if (!axis || !(whole || range("xaxis") || range("yaxis"))) return;
  delete chart.dataset.reset;
  const x = range("xaxis"), y = range("yaxis");
  if (whole) { delete state.zoom[axis]; delete state.y[name]; }
  else { if (x) state.zoom[axis] = x.map(Number); if (y) state.y[name] = y.map(Number); }
  chose();
}

// --- the controls

function chose() {
  writeAddress();
  showControls();
  redraw();
}

function showControls() {
  const pressed = {
    axis: (b) => b.dataset.axis === state.x,
    group: (b) => !state.hidden.has(b.dataset.name),
    run: (b) => !state.hidden.has(b.dataset.run),
    toggle: (b) => state[b.dataset.toggle],
  };
  for (const [kind, of] of Object.entries(pressed)) {
    for (const button of document.querySelectorAll(`.toolbar [data-${kind}]`)) button.ariaPressed = String(of(button));
  }
  for (const slider of document.querySelectorAll("[data-smooth]")) {
    slider.value = state.smooth;
    slider.nextElementSibling.textContent = state.smooth ? state.smooth.toFixed(2) : "off";
  }
  for (const select of document.querySelectorAll("[data-by]")) select.value = [...select.options].some(({ value }) => value === state.by) ? state.by : "";
  for (const field of document.querySelectorAll("[data-where]")) if (field !== document.activeElement) field.value = state.where;
  sectionNames().filter(runsBox).forEach(showLegend);
  charts.forEach(offerAxes);
  // a link to a section stops below what stays at the top
  const bar = document.querySelector(".toolbar");
  if (getComputedStyle(bar).position === "sticky") document.documentElement.style.scrollPaddingTop = `${parseFloat(getComputedStyle(bar).top) + bar.offsetHeight + 8}px`;
}

function toggleHidden(name) {
  if (!state.hidden.delete(name)) state.hidden.add(name);
  chose();
}

function reset() {
  Object.assign(state, { x: "iteration", log: false, end: false, runs: true, smooth: 0, by: "", where: "", hidden: new Set(), zoom: {}, y: {} });
  document.activeElement.blur();
  writeAddress();
  followRuns();
}

function pressedControl({ target }) {
  const button = target.closest(".toolbar button");
  if (!button) return;
  const { axis, name, run, toggle } = button.dataset;
  if (axis) { state.x = axis; chose(); }
  else if (name ?? run) toggleHidden(name ?? run);
  else if (toggle) { state[toggle] = !state[toggle]; if (toggle !== "runs") state.y = {}; chose(); }
  else if ("reset" in button.dataset) reset();
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) inView.add(target); else inView.delete(target);
    if (isIntersecting && (!target.dataset.drawn || target.dataset.stale)) drawLazily(target);
  }
}, { rootMargin: "300px" });

function followCharts() {
  seen.disconnect();
  inView.clear();
  charts = [...document.querySelectorAll("[data-lazy]")];
  charts.forEach((chart) => seen.observe(chart));
  prepareRuns();
  showControls();
}

// Shows the runs that are asked for, in tables and charts.
function followRuns() {
  prepareRuns();
  showControls();
  redraw();
}

document.addEventListener("DOMContentLoaded", () => {
  const said = [...new URLSearchParams(location.hash.slice(1))];
  readAddress();
  followCharts();
  figuresReady.then(() => charts.forEach(offerAxes), () => {});
  drawWhenIdle(charts, drawLazily);
  const section = said.map(([key]) => document.getElementById(key)).find(Boolean);
  if (section && said.length > 1) section.scrollIntoView();
  document.addEventListener("click", pressedControl);
  document.addEventListener("input", ({ target }) => {
    if ("where" in target.dataset) { state.where = target.value; writeAddress(); followRuns(); }
    if (!("smooth" in target.dataset)) return;
    state.smooth = Number(target.value);
    showControls();
    redraw();
  });
  document.addEventListener("change", ({ target }) => {
    if ("by" in target.dataset) state.by = target.value;
    if ("by" in target.dataset || "smooth" in target.dataset) chose();
  });
  addEventListener("hashchange", keepAddress);
  darkSystem.addEventListener("change", () => redraw());
  document.getElementById("theme").addEventListener("click", () => redraw());
  addEventListener("beforeprint", () => charts.forEach(drawLazily));
  addEventListener("afterprint", () => charts.forEach(drawLazily));
});
