// Charts that follow the theme, tables that sort and filter, and the list of sections.
"use strict";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const REMOVED = ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"]; // the first uploads

// A name without a colour of its own is drawn all the same.
function withColours(value, style) {
  if (typeof value === "string" && value.startsWith("var(--")) {
    return (style.getPropertyValue(value.slice(4, -1)) || style.getPropertyValue("--other")).trim();
  }
  if (Array.isArray(value)) return value.map((item) => withColours(item, style));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, withColours(v, style)]));
}

function themed(figure) {
  const style = getComputedStyle(document.documentElement);
  const { data, layout } = withColours(figure, style);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = {
    title: { font: { size: 13 }, standoff: 8 }, automargin: true,
    gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"),
  };
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 13, color: colour("--text") },
    hoverlabel: {
      bgcolor: colour("--card"), bordercolor: colour("--line"), align: "left",
      font: { color: colour("--text"), family: FONT },
    },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: colour("--accent") },
    uirevision: "kept", // the zoom survives a change of theme
    ...layout,
  };
  for (const name of ["xaxis", "yaxis"]) {
    whole[name] = { ...axis, ...layout[name], title: { ...axis.title, ...layout[name].title } };
  }
  return [data, whole];
}

const figures = JSON.parse(document.getElementById("figures")?.textContent ?? "{}");

function draw(chart, figure) {
  const zoom = "zoom" in chart.dataset;
  Plotly.react(chart, ...themed(figure), {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: REMOVED, plotlyServerURL: "",
    displayModeBar: zoom, scrollZoom: zoom,
  });
}

function drawCharts() {
  document.querySelectorAll("[data-chart]").forEach((chart) => draw(chart, figures[chart.dataset.chart]));
}

function cellValue(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim().toLowerCase() : +cell.dataset.value;
}

function sortTable(table, column, direction) {
  const body = table.tBodies[0];
  const order = (a, b) => {
    const [x, y] = [cellValue(a, column), cellValue(b, column)];
    return (x > y ? 1 : x < y ? -1 : 0) * direction;
  };
  body.append(...[...body.rows].sort(order));
  for (const [index, head] of [...table.tHead.rows[0].cells].entries()) {
    head.ariaSort = index !== column ? null : direction > 0 ? "ascending" : "descending";
  }
}

// The rows that hold every word of the filter; the first of them until "all" is pressed.
function showRows(box) {
  const table = box.querySelector("table");
  const words = box.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  const limit = box.dataset.all ? Infinity : +box.dataset.limit;
  let matching = 0;
  for (const row of table.tBodies[0].rows) {
    const text = [...row.cells].map((cell) => `${cell.textContent} ${cell.title}`).join(" ").toLowerCase();
    const matches = words.every((word) => text.includes(word));
    row.hidden = !matches || matching >= limit;
    matching += matches;
  }
  const total = table.tBodies[0].rows.length;
  const shown = Math.min(matching, limit);
  box.querySelector(".shown").textContent = `${shown} of ${total} shown`;
  box.querySelector(".all").hidden = matching <= +box.dataset.limit;
  box.querySelector(".all").textContent = box.dataset.all ? "fewer" : `all ${matching}`;
}

function prepareTable(box) {
  const table = box.querySelector("table");
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    head.querySelector("button").addEventListener("click", () => {
      const first = "number" in head.dataset ? -1 : 1; // the largest first is what one looks for
      const before = { ascending: 1, descending: -1 }[head.ariaSort];
      sortTable(table, column, before ? -before : first);
      showRows(box);
    });
  }
  box.querySelector("input").addEventListener("input", () => showRows(box));
  box.querySelector(".all").addEventListener("click", () => {
    box.dataset.all = box.dataset.all ? "" : "1";
    showRows(box);
  });
  showRows(box);
}

function listSections() {
  const list = document.querySelector("nav");
  for (const section of document.querySelectorAll("main > section[id]")) {
    const link = document.createElement("a");
    link.href = `#${section.id}`;
    link.textContent = section.dataset.short ?? section.querySelector("h2").textContent;
    list.append(link);
  }
}

listSections();
document.querySelectorAll(".sortable").forEach(prepareTable);
drawCharts();
darkSystem.addEventListener("change", () => { applyTheme(); drawCharts(); });
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* chosen for this visit only */ }
  drawCharts();
});
