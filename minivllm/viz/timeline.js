// All ticks on one axis: pool, waste, prompt tokens, events. Recorded ticks after the playhead are pale.
import { KINDS, LOSS, POOL, PROMPT, column } from "./column.js";
import { createZoom } from "./zoom.js";
import { fill, h, listing, mark, number, percents, plural, s, text } from "./dom.js";

const STEPS = [15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 160, 200], BINS = 100;

export function createTimeline(ctx) {
  const track = h("div", { class: "axis", role: "slider", tabindex: "0", "aria-label": "Tick", "aria-valuemin": "0" });
  const root = h("section", { class: "timeline", "aria-label": "Timeline" }, track);
  const tip = h("div", { class: "tip", hidden: true }), numbers = h("p", { class: "hidden" }), zoom = createZoom(ctx);
  root.append(zoom.root, numbers, tip);
  let geometry = null, columns = [], drawn = "";

  const at = (event) => {
    const box = track.getBoundingClientRect(), { x0, cw, edge, per } = geometry;
    return Math.max(ctx.trace.low, Math.min(edge, ctx.trace.low + Math.round(((event.clientX - box.left - x0) / cw - 0.5) * per)));
  };
  track.addEventListener("pointerdown", (e) => {
    const box = track.getBoundingClientRect();
    if (e.clientX - box.left > geometry.x1 + 4 || e.clientX - box.left < geometry.x0 - 12) return;
    track.setPointerCapture(e.pointerId);
    ctx.go(at(e));
    const move = (m) => ctx.go(at(m));
    track.addEventListener("pointermove", move);
    track.addEventListener("pointerup", () => track.removeEventListener("pointermove", move), { once: true });
  });
  track.addEventListener("pointermove", (e) => {
    const box = track.getBoundingClientRect();
    if (!geometry || e.clientX - box.left > geometry.x1 || e.clientX - box.left < geometry.x0 || e.buttons) { tip.hidden = true; return; }
    const t = at(e), say = ctx.said(t).map((p) => (typeof p === "string" ? p : p.who)).join("");
    tip.hidden = false;
    fill(tip, h("b", null, `Tick ${t + ctx.trace.offset}. `), say);
    tip.style.left = `${Math.max(0, Math.min(box.width - 300, e.clientX - box.left - 150))}px`;
  });
  track.addEventListener("pointerleave", () => { tip.hidden = true; });

  function draw() {
    const width = track.clientWidth || 900, { edge, low, offset } = ctx.trace, long = edge - low, narrow = width < 900, tight = width < 560;
    const per = long > 200 ? Math.ceil(long / BINS) : 1, count = per > 1 ? Math.ceil(long / per) + 1 : STEPS.find((n) => n > long) || 201;
    const x0 = tight ? 74 : narrow ? 96 : 112, x1 = width - (tight ? 8 : narrow ? 156 : 190), cw = (x1 - x0) / count;
    const X = (t) => x0 + ((t - low) / per) * cw + cw / 2;
    const all = Array.from({ length: edge + 1 }, (_, i) => ctx.trace.total(i));
    const rows = { pool: 34, wasteAt: 34 + POOL + 12 };
    rows.waste = Math.max(...all.map((t) => t.held - t.filled)); rows.promptAt = rows.wasteAt + 36;
    const fit = Math.min(10, Math.floor((cw - 3) / 5.8)), across = rows.waste <= 5 ? 5 : Math.min(fit, Math.max(5, Math.ceil(rows.waste / 4)));
    rows.squares = rows.waste <= 40 && across >= 3 && across <= fit && rows.waste <= across * 4 ? across : 0;
    rows.prompt = Math.max(8, ...all.map((t) => Math.max(t.computed, t.reused))); rows.kinds = rows.promptAt + PROMPT + 12;
    const bottom = rows.kinds + KINDS.length * 20;
    geometry = { x0, x1, cw, edge, per, X, rows, bottom, narrow, tight };
    const lab = (y, words) => text(0, y, words, "lab");
    const hatch = (id, w, cls) => s("pattern", { id: ctx.uid + id, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 4, height: 4, class: "paper" }), s("rect", { width: w, height: 4, class: cls }));
    columns = [];
    for (let t = low; t <= edge; t += per) {
      const c = column(ctx, all.slice(t, Math.min(t + per, edge + 1)), cw, rows);
      c.setAttribute("transform", `translate(${X(t)},0)`);
      columns.push([Math.min(t + per - 1, edge), c]);
    }
    const playhead = s("rect", { class: "playhead", y: 26, height: bottom - 26, rx: 4, width: Math.max(cw, 3) });
    const past = s("line", { class: "past", y1: 12, y2: 12, x1: X(low) }), knob = s("g", { class: "knob" }, s("rect", { x: -14, y: 1, width: 28, height: 22, rx: 11 }), text(0, 16.5, "", "knobtext", "middle"));
    const dots = per === 1 && cw > 8 ? Array.from({ length: long + 1 }, (_, t) => s("circle", { cx: X(t + low), cy: 12, r: 2, class: "dot" })) : [];
    const names = s("g", null, KINDS.map((kind, k) => [s("line", { x1: x0, x2: x1, y1: rows.kinds + k * 20 + 8, y2: rows.kinds + k * 20 + 8, class: "hair" }), mark(kind, 6, rows.kinds + k * 20 + 8, 11, LOSS.has(kind) ? "loss" : "quiet"), text(18, rows.kinds + k * 20 + 12, kind, "lab")]).flat());
    const values = s("g", { class: "values" });
    const svg = s("svg", { width, height: bottom + 16, "aria-hidden": "true" },
      s("defs", null, hatch("cached", 1.4, "thread"), hatch("prefill", 1.7, "ink")), playhead,
      s("line", { class: "rail", x1: X(low), x2: X(edge), y1: 12, y2: 12 }), past, dots,
      lab(16, "tick"), lab(rows.pool + 26, "pool"), lab(rows.wasteAt + 22, ctx.edgeState.layout !== "paged" ? "held, empty" : narrow ? "last block" : "last-block waste"), lab(rows.promptAt + PROMPT - 10, narrow && tight ? "prompt" : "prompt tokens"),
      s("line", { x1: x0, x2: x1, y1: rows.promptAt + PROMPT + 0.5, y2: rows.promptAt + PROMPT + 0.5, class: "hair" }), names,
      columns.map(([, c]) => c), knob, text(X(low), bottom + 12, low + offset, "tick", "middle"), edge > low && text(X(edge), bottom + 12, edge + offset, "tick", "middle"), values);
    track.replaceChildren(svg);
    Object.assign(geometry, { playhead, past, knob, dots, values });
  }

  function values(total) {
    const { x1, rows, values: group, tight } = geometry, val = (y, ...parts) => s("text", { x: x1 + 14, y }, parts.map(([words, strong]) => s("tspan", { class: strong ? "strong" : "" }, words)));
    const free = total.blocks - total.used - total.cached, waste = total.held - total.filled, [share] = percents([total.used, total.cached, free]);
    numbers.textContent = `${total.used} blocks in use, ${total.cached} cached, ${free} free; ${waste} of ${total.held} slots empty; ${total.computed} prompt tokens computed, ${total.reused} reused`;
    if (tight) { group.replaceChildren(); return; }
    group.replaceChildren(
      s("text", { x: x1 + 14, y: 16, class: "dimtext" }, `live edge: ${ctx.trace.edge + ctx.trace.offset}`),
      val(rows.pool + 18, [number(total.used), 1], [` in use, ${share} %`]), val(rows.pool + 34, [`${number(total.cached)} cached, ${number(free)} free`]),
      val(rows.wasteAt + 22, [number(waste), 1], [` of ${plural(total.held, "slot")}${geometry.narrow ? "" : " empty"}`]),
      val(rows.promptAt + PROMPT - 18, [number(total.computed), 1], [` computed, ${number(total.reused)} reused`]),
      val(rows.promptAt + PROMPT - 2, ["hit rate so far "], [`${total.asked ? Math.round((100 * total.hits) / total.asked) : 0} %`, 1]));
  }

  // "2 evictions, Y finished": what a screen reader hears for a tick
  function valuetext(t) {
    const { count = {}, who = {} } = ctx.trace.total(t), parts = [];
    if (count.hit) parts.push(plural(count.hit, "hit"));
    if (count.evict) parts.push(plural(count.evict, "eviction"));
    for (const [kind, words] of [["preempt", "preempted"], ["arrive", "arrived"], ["finish", "finished"]]) if (who[kind]) parts.push(`${listing(who[kind], 3)} ${words}`);
    return `${t + ctx.trace.offset} of ${ctx.trace.edge + ctx.trace.offset}${parts.length ? ": " + parts.join(", ") : ""}`;
  }

  return {
    root,
    update() {
      const key = [ctx.trace.edge, ctx.trace.tail.length, track.clientWidth].join();
      if (key !== drawn) { draw(); drawn = key; }
      const { X, playhead, past, knob, dots, cw, per } = geometry, t = ctx.at;
      playhead.setAttribute("x", X(ctx.trace.low + Math.floor((t - ctx.trace.low) / per) * per) - Math.max(cw, 3) / 2);
      past.setAttribute("x2", X(t));
      knob.setAttribute("transform", `translate(${X(t)},0)`);
      knob.lastChild.textContent = t + ctx.trace.offset;
      dots.forEach((dot, i) => { dot.classList.toggle("done", i + ctx.trace.low < t); dot.classList.toggle("here", i + ctx.trace.low === t); });
      for (const [last, c] of columns) { c.classList.toggle("future", last > t && last - per + 1 > t); c.classList.toggle("here", t <= last && t > last - per); }
      values(ctx.trace.total(t));
      zoom.update(geometry);
      track.setAttribute("aria-valuemin", ctx.trace.low + ctx.trace.offset); track.setAttribute("aria-valuemax", ctx.trace.edge + ctx.trace.offset); track.setAttribute("aria-valuenow", t + ctx.trace.offset); track.setAttribute("aria-valuetext", valuetext(t));
    },
  };
}
