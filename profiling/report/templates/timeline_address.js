// Keeps a timeline's view in the address, next to what other scripts keep there: t=FROM,TO in ms,
// slice=ROW,START, selection=FROM,TO, find=WORDS, folded=GROUPS. Such a link shows the same again.

const OWN = /^(t|slice|selection|find|folded)=/;
const foldedText = () => events.groups.flatMap(({ folded }, number) => (folded ? [number] : [])).join() || "none";
let [foldedAtFirst, saving] = ["", 0];

function saveSoon() {
  clearTimeout(saving);
  saving = setTimeout(saveState, 250); // browsers allow few changes of the address
}

function saveState() {
  const ms = (...times) => times.map((time) => (time / 1e6).toFixed(6)).join();
  const { from, to, chosen, selection } = view;
  const state = {
    t: ms(from, to),
    slice: chosen >= 0 && `${rowOf(events, chosen)},${ms(events.start[chosen])}`,
    selection: selection && ms(...selection),
    find: encodeURIComponent(search.value.trim()),
    folded: foldedText() !== foldedAtFirst && foldedText(),
  };
  const others = location.hash.slice(1).split("&").filter((part) => part && !OWN.test(part));
  const own = Object.entries(state).filter(([, value]) => value).map(([key, value]) => `${key}=${value}`);
  try { history.replaceState(history.state, "", `#${[...others, ...own].join("&")}`); } catch { /* a frame may forbid it */ }
}

function partOf(address, key) {
  return address.slice(1).split("&").find((part) => part.startsWith(`${key}=`))?.slice(key.length + 1) ?? "";
}

function timesOf(address, key = "t") {
  const times = partOf(address, key).split(",").map(Number);
  return times.length === 2 && times.every(Number.isFinite) && times[0] < times[1] ? times.map((ms) => ms * 1e6) : null;
}

function sliceOf(address) { // -1 if it names none
  const [number, ms] = partOf(address, "slice").split(",").map(Number);
  const row = events.rows[number];
  const event = row && Number.isFinite(ms) ? firstAbove(events.start, row.first, row.behind, ms * 1e6 + 0.5) - 1 : -1;
  return event >= (row?.first ?? 0) && Math.abs(events.start[event] - ms * 1e6) < 1 ? event : -1;
}

// Shows what the address says; returns false if it says nothing about the timeline.
function followAddress() {
  const address = location.hash;
  if (!address.slice(1).split("&").some((part) => OWN.test(part))) return false;
  const [times, slice, selection, folded] = [timesOf(address), sliceOf(address), timesOf(address, "selection"), partOf(address, "folded")];
  if (!times && slice < 0) return false;
  if (folded) events.groups.forEach((group, number) => { fold([group], folded.split(",").includes(String(number))); });
  if (times) setView(...times); else show(slice);
  try { search.value = decodeURIComponent(partOf(address, "find")); } catch { search.value = ""; }
  look();
  Object.assign(view, { chosen: -1, selection: null });
  if (selection) measure(...selection);
  if (slice >= 0) choose(slice);
  return true;
}
