// Searches a timeline: slices that do not match are dimmed, n and N go to the next match and back.

const SPECIAL = /[.*+?^${}()|[\]\\]/g;

function pattern(words) { // a regular expression if the words are a valid one, else the text itself
  try { return new RegExp(words, "i"); } catch { return new RegExp(words.replace(SPECIAL, "\\$&"), "i"); }
}

function look() {
  const words = search.value.trim();
  const wanted = words && pattern(words);
  const shades = events.shades.map((shade) => Boolean(words) && shade === words.toLowerCase());
  view.wanted = words ? Uint8Array.from(events.names, ({ label, whole }) => wanted.test(label) || wanted.test(whole)) : null;
  if (words && shades.some(Boolean)) { // a family or a cause by its name, as the legend has it
    for (let i = 0; i < events.name.length; i++) if (shades[events.shade[i]]) view.wanted[events.name[i]] = 1;
  }
  found.events = words ? eventsCalled(events, view.wanted) : [];
  found.at = -1;
  const sum = found.events.reduce((ns, i) => ns + events.end[i] - events.start[i], 0);
  box.querySelector(".found").textContent = words ? `${found.events.length.toLocaleString("en")} found, ${durationText(sum)}` : "";
  saveSoon();
  redraw();
}

function nextFound(direction) {
  const count = found.events.length;
  if (!count) return;
  if (found.at < 0) { // the first in view or after it
    const behind = found.events.findIndex((i) => events.start[i] >= view.from);
    found.at = behind < 0 ? 0 : behind;
    if (direction < 0) found.at = (found.at - 1 + count) % count;
  } else found.at = (found.at + direction + count) % count;
  const event = found.events[found.at];
  show(event);
  choose(event);
  box.querySelector(".found").textContent = `${(found.at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`;
}
