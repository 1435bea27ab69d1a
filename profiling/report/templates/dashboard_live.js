// A page that is served follows its runs without a reload: rows arrive as events and go behind the
// lines; when the server says that more has changed, words, tables and charts are taken over from a
// page without plotly. What the reader chose, scrolled to or sorted stays.
"use strict";

const live = document.getElementById("live");
let source = null;
let mark = live.dataset.mark; // up to where this page knows the runs' files
let paused = false;

function tell(text) {
  live.querySelector("[role=status]").textContent = text;
}

function follow() {
  source?.close();
  if (paused) return;
  source = new EventSource(`events?from=${encodeURIComponent(mark)}`);
  source.onopen = () => tell("live");
  source.onerror = () => tell("the server does not answer; the page stays readable");
  source.addEventListener("rows", (event) => {
    mark = event.lastEventId;
    const rows = JSON.parse(event.data);
    const grown = new Set(Object.keys(figures).filter((name) => appendRows(figures[name], rows)));
    redraw((name) => grown.has(name));
    tell(`live · ${new Date().toLocaleTimeString()}`);
  });
  source.addEventListener("trouble", (event) => tell(JSON.parse(event.data)));
  source.addEventListener("changed", () => { source.close(); takeOverNewer(); });
}

async function takeOverNewer() {
  try {
    const answer = await fetch("bare", { cache: "no-store" });
    const text = await answer.text();
    const newer = new DOMParser().parseFromString(text, "text/html");
    if (paused) return;
    if (!answer.ok) throw new Error(newer.body.textContent);
    adopt(newer);
    mark = newer.getElementById("live").dataset.mark;
    setTimeout(follow, 1000); // at most one update in a second
  } catch (error) {
    tell(String(error.message));
    setTimeout(() => { if (!paused) takeOverNewer(); }, 5000);
  }
}

// What the parts of a page are: another run or chart changes it.
function outline(root) {
  const parts = [...root.querySelectorAll("main > section[id], [data-group], [data-run], [data-lazy], .sortable th")];
  return parts.map((part) => [part.id, part.dataset.name, part.dataset.run, part.dataset.lazy, part.tagName === "TH" && part.textContent.trim()].join()).join("\n");
}

function adopt(newer) {
  takeOver(newer);
  for (const name of Object.keys(figures)) delete figures[name];
  Object.assign(figures, JSON.parse(newer.getElementById("figures")?.textContent ?? "{}"));
  document.title = newer.title;
  document.querySelector(".heading").innerHTML = newer.querySelector(".heading").innerHTML;
  if (outline(newer) === outline(document)) adoptWords(newer);
  else adoptWhole(newer);
  redraw();
}

function adoptWords(newer) {
  const verdict = (root) => root.querySelector(".verdict");
  if (verdict(newer)) verdict(document).innerHTML = verdict(newer).innerHTML;
  for (const box of document.querySelectorAll(".sortable")) {
    box.querySelector("tbody").innerHTML = newer.getElementById(box.id).querySelector("tbody").innerHTML;
    for (const [column, head] of [...box.querySelectorAll("th")].entries()) {
      if (head.ariaSort) sortTable(box.querySelector("table"), column, head.ariaSort === "ascending" ? 1 : -1);
    }
    showRows(box);
  }
}

function adoptWhole(newer) {
  const main = document.querySelector("main");
  const taken = [...newer.querySelector("main").childNodes].filter((node) => !["SCRIPT", "STYLE"].includes(node.nodeName) && node.id !== "live");
  for (const node of [...main.childNodes]) if (!["SCRIPT", "STYLE"].includes(node.nodeName) && node !== live) node.remove();
  main.append(...taken);
  document.querySelector("nav").replaceChildren();
  listSections();
  main.querySelectorAll(".sortable").forEach(prepareTable);
  followCharts();
}

live.querySelector("button").addEventListener("click", ({ target }) => {
  paused = !paused;
  target.ariaPressed = String(paused);
  tell(paused ? "paused" : "");
  if (paused) source?.close(); else follow();
});
addEventListener("DOMContentLoaded", follow);
