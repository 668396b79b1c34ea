"use strict";
// The page is complete without this script; it switches targets, sorts and filters, and shows what a circle stands for.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const [LABEL, FAMILY, PHASE, MODULE, SOURCE, CALLS, FLOP, BYTES] = [0, 1, 2, 3, 4, 5, 6, 7];
  const state = { target: 0, key: "total", down: true, all: false, wide: false };

  // Figures with four significant digits and a decimal prefix, as everywhere in nearpeak.
  const PREFIXES = [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
  const SMALL = [["", 1], ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9]];
  const show = (value, unit) => {
    if (!value) return `0 ${unit}`;
    const prefixes = unit === "s" ? SMALL : PREFIXES;
    const rounded = Number(Math.abs(value).toPrecision(4));
    const [prefix, factor] = prefixes.find((one) => rounded >= one[1]) || prefixes[prefixes.length - 1];
    return `${Number((value / factor).toPrecision(4))} ${prefix}${unit}`;
  };
  const percent = (ratio) => (ratio > 0 && ratio < 0.0005 ? "< 0.1 %" : `${(ratio * 100).toFixed(1)} %`);
  const figure = (value) => (value >= 100 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4))));
  const count = (value) => value.toLocaleString("en-US");

  const target = () => data.targets[state.target];
  const total = (row, of = target()) => of.bound_s[row] * data.rows[row][CALLS];
  const limiter = (row, of = target()) => data.limiters[of.limiter[row]];
  const limiterWords = (row, of = target()) => data.limiter_words[of.limiter[row]];

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // ---- roofline -------------------------------------------------------------------------------------------------
  const circles = new Map([...document.querySelectorAll("#circles circle")].map((one) => [Number(one.dataset.row), one]));
  const [low, high] = data.rate_exponents;
  const height = (rate) => 100 * (1 - (Math.log10(rate) - low) / (high - low));
  const words = (row) => {
    const one = data.rows[row];
    return `${data.names[row] || one[LABEL]}: ${figure(one[FLOP] / one[BYTES])} FLOP/B, ${show(one[FLOP] / target().bound_s[row], "FLOP/s")}, ` +
      `${percent(total(row) / target().unfused_s)} of the time`;
  };
  const tipText = (row) => {
    const one = data.rows[row], at = target();
    const expected = at.expected_s && at.expected_s[row];
    const measured = at.measured_s && at.measured_s[row];
    const lines = [words(row), `${show(at.bound_s[row], "s")} a call × ${count(one[CALLS])} = ${show(total(row), "s")}, limited by ${limiterWords(row)}`,
      [one[PHASE], one[MODULE], one[SOURCE]].filter(Boolean).join(" · ")];
    if (expected) lines.push(`expected ${show(expected, "s")} a call`);
    if (measured) lines.push(`measured ${show(measured, "s")} a call${measured < at.bound_s[row] ? ": implausible, below its bound" : `, attains ${percent(at.bound_s[row] / measured)}`}`);
    return lines.join("\n");
  };
  let order = [];
  const drawPlot = () => {
    order = [...data.plotted].sort((a, b) => total(b) - total(a) || a - b);
    const layer = byId("circles");
    for (const row of order) {
      const circle = circles.get(row);
      circle.setAttribute("cy", `${height(data.rows[row][FLOP] / target().bound_s[row]).toFixed(2)}%`);
      circle.setAttribute("r", Math.max(data.smallest_px, data.area_px * Math.sqrt(total(row) / (target().unfused_s || 1))).toFixed(1));
      circle.setAttribute("tabindex", row === order[0] ? "0" : "-1");
      circle.setAttribute("aria-label", words(row));
      layer.append(circle);
    }
    const top = order.slice(0, 5);
    byId("ranked").replaceChildren(...top.map((row) => element("li", "", words(row))));
    byId("ranks").replaceChildren(...rankTexts(top));
    byId("measured").replaceChildren(...data.plotted.flatMap(measuredMarks));
  };
  const svg = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  // Numbers stand below their circle; circles that lie nearly on each other share one text.
  const rankTexts = (rows) => {
    const found = [];
    rows.forEach((row, place) => {
      const [x, y, r] = ["cx", "cy", "r"].map((name) => parseFloat(circles.get(row).getAttribute(name)));
      const near = found.find((one) => Math.abs(one.x - x) < 4 && Math.abs(one.y - y) < 5);
      if (near) near.text += ` ${place + 1}`;
      else found.push({ x, y, r, text: String(place + 1) });
    });
    return found.map((one) => {
      const made = svg("text", { x: `${one.x}%`, y: `${one.y}%`, dy: one.r + 14, "text-anchor": "middle" });
      made.textContent = one.text;
      return made;
    });
  };
  const measuredMarks = (row) => {
    const used = target().measured_s && target().measured_s[row];
    if (!used) return [];
    const circle = circles.get(row), x = circle.getAttribute("cx"), y = `${height(data.rows[row][FLOP] / used).toFixed(2)}%`;
    const line = svg("line", { x1: x, x2: x, y1: circle.getAttribute("cy"), y2: y });
    const holder = svg("svg", { x, y, overflow: "visible", width: 1, height: 1 });
    holder.append(svg("path", { d: "M-4-4L4 4M-4 4L4-4", class: used < target().bound_s[row] ? "implausible" : "" }));
    return [line, holder];
  };

  const tip = byId("tip");
  const showTip = (circle) => {
    tip.textContent = tipText(Number(circle.dataset.row));
    tip.hidden = false;
    const at = circle.getBoundingClientRect(), box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(12, Math.min(at.left + at.width / 2 - box.width / 2, innerWidth - box.width - 12))}px`;
    tip.style.top = `${at.top - box.height - 10 > 8 ? at.top - box.height - 10 : at.bottom + 10}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  const layer = byId("circles");
  const isCircle = (event) => event.target.tagName === "circle";
  for (const name of ["mouseover", "focusin"]) layer.addEventListener(name, (event) => isCircle(event) && showTip(event.target));
  for (const name of ["mouseout", "focusout"]) layer.addEventListener(name, hideTip);
  addEventListener("scroll", hideTip, { passive: true });
  layer.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hideTip();
    if (!step || !isCircle(event)) return;
    event.preventDefault();
    const place = (order.indexOf(Number(event.target.dataset.row)) + step + order.length) % order.length;
    event.target.setAttribute("tabindex", "-1");
    const next = circles.get(order[place]);
    next.setAttribute("tabindex", "0");
    next.focus({ preventScroll: true });
  });

  // ---- table ----------------------------------------------------------------------------------------------------
  const seconds = (value) => show(value, "s");
  const column = (key, name, value, more = {}) => ({ key, name, value, ...more });
  const CASE = column("label", "Case", (row) => data.rows[row][LABEL]);
  const COUNT = column("calls", "Calls", (row) => data.rows[row][CALLS], { format: count });
  const PLACE = [column("phase", "Phase", (row) => data.rows[row][PHASE]),
    column("module", "Module", (row) => data.rows[row][MODULE], { wide: true }),
    column("source", "Source", (row) => data.rows[row][SOURCE], { wide: true })];
  const WORK = [column("flop", "FLOP", (row) => data.rows[row][FLOP], { format: (value) => show(value, "FLOP") }),
    column("bytes", "Bytes", (row) => data.rows[row][BYTES], { format: (value) => show(value, "B") })];
  const columns = () => {
    if (state.wide) {
      return [CASE, COUNT, ...data.targets.map((one, place) => column(`t${place}`, one.title, (row) => total(row, one),
        { format: seconds, colour: (row) => `lim-${limiter(row, one)}`, title: (row) => `limited by ${limiterWords(row, one)}` })), ...PLACE];
    }
    const expected = target().expected_s ? [
      column("expected", "Expected", (row) => target().expected_s[row] || 0, { format: (value) => (value ? seconds(value) : "–") }),
    ] : [];
    const measured = target().measured_s ? [
      column("measured", "Measured", (row) => target().measured_s[row] || 0, { format: (value) => (value ? seconds(value) : "–") }),
      column("attained", "Attained", attained, { format: (value) => (value ? `${percent(value)}${value > 1 ? " implausible" : ""}` : "–"), wrong: (value) => value > 1 }),
    ] : [];
    return [CASE, column("bound", "Bound", (row) => target().bound_s[row], { format: seconds }), ...expected, ...measured, COUNT,
      column("total", "All calls", (row) => total(row), { format: seconds }),
      column("share", "Share", (row) => total(row) / (target().unfused_s || 1), { format: percent }),
      column("limiter", "Limiter", (row) => limiterWords(row), { colour: (row) => `lim-${limiter(row)}` }), ...WORK, ...PLACE];
  };
  const attained = (row) => (target().measured_s[row] ? target().bound_s[row] / target().measured_s[row] : 0);
  const cell = (row, one) => {
    const at = one.value(row), made = element("td", one.format ? "n" : one.colour ? "l" : one.wide ? "w" : "");
    if (one === CASE) made.append(element("span", `swatch fam-${data.rows[row][FAMILY]}`));
    if (one.colour) made.append(element("span", `swatch ${one.colour(row)}`));
    if (one.title) made.title = one.title(row);
    if (one.wrong && one.wrong(at)) made.classList.add("wrong");
    if (one.wide) made.append(...at.split(/(?<=[./])/).flatMap((part) => [part, element("wbr")]));
    else made.append(one.format ? one.format(at) : at);
    return made;
  };
  const matching = () => {
    const wanted = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean), phase = byId("phase").value;
    return data.rows.map((_, row) => row).filter((row) => {
      const one = data.rows[row];
      const text = `${one[LABEL]} ${one[FAMILY]} ${one[PHASE]} ${one[MODULE]} ${one[SOURCE]} ${limiterWords(row)}`.toLowerCase();
      return (!phase || one[PHASE] === phase) && wanted.every((word) => text.includes(word));
    });
  };
  const drawTable = () => {
    const used = columns(), rows = matching();
    const by = used.find((one) => one.key === state.key) || used[used.length - 1], sign = state.down ? -1 : 1;
    const keys = new Map(rows.map((row) => [row, by.value(row)]));
    rows.sort((a, b) => sign * (typeof keys.get(a) === "string" ? keys.get(a).localeCompare(keys.get(b)) : keys.get(a) - keys.get(b)) || a - b);
    const shown = state.all ? rows : rows.slice(0, data.shown);
    const head = element("tr");
    for (const one of used) {
      const made = element("th", one.format ? "n" : ""), button = element("button", "", one.name);
      made.scope = "col";
      button.type = "button";
      button.dataset.key = one.key;
      if (one.key === by.key) made.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      made.append(button);
      head.append(made);
    }
    const body = shown.map((row) => {
      const made = element("tr");
      made.append(...used.map((one) => cell(row, one)));
      return made;
    });
    byId("table").tHead.replaceChildren(head);
    byId("table").tBodies[0].replaceChildren(...body);
    const sum = rows.reduce((so, row) => so + total(row), 0);
    byId("shown").textContent = `${count(shown.length)} of ${count(rows.length)} shown; these ${count(rows.length)} take ` +
      `${data.complete ? "" : "≥ "}${seconds(sum)}, ${percent(sum / (target().unfused_s || 1))}`;
    byId("all").hidden = shown.length === rows.length;
    byId("all").textContent = `Show all ${count(rows.length)}`;
  };
  byId("table").tHead.addEventListener("click", (event) => {
    const key = event.target.dataset.key;
    if (!key) return;
    state.down = state.key === key ? !state.down : !["label", "phase", "module", "source", "limiter"].includes(key);
    state.key = key;
    drawTable();
    byId("table").querySelector(`button[data-key="${key}"]`).focus();
  });
  for (const id of ["filter", "phase"]) byId(id).addEventListener("input", drawTable);
  byId("all").addEventListener("click", () => { state.all = true; drawTable(); });
  if (byId("wide")) byId("wide").addEventListener("change", (event) => {
    state.wide = event.target.checked;
    state.key = state.wide ? `t${state.target}` : "total";
    state.down = true;
    drawTable();
  });

  // ---- another size or format: figures that were computed when the page was written --------------------------------
  const sizes = ["size-batch", "size-length", "size-format"];
  const sizeHeads = data.grid ? [...byId("size-table").tHead.rows[0].cells].map((cell) => cell.textContent) : [];
  const drawSizes = () => {
    const { batches, lengths, own, answers } = data.grid;
    const [batch, length, format] = sizes.map((id, place) => (byId(id) ? Number(byId(id).value) : own[place]));
    const at = (format * lengths.length + length) * batches.length + batch;
    byId("size-table").tBodies[0].replaceChildren(...data.targets.map((one, place) => {
      const made = element("tr"), answer = answers[place][at], fits = answer && answer[5];
      made.append(element("td", "", one.title));
      if (!answer) {
        made.append(element("td", "", "not shipped at this size, or a format that the device does not take"));
        made.lastChild.colSpan = 5;
        return made;
      }
      const cells = [seconds(answer[0]), answer[1] ? seconds(answer[1]) : "–",
        answer[1] ? `${seconds(answer[2])} to ${seconds(answer[3])}` : "–", figure(answer[4])];
      made.append(...cells.map((text) => element("td", "n", text)));
      made.append(element("td", fits === false ? "wrong" : "", fits === null ? "" : fits ? "fits" : "exceeds the memory"));
      [...made.cells].forEach((cell, column) => { if (column) cell.dataset.name = sizeHeads[column]; });
      return made;
    }));
  };
  if (data.grid) {
    for (const id of sizes) if (byId(id)) byId(id).addEventListener("change", drawSizes);
    byId("size-own").addEventListener("click", () => {
      sizes.forEach((id, place) => { if (byId(id)) byId(id).value = String(data.grid.own[place]); });
      drawSizes();
    });
    drawSizes();
  }

  // ---- target ---------------------------------------------------------------------------------------------------
  const choose = (number) => {
    state.target = number;
    for (const one of document.querySelectorAll(".for-target")) one.toggleAttribute("hidden", Number(one.dataset.target) !== number);
    for (const one of document.querySelectorAll("input[name=target]")) one.checked = Number(one.value) === number;
    byId("target-select").value = String(number);
    hideTip();
    drawPlot();
    drawTable();
    document.documentElement.dataset.target = String(number);
  };
  byId("target-select").addEventListener("change", (event) => choose(Number(event.target.value)));
  for (const one of document.querySelectorAll("input[name=target]")) one.addEventListener("change", () => choose(Number(one.value)));

  const root = document.documentElement;
  // #target=2 in the address opens the page on that target.
  const asked = Number((/target=(\d+)/.exec(location.hash) || [])[1] || 0);
  choose(asked < data.targets.length ? asked : 0);
  root.dataset.circles = String(circles.size);
  root.dataset.ready = "yes";
})();
