// One row per request, one cell per tick: waits dotted, prompt work hatched, decodes solid; below, each tick's tokens.
import { h, mark, number, s, text } from "./dom.js";
import { paint } from "./block.js";

const ROWH = 26, BARS = 52, LABEL = 44, VALUES = 182, NARROW_VALUES = 118, NARROWEST = 13;

// from the recording: what each request did in each tick
export function rowsOf(trace) {
  const rows = new Map(), live = new Map(), bars = [];
  let budget = trace.at(trace.low).budget;
  trace.ticks.forEach((tick, i) => {
    const now = new Map(), bar = { decodes: 0, prompts: 0 };
    for (const e of tick.events) {
      const row = rows.get(e.request);
      if (e.kind === "engine") budget = e.max_num_batched_tokens;
      if (e.kind === "arrive" || e.kind === "fork") { if (!row) rows.set(e.request, { id: e.request, cells: [] }); live.set(e.request, e.kind === "arrive" ? "wait" : "stall"); }
      else if (e.kind === "engine" && e.rebuilt) for (const [id, status] of live) { if (status === "stall") live.set(id, "wait"); }
      else if (e.kind === "admit") live.set(e.request, "stall");
      else if (e.kind === "wait") now.set(e.request, { kind: "wait", why: e.reason });
      else if (e.kind === "preempt") { live.set(e.request, "wait"); now.set(e.request, { kind: "preempt", lost: e.lost }); }
      else if (e.kind === "run") { const one = e.decode && e.count === 1; now.set(e.request, { kind: one ? "decode" : "prefill", count: e.count }); bar[one ? "decodes" : "prompts"] += e.count; }  // a resumed request recomputes
      else if (e.kind === "token" && e.first && row) { row.first = i + 1; if (now.has(e.request)) now.get(e.request).first = true; }
      else if (e.kind === "finish" && row) { row.done = i + 1; live.delete(e.request); if (now.has(e.request)) now.get(e.request).done = true; }
    }
    for (const [id, row] of rows) row.cells[i] = now.get(id) || (live.has(id) ? { kind: live.get(id) } : null);
    bars.push({ ...bar, budget });
  });
  return { rows: [...rows.values()], bars };
}

function hatches() {
  return s("defs", null, [0, 1, 2, 3, 4, 5, "n"].map((i) => s("pattern", { id: `mvg${i}`, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("rect", { width: 5, height: 5, style: { fill: i === "n" ? "var(--bg)" : `var(--t${i})` } }), s("rect", { width: 1.7, height: 5, style: { fill: i === "n" ? "var(--ink2)" : `var(--x${i})` } }))));
}

export function createGantt(ctx) {
  const axis = h("div", { class: "axis", role: "slider", tabindex: "0", "aria-label": "Tick", "aria-valuemin": "0" });
  const table = h("table");
  const root = h("section", { class: "gantt", "aria-label": "Who ran in which tick" }, h("h2", null, "Ticks", h("span", { class: "q" }, "hatched: prompt tokens; solid: one decoded token; hollow: has a seat, gets nothing; dotted: waits")), axis, h("div", { class: "hidden" }, table));
  let geometry = null;
  const pick = (e) => { const box = axis.getBoundingClientRect(), { x0, cw, from, to } = geometry; ctx.go(Math.max(from, Math.min(to, Math.floor((e.clientX - box.left - x0) / cw) + from + 1))); };
  axis.addEventListener("pointerdown", (e) => { if (!geometry) return; axis.setPointerCapture(e.pointerId); ctx.pause(); pick(e); });
  axis.addEventListener("pointermove", (e) => { if (e.buttons && geometry) pick(e); });

  function cell(row, c, x, cw, y) {
    const out = [], middle = x + cw / 2, hue = ctx.colour(row.id) ?? "n";
    if (c.kind === "wait") out.push(s("line", { class: "waits", x1: x + 3, x2: x + cw - 3, y1: y + 10, y2: y + 10 }));
    else if (c.kind === "preempt") out.push(mark("preempt", middle, y + 10, Math.min(14, cw - 2), "loss"));
    else out.push(s("rect", { class: c.kind, x: x + 1.5, y: y + 0.5, width: Math.max(2, cw - 3), height: 19, rx: 2.5, style: c.kind === "prefill" ? { fill: `url(#mvg${hue})` } : {} }));
    if (c.kind === "prefill" && cw >= 24) out.push(s("rect", { class: "paper", x: middle - 4 * String(c.count).length - 2, y: y + 4, width: 8 * String(c.count).length + 4, height: 13, rx: 2 }), text(middle, y + 14.5, c.count, "count", "middle"));
    if (c.why === "memory" || c.why === "hole") out.push(mark("wait", middle, y + 10, Math.min(11, cw - 2), "loss"));
    if (c.first && cw >= 16) out.push(s("circle", { class: "flag", cx: x + cw - 4, cy: y + 1, r: 6.5 }), mark("token", x + cw - 4, y + 1, 8));
    if (c.done) out.push(mark("finish", x + cw + 7, y + 10, 11, "quiet"));
    return out;
  }

  function draw() {
    const { rows, bars } = rowsOf(ctx.trace), width = Math.max(300, axis.clientWidth || 900), narrow = width < 520, room = width - LABEL - (narrow ? NARROW_VALUES : VALUES), most = Math.max(8, Math.floor(room / NARROWEST)), edge = ctx.trace.edge;
    const from = edge <= most ? 0 : Math.max(0, Math.min(edge - most, ctx.at - Math.floor(most / 2))), to = Math.min(edge, from + most), shown = Math.max(12, to - from), cw = Math.min(46, room / shown), x0 = LABEL;
    geometry = { x0, cw, from, to };
    const X = (t) => x0 + (t - from - 1) * cw, visible = rows.filter((r) => r.cells.slice(from, to).some(Boolean)).slice(-12), height = 24 + visible.length * ROWH + BARS + 42, base = 24 + visible.length * ROWH + 12 + BARS;
    const top = Math.max(1, ...bars.map((b) => b.decodes + b.prompts)), limits = bars.map((b) => b.budget).filter((n) => n <= 4 * top), budget = ctx.state.budget, scale = BARS / Math.max(top, ...limits), out = [hatches()];
    if (ctx.at > from && ctx.at <= to) out.push(s("rect", { class: "playhead", x: X(ctx.at), y: 2, width: cw, height: base + 20, rx: 4 }));
    for (let t = from + 1; t <= to; t++) if (cw >= 20 || t % 5 === 0 || t === 1) out.push(text(X(t) + cw / 2, 14, t, t === ctx.at ? "tick strong" : "tick", "middle"));
    visible.forEach((row, i) => {
      const y = 24 + i * ROWH, line = s("g", { style: paint(ctx, row.id) }, s("rect", { class: "letter", x: 0, y: y, width: 20, height: 20, rx: 5 }), text(10, y + 14.5, row.id.slice(0, 2), "name", "middle"));
      for (let t = from + 1; t <= to; t++) { const c = row.cells[t - 1]; if (c) line.append(s("g", { class: t > ctx.at ? "future" : "" }, cell(row, c, X(t), cw, y))); }
      const told = row.first ? `${narrow ? "first" : "first token"} ${row.first}${row.done && row.done <= ctx.at ? `, done ${row.done}` : ""}` : "";
      if (row.first && row.first <= ctx.at) line.append(text(x0 + shown * cw + 22, y + 14, told, "dimtext"));
      out.push(line);
    });
    for (let t = from + 1; t <= to; t++) {
      const b = bars[t - 1], x = X(t), d = b.decodes * scale, p = b.prompts * scale;
      out.push(s("g", { class: t > ctx.at ? "future" : "" }, d > 0 && s("rect", { class: "ink", x: x + 2, y: base - d, width: Math.max(2, cw - 4), height: d }), p > 0 && s("rect", { class: "inkhatch", x: x + 2.5, y: base - d - p + 0.5, width: Math.max(2, cw - 5), height: Math.max(1, p - 1) }), cw >= 18 && text(x + cw / 2, base + 14, b.decodes + b.prompts, "tick", "middle")));
    }
    for (let t = from + 1; t <= to; t++) if (bars[t - 1].budget * scale <= BARS + 1) out.push(s("line", { class: t > ctx.at ? "limit future" : "limit", x1: X(t), x2: X(t) + cw, y1: base - bars[t - 1].budget * scale, y2: base - bars[t - 1].budget * scale }));
    if (budget && budget * scale <= BARS + 1) out.push(text(x0 + shown * cw + 22, base - budget * scale + 4, `budget ${number(budget)}`, "dimtext"));
    out.push(text(0, base - 4, "tokens", "dimtext"));
    axis.replaceChildren(s("svg", { width, height, "aria-hidden": "true" }, out.flat(3).filter(Boolean)));
    table.replaceChildren(h("caption", null, "Requests by tick"), ...visible.map((r) => h("tr", null, h("th", null, r.id), h("td", null, r.cells.map((c, t) => c && t < ctx.at && `${t + 1} ${c.kind}${c.count > 1 ? ` ${c.count}` : ""}`).filter(Boolean).join(", ")))));
  }

  return {
    root,
    update() {
      draw();
      const bar = rowsOf(ctx.trace).bars[ctx.at - 1];
      axis.setAttribute("aria-valuemax", ctx.trace.edge); axis.setAttribute("aria-valuenow", ctx.at);
      axis.setAttribute("aria-valuetext", `${ctx.at} of ${ctx.trace.edge}${bar ? `: ${bar.decodes} decoded, ${bar.prompts} prompt tokens` : ""}`);
    },
  };
}
