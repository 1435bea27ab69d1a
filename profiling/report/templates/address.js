// Keeps the reader's choices in tables in the address: #SECTION&kernels.filter=gemm&kernels.sort=-3. Such a
// link shows the same again. Pairs of other scripts stay unchanged; a link to a section keeps the choices.
"use strict";

const choices = new Map(); // "kernels.filter" -> "gemm"
const choiceFollowers = new Map(); // by table: called with the keys that an address brings

function addressParts() {
  const parts = location.hash.slice(1).split("&").filter(Boolean);
  const isOwn = (part) => /^[^=]+\.(filter|sort)=/.test(part);
  return {
    section: parts.find((part) => !part.includes("=")),
    own: [...new URLSearchParams(parts.filter(isOwn).join("&"))],
    others: parts.filter((part) => part.includes("=") && !isOwn(part)),
  };
}

// Returns the keys that the address has.
function readChoices() {
  const { own } = addressParts();
  for (const [key, value] of own) choices.set(key, value);
  return own.map(([key]) => key);
}

function writeChoices() {
  const { section, others } = addressParts();
  const state = new URLSearchParams([...choices]).toString();
  const address = `#${[section, ...others, state].filter(Boolean).join("&")}`;
  if (address === (location.hash || "#")) return;
  try { history.replaceState(history.state, "", address); } catch { /* a frame may forbid it */ }
}

// An empty value takes the key out.
function keepChoice(key, value) {
  if (value) choices.set(key, value); else choices.delete(key);
  writeChoices();
}

// Calls back at once, and whenever the address changes. A table that replaces another takes its name.
function onAddress(name, follow) {
  choiceFollowers.set(name, follow);
  follow([...choices.keys()]);
}

// Scrolls to what an agent's answer names ID/kernel/17 (docs/agents.md), or to where the page has more of its kind.
// A page is of one capture or comparison, so that the ID itself tells nothing here.
function showNamed(name) {
  const id = name.replace(/^[0-9a-f]{8}\//, ""), kind = id.split("/")[0];
  const place = document.getElementById(id) ?? document.getElementById(kind)
    ?? document.getElementById(`${kind}/0`)?.closest(".sortable, details, section");
  if (place) reveal(place);
}

// An address that somebody cut or typed may hold a % that means nothing.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function openAddress() {
  const keys = readChoices(), { section } = addressParts();
  choiceFollowers.forEach((follow) => follow(keys));
  if (section?.includes("/")) showNamed(decoded(section));
  else if (section && keys.length) document.getElementById(decoded(section))?.scrollIntoView();
  writeChoices();
}

readChoices();
addEventListener("hashchange", openAddress);
addEventListener("load", openAddress);
