// Resolves a chart's colours by name: they follow the theme, hatches and labels the colour below them.
"use strict";

// A name without a colour of its own is drawn in a neutral one.
function withColours(value, style) {
  if (typeof value === "string" && value.startsWith("var(--")) {
    return (style.getPropertyValue(value.slice(4, -1)) || style.getPropertyValue("--other")).trim();
  }
  if (Array.isArray(value)) return typeof value.at(-1) === "number" ? value : value.map((item) => withColours(item, style));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, withColours(v, style)]));
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// Relative luminance, as WCAG 2 defines it.
function relativeLuminance(hex) {
  const linear = channels(hex).map((each) => {
    const share = each / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

// Black or white: one of them has a contrast of at least 4.58 to 1 with any colour.
function inkOn(hex) {
  return relativeLuminance(hex) > 0.1791 ? "#000000" : "#ffffff";
}

// A hatch is darker than its colour under light labels and lighter under dark ones, which stay readable.
function hatchOn(hex) {
  const away = inkOn(hex) === "#000000" ? 255 : 0;
  const mixed = channels(hex).map((each) => Math.round(each + 0.4 * (away - each)));
  return `#${mixed.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}

function finished(trace) {
  const { marker, insidetextfont } = trace;
  if (typeof marker?.color !== "string" || !marker.color.startsWith("#")) return trace;
  const made = { ...trace };
  if (insidetextfont) made.insidetextfont = { ...insidetextfont, color: inkOn(marker.color) };
  if (marker.pattern) {
    const hatch = { fillmode: "replace", bgcolor: marker.color, fgcolor: hatchOn(marker.color), size: 7, solidity: 0.3 };
    made.marker = { ...marker, pattern: { ...hatch, ...marker.pattern } };
  }
  return made;
}

// Returns [data, layout] in the theme of the page.
function themed(figure) {
  const style = getComputedStyle(document.documentElement);
  const { data, layout } = withColours(figure, style);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = {
    title: { font: { size: 13 }, standoff: 8 }, automargin: true,
    gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"),
  };
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 13, color: colour("--text") },
    hoverlabel: {
      bgcolor: colour("--card"), bordercolor: colour("--line"), align: "left",
      font: { color: colour("--text"), family: FONT },
    },
    uirevision: "kept", // the zoom survives a change of theme
    ...layout,
  };
  for (const name of ["xaxis", "yaxis"]) {
    whole[name] = { ...axis, ...layout[name], title: { ...axis.title, ...layout[name].title } };
  }
  return [data.map(finished), whole];
}
