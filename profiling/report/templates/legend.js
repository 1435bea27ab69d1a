// A legend of its own for a chart of the dashboard that is printed or saved as a picture: on the page its colours are
// explained once for all charts. More names than stand above a chart come below it in columns, and it grows by them.
"use strict";

const MOST_ABOVE = 8, MOST_BELOW = 32; // curves
const LEGEND_FONT = 11; // px
const KEY_WIDTH = 45; // px: plotly's key of a curve and the gaps around it
const KEY_HEIGHT = 19; // px of a row
const PLOT_EDGE = 80; // px: the y axis and the edge on the right, between which plotly lays out a legend

function withLegend({ data, layout }, width, height) {
  const named = (trace) => (layout.meta?.points || trace.meta?.kind === "mean") && trace.visible !== false;
  const names = data.filter(named).map((trace) => trace.name);
  if (!names.length) return { data, layout };
  if (names.length > MOST_BELOW) {
    const text = `${names.length} curves; their key is on the page`;
    const note = { text, showarrow: false, xref: "paper", x: 0, yref: "paper", y: 1, yanchor: "bottom" };
    return { data, layout: { ...layout, annotations: [note], margin: { ...layout.margin, t: 30 } } };
  }
  const below = names.length > MOST_ABOVE, { keys, values } = withoutCommonKeys(names);
  const label = below ? new Map(names.map((name, at) => [name, values[at]])) : new Map();
  const shown = data.map((trace) => ({
    ...trace, name: label.get(trace.name) ?? trace.name, showlegend: Boolean(named(trace)),
    legendgroup: "", // plotly puts a gap between groups
  }));
  const legend = below ? legendBelow(keys, values, width, height - layout.margin.t - AXIS_BELOW) : { legend: layout.legend };
  const grown = below ? { height: height + legend.room, margin: { ...layout.margin, b: legend.room + AXIS_BELOW } } : {};
  return { data: shown, layout: { ...layout, ...grown, legend: legend.legend, showlegend: true } };
}

// Labels of configurations that have the same keys, such as "lr=1, dropout=0", as the keys and each one's values.
function withoutCommonKeys(names) {
  const pieces = names.map((name) => name.split(", ").map((piece) => piece.split("=")));
  const [keys, ...others] = pieces.map((of) => of.map(([key]) => key).join(" · "));
  const common = others.every((other) => other === keys) && pieces.flat().every((piece) => piece.length === 2);
  return common ? { keys, values: pieces.map((of) => of.map(([, value]) => value).join(" · ")) } : { keys: "", values: names };
}

// `plot` is the plot's height in px. A legend placed by the container would leave its margin to the screen.
function legendBelow(keys, values, width, plot) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${LEGEND_FONT}px ${FONT}`;
  const longest = Math.ceil(Math.max(...values.map((value) => pen.measureText(value).width)));
  const columns = Math.max(1, Math.floor((width - PLOT_EDGE) / (longest + KEY_WIDTH)));
  const rows = Math.ceil(values.length / columns) + Boolean(keys);
  const room = rows * KEY_HEIGHT + 10;
  const legend = {
    orientation: "h", x: 0, y: -AXIS_BELOW / plot, yanchor: "top", entrywidth: longest, maxheight: room + 10,
    font: { size: LEGEND_FONT }, title: { text: keys, side: "top", font: { size: LEGEND_FONT } },
  };
  return { legend, room };
}
