"use strict";
// Keys, triage, theme, filters and copying; everything that is read works without it.
(function () {
  const all = (query, from) => Array.from((from || document).querySelectorAll(query));
  const one = (query, from) => (from || document).querySelector(query);

  // Says something for a while, with a link or a button beside it.
  let silence = 0;
  function say(text, extra) {
    const said = one("#said");
    said.classList.remove("sr");
    said.textContent = text;
    if (extra) said.append(" ", extra);
    said.classList.add("on");
    clearTimeout(silence);
    silence = setTimeout(() => said.classList.remove("on"), 7000);
  }

  function flipTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("nearpeak-theme", root.dataset.theme); } catch (error) { /* it holds for this page */ }
    if (window.nearpeakCharts) window.nearpeakCharts.redraw();
  }
  one("#theme").addEventListener("click", flipTheme);

  const help = one("#help");
  one("#help-button").addEventListener("click", () => help.showModal());

  all("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch (error) {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }));

  all("[data-filter]").forEach((box) => box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    all("tbody tr", document.getElementById(box.dataset.filter)).forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
  }));

  all("form[data-auto] select").forEach((box) => box.addEventListener("change", () => box.form.requestSubmit()));

  all("[data-fit]").forEach((button) => button.addEventListener("click", () => {
    const fit = window.nearpeakCharts.fit(button.dataset.fit);
    button.setAttribute("aria-pressed", String(fit));
    button.textContent = fit ? "Show the speed of light" : "Fit to the values";
  }));

  // A token that the command line put behind the # of the address never goes over the wire but in the form.
  const field = one("form.sign-in #token");
  if (field && location.hash.length > 1) {
    field.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname);
  }

  // Triage.
  const cards = () => all("[data-alert]");
  let current = -1, last = null;

  function choose(place, quietly) {
    const found = cards();
    if (!found.length) return;
    current = Math.max(0, Math.min(found.length - 1, place));
    found.forEach((card, index) => card.classList.toggle("current", index === current));
    if (quietly) return;
    found[current].focus({ preventScroll: true });
    found[current].scrollIntoView({ block: "nearest" });
  }

  const ask = one("#ask");
  function asked(kind, title) {
    return new Promise((resolve) => {
      one("#ask-title").textContent = title;
      for (const name of ["assignee", "days", "note"]) {
        const wanted = name === kind || (name === "note" && kind === "days");
        one(".ask-" + name, ask).hidden = !wanted;
        const input = one("#ask-" + name);
        input.disabled = !wanted;
        input.required = name === kind && kind === "assignee";
      }
      ask.addEventListener("close", () => {
        resolve(ask.returnValue === "ok" ? Object.fromEntries(new FormData(one("#ask-form"))) : null);
      }, { once: true });
      ask.returnValue = "cancel";
      ask.showModal();
      one("#ask-" + kind).focus();
    });
  }

  async function send(form, action, fields) {
    const body = new URLSearchParams({ action, mark: one("[name=mark]", form).value, ...fields });
    const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { Accept: "application/json" } });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found.status;
  }

  const CLOSED = new Set(["fixed", "expected", "invalid-noise", "infra", "wontfix", "backed-out", "duplicate", "went-away"]);
  async function act(card, action) {
    const form = one("form.actions", card), button = form && one(`[value="${action}"]`, form);
    if (!form) {
      const link = document.createElement("a");
      link.href = "/sign-in";
      link.textContent = "Sign in";
      return say("Acting on alerts needs a token.", link);
    }
    if (!button) return say("That cannot be done with it now.");
    const kind = button.dataset.asks;
    const fields = kind ? await asked(kind, `Alert ${card.dataset.alert}: ${action}`) : {};
    if (!fields) return card.focus();
    try {
      const status = await send(form, action, fields), place = cards().indexOf(card);
      last = { form, card, status, after: card.nextElementSibling, list: card.parentElement };
      const badge = one(".status", card);
      badge.textContent = status;
      badge.className = "status s-" + status;
      if (fields.assignee) one(".who", card).textContent = fields.assignee;
      const gone = CLOSED.has(status) || action === "snooze";
      if (gone && card.matches(".waiting")) {
        card.remove();
        choose(Math.min(place, cards().length - 1));
      } else {
        card.focus();
        if (gone && action !== "snooze") return location.reload();
      }
      say(`Alert ${card.dataset.alert}: ${action === "snooze" ? "snoozed" : action === "assign" ? "assigned to " + fields.assignee : status}.${CLOSED.has(status) ? " u brings it back." : ""}`);
    } catch (error) {
      say(error.message);
    }
  }

  async function undo() {
    if (!last || !CLOSED.has(last.status)) return say("There is nothing to bring back.");
    try {
      const status = await send(last.form, "reopen", {}), badge = one(".status", last.card);
      badge.textContent = status;
      badge.className = "status s-" + status;
      if (!last.card.isConnected) last.list.insertBefore(last.card, last.after && last.after.isConnected ? last.after : null);
      choose(cards().indexOf(last.card));
      say(`Alert ${last.card.dataset.alert}: ${status} again.`);
      last = null;
    } catch (error) {
      say(error.message);
    }
  }

  all("form.actions").forEach((form) => form.addEventListener("submit", (event) => {
    const action = event.submitter && event.submitter.value;
    if (action === "reopen") return;
    event.preventDefault();
    act(form.closest("[data-alert]"), action);
  }));

  const KEYS = { a: "acknowledge", s: "assign", e: "expected", i: "invalid", z: "snooze" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, dialog[open]")) {
      if (event.key === "Escape" && event.target.id === "search") event.target.blur();
      return;
    }
    const card = cards()[Math.max(0, current)];
    if (event.key === "j" || event.key === "k") {
      const link = one(`.crumbs [rel="${event.key === "j" ? "next" : "prev"}"]`);
      if (link) location.href = link.href;
      else choose(current < 0 ? 0 : current + (event.key === "j" ? 1 : -1));
    } else if (event.key in KEYS && card) act(card, KEYS[event.key]);
    else if (event.key === "u" && cards().length + (last ? 1 : 0)) undo();
    else if (event.key === "Enter" && event.target.matches("[data-alert], body") && card && one("h2 a", card)) location.href = one("h2 a", card).href;
    else if (event.key === "/" && one("#search")) one("#search").focus();
    else if (event.key === "?") help.showModal();
    else if (event.key === "t") flipTheme();
    else return;
    event.preventDefault();
  });
  // On a phone the menu is wider than the screen: where one is, is shown.
  const here = one(".menu [aria-current]"), menu = one(".menu");
  if (here) menu.scrollLeft = here.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;

  if (document.body.dataset.page === "triage" && cards().length) choose(0, true);
})();
