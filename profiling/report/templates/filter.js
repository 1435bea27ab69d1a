// What a reader types to find rows: words that all have to be there, a|b for either, -word for rows without
// it, /a regular expression/, and heading:word to look in one column.
"use strict";

const TERM = /(-?)(?:([\w ]*?):)?(\/(?:[^/\\]|\\.)+\/|\S+)/g;

// A function of a row that says whether it is looked for. SyntaxError: for a wrong regular expression.
function filterOf(text, headings) {
  const terms = [...text.trim().matchAll(TERM)].map(([whole, not, heading, words]) => {
    const column = headings.indexOf(heading?.trim().toLowerCase());
    const looked = heading === undefined || column >= 0 ? words : whole.slice(not.length);
    const found = testOf(looked, column >= 0);
    return (row) => found(column < 0 ? row.whole : row.cells[column]) !== (not === "-");
  });
  return (row) => terms.every((term) => term(row));
}

// In a column of its own a word is the whole of a cell: norm is not layer_norm there.
function testOf(words, exact) {
  if (/^\/.+\/$/.test(words)) {
    const pattern = new RegExp(words.slice(1, -1), "i");
    return (text) => pattern.test(text);
  }
  const either = words.toLowerCase().split("|").filter(Boolean);
  return (text) => either.some((word) => (exact ? text === word : text.includes(word)));
}
