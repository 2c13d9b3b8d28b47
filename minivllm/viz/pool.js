// The pool up to 1,000 blocks: a grid of cells that keep their places; what changes is drawn on them.
import { fill, h, number } from "./dom.js";
import { poolCell } from "./block.js";

export function counts(ctx) {
  const { state } = ctx;
  let used = 0, cached = 0;
  state.ref.forEach((ref, b) => { if (ref) used += 1; else if (state.hash[b]) cached += 1; });
  return { used, cached, free: state.blocks - used - cached };
}

// heading, and the pool's make-up as one bar: in use solid, cached hatched, free empty
export function makeup(ctx, n) {
  const part = (cls, share) => share > 0 && h("i", { class: cls, style: { "flex-grow": share } });
  return [
    h("h2", null, "Pool", h("span", { class: "q" }, `${number(ctx.state.blocks)} blocks of ${ctx.state.size} slots: `,
      h("b", null, number(n.used)), " in use, ", h("b", null, number(n.cached)), " cached, ", h("b", null, number(n.free)), " free")),
    h("div", { class: "makeup", "aria-hidden": "true" }, part("used", n.used), part("cached", n.cached), part("free", n.free)),
  ];
}

export function createPool(ctx) {
  const top = h("div"), grid = h("div", { class: "grid", role: "grid" }), root = h("section", { class: "pool", "aria-label": "Pool" }, top, grid);
  let cells = [], columns = 0, size = "";

  function layout() {
    const n = ctx.state.blocks, width = grid.clientWidth || 448;
    const small = n > 256 ? "tiny" : n > 64 ? "small" : "full";
    const pitch = { full: 76, small: 50, tiny: 27 }[small], most = { full: 6, small: 99, tiny: 99 }[small];
    const want = Math.max(2, Math.min(most, Math.floor((width + 8) / (pitch - (small === "full" ? 12 : 0)))));
    if (cells.length === n && columns === want && size === small) return;
    [columns, size] = [want, small];
    cells = Array.from({ length: n }, (_, b) => poolCell(b, size === "full" ? "full" : "small"));
    grid.className = `grid ${size}`;
    grid.style.setProperty("--columns", columns);
    const rows = [];
    for (let b = 0; b < n; b += columns) rows.push(h("div", { role: "row" }, cells.slice(b, b + columns)));
    fill(grid, rows);
  }

  return {
    root,
    get columns() { return columns; },
    cell: (b) => cells[b],
    update() {
      layout();
      const n = counts(ctx);
      fill(top, makeup(ctx, n));
      grid.setAttribute("aria-label", `Pool, ${ctx.state.blocks} blocks, ${n.used} in use, ${n.cached} cached, ${n.free} free`);
      for (const cell of cells) cell.repaint(ctx);
      cells.forEach((cell, b) => { cell.tabIndex = b === ctx.cursor ? 0 : -1; });
    },
    focus(b) { cells[b]?.focus({ preventScroll: false }); },
  };
}
