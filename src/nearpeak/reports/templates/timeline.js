"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("picture"), under = document.getElementById("under"), span = document.getElementById("span");
  const context = canvas.getContext("2d"), lane = 26, label = 15, foot = 18;
  const count = data.start.length, whole = Math.max(data.window_ns, ...data.start.map((s, i) => s + data.length[i]).slice(-200), 1);
  let from = 0, to = whole, width = 0, chosen = -1;
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const time = (ns) => ns >= 1e9 ? (ns / 1e9).toFixed(3) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : ns >= 1e3 ? (ns / 1e3).toFixed(2) + " µs" : Math.round(ns) + " ns";
  const clamp = () => {
    const size = Math.min(Math.max(to - from, 1000), whole);
    from = Math.min(Math.max(from, 0), whole - size); to = from + size;
  };
  const draw = () => {
    width = canvas.clientWidth;
    const height = data.rows.length * (lane + label) + foot, scale = window.devicePixelRatio || 1;
    canvas.style.height = height + "px"; canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0); context.clearRect(0, 0, width, height);
    const colours = data.colours.map(style), ink = style("ink"), muted = style("muted"), card = style("card"), per = width / (to - from);
    context.font = "11px system-ui, sans-serif"; context.textBaseline = "middle";
    data.rows.forEach((name, row) => {
      context.fillStyle = muted; context.fillText(name, 4, row * (lane + label) + 8);
      context.strokeStyle = style("line"); context.beginPath(); context.moveTo(0, (row + 1) * (lane + label) - .5); context.lineTo(width, (row + 1) * (lane + label) - .5); context.stroke();
    });
    for (let i = 0; i < count; i++) {
      const begin = (data.start[i] - from) * per, size = data.length[i] * per;
      if (begin + size < 0 || begin > width) continue;
      const top = data.row[i] * (lane + label) + label;
      context.fillStyle = colours[data.kind[i]]; context.fillRect(begin, top, Math.max(size > 3 ? size - 1 : size, .6), lane - 4);
      if (i === chosen) { context.strokeStyle = ink; context.lineWidth = 2; context.strokeRect(begin - 1.5, top - 1.5, Math.max(size, 2) + 2, lane - 1); context.lineWidth = 1; }
      if (size > 46) {
        context.save(); context.beginPath(); context.rect(Math.max(begin, 0), top, Math.min(size, width), lane - 4); context.clip();
        context.fillStyle = card; context.fillText(data.names[data.name[i]], Math.max(begin, 0) + 4, top + lane / 2 - 2); context.restore();
      }
    }
    const step = Math.pow(10, Math.floor(Math.log10((to - from) / 3))), bottom = data.rows.length * (lane + label) + 9;
    context.fillStyle = ink;
    for (let at = Math.ceil(from / step) * step, last = -99; at <= to; at += step) {
      const x = (at - from) * per;
      if (x - last > 80 && x < width - 60) { context.fillRect(x, bottom - 9, 1, 5); context.fillText(time(at), x + 3, bottom); last = x; }
    }
    span.textContent = time(to - from) + " of " + time(whole);
  };
  const zoom = (factor, at) => {
    const middle = at === undefined ? (from + to) / 2 : at;
    from = middle - (middle - from) * factor; to = middle + (to - middle) * factor; clamp(); draw();
  };
  const where = (event) => from + (event.offsetX / width) * (to - from);
  canvas.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && to - from >= whole) return; // nothing wider: the page scrolls on
    event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : .8, where(event));
  }, { passive: false });
  const held = new Map();
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); held.set(event.pointerId, event.offsetX); });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return point(event);
    const others = [...held.entries()].filter(([id]) => id !== event.pointerId), before = held.get(event.pointerId);
    if (others.length) {
      const old = Math.abs(before - others[0][1]), now = Math.abs(event.offsetX - others[0][1]);
      if (old > 8 && now > 8) zoom(old / now, where(event));
    } else {
      const moved = (before - event.offsetX) / width * (to - from); from += moved; to += moved; clamp(); draw();
    }
    held.set(event.pointerId, event.offsetX);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => held.delete(event.pointerId));
  canvas.addEventListener("dblclick", () => { from = 0; to = whole; draw(); });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -.2, ArrowRight: .2 }[event.key], factor = { "+": .5, "=": .5, "-": 2 }[event.key];
    if (move) { const size = (to - from) * move; from += size; to += size; clamp(); draw(); event.preventDefault(); }
    if (factor) zoom(factor);
    if (event.key === "0" || event.key === "Home") { from = 0; to = whole; draw(); event.preventDefault(); }
  });
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const factor = Number(button.dataset.zoom); if (factor) zoom(factor); else { from = 0; to = whole; draw(); }
  }));
  const tell = (i) => { under.textContent = `${data.names[data.name[i]]}: ${time(data.length[i])} at ${time(data.start[i])}, ${data.kinds[data.kind[i]]}`; };
  // An event that a finding names: the timeline shows it in the middle, with what ran around it.
  document.querySelectorAll("[data-slice]").forEach((button) => button.addEventListener("click", () => {
    chosen = Number(button.dataset.slice);
    const middle = data.start[chosen] + data.length[chosen] / 2, size = Math.min(whole, Math.max(data.length[chosen] * 10, whole / 50));
    from = middle - size / 2; to = from + size; clamp(); draw(); tell(chosen);
    canvas.focus({ preventScroll: true }); canvas.closest("section").scrollIntoView({ block: "start" });
  }));
  const point = (event) => {
    const row = Math.floor(event.offsetY / (lane + label)), at = where(event), slack = (to - from) / width * 2;
    for (let i = count - 1; i >= 0; i--) {
      if (data.row[i] === row && data.start[i] - slack <= at && at <= data.start[i] + data.length[i] + slack) {
        tell(i); return;
      }
    }
  };
  new ResizeObserver(draw).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  draw();
})();
