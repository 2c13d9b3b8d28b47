// Linked hover: the same ring round one block at all its places, and a line in the gutter from each table to the pool.
import { s } from "./dom.js";

export function createLinks(ctx, root) {
  const under = s("svg", { class: "under", "aria-hidden": "true" });
  root.append(under);
  const box = (node) => { const r = node.getBoundingClientRect(), o = root.getBoundingClientRect(); return { x: r.left - o.left, y: r.top - o.top, w: r.width, h: r.height }; };

  // from under a chip to the gutter, along it, and to the top of the block
  function line(from, cell, gutter) {
    const x = from.x + from.w / 2, y0 = from.y + from.h + 8, gy = cell.y - 5, bx = cell.x + cell.w / 2, r = 7, d = gy > y0 ? 1 : -1;
    if (Math.abs(gy - y0) < 2 * r) return `M${x} ${from.y + from.h + 4}V${y0 - 3}q0 3 3 3H${bx - 3}`;
    return `M${x} ${from.y + from.h + 4}V${y0 - 3}q0 3 3 3H${gutter - r}q${r} 0 ${r} ${d * r}V${gy - d * r}q0 ${d * r} ${r} ${d * r}H${bx - 3}q3 0 3 3V${cell.y - 3}`;
  }

  return {
    update() {
      const ringed = new Set(ctx.ringed.length ? ctx.ringed : [ctx.focused ?? ctx.pinned].filter((b) => b !== null && b !== undefined));
      for (const node of root.querySelectorAll("[data-block]")) node.classList.toggle("ring", ringed.has(Number(node.dataset.block)));
      under.replaceChildren();
      if (ringed.size !== 1 || root.clientWidth < 620) return;
      const [b] = ringed, cell = root.querySelector(`.cell[data-block="${b}"]`), reqs = root.querySelector(".requests");
      if (!cell || !reqs) return;
      const target = box(cell), column = box(reqs);
      if (target.x < column.x + column.w) return;
      const gutter = column.x + column.w + 20;
      for (const chip of root.querySelectorAll(`[data-chip][data-block="${b}"]`)) under.append(s("path", { d: line(box(chip), target, Math.min(gutter, target.x - 8)) }));
    },
  };
}
