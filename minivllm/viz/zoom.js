// For long recordings: the twenty ticks before and after the playhead at full size, under the binned timeline.
import { KINDS, LOSS, column } from "./column.js";
import { fill, h, mark, s, text } from "./dom.js";

const REACH = 20;

export function createZoom(ctx) {
  const root = h("div", { class: "zoom", hidden: true, "aria-hidden": "true" });
  return {
    root,
    update({ x0, x1, rows, per }) {
      root.hidden = per === 1;
      if (root.hidden) return;
      const { low, edge, offset } = ctx.trace, from = Math.max(low, Math.min(ctx.at - REACH, edge - 2 * REACH)), to = Math.min(edge, from + 2 * REACH);
      const cw = (x1 - x0) / (2 * REACH + 1), X = (t) => x0 + (t - from + 0.5) * cw, top = { ...rows, pool: 4, wasteAt: 60 };
      top.promptAt = 92; top.kinds = 138; top.squares = 0;
      const bottom = top.kinds + KINDS.length * 20, ticks = Array.from({ length: to - from + 1 }, (_, i) => from + i);
      fill(root, s("svg", { width: root.clientWidth, height: bottom + 16 },
        s("rect", { class: "playhead", x: X(ctx.at) - cw / 2, y: 0, width: cw, height: bottom, rx: 4 }),
        text(0, 30, `ticks ${from + offset}–${to + offset}`, "lab"),
        KINDS.map((kind, k) => [s("line", { x1: x0, x2: x1, y1: top.kinds + k * 20 + 8, y2: top.kinds + k * 20 + 8, class: "hair" }), mark(kind, 6, top.kinds + k * 20 + 8, 11, LOSS.has(kind) ? "loss" : "quiet"), text(18, top.kinds + k * 20 + 12, kind, "lab")]),
        ticks.map((t) => {
          const drawn = column(ctx, [ctx.trace.total(t)], cw, top);
          drawn.setAttribute("transform", `translate(${X(t)},0)`);
          drawn.setAttribute("class", `col${t > ctx.at ? " future" : ""}${t === ctx.at ? " here" : ""}`);
          drawn.append(s("rect", { x: -cw / 2, y: 0, width: cw, height: bottom, class: "touch" }));
          drawn.addEventListener("click", () => ctx.go(t));
          return drawn;
        }),
        ticks.filter((t) => (t + offset) % 5 === 0).map((t) => text(X(t), bottom + 12, t + offset, "tick", "middle"))));
    },
  };
}
