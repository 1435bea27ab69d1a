// Leads from a row of a table to its slices in the timeline, and from a slice back to its row.

const KIND_OF_TABLE = { kernels: "stream", memops: "stream", launches: "stream", api: "call" };
const TABLE_TITLES = { kernels: "Kernels", memops: "Copies and memsets", launches: "Launch geometry", api: "CUDA API calls", gaps: "Idle gaps" };
const WAYS = ["longest", "median", "next"];
const rowsOfNames = new Map(); // "stream 17" -> row of a table

function prepareWays() {
  const numbers = new Map(events.names.map(({ label, whole }, number) => [whole || label, number]));
  const present = { stream: new Uint8Array(events.names.length), call: new Uint8Array(events.names.length) };
  for (const { kind, first, behind } of events.rows) if (present[kind]) for (let i = first; i < behind; i++) present[kind][events.name[i]] = 1;
  for (const [table, kind] of Object.entries(KIND_OF_TABLE)) {
    for (const row of document.querySelectorAll(`#table-${table} tbody tr`)) {
      const cell = row.querySelector("td.code");
      const name = numbers.get(cell.title);
      const key = `${kind} ${name}`;
      if (!present[kind][name]) continue; // it ran in steps that this page does not hold, or elsewhere
      if (!rowsOfNames.has(key)) rowsOfNames.set(key, row);
      const line = cell.appendChild(Object.assign(document.createElement("div"), { className: "row-ways" }));
      line.append(...WAYS.map((way) => wayButton(way, name, kind)));
    }
  }
}

// The words are the style sheet's, so that neither a filter nor a CSV file of the table has them.
function wayButton(way, name, kind) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "way", ariaLabel: `${way} slice, in the timeline` });
  button.dataset.way = way;
  if (way !== "longest") button.tabIndex = -1; // by keyboard the timeline offers them, once it has the longest
  button.addEventListener("click", () => { leadTo(way, name, kind); bringIntoView(); });
  return button;
}

function leadTo(way, name, kind) {
  const like = slicesCalled(name, kind);
  const took = (i) => events.end[i] - events.start[i];
  if (way === "next") {
    const at = like.indexOf(view.chosen);
    const event = at >= 0 ? like[(at + 1) % like.length] : like.find((i) => events.start[i] >= view.from) ?? like[0];
    return showChosen(event);
  }
  like.sort((a, b) => took(b) - took(a) || a - b);
  return showChosen(like[way === "longest" ? 0 : like.length >> 1]);
}

function slicesCalled(name, kind) { // sorted by start
  const found = [];
  for (const row of events.rows) {
    if (row.kind === kind) for (let i = row.first; i < row.behind; i++) if (events.name[i] === name) found.push(i);
  }
  return found.sort((a, b) => events.start[a] - events.start[b] || a - b);
}

function showChosen(event) {
  show(event);
  choose(event);
}

function bringIntoView() {
  canvas.scrollIntoView({ block: "center" });
  canvas.focus({ preventScroll: true });
}

// Offers the ways from the chosen slice: to others of its name, and to its row in a table.
function offerWays(event) {
  ways.replaceChildren();
  if (event < 0) return;
  const [{ kind }, name] = [events.rows[rowOf(events, event)], events.name[event]];
  const offer = (words, act) => {
    const button = ways.appendChild(Object.assign(document.createElement("button"), { type: "button", textContent: words }));
    button.addEventListener("click", act);
  };
  const row = kind === "idle" ? rowOfGap(event) : rowsOfNames.get(`${kind} ${name}`);
  if (row) offer(`row in ${TABLE_TITLES[row.closest(".sortable").id.replace("table-", "")]}`, () => reveal(row));
  const count = slicesCalled(name, kind).length;
  if (count > 1) for (const way of WAYS) offer(`${way} of ${count.toLocaleString("en")}`, () => leadTo(way, name, kind));
}

function rowOfGap(event) {
  const middle = (events.start[event] + events.end[event]) / 2;
  const links = [...document.querySelectorAll("#table-gaps a[href^='#t=']")];
  return links.find((link) => {
    const [from, to] = timesOf(link.getAttribute("href"));
    return Math.abs((from + to) / 2 - middle) < 2;
  })?.closest("tr");
}

// A row of the table of gaps, or its link, goes to the gap.
function followLink(click) {
  const selector = "a[href^='#t=']";
  const link = click.target.closest(selector)
    ?? (click.target.closest("a, button") ? null : click.target.closest("tr")?.querySelector(selector));
  const times = link && timesOf(link.getAttribute("href"));
  if (!times || String(getSelection())) return;
  click.preventDefault();
  setView(...times);
  const idle = events.rows.find((row) => row.kind === "idle");
  choose(idle ? eventAt(events, idle, (times[0] + times[1]) / 2) : -1);
  bringIntoView();
}
