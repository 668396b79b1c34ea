"use strict";
// Histories as charts: value, interval, levels to compare with, changes of the level; by mouse and by keys.
(function () {
  const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const SCALED = new Set(["s", "B", "J", "W", "FLOP"]);
  const FEW = 3, drawn = new Map();

  function shown(value, unit, digits) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0 " + unit;
    if (!SCALED.has(unit)) return Number(value.toPrecision(digits || 4)) + " " + unit;
    const size = Math.abs(value);
    const usable = PREFIXES.filter(([factor]) => (unit === "s" ? factor <= 1 : unit === "J" || factor >= 1));
    const [factor, prefix] = usable.find(([one]) => size >= one) || usable[usable.length - 1];
    return Number((value / factor).toPrecision(digits || 4)) + " " + prefix + unit;
  }

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return { ink: of("--ink"), muted: of("--muted"), line: of("--line"), accent: of("--accent"), bad: of("--bad"),
      good: of("--good"), predicted: of("--matrix"), card: of("--card") };
  }

  function marksPlugin(data, hue) {
    return { hooks: { draw: [(u) => {
      const context = u.ctx, ratio = devicePixelRatio || 1;
      context.save();
      context.beginPath();
      context.rect(u.bbox.left, u.bbox.top - 14 * ratio, u.bbox.width, u.bbox.height + 14 * ratio);
      context.clip();
      for (const [index, worse, sure, text] of data.marks) {
        const x = Math.round(u.valToPos(index - 0.5, "x", true));
        context.strokeStyle = context.fillStyle = worse ? hue.bad : hue.good;
        context.lineWidth = ratio;
        context.setLineDash(sure ? [] : [4 * ratio, 4 * ratio]);
        context.globalAlpha = 0.55;
        context.beginPath();
        context.moveTo(x, u.bbox.top);
        context.lineTo(x, u.bbox.top + u.bbox.height);
        context.stroke();
        context.globalAlpha = 1;
        context.font = (11 * ratio) + "px system-ui, sans-serif";
        const words = (worse ? (sure ? "▲" : "△") : (sure ? "▼" : "▽")) + (u.root.classList.contains("small") ? "" : " " + text);
        const width = context.measureText(words).width;
        const right = x + 4 * ratio + width > u.bbox.left + u.bbox.width;
        context.textAlign = right ? "right" : "left";
        context.fillText(words, x + (right ? -4 : 4) * ratio, u.bbox.top - 2 * ratio);
      }
      context.restore();
    }] } };
  }

  // Levels to compare with reach across the whole chart, and few values have bars for a band: one commit draws no line.
  function levelsPlugin(data, hue) {
    return { hooks: { drawSeries: [(u, which) => {
      if (which !== 1) return;
      const context = u.ctx, ratio = devicePixelRatio || 1, box = u.bbox;
      const stroke = (dash, colour, width, from, to) => {
        context.setLineDash(dash.map((one) => one * ratio));
        context.strokeStyle = colour;
        context.lineWidth = width * ratio;
        context.beginPath();
        context.moveTo(...from);
        context.lineTo(...to);
        context.stroke();
      };
      context.save();
      context.beginPath();
      context.rect(box.left, box.top, box.width, box.height);
      context.clip();
      for (const [name, value] of data.lines) {
        const light = name === "speed of light", y = u.valToPos(value, "y", true);
        stroke(light ? [7, 4] : [2, 3], light ? hue.ink : hue.predicted, 1.4, [box.left, y], [box.left + box.width, y]);
      }
      if (data.y.length < FEW) data.y.forEach((_, index) => {
        const x = u.valToPos(index, "x", true);
        stroke([], hue.accent + "55", 9, [x, u.valToPos(data.hi[index], "y", true)], [x, u.valToPos(data.lo[index], "y", true)]);
      });
      context.restore();
    }] } };
  }

  function tipPlugin(data, element) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    return { hooks: {
      init: [(u) => u.over.appendChild(tip)],
      setCursor: [(u) => {
        const index = u.cursor.idx;
        tip.hidden = index === null || index === undefined || u.cursor.left < 0;
        if (tip.hidden) return;
        const mark = data.marks.find((one) => one[0] === index);
        const lines = [shown(data.y[index], data.unit), shown(data.lo[index], data.unit) + " to " + shown(data.hi[index], data.unit),
          (data.sha[index] || "run " + data.run[index]) + (data.day[index] ? ", " + data.day[index] : "")];
        if (data.subject[index]) lines.push(data.subject[index]);
        if (mark) lines.push((mark[1] ? "▲ worse " : "▼ better ") + mark[3]);
        tip.replaceChildren(...lines.map((text, row) => {
          const line = document.createElement(row ? "span" : "b");
          line.textContent = text;
          return line;
        }));
        const left = u.cursor.left > u.over.clientWidth / 2 ? u.cursor.left - tip.offsetWidth - 12 : u.cursor.left + 12;
        tip.style.left = Math.max(0, left) + "px";
        element.dataset.index = index;
      }],
    } };
  }

  function range(data, fit) {
    const values = [...data.lo, ...data.hi, ...data.y, ...(fit ? [] : data.lines.map((one) => one[1]))];
    let low = Infinity, high = -Infinity;
    for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    const room = Math.max((high - low) * 0.12, Math.abs(high) * 0.002) || 1;
    const least = fit ? low - room : low >= 0 ? Math.max(0, low - room) : low - room;
    return [least, high + room];
  }

  function options(element, data, fit) {
    const hue = colours(), small = element.classList.contains("small");
    const axis = { stroke: hue.muted, grid: { stroke: hue.line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const series = [{ label: "commit" }, { label: "value", stroke: hue.accent, width: small ? 1.4 : 1.8, points: { show: data.y.length < (small ? FEW : 80), size: 5 } },
      { label: "low", stroke: "transparent", points: { show: false } }, { label: "high", stroke: "transparent", points: { show: false } }];
    return {
      width: Math.max(200, element.clientWidth), height: small ? 108 : Math.min(340, Math.max(230, element.clientWidth * 0.36)),
      legend: { show: false }, series, bands: [{ series: [3, 2], fill: hue.accent + "33" }],
      scales: { x: { time: false, range: (u, low, high) => (data.y.length < 2 ? [-0.6, 0.6] : [low - 0.6, high + 0.6]) }, y: { range: () => range(data, fit) } },
      axes: [
        { ...axis, show: !small, size: 30, values: (u, splits) => splits.map((one) => (Number.isInteger(one) && (data.day[one] || data.sha[one])) || ""), space: 90 },
        { ...axis, size: small ? 54 : 66, space: small ? 30 : 38, values: (u, splits) => splits.map((one) => shown(one, data.unit, 4)) },
      ],
      cursor: { y: false, drag: { x: !small, y: false }, points: { size: 7 } },
      padding: [14, 10, small ? 4 : 0, 0],
      plugins: [levelsPlugin(data, hue), marksPlugin(data, hue), tipPlugin(data, element)],
    };
  }

  function draw(element) {
    const holder = document.getElementById("data-" + element.dataset.chart);
    if (!holder || typeof uPlot === "undefined") return;
    const data = JSON.parse(holder.textContent), old = drawn.get(element);
    const fit = old ? old.fit : element.classList.contains("small");
    if (old) old.plot.destroy();
    const columns = [data.y.map((_, index) => index), data.y, data.lo, data.hi];
    element.querySelectorAll("svg").forEach((one) => one.remove());
    const plot = new uPlot(options(element, data, fit), columns, element);
    if (element.classList.contains("small")) plot.root.classList.add("small");
    drawn.set(element, { plot, data, fit });
    if (!old) listen(element);
  }

  function openRun(element) {
    const state = drawn.get(element), index = Number(element.dataset.index);
    if (state && element.dataset.index !== undefined && state.data.run[index] !== undefined)
      location.href = element.dataset.run.replace("RUN", state.data.run[index]);
  }

  function listen(element) {
    let down = null;
    element.addEventListener("mousedown", (event) => { down = event.clientX; });
    element.addEventListener("click", (event) => { if (down !== null && Math.abs(event.clientX - down) < 4) openRun(element); });
    element.addEventListener("keydown", (event) => {
      const { plot, data } = drawn.get(element), last = data.y.length - 1;
      const now = element.dataset.index === undefined ? last : Number(element.dataset.index);
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
      if (event.key === "Enter") { openRun(element); event.preventDefault(); event.stopPropagation(); return; }
      if (step === undefined) return;
      event.preventDefault();
      const index = Math.min(last, Math.max(0, now + step));
      plot.setCursor({ left: plot.valToPos(index, "x"), top: 10 });
      element.dataset.index = index;
      const said = document.getElementById("said");
      said.classList.add("sr");
      said.textContent = (data.sha[index] || "run " + data.run[index]) + ": " + shown(data.y[index], data.unit);
    });
  }

  function drawAll() { document.querySelectorAll("[data-chart]").forEach(draw); }

  window.nearpeakCharts = {
    redraw: drawAll, shown,
    fit: (name) => {
      const element = document.querySelector('[data-chart="' + CSS.escape(name) + '"]'), state = drawn.get(element);
      state.fit = !state.fit;
      draw(element);
      return state.fit;
    },
  };
  drawAll();
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
