"use strict";
// Sets light or dark before the page is painted, so that it does not flash.
(function () {
  var kept = null;
  try { kept = localStorage.getItem("nearpeak-theme"); } catch (error) { /* a file without storage */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
