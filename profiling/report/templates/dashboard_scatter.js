// Draws any two columns of the table of runs against each other, with a point for each run.
"use strict";

function scatterAxes(name) {
  const section = sectionOf(name), headings = columnsOf(section);
  const chosen = state.scatter[section] ?? [];
  return figures[name].layout.meta.points.map((heading, at) => (headings.includes(chosen[at]) ? chosen[at] : heading));
}

function scattered(name) {
  const section = sectionOf(name), [x, y] = scatterAxes(name), { layout } = figures[name];
  const data = groupsOf(section).filter((group) => !state.hidden.has(group.name)).map((group) => {
    const number = groupsOf(section).findIndex(({ label }) => label === group.label);
    const runs = runsOf(section).filter(({ name: run, values }) => group.runs.has(run) && isShown(section, run) && values[x] !== null && values[y] !== null);
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
