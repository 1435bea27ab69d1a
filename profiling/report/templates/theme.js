// In the head, before anything is drawn: the theme that was chosen last, else the system's.
"use strict";
const darkSystem = matchMedia("(prefers-color-scheme: dark)");

function savedTheme() {
  try { return localStorage.getItem("theme"); } catch { return null; } // a browser may forbid it
}

function applyTheme() {
  const system = darkSystem.matches ? "dark" : "light";
  document.documentElement.dataset.theme = savedTheme() ?? system;
}

applyTheme();
