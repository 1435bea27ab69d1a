// Tables that sort and filter, and can be saved as CSV and JSON.
"use strict";

const MISSING = -Infinity; // sorts behind all values

function cellValue(cell) {
  const { value } = cell.dataset;
  if (value === undefined) return (ownText(cell) ?? "").toLowerCase();
  return value === "" ? MISSING : parseFloat(value); // "5.5 to 5.6" sorts by its first number
}

// Returns a cell's words without those of its links, or null for a dash, which stands for no value.
function ownText(cell) {
  const words = (cell.querySelector("code") ?? cell.firstChild)?.textContent.trim() ?? "";
  return words === "–" ? null : words;
}

function headsOf(table) {
  return [...table.tHead.rows[0].cells];
}

function headingOf(head) {
  return head.textContent.trim();
}

function sortTable(table, column, direction) {
  const body = table.tBodies[0];
  const order = (a, b) => {
    const [x, y] = [cellValue(a.cells[column]), cellValue(b.cells[column])];
    return (x === MISSING) - (y === MISSING) || (x > y ? 1 : x < y ? -1 : 0) * direction;
  };
  body.append(...[...body.rows].sort(order));
  for (const [index, head] of headsOf(table).entries()) {
    head.ariaSort = index !== column ? null : direction > 0 ? "ascending" : "descending";
  }
}

// Returns a row's texts as the filter sees them: what its cells show, and the full names behind that.
function searched(row) {
  row.searched ??= (() => {
    const texts = [...row.cells].map((cell) => (ownText(cell) ?? "").toLowerCase());
    const titles = [...row.cells].map((cell) => cell.title.toLowerCase());
    return { cells: texts, whole: [...texts, ...titles].join(" ") };
  })();
  return row.searched;
}

let keptRow = () => true; // a page may leave out rows, beyond the table's own filter

function matchingRows(box) {
  const table = box.querySelector("table"), field = box.querySelector("input");
  const headings = headsOf(table).map((head) => headingOf(head).toLowerCase());
  let matches = () => true;
  field.setCustomValidity("");
  const rows = [...table.tBodies[0].rows].filter(keptRow);
  if (!field.value.trim()) return rows; // the usual case, without reading any text
  try { matches = filterOf(field.value, headings); } catch (error) { field.setCustomValidity(error.message); }
  return rows.filter((row) => matches(searched(row)));
}

// Shows the rows that match; only the first of them until "all" is pressed.
function showRows(box) {
  const rows = box.querySelector("table").tBodies[0].rows;
  const found = matchingRows(box), all = box.querySelector(".all");
  const limit = box.dataset.all ? Infinity : +box.dataset.limit;
  for (const row of rows) row.hidden = true;
  for (const row of found.slice(0, limit)) row.hidden = false;
  const wrong = box.querySelector("input").validationMessage;
  box.querySelector(".shown").textContent = wrong || `${Math.min(found.length, limit)} of ${rows.length} shown`;
  all.hidden = found.length <= +box.dataset.limit;
  all.textContent = box.dataset.all ? "fewer" : `all ${found.length}`;
}

// Scrolls to a row or to something else, and unfolds it; a keyboard and a screen reader go on from there.
function reveal(place) {
  for (let at = place.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  const isRow = place.matches("tr"), box = isRow && place.closest(".sortable");
  if (isRow && place.hidden) {
    box.dataset.all = "1";
    showRows(box);
  }
  if (isRow && place.hidden) {
    filterBy(box, "");
    keepChoice(`${box.id.replace("table-", "")}.filter`, "");
  }
  place.tabIndex = -1;
  place.scrollIntoView({ block: isRow ? "center" : "start" });
  place.focus({ preventScroll: true });
}

// Returns numbers as measured and whole names; a unit is in the heading.
function exported(box) {
  const heads = headsOf(box.querySelector("table"));
  const headings = heads.map((head) => {
    const unit = head.dataset.unit;
    return unit && !headingOf(head).includes(unit) ? `${headingOf(head)} [${unit}]` : headingOf(head);
  });
  const rows = matchingRows(box).map((row) => [...row.cells].map((cell) => {
    const { value } = cell.dataset;
    if (value !== undefined) return value === "" ? null : Number.isNaN(+value) ? value : +value;
    return cell.title || ownText(cell);
  }));
  return [headings, rows];
}

// RFC 4180. A text that begins like a formula gets an apostrophe, because a spreadsheet would run it.
function csvOf([headings, rows]) {
  const field = (value) => {
    if (typeof value === "number" || value === null) return String(value ?? "");
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headings, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

function jsonOf([headings, rows]) {
  const names = headings.map((name, at) => (headings.indexOf(name) === at ? name : `${name} (${at + 1})`));
  return JSON.stringify(rows.map((row) => Object.fromEntries(row.map((value, at) => [names[at], value]))), null, 1);
}

function sortBy(box, number) {
  sortTable(box.querySelector("table"), Math.abs(number) - 1, Math.sign(number));
  showRows(box);
}

function filterBy(box, text) {
  box.querySelector("input").value = text;
  showRows(box);
}

function prepareTable(box) {
  const table = box.querySelector("table"), field = box.querySelector("input");
  const name = box.id.replace("table-", "");
  for (const [column, head] of headsOf(table).entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // readers look for the largest number first, and for the least loss
      const first = "number" in head.dataset && !("least" in head.dataset) ? -1 : 1;
      const before = { ascending: 1, descending: -1 }[head.ariaSort];
      const number = (column + 1) * (before ? -before : first);
      sortBy(box, number);
      keepChoice(`${name}.sort`, String(number));
    });
  }
  field.addEventListener("input", () => {
    showRows(box);
    keepChoice(`${name}.filter`, field.value.trim());
  });
  box.querySelector(".all").addEventListener("click", () => {
    box.dataset.all = box.dataset.all ? "" : "1";
    showRows(box);
  });
  box.querySelector(".csv").addEventListener("click", () => saveText(`${name}.csv`, "text/csv", csvOf(exported(box))));
  box.querySelector(".json").addEventListener("click", () => saveText(`${name}.json`, "application/json", jsonOf(exported(box))));
  showRows(box);
  onAddress(name, (keys) => {
    const sort = +choices.get(`${name}.sort`);
    if (keys.includes(`${name}.filter`)) filterBy(box, choices.get(`${name}.filter`));
    if (keys.includes(`${name}.sort`) && headsOf(table)[Math.abs(sort) - 1]) sortBy(box, sort);
  });
}
