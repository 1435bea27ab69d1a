// What a reader takes along: the answer by the clipboard, all figures and single charts as files.
"use strict";

function saveBlob(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function saveText(name, kind, text) {
  saveBlob(name, new Blob([text], { type: kind }));
}

// Named like the page itself.
function pageName() {
  return decodeURIComponent(location.pathname.split("/").at(-1)).replace(/\.html?$/, "") || "report";
}

// Where the browser forbids its clipboard, the text is shown and selected, for the older way or a key.
async function copyAnswer(button) {
  const usual = button.textContent, text = JSON.parse(document.getElementById("answer").textContent)[button.dataset.copy];
  let copied = true;
  try { await navigator.clipboard.writeText(text); } catch {
    const field = document.querySelector("#export textarea");
    field.value = text;
    field.hidden = false;
    field.select();
    copied = document.execCommand("copy");
  }
  button.textContent = copied ? "copied" : "selected below";
  setTimeout(() => { button.textContent = usual; }, 1500);
}

async function saveJson() {
  saveText(`${pageName()}.json`, "application/json", await unpackedText("as-json"));
}

// Saves a chart as it is shown: its theme, its zoom, its runs.
async function savePicture(button) {
  const chart = button.closest(".pictures").previousElementSibling;
  if (!chart.data) await ("lazy" in chart.dataset ? drawLazily(chart) : drawChart(chart)); // clicked before plotly was there
  await turn;
  const { clientWidth: width, clientHeight } = chart;
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
  const { data, layout } = withLegend(chart, width, clientHeight), height = layout.height ?? clientHeight;
  const name = (chart.dataset.chart ?? chart.dataset.lazy).replaceAll("/", "-");
  const format = button.dataset.picture;
  const made = { format, width, height, scale: format === "png" ? 2 : 1, filename: `${pageName()}-${name}` };
  await Plotly.downloadImage({ data, layout: { ...layout, width, height, paper_bgcolor: colour } }, made);
}

document.addEventListener("click", ({ target }) => {
  const { copy, save, picture } = target.dataset;
  if (copy) copyAnswer(target);
  if (save) saveJson();
  if (picture) savePicture(target);
});
