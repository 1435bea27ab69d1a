// Knows the runs by their table, which has their keys and results: finds those that the reader asks for, and
// shows the chosen columns.
"use strict";

const TERM_OF_RUN = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/;
const COMPARE = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};
const runsKnown = new Map(); // section -> its runs, until the table changes
const sectionNames = () => [...document.querySelectorAll(".toolbar[data-section]")].map(({ dataset }) => dataset.section);
const toolbarOf = (section) => document.querySelector(`.toolbar[data-section="${section}"]`);
const runsBox = (section) => document.getElementById(`table-${section}-runs`);
const columnsOf = (section) => headsOf(runsBox(section).querySelector("table")).map(headingOf);
const asNumber = (value) => (typeof value === "string" && value.trim() !== "" && Number.isFinite(+value) ? +value : value);

// Returns what a cell holds: a number, a text, or null.
function cellContent(cell) {
  const { value } = cell.dataset;
  const text = value ?? cell.textContent.trim();
  return text === "" || text === "–" ? null : asNumber(text);
}

function runsOf(section) {
  if (!runsKnown.has(section)) {
    const headings = columnsOf(section);
    runsKnown.set(section, [...runsBox(section).querySelector("tbody").rows].map((row) => ({
      row, name: row.cells[0].title,
      values: Object.fromEntries(headings.map((heading, at) => [heading, cellContent(row.cells[at])])),
    })));
  }
  return runsKnown.get(section);
}

// --- the filter

const plainName = (text) => text.toLowerCase().replace(/,.*$/, "").replace(/^-+/, "").replace(/[^\w.]+/g, "_");
const initialsOf = (name) => name.split(/[_.]/).map((part) => part[0]).join("");

// Returns the heading that a word means: its name, the end of it, its initials (lr), or a part that no other has.
function headingNamed(word, headings) {
  const wanted = plainName(word.trim());
  const ways = [(name) => name === wanted, (name) => name.split(".").at(-1) === wanted,
    (name) => initialsOf(name) === wanted, (name) => name.includes(wanted)];
  for (const fits of ways) {
    const found = headings.filter((heading) => fits(plainName(heading)));
    if (found.length === 1) return found[0];
    if (found.length) throw new Error(`${word}: which of ${found.map(plainName).join(", ")}?`);
  }
  throw new Error(`${word}: no column of the table of runs is called so`);
}

function termOf(term, headings) {
  const [, word, sign, wanted] = TERM_OF_RUN.exec(term);
  const heading = headingNamed(word, headings), either = wanted.toLowerCase().split("|").map(asNumber);
  const comparable = (value) => (typeof value === "string" ? value.toLowerCase() : value);
  const test = (value, than) => (typeof value === typeof than || sign === "!=") && COMPARE[sign](value, than);
  return ({ values }) => {
    const value = comparable(values[heading]);
    return value !== null && (sign === "!=" ? either.every((than) => test(value, than)) : either.some((than) => test(value, than)));
  };
}

// Returns a function that says whether a run is asked for; terms such as lr>0.002 come with words of the table's
// own filter. Throws where a term cannot be understood.
function runFilter(text, headings) {
  const terms = text.trim().split(/\s+/).filter(Boolean);
  const compares = terms.filter((term) => TERM_OF_RUN.test(term)).map((term) => termOf(term, headings));
  const words = terms.filter((term) => !TERM_OF_RUN.test(term)).join(" ");
  const hasWords = filterOf(words, headings.map((heading) => heading.toLowerCase()));
  return (run) => compares.every((compare) => compare(run)) && hasWords(searched(run.row));
}

// Returns the names of the runs that the filter finds, or null for all.
function foundRuns(section) {
  if (!state.where.trim()) return null;
  const field = toolbarOf(section).querySelector("[data-where]");
  if (!field) return null;
  field.setCustomValidity("");
  try {
    return new Set(runsOf(section).filter(runFilter(state.where, columnsOf(section))).map(({ name }) => name));
  } catch (error) {
    field.setCustomValidity(error.message);
    return null;
  }
}

let foundIn = {}; // section -> what foundRuns returned
const isFound = (section, run) => !foundIn[section] || foundIn[section].has(run);

function findRuns() {
  runsKnown.clear();
  for (const section of sectionNames()) {
    foundIn[section] = foundRuns(section);
    const told = toolbarOf(section).querySelector("[data-matching]"), field = toolbarOf(section).querySelector("[data-where]");
    if (told) told.textContent = field.validationMessage || (foundIn[section] ? `${foundIn[section].size} of ${runsOf(section).length} runs` : "");
  }
  for (const box of document.querySelectorAll("section .sortable:not([data-numbers] *)")) showRows(box);
}

// tables.js asks it for each row: rows of runs and configurations that the filter does not find are left out.
function isKept(row) {
  const box = row.closest(".sortable"), section = sectionOf(box.id.replace("table-", ""));
  if (!foundIn[section]) return true;
  const first = headingOf(headsOf(box.querySelector("table"))[0]), name = row.cells[0].title || row.cells[0].textContent.trim();
  const shown = runsOf(section).filter(({ name }) => foundIn[section].has(name));
  if (first === "run") return shown.some((run) => run.name === name);
  return first !== "configuration" || shown.some(({ values }) => String(values.configuration) === name);
}

// --- columns of the table of runs

function showColumns(section) {
  const box = runsBox(section), optional = JSON.parse(toolbarOf(section).dataset.optional), chosen = state.columns[section] ?? [];
  const off = columnsOf(section).map((heading, at) => [heading, at + 1])
    .filter(([heading]) => optional.includes(heading) !== chosen.includes(heading));
  let style = box.querySelector("style");
  if (!style) box.append(style = document.createElement("style"));
  style.textContent = off.map(([, at]) => `#${box.id} :is(th, td):nth-child(${at}) { display: none; }`).join("\n");
  for (const tick of box.querySelectorAll(".columns input")) tick.checked = !off.some(([heading]) => heading === tick.value);
}

function offerColumns(section) {
  const tools = runsBox(section).querySelector(".tools");
  if (tools.querySelector(".columns")) return;
  const details = document.createElement("details"), ticks = document.createElement("div");
  details.className = "columns";
  details.append(Object.assign(document.createElement("summary"), { textContent: "columns" }), ticks);
  for (const heading of columnsOf(section).slice(1)) {
    const label = document.createElement("label"), tick = Object.assign(document.createElement("input"), { type: "checkbox", value: heading });
    tick.addEventListener("change", () => {
      const chosen = new Set(state.columns[section]);
      if (!chosen.delete(heading)) chosen.add(heading);
      state.columns[section] = [...chosen];
      showColumns(section);
      writeAddress();
    });
    label.append(tick, ` ${heading}`);
    ticks.append(label);
  }
  tools.insertBefore(details, tools.querySelector(".take"));
}

// Prepares what the page shows of runs, at the start and when its parts were replaced.
function prepareRuns() {
  keptRow = isKept;
  for (const section of sectionNames().filter(runsBox)) {
    offerColumns(section);
    showColumns(section);
  }
  findRuns();
}
