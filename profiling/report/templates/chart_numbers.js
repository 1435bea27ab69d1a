// Makes a table of a chart's numbers when it is opened.
"use strict";

// Plotly's texts have its markup and escapes.
function plainText(text) {
  return new DOMParser().parseFromString(String(text ?? "").replaceAll("<br>", " "), "text/html").body.textContent;
}

const BOX = { lowerfence: "1 %", q1: "25 %", median: "median", q3: "75 %", upperfence: "99 %" };

// [series, where, value] of each point of a trace.
function pointsOf(trace) {
  const name = plainText(trace.name);
  if (trace.fill === "toself") return []; // a band has no points of its own
  if (trace.type === "box" && trace.median) return Object.keys(BOX).map((key) => [name, BOX[key], trace[key][0]]);
  if (trace.type === "box") return trace.x.map((value, at) => [name, `value ${at + 1}`, value]);
  const [where, value] = trace.orientation === "h" ? [trace.y, trace.x] : [trace.x, trace.y];
  return where.map((place, at) => [name, typeof place === "number" ? place : plainText(place), value[at]]);
}

function headingsOf({ data, layout }) {
  const titles = [layout.xaxis, layout.yaxis].map((axis) => plainText(axis?.title?.text));
  const lying = data[0].orientation === "h" || data[0].type === "box";
  const [where, value] = lying ? [titles[1], titles[0]] : titles;
  return ["series", where || "of", value || "value"];
}

function numbersTable(name, caption, figure) {
  const box = document.getElementById("numbers").content.cloneNode(true).querySelector(".sortable");
  const points = figure.data.flatMap(pointsOf);
  const kept = [0, 1, 2].filter((column) => column === 2 || points.some((point) => point[column] !== "" && point[column] !== undefined));
  box.id = `table-numbers-${name}`;
  box.querySelector("caption").textContent = caption;
  box.querySelector(".scroll").ariaLabel = caption;
  const heads = box.querySelector("thead tr"), body = box.querySelector("tbody");
  const headings = headingsOf(figure);
  for (const column of kept) {
    const head = document.createElement("th");
    head.scope = "col";
    head.textContent = headings[column];
    if (points.every((point) => typeof point[column] !== "string")) head.dataset.number = "";
    heads.append(head);
  }
  for (const point of points) {
    const row = body.insertRow();
    for (const column of kept) row.append(numberCell(point[column]));
  }
  return box;
}

function numberCell(value) {
  const cell = document.createElement("td");
  cell.textContent = typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 6 }) : value ?? "–";
  if (typeof value === "string") return cell;
  cell.className = "number";
  cell.dataset.value = value ?? "";
  return cell;
}

// A chart may have grown since its numbers were shown.
async function showNumbers(details) {
  await figuresReady;
  details.querySelector(".sortable")?.remove();
  if (!details.open) return;
  const name = details.dataset.numbers;
  const box = numbersTable(name, details.dataset.caption, figures[name]);
  details.append(box);
  prepareTable(box);
}
