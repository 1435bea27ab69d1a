// Draws charts with plotly: first those in view, then the others while the browser is idle, so that a page can be
// printed at once. On paper they have the light theme and are as wide as a sheet.
"use strict";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const NARROW = 560; // px: the legend goes below
const LONGEST = 20; // characters of a bar's name in a narrow chart
const AXIS_BELOW = 52; // px for ticks and title of the x axis
const PAPER = 640; // px: fits between the margins of A4 and Letter, inside of a section
const LATEST = 1000; // ms: a busy browser draws then, too
const PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=";

const nonce = document.currentScript.nonce; // the page's policy knows its own scripts by it
const figures = {}; // by the name of the chart, once they are unpacked
const figuresReady = unpackFigures();
let plotlyReady = document.getElementById("figures") ? loadPlotly() : null; // a promise
let turn = Promise.resolve(); // resolves when all charts requested so far are drawn
const waiting = new Map(); // chart that waits for its turn -> promise that it is drawn
let onPaper = false;

async function unpackFigures() {
  await nextFrame(); // the text is painted first
  if (document.getElementById("figures")) Object.assign(figures, JSON.parse(await unpackedText("figures")));
}

async function unpackPlotly() {
  await figuresReady;
  const script = document.createElement("script");
  script.nonce = nonce;
  script.textContent = await unpackedText("plotly");
  document.head.append(script);
}

// The page counts as loading until plotly is unpacked or cannot be: whoever prints a page as soon as it is loaded, like
// `chromium --print-to-pdf`, gets its charts. Only a pending request has that effect, and a data: URL needs no network.
// In a frame it does not: one that is out of view is not painted, and what it waits for would never come.
function loadPlotly() {
  let pending = window === top;
  const keepLoading = () => {
    if (!pending) return;
    const picture = new Image();
    picture.onload = picture.onerror = keepLoading;
    picture.src = PIXEL;
  };
  keepLoading();
  return unpackPlotly().finally(() => { pending = false; });
}

function idle() {
  return new Promise((done) => {
    if (window.requestIdleCallback) requestIdleCallback(done, { timeout: LATEST });
    else setTimeout(done);
  });
}

// Draws one chart a frame, so that the first shows before the second is drawn. A chart that is requested
// again while it waits is drawn once, with its latest figure. Printing cannot wait.
function draw(chart, figureOf) {
  if (onPaper && window.Plotly) return drawByPlotly(chart, figureOf());
  plotlyReady ??= loadPlotly(); // a live page's first chart
  if (!waiting.has(chart)) {
    const drawn = drawAfter(turn, chart, figureOf);
    waiting.set(chart, drawn);
    turn = drawn.catch(() => {}).then(nextFrame); // whoever requested the chart gets its error
  }
  return waiting.get(chart);
}

async function drawAfter(before, chart, figureOf) {
  await before;
  try { await plotlyReady; } catch (error) { chart.textContent = error.message; throw error; }
  waiting.delete(chart);
  if (chart.isConnected) await drawByPlotly(chart, figureOf());
}

// Resolves when the browser has painted; at once in a hidden page, which is not painted.
function nextFrame() {
  return new Promise((done) => { if (document.hidden) setTimeout(done); else requestAnimationFrame(() => setTimeout(done)); });
}

async function drawByPlotly(chart, figure) {
  const narrow = !onPaper && chart.clientWidth < NARROW;
  const [data, layout] = narrow ? withShortNames(...themed(figure)) : themed(figure);
  const below = narrow && layout.showlegend !== false;
  const height = layout.height ?? usualHeight(chart);
  if (onPaper) chart.style.height = `${height}px`;
  if (below) layout.legend = { ...layout.legend, orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom" };
  if (onPaper) Object.assign(layout, { width: PAPER, height, autosize: false });
  const firstLegend = onPaper && layout.showlegend && chart.querySelector(".main-svg") && !chart.querySelector(".legend");
  const drawing = Plotly.react(chart, data, layout, {
    responsive: true, displayModeBar: false, plotlyServerURL: "",
  });
  await (firstLegend ? Plotly.redraw(chart) : drawing); // it was placed by the margins of a chart without one
  if (below) await makeRoomForLegend(chart);
  else if (!onPaper) await fitScreen(chart, height);
}

// Gives a chart that was on paper the size of its place on the screen, now that it has no legend of its own any more.
async function fitScreen(chart, height) {
  chart.style.height = `${height}px`;
  const drawn = chart.querySelector(".main-svg").getBoundingClientRect();
  const fits = Math.abs(drawn.width - chart.clientWidth) < 1 && Math.abs(drawn.height - height) < 1;
  if (chart.clientWidth && !fits) await Plotly.Plots.resize(chart);
}

// Returns the height that the page gave the chart, in px, without a legend below it.
function usualHeight(chart) {
  chart.dataset.height ??= parseFloat(chart.style.height);
  return +chart.dataset.height;
}

// A narrow chart has no room for long names of bars, whose ends tell them apart, nor for names of points that its
// legend has, too.
function withShortNames(data, layout) {
  const short = (name) => (name.length > LONGEST ? `…${name.slice(1 - LONGEST)}` : name);
  const names = data.flatMap(({ orientation, y }) => (orientation === "h" ? y : [])).filter((name) => typeof name === "string");
  const yaxis = names.length ? { ...layout.yaxis, tickvals: names, ticktext: names.map(short) } : layout.yaxis;
  const bare = (trace) => (trace.mode === "markers+text" ? { ...trace, mode: "markers" } : trace);
  return [layout.showlegend === false ? data : data.map(bare), { ...layout, yaxis }];
}

// Grows the chart by the height of its legend.
async function makeRoomForLegend(chart) {
  const room = chart.querySelector(".legend")?.getBoundingClientRect().height ?? 0;
  if (!room) return;
  const height = usualHeight(chart) + room;
  chart.style.height = `${height}px`;
  await Plotly.relayout(chart, { height, "margin.b": room + AXIS_BELOW });
}

const awaitsView = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    awaitsView.unobserve(target);
    drawChart(target);
  }
}, { rootMargin: "300px" });

async function drawChart(chart) {
  chart.dataset.drawn = "1";
  await draw(chart, () => figures[chart.dataset.chart]);
  chart.dispatchEvent(new Event("drawn"));
}

function redrawCharts() {
  document.querySelectorAll("[data-chart][data-drawn]").forEach(drawChart);
}

function prepareCharts() {
  const charts = document.querySelectorAll("[data-chart]");
  charts.forEach((chart) => awaitsView.observe(chart));
  drawWhenIdle(charts, drawChart);
}

async function drawWhenIdle(charts, drawOne) {
  for (const chart of charts) {
    await idle();
    if (!chart.dataset.drawn) await drawOne(chart);
  }
}

// Printing does not wait, so plotly has to be loaded before.
addEventListener("beforeprint", () => {
  onPaper = true;
  document.documentElement.dataset.theme = "light";
  document.querySelectorAll("[data-chart]").forEach(drawChart);
});
addEventListener("afterprint", () => {
  onPaper = false;
  applyTheme();
  redrawCharts();
});
