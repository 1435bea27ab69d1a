// Draws charts with plotly when they come into view; for printing in the light theme, as wide as a sheet.
"use strict";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const REMOVED = ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"]; // the first uploads
const NARROW = 560; // px: the legend goes below
const AXIS_BELOW = 52; // px for ticks and title of the x axis
const PAPER = 640; // px: fits between the margins of A4 and Letter, inside of a section

const nonce = document.currentScript.nonce; // the page's policy knows its own scripts by it
const figures = JSON.parse(document.getElementById("figures")?.textContent ?? "{}");
let plotlyReady = null; // a promise, once plotly is needed
let turn = Promise.resolve(); // resolves when all charts requested so far are drawn
const waiting = new Map(); // chart that waits for its turn -> promise that it is drawn
let onPaper = false;

async function unpackPlotly() {
  await new Promise((done) => { setTimeout(done); }); // the text is painted first
  const script = document.createElement("script");
  script.nonce = nonce;
  script.textContent = await unpackedText("plotly");
  document.head.append(script);
}

// Draws one chart a frame, so that the first shows before the second is drawn. A chart that is requested
// again while it waits is drawn once, with its latest figure. Printing cannot wait.
function draw(chart, figureOf) {
  if (onPaper && window.Plotly) return drawByPlotly(chart, figureOf());
  plotlyReady ??= unpackPlotly();
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
  const zoom = "zoom" in chart.dataset;
  const [data, layout] = themed(figure);
  const below = !onPaper && chart.clientWidth < NARROW && layout.showlegend !== false;
  chart.dataset.height ??= parseFloat(chart.style.height);
  if (below) layout.legend = { ...layout.legend, orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom" };
  if (onPaper) Object.assign(layout, { width: PAPER, autosize: false });
  const drawing = Plotly.react(chart, data, layout, {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: REMOVED, plotlyServerURL: "",
    displayModeBar: zoom && !onPaper, scrollZoom: zoom,
  });
  await drawing;
  if (below) await makeRoomForLegend(chart);
}

// Grows the chart by the height of its legend.
async function makeRoomForLegend(chart) {
  const room = chart.querySelector(".legend")?.getBoundingClientRect().height ?? 0;
  if (!room) return;
  const height = +chart.dataset.height + room;
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
  document.querySelectorAll("[data-chart]").forEach((chart) => awaitsView.observe(chart));
}

// Printing does not wait, so plotly has to be loaded before. It is, once any chart was drawn.
addEventListener("beforeprint", () => {
  onPaper = true;
  document.documentElement.dataset.theme = "light";
  document.querySelectorAll("[data-chart]").forEach(drawChart);
});
addEventListener("afterprint", () => {
  onPaper = false;
  applyTheme();
  for (const chart of document.querySelectorAll(".js-plotly-plot")) delete chart.layout.width;
  redrawCharts();
});
