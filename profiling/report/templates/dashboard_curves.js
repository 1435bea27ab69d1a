// Computes curves in the browser: means of the runs that are shown, smoothing, rows that arrive.
// A trace has both its iterations and its seconds, one as x and the other in `meta`.
"use strict";

const iterations = (trace, overTime) => (overTime ? trace.meta.iteration : trace.x);
const seconds = (trace, overTime) => (overTime ? trace.x : trace.meta.elapsed_s);

function interpolated(at, x, y) {
  let i = 0;
  return at.map((t) => {
    while (i < x.length - 2 && x[i + 1] < t) i++;
    if (x.length < 2 || x[i + 1] === x[i]) return y[i];
    return y[i] + (y[i + 1] - y[i]) * (t - x[i]) / (x[i + 1] - x[i]);
  });
}

// Returns mean, least and greatest of lines, over the iterations that all of them reached.
function spreadOf(lines, overTime) {
  const xs = lines.map((line) => iterations(line, overTime));
  const first = Math.max(...xs.map((x) => x[0]));
  const last = Math.min(...xs.map((x) => x.at(-1)));
  const grid = [...new Set(xs.flat())].filter((x) => x >= first && x <= last).sort((a, b) => a - b);
  const ys = lines.map((line, i) => interpolated(grid, xs[i], line.y));
  const ts = lines.map((line, i) => interpolated(grid, xs[i], seconds(line, overTime)));
  const over = (columns, reduce) => grid.map((_, i) => reduce(columns.map((column) => column[i])));
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  return {
    iteration: grid, elapsed_s: over(ts, mean), mean: over(ys, mean),
    low: over(ys, (values) => Math.min(...values)), high: over(ys, (values) => Math.max(...values)),
  };
}

const thereAndBack = (there, back) => [...there, ...[...back].reverse()];

// Computes a group's mean or band from these of its runs.
function remade(trace, runs, overTime) {
  const { iteration, elapsed_s, mean, low, high } = spreadOf(runs, overTime);
  const closed = trace.meta.kind === "spread";
  const column = (values) => (closed ? thereAndBack(values, values) : values);
  const [x, other] = overTime ? [elapsed_s, { iteration: column(iteration) }] : [iteration, { elapsed_s: column(elapsed_s) }];
  return { ...trace, x: column(x), y: closed ? thereAndBack(high, low) : mean, meta: { ...trace.meta, ...other } };
}

// Exponential moving average, corrected for its start; with 0 the values are unchanged.
function smoothed(y, weight) {
  let sum = 0;
  return weight ? y.map((value, i) => (sum = weight * sum + (1 - weight) * value) / (1 - weight ** (i + 1))) : y;
}

// Appends rows, by run, to the lines of a chart. Returns whether there were any for it.
function appendRows(figure, rowsOf) {
  const { metric, scale, over_time } = figure.layout.meta ?? {};
  let grown = false;
  for (const trace of figure.data) {
    for (const row of rowsOf[trace.meta?.run] ?? []) {
      if (!metric || !(metric in row) || !("time/elapsed_s" in row)) continue;
      if (row.iter <= iterations(trace, over_time).at(-1)) continue; // it arrived while the page was made, which has it already
      iterations(trace, over_time).push(row.iter);
      seconds(trace, over_time).push(row["time/elapsed_s"]);
      trace.y.push(row[metric] * scale);
      if (trace.x.length > 1) trace.mode = "lines";
      grown = true;
    }
  }
  figure.grown ||= grown;
  return grown;
}

// Returns the range from least to greatest value in the second half of what is shown.
function rangeOfEnd(traces, range, log) {
  const lines = traces.filter((trace) => trace.visible !== false && trace.meta?.kind !== "spread");
  const last = range ? range[1] : Math.max(...lines.map((line) => line.x.at(-1)));
  const first = range ? range[0] : Math.min(...lines.map((line) => line.x[0]));
  const half = (first + last) / 2;
  const shown = lines.flatMap((line) => line.y.filter((_, i) => line.x[i] >= half && line.x[i] <= last));
  const ends = [Math.min(...shown), Math.max(...shown)].map((y) => (log ? Math.log10(y) : y));
  if (!ends.every(Number.isFinite)) return undefined;
  const room = 0.06 * (ends[1] - ends[0]) || 0.01 * Math.abs(ends[0]) || 1;
  return [ends[0] - room, ends[1] + room];
}
