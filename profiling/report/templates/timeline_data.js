// Unpacks the events of a timeline, which profiling.report.single.timeline_data packed, and queries
// them. Times are ns since the window began. All events are in the same columns, row after row, sorted
// by start within a row. `reach` is the latest end so far in a row, so that a binary search finds the
// first event that is still open at a time, even where events overlap.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f64: Float64Array };

// Resolves to what the script element with this id holds, with each column's bytes as its data.
async function withBytes(id) {
  const columns = [];
  const isColumn = (value) => value?.type in ARRAYS && typeof value.data === "string";
  const packed = JSON.parse(document.getElementById(id).textContent, (_, value) => {
    if (isColumn(value)) columns.push(value);
    return value;
  });
  await Promise.all(columns.map(async (column) => { column.data = await unpackedBytes(column.data); }));
  return packed;
}

const unpacked = ({ type, data }) => new ARRAYS[type](data);

function readEvents(packed) {
  const columns = ["start", "duration", "name", "shade", "shown", "ahead", "call", "phase", "operator", "line", "geometry"];
  const read = Object.fromEntries(columns.map((name) => [name, unpacked(packed[name])]));
  const count = read.name.length;
  const events = {
    ...packed, ...read, rows: [], bounds: new Float64Array(unpacked(packed.bounds).length + 1),
    start: new Float64Array(count), end: new Float64Array(count), reach: new Float64Array(count),
  };
  unpacked(packed.bounds).forEach((length, i) => { events.bounds[i + 1] = events.bounds[i] + length; });
  let i = 0;
  for (const row of packed.rows) {
    const group = packed.groups.findIndex(({ rows }) => rows.includes(events.rows.length));
    events.rows.push({ ...row, group, first: i, behind: i + row.count });
    let [time, reach] = [packed.origin, -Infinity];
    for (const behind = i + row.count; i < behind; i++) {
      time += read.start[i];
      events.start[i] = time;
      events.end[i] = time + read.duration[i];
      events.reach[i] = reach = Math.max(reach, events.end[i]);
    }
  }
  events.firstCall = events.rows.find((row) => row.kind === "call")?.first ?? 0;
  events.firstOperation = events.rows.find((row) => row.kind === "stream")?.first ?? count;
  events.last = events.bounds[events.bounds.length - 1];
  events.launched = launchedBy(events);
  events.curves = packed.curves.map((curve) => readCurve(curve, packed.clocks[curve.clock]));
  layOut(events);
  return events;
}

// A counter with its integral, so that its mean over any time is two look-ups.
function readCurve(curve, clock) {
  const [lengths, packed] = [unpacked(clock.length), unpacked(curve.value)];
  const value = Float64Array.from(packed, (each) => each * curve.scale);
  const [ends, sums] = [new Float64Array(value.length), new Float64Array(value.length + 1)];
  let time = clock.start;
  for (let i = 0; i < value.length; i++) {
    ends[i] = time += lengths[i];
    sums[i + 1] = sums[i] + value[i] * lengths[i];
  }
  return { ...curve, begin: clock.start, value, ends, sums };
}

function integralTo({ begin, ends, value, sums }, time) {
  const i = firstAbove(ends, 0, ends.length, time);
  return i === ends.length ? sums[i] : sums[i] + value[i] * Math.max(0, time - (i ? ends[i - 1] : begin));
}

// Returns a counter's mean over the part of a time that lies in steps of this page, or NaN.
function meanOf(events, curve, from, to) {
  const { bounds, shown } = events;
  let [sum, length] = [0, 0];
  for (let step = stepAt(events, from); step < shown.length && bounds[step] < to; step++) {
    const a = Math.max(from, bounds[step], curve.begin);
    const b = Math.min(to, bounds[step + 1], curve.ends[curve.ends.length - 1]);
    if (!shown[step] || b <= a) continue;
    sum += integralTo(curve, b) - integralTo(curve, a);
    length += b - a;
  }
  return length ? sum / length : NaN;
}

// Lays out the lines from top to bottom. A folded group is one line: with a label of its own it has what
// ran on the group's streams, without one the group's first row.
function layOut(events) {
  Object.assign(events, { lines: [], lineOf: new Int32Array(events.rows.length) });
  const add = (label, more) => events.lines.push({ label, rows: [], curve: null, head: false, ...more }) - 1;
  events.groups.forEach((group) => {
    const running = group.rows.filter((row) => events.rows[row].kind === "stream");
    let head = group.label ? add(group.label, { group, head: true, rows: group.folded ? running : [] }) : -1;
    for (const row of group.rows) {
      if (!group.folded || head < 0) {
        const first = group.label === "" && head < 0;
        events.lineOf[row] = add(events.rows[row].label, { group, head: first, rows: [row] });
        if (first) head = events.lineOf[row];
      } else events.lineOf[row] = head;
    }
    if (!group.folded) for (const curve of group.curves) add(events.curves[curve].label, { group, curve: events.curves[curve] });
  });
}

// Returns where each call's operations are in `order`: one call launches all of a CUDA graph.
function launchedBy({ call }) {
  const order = Uint32Array.from(call.keys()).sort((a, b) => call[a] - call[b] || a - b);
  return { order, calls: order.map((operation) => call[operation]) };
}

function firstAbove(column, from, to, value) { // the column is ascending
  while (from < to) {
    const middle = (from + to) >> 1;
    if (column[middle] > value) to = middle; else from = middle + 1;
  }
  return from;
}

const rowOf = (events, event) => events.rows.findIndex((row) => event < row.behind);

const isOperation = (events, event) => event >= events.firstOperation;

const stepAt = ({ bounds }, time) =>
  Math.min(Math.max(firstAbove(bounds, 0, bounds.length, time) - 1, 0), bounds.length - 2);

// Returns the event that is open at the time, of several the one that began last, or else the nearest
// within `slack`, or -1.
function eventAt(events, row, time, slack = 0) {
  const { start, end, reach } = events;
  const behind = firstAbove(start, row.first, row.behind, time);
  const first = firstAbove(reach, row.first, row.behind, time - slack);
  let [nearest, distance] = [-1, slack];
  for (let i = behind - 1; i >= first; i--) {
    if (end[i] >= time) return i;
    if (time - end[i] <= distance) [nearest, distance] = [i, time - end[i]];
  }
  return behind < row.behind && start[behind] - time < distance ? behind : nearest;
}

// Returns the call that launched an operation, or -1 if it was not captured.
function callOf(events, event) {
  const call = isOperation(events, event) ? events.call[event - events.firstOperation] : 0;
  return call ? events.firstCall + call - 1 : -1;
}

function operationsOf(events, event) {
  if (events.rows[rowOf(events, event)].kind !== "call") return [];
  const { order, calls } = events.launched;
  const number = event - events.firstCall + 1;
  const [from, to] = [number - 1, number].map((value) => firstAbove(calls, 0, calls.length, value));
  return Array.from(order.subarray(from, to), (operation) => operation + events.firstOperation);
}

// Returns the events with some names, sorted by start.
function eventsCalled(events, wanted) {
  const found = [];
  for (let i = 0; i < events.name.length; i++) if (wanted[events.name[i]]) found.push(i);
  return found.sort((a, b) => events.start[a] - events.start[b] || a - b);
}

// Sums up a selection: its ns within the steps that are included, idle ns by cause, and the time and
// number of operations by family, on one group's GPU or on all ranks. Idle gaps and busy times tile the steps.
function measured(events, from, to, group) {
  const { start, end, bounds, shown } = events;
  const within = (a, b) => Math.max(0, Math.min(b, to) - Math.max(a, from));
  let known = 0;
  for (let i = 0; i < shown.length; i++) if (shown[i]) known += within(bounds[i], bounds[i + 1]);
  const [causes, families] = [new Map(), new Map()];
  for (const row of events.rows) {
    const sums = { idle: causes, stream: families, rank: families }[row.kind];
    if (!sums || (row.kind !== "rank" && row.group !== group)) continue;
    for (let i = firstAbove(events.reach, row.first, row.behind, from); i < row.behind && start[i] < to; i++) {
      const ns = within(start[i], end[i]);
      if (ns <= 0) continue;
      const sum = sums.get(events.shade[i]) ?? { count: 0, ns: 0 };
      sums.set(events.shade[i], { count: sum.count + 1, ns: sum.ns + ns });
    }
  }
  const idle = [...causes.values()].reduce((sum, { ns }) => sum + ns, 0);
  return { known, idle, busy: known - idle, causes, families };
}

function durationText(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return `${(ns / size).toFixed(Math.abs(ns) < 100 * size ? 2 : 1)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}
