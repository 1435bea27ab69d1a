// Sets the theme that was chosen last, else the system's. It runs in the head, before anything is drawn.
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
