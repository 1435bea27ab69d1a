// Knows the runs by their table, which has their keys and results: finds those that the reader asks for, groups
// them by a key, shows the chosen columns, and draws any two columns against each other.
"use strict";

const TERM_OF_RUN = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/;
const COMPARE = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};
const known = new Map(); // section -> its runs, until the table changes
const sections = () => [...document.querySelectorAll(".toolbar[data-section]")].map(({ dataset }) => dataset.section);
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
  if (!known.has(section)) {
    const headings = columnsOf(section);
    known.set(section, [...runsBox(section).querySelector("tbody").rows].map((row) => ({
      row, folder: row.cells[0].title, name: row.cells[0].textContent.trim(),
      values: Object.fromEntries(headings.map((heading, at) => [heading, cellContent(row.cells[at])])),
    })));
  }
  return known.get(section);
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
  }
  throw new Error(`no single key or result is called ${word}`);
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

// Returns the folders of the runs that the filter finds, or null for all.
function foundRuns(section) {
  if (!state.where.trim()) return null;
  const field = toolbarOf(section).querySelector("[data-where]");
  if (!field) return null;
  field.setCustomValidity("");
  try {
    return new Set(runsOf(section).filter(runFilter(state.where, columnsOf(section))).map(({ folder }) => folder));
  } catch (error) {
    field.setCustomValidity(error.message);
    return null;
  }
}

let found = {}; // section -> what foundRuns returned
const isFound = (section, folder) => !found[section] || found[section].has(folder);

function findRuns() {
  known.clear();
  for (const section of sections()) {
    found[section] = foundRuns(section);
    const told = toolbarOf(section).querySelector("[data-matching]"), field = toolbarOf(section).querySelector("[data-where]");
    if (told) told.textContent = field.validationMessage || (found[section] ? `${found[section].size} of ${runsOf(section).length} runs` : "");
  }
  for (const box of document.querySelectorAll("section .sortable:not([data-numbers] *)")) showRows(box);
}

// tables.js asks it for each row: rows of runs and configurations that the filter does not find are left out.
function isKept(row) {
  const box = row.closest(".sortable"), section = sectionOf(box.id.replace("table-", ""));
  if (!found[section]) return true;
  const first = headingOf(headsOf(box.querySelector("table"))[0]), name = row.cells[0].textContent.trim();
  const shown = runsOf(section).filter(({ folder }) => found[section].has(folder));
  if (first === "run") return shown.some((run) => run.name === name);
  return first !== "configuration" || shown.some(({ values }) => String(values.configuration) === name);
}

// --- groups by a key

// Returns the groups of the runs: by the value of the chosen key, or by configuration.
function groupsOf(section) {
  const key = columnsOf(section).includes(state.by) ? state.by : "configuration";
  const groups = new Map();
  for (const run of runsOf(section)) {
    const label = key === "configuration" ? String(run.values[key]) : `${key}=${run.values[key] ?? "null"}`;
    if (!groups.has(label)) groups.set(label, { label, name: `${section}:${label}`, folders: new Set() });
    groups.get(label).folders.add(run.folder);
  }
  const value = ({ label }) => asNumber(label.slice(key.length + 1));
  const ordered = [...groups.values()];
  return key === "configuration" ? ordered : ordered.sort((a, b) => (value(a) > value(b) ? 1 : -1));
}

const isGrouped = (section) => groupsOf(section).length > 0 && columnsOf(section).includes(state.by);

function styleOf(section, number) {
  const styles = JSON.parse(toolbarOf(section).dataset.styles);
  return styles[number % styles.length];
}

// Computes a chart's traces anew: one mean, band and set of thin lines for each value of the key.
function regrouped(figure, section) {
  const { over_time } = figure.layout.meta, bands = [], single = [], means = [];
  const ofRuns = figure.data.filter((trace) => trace.meta?.run && isShown(section, trace.meta.run));
  for (const [number, group] of groupsOf(section).entries()) {
    const lines = ofRuns.filter((trace) => group.folders.has(trace.meta.run));
    if (!lines.length || state.hidden.has(group.name)) continue;
    const { color, dash } = styleOf(section, number), legendgroup = group.label;
    const mean = { ...lines[0], legendgroup, name: group.label, opacity: 1, line: { color, dash, width: 2 } };
    if (lines.length === 1) { means.push(mean); continue; }
    const band = { ...mean, mode: "lines", fill: "toself", fillcolor: color, line: { color, width: 0 }, opacity: 0.2, hoverinfo: "skip", meta: { kind: "spread" } };
    bands.push(remade(band, lines, over_time));
    means.push(remade({ ...mean, meta: { kind: "mean" } }, lines, over_time));
    if (state.runs) single.push(...lines.map((line) => ({ ...line, legendgroup, line: { color, width: 1 }, opacity: 0.45 })));
  }
  return [...bands, ...single, ...means];
}

// Gives a trace of a configuration the colour of its group.
function recoloured(trace, section, folders) {
  const number = groupsOf(section).findIndex((group) => folders.some((folder) => group.folders.has(folder)));
  if (number < 0) return trace;
  const { color, dash } = styleOf(section, number);
  return { ...trace, line: { ...trace.line, color, ...(trace.type === "box" ? {} : { dash }) }, ...(trace.fill ? { fillcolor: color } : {}) };
}

function showLegend(section) {
  const [own, other] = toolbarOf(section).querySelectorAll(":scope > .legend");
  const grouped = isGrouped(section);
  own.hidden = grouped;
  other.hidden = !grouped;
  for (const button of own.querySelectorAll("[data-group]")) button.hidden = !foldersOf(section, button.dataset.group).some((folder) => isFound(section, folder));
  if (!grouped) return other.replaceChildren();
  other.replaceChildren(...groupsOf(section).map((group, number) => {
    const button = own.querySelector("button").cloneNode(true), key = button.querySelector("line"), { color, dasharray } = styleOf(section, number);
    delete button.dataset.group;
    button.dataset.name = group.name;
    button.title = "show or hide in all charts";
    button.hidden = ![...group.folders].some((folder) => isFound(section, folder));
    button.ariaPressed = String(!state.hidden.has(group.name));
    key.style.stroke = color;
    key.setAttribute("stroke-dasharray", dasharray);
    button.replaceChildren(button.querySelector("svg"), ` ${group.label} `, Object.assign(document.createElement("span"), { className: "muted", textContent: `${group.folders.size}` }));
    return button;
  }));
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

// --- two columns against each other

function scatterAxes(name) {
  const section = sectionOf(name), headings = columnsOf(section);
  const chosen = state.scatter[section] ?? [];
  return figures[name].layout.meta.points.map((heading, at) => (headings.includes(chosen[at]) ? chosen[at] : heading));
}

function scattered(name) {
  const section = sectionOf(name), [x, y] = scatterAxes(name), { layout } = figures[name];
  const data = groupsOf(section).filter((group) => !state.hidden.has(group.name)).map((group) => {
    const number = groupsOf(section).findIndex(({ label }) => label === group.label);
    const runs = runsOf(section).filter(({ folder, values }) => group.folders.has(folder) && isShown(section, folder) && values[x] !== null && values[y] !== null);
    return {
      type: "scatter", mode: "markers", name: group.label, x: runs.map(({ values }) => values[x]), y: runs.map(({ values }) => values[y]),
      text: runs.map((run) => run.name), marker: { size: 10, color: styleOf(section, number).color, symbol: Math.floor(number / 8) % 4 },
      hovertemplate: "%{text}<br>%{x}, %{y}<extra>%{fullData.name}</extra>",
    };
  });
  const titled = (axis, text) => ({ ...axis, title: { ...axis.title, text }, type: state.log && axis === layout.yaxis ? "log" : undefined, autorange: true });
  return { data, layout: { ...layout, xaxis: titled(layout.xaxis, x), yaxis: titled(layout.yaxis, y) } };
}

function offerAxes(chart) {
  const name = chart.dataset.lazy, section = sectionOf(name);
  if (!figures[name]?.layout.meta?.points) return;
  let controls = chart.previousElementSibling;
  if (!controls?.matches(".axes")) {
    controls = document.createElement("div");
    controls.className = "controls axes";
    controls.append(...["x", "y"].map((axis, at) => {
      const label = document.createElement("label"), select = document.createElement("select");
      select.append(...columnsOf(section).slice(1).map((heading) => new Option(heading)));
      select.addEventListener("change", () => {
        state.scatter[section] = scatterAxes(name).map((heading, place) => (place === at ? select.value : heading));
        chose();
      });
      label.append(`${axis} `, select);
      return label;
    }));
    chart.before(controls);
  }
  const axes = scatterAxes(name);
  controls.querySelectorAll("select").forEach((select, at) => { select.value = axes[at]; });
}

// --- one x in all charts

// Shows in the other charts of the same axis, too, what is at the x under the pointer.
function hoverAll(chart, { points }) {
  const axis = axisOf(chart.dataset.lazy), [{ x, fullData }] = points;
  if (!axis) return;
  for (const other of inView) {
    if (other === chart || !other.data || axisOf(other.dataset.lazy) !== axis) continue;
    const curve = other.data.findIndex((trace) => trace.name === fullData.name && trace.visible !== false);
    if (other.layout.hovermode === "x unified") Plotly.Fx.hover(other, { xval: x }, "xy", true);
    else if (curve >= 0) Plotly.Fx.hover(other, [{ curveNumber: curve, pointNumber: nearest(other.data[curve].x, x) }], "xy", true);
  }
}

function nearest(xs, x) {
  let best = 0;
  xs.forEach((value, at) => { if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = at; });
  return best;
}

function unhoverAll(chart) {
  for (const other of inView) if (other !== chart && other.data && axisOf(other.dataset.lazy)) Plotly.Fx.unhover(other);
}

// Prepares what the page shows of runs, at the start and when its parts were replaced.
function prepareRuns() {
  keptRow = isKept;
  for (const section of sections().filter(runsBox)) {
    offerColumns(section);
    showColumns(section);
  }
  findRuns();
}
