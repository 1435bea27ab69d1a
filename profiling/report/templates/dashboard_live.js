// Lets a page that is served follow its runs without a reload. Rows arrive as events and are appended to
// the lines. When the server says that more has changed, words, tables and charts are taken from a new
// page without plotly. The reader's choices, scrolling and sorting stay.
"use strict";

const live = document.getElementById("live");
let source = null;
let mark = live.dataset.mark; // how far this page has read the runs' files
let paused = false;
let later = 0; // timer of the next attempt

// Writes only what is new, since a screen reader reads it aloud. It leaves out the time, which changes each second.
function tell(text, when = "") {
  const status = live.querySelector("[role=status]");
  if (status.textContent !== text) status.textContent = text;
  live.querySelector(".when").textContent = when;
}

// A hidden page closes its connection, because a browser has six for all pages of a server.
const following = () => !paused && !document.hidden;

function rest() {
  clearTimeout(later);
  source?.close();
}

function after(seconds, then) {
  clearTimeout(later);
  later = setTimeout(() => { if (following()) then(); }, 1000 * seconds);
}

function follow() {
  rest();
  if (!following()) return;
  source = new EventSource(`events?from=${encodeURIComponent(mark)}`);
  source.onopen = () => tell("live");
  source.onerror = () => {
    tell("the server does not answer; the page stays usable");
    if (source.readyState === EventSource.CLOSED) after(5, follow); // an answer, but no events
  };
  source.addEventListener("rows", (event) => {
    mark = event.lastEventId;
    const rows = JSON.parse(event.data);
    const grown = new Set(Object.keys(figures).filter((name) => appendRows(figures[name], rows)));
    redraw((name) => grown.has(name));
    tell("live", ` · ${new Date().toLocaleTimeString()}`);
  });
  source.addEventListener("trouble", (event) => tell(JSON.parse(event.data)));
  source.addEventListener("changed", takeOverNewer);
}

async function takeOverNewer() {
  rest();
  try {
    const answer = await fetch("bare", { cache: "no-store" });
    const text = await answer.text();
    const newer = new DOMParser().parseFromString(text, "text/html");
    if (!following()) return;
    if (!answer.ok) throw new Error(newer.body.textContent);
    source.close(); // one that was opened meanwhile starts from the old page
    adopt(newer);
    mark = newer.getElementById("live").dataset.mark;
    after(1, follow); // at most one update in a second
  } catch (error) {
    tell(String(error.message));
    after(5, takeOverNewer);
  }
}

// Returns the page's own tables, without those of a chart's numbers, which chart_numbers.js makes.
const tablesOf = (root) => [...root.querySelectorAll(".sortable")].filter((box) => !box.closest("[data-numbers]"));

// Returns a description of the page's parts, which changes with another run or chart.
function outline(root) {
  const parts = [...root.querySelectorAll("main > section[id], [data-group], [data-run], [data-lazy]")];
  const heads = tablesOf(root).flatMap((box) => [box.id, ...headsOf(box.querySelector("table")).map(headingOf)]);
  return [...parts.map(({ id, dataset: { name, run, lazy } }) => [id, name, run, lazy].join()), ...heads].join("\n");
}

function adopt(newer) {
  takeOver(newer);
  for (const name of Object.keys(figures)) delete figures[name];
  Object.assign(figures, JSON.parse(newer.getElementById("figures")?.textContent ?? "{}"));
  document.title = newer.title;
  const answer = document.getElementById("answer"); // a list of runs has none
  if (answer) answer.textContent = newer.getElementById("answer").textContent;
  document.querySelector(".heading").innerHTML = newer.querySelector(".heading").innerHTML;
  if (outline(newer) === outline(document)) adoptWords(newer);
  else adoptWhole(newer);
  followRuns();
}

function adoptWords(newer) {
  const verdict = (root) => root.querySelector(".verdict");
  if (verdict(newer)) verdict(document).innerHTML = verdict(newer).innerHTML;
  for (const box of tablesOf(document)) {
    box.querySelector("tbody").innerHTML = newer.getElementById(box.id).querySelector("tbody").innerHTML;
    for (const [column, head] of [...box.querySelectorAll("th")].entries()) {
      if (head.ariaSort) sortTable(box.querySelector("table"), column, head.ariaSort === "ascending" ? 1 : -1);
    }
    showRows(box);
  }
  const untouched = "[data-numbers][open]:not(:has(.sortable :focus))"; // the reader is not typing in it
  document.querySelectorAll(untouched).forEach(showNumbers);
}

// Open parts stay open. Plotly listens to the window for each chart until the chart is purged.
function adoptWhole(newer) {
  const main = document.querySelector("main");
  const parts = (root) => [...root.querySelector("main").childNodes]
    .filter((node) => !["SCRIPT", "STYLE"].includes(node.nodeName) && node.id !== "live");
  const opened = [...document.querySelectorAll("[data-numbers][open]")].map(({ dataset }) => dataset.numbers);
  for (const chart of main.querySelectorAll(".js-plotly-plot")) Plotly.purge(chart);
  parts(document).forEach((node) => node.remove());
  main.append(...parts(newer));
  for (const numbers of main.querySelectorAll("[data-numbers]")) numbers.open = opened.includes(numbers.dataset.numbers);
  document.querySelector("nav").replaceChildren();
  listSections();
  tablesOf(main).forEach(prepareTable);
  followCharts();
}

live.querySelector("button").addEventListener("click", ({ target }) => {
  paused = !paused;
  target.ariaPressed = String(paused);
  tell(paused ? "paused" : "");
  if (paused) rest(); else follow();
});
document.addEventListener("visibilitychange", () => { if (document.hidden) rest(); else follow(); });
addEventListener("DOMContentLoaded", () => figuresReady.then(follow)); // rows are appended to figures
