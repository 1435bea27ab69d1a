// Lets the reader tick runs and captures, and offers what can be made of them: links where a server makes
// pages, else commands to copy. The ticks are in the address.
"use strict";

const served = Boolean(document.getElementById("live"));
const homeTable = () => document.getElementById("table-all"); // a newer page may bring another
const picked = new Set(); // paths below the folder, as a command in it takes them

const rowsOf = () => [...homeTable().querySelector("tbody").rows];
const valueIn = (row, heading) => {
  const cell = row.cells[headsOf(homeTable().querySelector("table")).map(headingOf).indexOf(heading)];
  return cell.dataset.value ?? cell.textContent.trim();
};

function offerTicks() {
  for (const row of rowsOf()) {
    const cell = row.cells[0], path = cell.title;
    if (valueIn(row, "kind") === "page" || cell.querySelector("input")) continue;
    const tick = Object.assign(document.createElement("input"), { type: "checkbox", ariaLabel: `pick ${cell.textContent.trim()}` });
    tick.checked = picked.has(path);
    tick.addEventListener("change", () => {
      if (tick.checked) picked.add(path); else picked.delete(path);
      writePicked();
      offerPages();
    });
    cell.prepend(tick);
  }
}

// Returns the verbs that the picked rows allow: [verb, rest of its command].
function offers(rows) {
  const kinds = rows.map((row) => valueIn(row, "kind"));
  const made = [];
  if (rows.length === 1 && +valueIn(rows[0], "captures")) made.push(["report", "--html report.html"]);
  if (rows.length === 2 && [["run", "capture"], ["snapshot"]].some((alike) => kinds.every((kind) => alike.includes(kind)))) made.push(["compare", "--html comparison.html"]);
  if (rows.length && !kinds.some((kind) => ["capture", "snapshot"].includes(kind))) made.push(["dashboard", "-o dashboard.html"]);
  return made;
}

const quoted = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

function offerPages() {
  const box = document.getElementById("picked"), rows = rowsOf().filter((row) => picked.has(row.cells[0].title));
  // a comparison's baseline is what was ticked first
  rows.sort((a, b) => [...picked].indexOf(a.cells[0].title) - [...picked].indexOf(b.cells[0].title));
  box.hidden = !rows.length;
  const names = rows.map((row) => row.cells[0].textContent.trim());
  const lines = offers(rows).map(([verb, rest]) => {
    const line = document.createElement("p");
    if (served) {
      line.append(Object.assign(document.createElement("a"), { href: `${verb}/${names.map(encodeURIComponent).join(",")}/`, target: "_blank", textContent: `${verb} ${names.join(verb === "compare" ? " with " : ", ")}` }));
      return line;
    }
    const code = document.createElement("code"), copied = document.createElement("button");
    code.className = "command";
    code.tabIndex = 0; // it scrolls
    code.textContent = `python -m profiling ${verb} ${rows.map((row) => quoted(row.cells[0].title)).join(" ")} ${rest}`;
    Object.assign(copied, { type: "button", className: "copy", textContent: "copy", ariaLabel: "copy the command" });
    line.append(code, copied);
    return line;
  });
  const where = served ? [] : [`In the folder ${box.dataset.folder}:`];
  box.replaceChildren(...(lines.length ? [...where, ...lines] : ["Nothing can be made of these rows together."]));
}

function writePicked() {
  const parts = location.hash.slice(1).split("&").filter((part) => part && !part.startsWith("pick="));
  const own = [...picked].map((path) => `pick=${encodeURIComponent(path)}`);
  try { history.replaceState(null, "", `#${[...parts, ...own].join("&")}`); } catch { /* a frame may forbid it */ }
}

function readPicked() {
  picked.clear();
  for (const path of new URLSearchParams(location.hash.slice(1)).getAll("pick")) picked.add(path);
  for (const row of rowsOf()) {
    const tick = row.cells[0].querySelector("input");
    if (tick) tick.checked = picked.has(row.cells[0].title);
  }
  offerPages();
}

// What dashboard_live.js calls when it has taken over a newer page; there are no charts here.
function followRuns() {
  offerTicks();
  offerPages();
}
function takeOver() {}
function followCharts() {}
function redraw() {}

offerTicks();
readPicked();
addEventListener("hashchange", readPicked);
