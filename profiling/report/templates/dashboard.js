// Charts that are drawn when they come into view, on an x axis that the reader chooses; charts.js draws
// them. It runs after this, so all else waits for the whole page.
"use strict";

for (const chart of document.querySelectorAll("[data-chart]")) {
  chart.dataset.lazy = chart.dataset.chart; // charts.js would draw it with another figure
  delete chart.dataset.chart;
}

const hiddenGroups = {}; // section -> Set of the legend groups that were switched off
let axisChoice = "iteration";

function lazyFigure(name) {
  const { data, layout } = figures[name];
  const hidden = hiddenGroups[name.split("-")[0]] ?? new Set();
  const overTime = axisChoice === "time";
  const switched = data.map((trace) => ({
    ...trace,
    x: overTime && trace.meta ? trace.meta.elapsed_s : trace.x,
    visible: !hidden.has(trace.legendgroup),
  }));
  if (!overTime || !data.some((trace) => trace.meta)) return { data: switched, layout };
  const timeTitle = document.querySelector("[data-axis=time]").dataset.title;
  const xaxis = { ...layout.xaxis, title: { text: timeTitle } };
  return { data: switched, layout: { ...layout, xaxis, uirevision: "time" } };
}

function drawLazily(chart) {
  chart.dataset.drawn = "1";
  draw(chart, lazyFigure(chart.dataset.lazy));
}

function redrawDrawn() {
  document.querySelectorAll("[data-drawn]").forEach(drawLazily);
}

function chooseAxis(choice) {
  axisChoice = choice;
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.ariaPressed = String(button.dataset.axis === choice);
  }
  redrawDrawn();
}

function toggleGroup(button) {
  const section = button.closest("[data-section]").dataset.section;
  const hidden = (hiddenGroups[section] ??= new Set());
  if (!hidden.delete(button.dataset.group)) hidden.add(button.dataset.group);
  button.ariaPressed = String(!hidden.has(button.dataset.group));
  redrawDrawn();
}

// A page that is served reloads itself when its runs have gone on; scrolling and theme stay.
function followNewer(version) {
  setInterval(async () => {
    try {
      const answer = await fetch("version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== version) location.reload();
    } catch { /* the server has ended; the page stays readable */ }
  }, 2000);
}

document.addEventListener("DOMContentLoaded", () => {
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      drawLazily(target);
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll("[data-lazy]").forEach((chart) => seen.observe(chart));
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.addEventListener("click", () => chooseAxis(button.dataset.axis));
  }
  for (const button of document.querySelectorAll("[data-group]")) {
    button.addEventListener("click", () => toggleGroup(button));
  }
  darkSystem.addEventListener("change", redrawDrawn);
  document.getElementById("theme").addEventListener("click", redrawDrawn);
  addEventListener("beforeprint", () => document.querySelectorAll("[data-lazy]").forEach(drawLazily));
  addEventListener("afterprint", redrawDrawn);
});
