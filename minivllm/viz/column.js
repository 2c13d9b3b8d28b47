// One tick of the timeline (or a bin of ticks): the pool's make-up, waste, prompt tokens, and a mark per kind of event.
import { mark, s, text } from "./dom.js";

export const KINDS = ["hit", "evict", "preempt", "arrive", "finish"], LOSS = new Set(["evict", "preempt"]), POOL = 44, PROMPT = 34;
const NAMED = new Set(["preempt", "arrive", "finish"]);

// one tick (or bin of ticks) drawn around x = 0
export function column(ctx, totals, cw, rows) {
  const t = totals.at(-1), bw = Math.max(2, Math.min(34, cw * 0.62)), u = POOL / Math.max(1, t.blocks), parts = [];
  const used = t.used * u, cached = t.cached * u, sum = (f) => totals.reduce((a, x) => a + f(x), 0);
  parts.push(s("rect", { x: -bw / 2, y: rows.pool, width: bw, height: POOL, class: "frame" }),
    used > 0 && s("rect", { x: -bw / 2, y: rows.pool + POOL - used, width: bw, height: used, class: "used" }),
    cached > 0.3 && s("rect", { x: -bw / 2 + 0.5, y: rows.pool + POOL - used - cached, width: bw - 1, height: cached, class: "cached", fill: `url(#${ctx.uid}cached)` }));
  const waste = t.held - t.filled;
  if (!rows.squares) { const height = Math.max(1, (22 * waste) / Math.max(1, rows.waste)); if (waste) parts.push(s("rect", { x: -bw / 4, y: rows.wasteAt + 23 - height, width: bw / 2, height, class: "waste" })); } else {
    const wide = Math.min(waste, rows.squares);
    for (let i = 0; i < waste; i++) parts.push(s("rect", { x: -wide * 2.9 + 0.9 + (i % wide) * 5.8, y: rows.wasteAt + 18 - Math.floor(i / wide) * 5.6, width: 4.6, height: 4.6, class: "waste" }));
  }
  const computed = sum((x) => x.computed), reused = sum((x) => x.reused), pw = Math.max(1.5, Math.min(15, cw * 0.28)), v = PROMPT / Math.max(1, rows.prompt);
  if (computed) parts.push(s("rect", { x: reused ? -pw - 1 : -pw / 2, y: rows.promptAt + PROMPT - computed * v, width: pw, height: Math.max(1, computed * v), class: "computed", fill: `url(#${ctx.uid}prefill)` }));
  if (reused) parts.push(s("rect", { x: computed ? 1 : -pw / 2, y: rows.promptAt + PROMPT - reused * v, width: pw, height: Math.max(1, reused * v), class: "reused" }));
  KINDS.forEach((kind, k) => {
    const n = sum((x) => x.count[kind] || 0), y = rows.kinds + k * 20;
    if (!n) return;
    const names = NAMED.has(kind) ? totals.flatMap((x) => x.who[kind] || []) : [];
    const tag = names.length === 1 ? names[0] : n > 1 ? (n > 999 ? `${Math.round(n / 100) / 10}k` : String(n)) : "";
    const label = 17 + tag.length * 7 <= cw ? tag : "", width = label ? 17 + label.length * 7 : 14;
    if (cw < 12) parts.push(s("rect", { x: -Math.max(1, cw / 2 - 1), y: y + 3, width: Math.max(2, cw - 2), height: 10, class: LOSS.has(kind) ? "tickmark loss" : "tickmark" }));
    else parts.push(s("rect", { x: -width / 2 - 1, y, width: width + 2, height: 16, class: "gap" }), mark(kind, label ? -width / 2 + 8 : 0, y + 8, 12, LOSS.has(kind) ? "loss" : ""), label && text(-width / 2 + 16, y + 12, label, LOSS.has(kind) ? "tag loss" : "tag"));
  });
  return s("g", { class: "col" }, parts);
}
