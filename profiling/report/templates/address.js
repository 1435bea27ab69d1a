// What a reader has chosen, in the address: #SECTION&kernels.filter=gemm&kernels.sort=-3. A link to it shows
// the same, and a link to a section alone leaves what was chosen.
"use strict";

const chosen = new Map(); // "kernels.filter" -> "gemm"
const followers = []; // called with the keys that a new address has set

function readAddress() {
  const [section, ...pairs] = location.hash.slice(1).split("&");
  const found = new URLSearchParams(pairs.join("&"));
  for (const [key, value] of found) chosen.set(key, value);
  return [section, [...found.keys()]];
}

function writeAddress(section = readAddress()[0]) {
  const pairs = new URLSearchParams([...chosen]).toString();
  if (pairs || location.hash) history.replaceState(null, "", `#${section}${pairs ? `&${pairs}` : ""}`);
}

// An empty value takes the key out.
function choose(key, value) {
  const [section] = location.hash.slice(1).split("&");
  if (value) chosen.set(key, value); else chosen.delete(key);
  writeAddress(section);
}

// At once, and whenever the address is another.
function followAddress(follow) {
  followers.push(follow);
  follow([...chosen.keys()]);
}

function openAddress() {
  const [section, keys] = readAddress();
  writeAddress(section);
  followers.forEach((follow) => follow(keys));
  if (section && keys.length) document.getElementById(decodeURIComponent(section))?.scrollIntoView();
}

readAddress();
addEventListener("hashchange", openAddress);
addEventListener("load", openAddress);
