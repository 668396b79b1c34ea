"use strict";
// Light or dark: as the system has it, until the button of the page says otherwise.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("nearpeak-theme"); } catch { return null; } };
  if (stored()) root.dataset.theme = stored();
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("nearpeak-theme", root.dataset.theme); } catch { /* a page opened from a file may have no storage */ }
  });
})();
