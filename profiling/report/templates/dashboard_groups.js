// Groups the runs by the value of a key: their legend, and the curves that are computed anew of them.
"use strict";

// Returns the groups of the runs: by the value of the chosen key, or by configuration.
function groupsOf(section) {
  const key = columnsOf(section).includes(state.by) ? state.by : "configuration";
  const groups = new Map();
  for (const run of runsOf(section)) {
    const label = key === "configuration" ? String(run.values[key]) : `${key}=${run.values[key] ?? "null"}`;
    if (!groups.has(label)) groups.set(label, { label, name: `${section}:${label}`, runs: new Set() });
    groups.get(label).runs.add(run.name);
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
    const lines = ofRuns.filter((trace) => group.runs.has(trace.meta.run));
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
function recoloured(trace, section, names) {
  const number = groupsOf(section).findIndex((group) => names.some((run) => group.runs.has(run)));
  if (number < 0) return trace;
  const { color, dash } = styleOf(section, number);
  return { ...trace, line: { ...trace.line, color, ...(trace.type === "box" ? {} : { dash }) }, ...(trace.fill ? { fillcolor: color } : {}) };
}

function showLegend(section) {
  const [own, other] = toolbarOf(section).querySelectorAll(":scope > .legend");
  const grouped = isGrouped(section);
  own.hidden = grouped;
  other.hidden = !grouped;
  for (const button of own.querySelectorAll("[data-group]")) button.hidden = !runNamesOf(section, button.dataset.group).some((run) => isFound(section, run));
  if (!grouped) return other.replaceChildren();
  other.replaceChildren(...groupsOf(section).map((group, number) => {
    const button = own.querySelector("button").cloneNode(true), key = button.querySelector("line"), { color, dasharray } = styleOf(section, number);
    delete button.dataset.group;
    button.dataset.name = group.name;
    button.title = "show or hide in all charts";
    button.hidden = ![...group.runs].some((run) => isFound(section, run));
    button.ariaPressed = String(!state.hidden.has(group.name));
    key.style.stroke = color;
    key.setAttribute("stroke-dasharray", dasharray);
    button.replaceChildren(button.querySelector("svg"), ` ${group.label} `, Object.assign(document.createElement("span"), { className: "muted", textContent: `${group.runs.size}` }));
    return button;
  }));
}
