// Shows what is at the x under the pointer in all charts of the same axis.
"use strict";

function hoverAll(chart, { points }) {
  const axis = axisOf(chart.dataset.lazy), [{ x, fullData }] = points;
  if (!axis) return;
  for (const other of inView) {
    if (other === chart || !other.data || axisOf(other.dataset.lazy) !== axis) continue;
    const curve = other.data.findIndex((trace) => trace.name === fullData.name && trace.visible !== false);
    if (other.layout.hovermode === "x unified") Plotly.Fx.hover(other, { xval: x }, "xy", true);
    else if (curve >= 0) Plotly.Fx.hover(other, [{ curveNumber: curve, pointNumber: nearestAt(other.data[curve].x, x) }], "xy", true);
  }
}

function nearestAt(xs, x) {
  let best = 0;
  xs.forEach((value, at) => { if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = at; });
  return best;
}

function unhoverAll(chart) {
  for (const other of inView) if (other !== chart && other.data && axisOf(other.dataset.lazy)) Plotly.Fx.unhover(other);
}
