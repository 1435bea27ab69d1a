// Describes a slice or a selection of a timeline in a live region, for readers who cannot see the canvas.
// It writes texts, never markup, because anyone may have chosen the names.

function say(title, pairs, links = []) {
  const list = document.createElement("dl");
  for (const [what, told] of pairs) {
    const row = list.appendChild(document.createElement("div"));
    row.appendChild(document.createElement("dt")).textContent = what;
    row.appendChild(document.createElement("dd")).append(told);
  }
  const heading = Object.assign(document.createElement("strong"), { textContent: title });
  details.replaceChildren(heading, ...links.map(([words, href]) =>
    Object.assign(document.createElement("a"), { href, textContent: ` ${words}` })), ...(pairs.length ? [list] : []));
}

function choose(event) {
  view.chosen = event;
  if (event >= 0) {
    const { whole, label, links } = events.names[events.name[event]];
    say(whole || label, factsOf(event), links);
  }
  offerWays(event);
  saveSoon();
  redraw();
}

const nameOf = (event) => events.names[events.name[event]].label;

function factsOf(event) {
  const row = events.rows[rowOf(events, event)];
  const step = stepAt(events, events.start[event]);
  const facts = [
    ["duration", durationText(events.end[event] - events.start[event])],
    ["at", `${(events.start[event] / 1e6).toFixed(6)} ms`],
    ["step", `${events.firstStep + step}, ${durationText(events.start[event] - events.bounds[step])} after its start`],
    ["row", [...(events.groups[row.group].label ? [events.groups[row.group].label] : []), row.label].join(", ")],
  ];
  const more = { stream: operationFacts, call: callFacts, idle: idleFacts }[row.kind];
  return [...facts, ...(more ? more(event) : [])];
}

function operationFacts(event) {
  const i = event - events.firstOperation;
  const call = callOf(events, event);
  const [blocks, threads, registers, shared, bytes] = events.geometries[events.geometry[i]];
  const name = (column) => (column[i] ? events.names[column[i] - 1].label : "–");
  const count = (value) => (value < 0 ? "–" : value.toLocaleString("en"));
  const launch = [["family", events.shades[events.shade[event]]], ["phase", name(events.phase)], ["operator", name(events.operator)]];
  if (events.line[i]) launch.push(["line", name(events.line)]); // without stacks nobody looks for one
  if (call >= 0) {
    const late = events.start[event] - events.end[call];
    launch.push(["launched by", `${nameOf(call)}, ${durationText(events.end[call] - events.start[call])}`]);
    launch.push(["from call to start", late >= 0 ? durationText(late) : "started before the call returned"]);
  } else launch.push(["launched by", "–"]);
  if (bytes >= 0) return [...launch, ["bytes", count(bytes)]];
  return [...launch, ["grid, blocks", count(blocks)], ["block, threads", count(threads)],
    ["registers per thread", count(registers)], ["shared memory per block", shared < 0 ? "–" : `${count(shared)} B`]];
}

function callFacts(event) {
  const ran = operationsOf(events, event);
  const host = events.rows.filter((row) => row.kind === "host" && row.group === events.rows[rowOf(events, event)].group);
  const open = host.map((row) => eventAt(events, row, events.start[event])).filter((i) => i >= 0);
  return [["in", open.map(nameOf).join(" › ") || "–"],
    ["launched", ran.length ? nameOf(ran[0]) + (ran.length > 1 ? ` and ${ran.length - 1} more` : "") : "nothing"]];
}

function idleFacts(event) { // what ended before the gap and began after it
  const { group } = events.rows[rowOf(events, event)];
  const streams = events.rows.filter((row) => row.kind === "stream" && row.group === group);
  const near = (time) => streams.map((row) => eventAt(events, row, time, 2)).find((i) => i >= 0) ?? -1;
  const said = (i) => (i >= 0 ? nameOf(i) : "–");
  return [["before", said(near(events.start[event] - 1))], ["after", said(near(events.end[event] + 1))]];
}

const numberText = (value) => (Number.isNaN(value) ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 }));

// Sums up a time on the GPU of the chosen slice, or else on the report's; counters of all GPUs.
function measure(from, to) {
  view.selection = [Math.min(from, to), Math.max(from, to)];
  const group = view.chosen >= 0 ? events.rows[rowOf(events, view.chosen)].group : 0;
  const { known, idle, busy, causes, families } = measured(events, ...view.selection, group);
  const { label } = events.groups[group];
  const share = (ns) => (known ? `${durationText(ns)}, ${((100 * ns) / known).toFixed(1)} %` : "–");
  const sums = (map) => [...map].sort(([, a], [, b]) => b.ns - a.ns);
  say(`Selection of ${durationText(view.selection[1] - view.selection[0])}${label ? `, ${label}` : ""}`, [
    ...(events.rows.some(({ kind }) => kind === "rank") ? [] : [["GPU busy", share(busy)], ["GPU idle", share(idle)]]),
    ...sums(causes).map(([shade, { count, ns }]) => [events.causes[events.shades[shade]], `${share(ns)}, ${count.toLocaleString("en")} gaps`]),
    ...sums(families).map(([shade, { count, ns }]) => [events.called[events.shades[shade]] ?? events.shades[shade], `${share(ns)}, ${count.toLocaleString("en")} times`]),
    ...events.curves.map((curve) => [curve.label, `${numberText(meanOf(events, curve, ...view.selection))} ${curve.unit}`]),
  ]);
  offerWays(-1);
  saveSoon();
  redraw();
}

// What a counter is at a place of the canvas, for the pointer.
function curveText(curve, x) {
  const pixel = 1 / placeOf(view).scale;
  return `${curve.label} · ${numberText(meanOf(events, curve, timeAt(x) - pixel / 2, timeAt(x) + pixel / 2))} ${curve.unit}`;
}
