// Parses what a reader types to find rows: words that must all occur, a|b for either, -word for rows
// without it, /a regular expression/, and heading:word to look in one column.
"use strict";

const TERM = /(-?)(?:([\w ]*?):)?(\/(?:[^/\\]|\\.)+\/|\S+)/g;

// Returns a function that says whether a row matches. Throws SyntaxError for a wrong regular expression.
function filterOf(text, headings) {
  const terms = [...text.trim().matchAll(TERM)].map(([whole, not, heading, words]) => {
    const column = headings.indexOf(heading?.trim().toLowerCase());
    const looked = heading === undefined || column >= 0 ? words : whole.slice(not.length);
    const found = testOf(looked, column >= 0);
    return (row) => found(column < 0 ? row.whole : row.cells[column]) !== (not === "-");
  });
  return (row) => terms.every((term) => term(row));
}

// A word for one column has to be the whole cell: there norm does not find layer_norm.
function testOf(words, exact) {
  if (/^\/.+\/$/.test(words)) {
    const pattern = new RegExp(words.slice(1, -1), "i");
    return (text) => pattern.test(text);
  }
  const either = words.toLowerCase().split("|").filter(Boolean);
  return (text) => either.some((word) => (exact ? text === word : text.includes(word)));
}
