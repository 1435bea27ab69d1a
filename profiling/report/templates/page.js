// The list of sections, copying, and all reactions to clicks. It comes last, except for a timeline.
"use strict";

function listSections() {
  const list = document.querySelector("nav");
  for (const section of document.querySelectorAll("main > section[id]")) {
    const link = document.createElement("a");
    link.href = `#${section.id}`;
    link.textContent = section.dataset.short ?? section.querySelector("h2").textContent;
    list.append(link);
  }
}

async function copy(button) {
  const code = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "copied";
  } catch { // a browser may forbid it; the reader can copy the selection with a key
    getSelection().selectAllChildren(code);
    button.textContent = "selected";
  }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

// A click on a bar of the families shows their kernels.
function leadToKernels(chart) {
  chart.addEventListener("drawn", () => {
    chart.removeAllListeners("plotly_click");
    chart.on("plotly_click", ({ points: [point] }) => {
      location.hash = `kernels&${new URLSearchParams({ "kernels.filter": `family:${point.y}` })}`;
    });
  });
}

listSections();
new ResizeObserver(([{ target }]) => { // what sticks below the list depends on how many rows it takes
  document.documentElement.style.setProperty("--list", `${target.offsetHeight}px`);
}).observe(document.querySelector("nav"));
document.querySelectorAll(".sortable").forEach(prepareTable);
document.addEventListener("toggle", ({ target }) => { if (target.matches("[data-numbers]")) showNumbers(target); }, true);
document.addEventListener("click", ({ target }) => { if (target.matches("button.copy")) copy(target); });
if (document.getElementById("table-kernels")) {
  document.querySelectorAll("[data-chart=families]").forEach(leadToKernels);
}
prepareCharts();
darkSystem.addEventListener("change", () => { applyTheme(); redrawCharts(); });
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* chosen for this visit only */ }
  redrawCharts();
});
