// Pools above 1,000 blocks: one mark per block on a canvas, and a lens that shows 7 x 3 of them in full.
import { fill, h, number } from "./dom.js";
import { poolCell } from "./block.js";
import { stateOf } from "./state.js";
import { counts, makeup } from "./pool.js";

const LENS = [7, 3], MOST_MARKS = 16000;

export function createBigPool(ctx) {
  const top = h("div"), canvas = h("canvas", { class: "marks", "aria-hidden": "true" }), frame = h("div", { class: "frame" });
  const field = h("div", { class: "field" }, canvas, frame), lens = h("div", { class: "lens", role: "grid" });
  const orders = [["id", "by id"], ["owner", "by owner"], ["queue", "by queue"]];
  const seg = h("span", { class: "seg", role: "radiogroup", "aria-label": "order" }, orders.map(([id, words]) => h("button", { role: "radio", "aria-checked": String(id === "id"), onclick: () => choose(id) }, words)));
  const legend = h("div", { class: "legend", "aria-hidden": "true" });
  const root = h("section", { class: "pool", "aria-label": "Pool" }, h("div", { class: "poolhead" }, top, h("span", { class: "lab" }, "order", seg)), field, legend);
  const low = h("section", { class: "lenses", "aria-label": "Lens" }, h("h2", { class: "lenshead" }, "Lens", h("span", { class: "q" }, "the framed 7 × 3 blocks in full; it follows the pointer and the arrow keys")), lens);
  let order = [], by = "id", grid = null, cells = new Map(), corner = 0, shown = "";

  function choose(id) { by = id; [...seg.children].forEach((b, i) => b.setAttribute("aria-checked", String(orders[i][0] === id))); update(); }

  function arrange() {
    const { state } = ctx, ids = Array.from({ length: state.blocks }, (_, b) => b);
    if (by === "id") return ids;
    if (by === "owner") { const rank = new Map([...state.running, ...state.waiting].map((id, i) => [id, i])); return ids.sort((a, b) => (rank.get(ctx.owners[a][0]) ?? 1e9) - (rank.get(ctx.owners[b][0]) ?? 1e9) || a - b); }
    const place = new Map(state.free.map((b, i) => [b, i]));
    const key = (b) => (state.ref[b] ? 2e9 : place.get(b) ?? (state.hash[b] ? 1e9 : 0));
    return ids.sort((a, b) => key(a) - key(b) || a - b);
  }

  function colours() {
    const css = getComputedStyle(ctx.root), get = (name) => css.getPropertyValue(name).trim();
    return { line: get("--line"), bg: get("--bg") || "#fff", loss: get("--loss"), lossTint: get("--loss-tint"), own: [0, 1, 2, 3, 4, 5].map((i) => get(`--f${i}`)) };
  }

  function draw() {
    const width = field.clientWidth || 600, n = order.length, per = Math.ceil(n / MOST_MARKS), marks = Math.ceil(n / per);
    const columns = Math.max(16, Math.min(128, Math.floor(width / (marks > 4096 ? 8 : marks > 2048 ? 10 : 13.5)))), pitch = width / columns, size = Math.max(3, pitch - 2.2), ratio = devicePixelRatio || 1;
    const rows = Math.ceil(marks / columns);
    grid = { columns, pitch, per, rows };
    canvas.width = width * ratio; canvas.height = rows * pitch * ratio; canvas.style.width = `${width}px`; canvas.style.height = `${rows * pitch}px`;
    const c = canvas.getContext("2d"), ink = colours(), { state, now } = ctx, mine = new Set((ctx.many && state.requests.get(ctx.selected)?.table) || []);
    c.scale(ratio, ratio);
    const hatch = document.createElement("canvas"); hatch.width = hatch.height = 8;
    const hc = hatch.getContext("2d"); hc.strokeStyle = ink.line; hc.lineWidth = 2; hc.beginPath(); for (const o of [-8, 0, 8]) { hc.moveTo(o, 8); hc.lineTo(o + 8, 0); } hc.stroke();
    const pattern = c.createPattern(hatch, "repeat"); pattern.setTransform(new DOMMatrix().scale(0.5));
    for (let m = 0; m < marks; m++) {
      const x = (m % columns) * pitch, y = Math.floor(m / columns) * pitch;
      if (per > 1) { share(c, ink, order.slice(m * per, (m + 1) * per), x, y, size, pattern); continue; }
      const b = order[m], ref = state.ref[b];
      if (ref) {
        const own = mine.has(b) ? 0 : ref === 1 ? ctx.colour(ctx.owners[b][0]) : null;
        c.globalAlpha = own === null ? 0.62 : 1; c.fillStyle = own === null ? ink.line : ink.own[own]; c.fillRect(x, y, size, size); c.globalAlpha = 1;
        if (ref > 1) { c.fillStyle = ink.bg; c.beginPath(); c.arc(x + size / 2, y + size / 2, size * 0.2, 0, 7); c.fill(); }
      } else {
        if (state.hash[b]) { c.fillStyle = pattern; c.fillRect(x, y, size, size); }
        c.strokeStyle = ink.line; c.lineWidth = 0.8; c.setLineDash(state.hash[b] ? [] : [1, 2]); c.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1); c.setLineDash([]);
      }
      if (now.evicted.has(b)) {
        c.fillStyle = ink.lossTint; c.fillRect(x, y, size, size); c.strokeStyle = ink.loss; c.lineWidth = 1.2; c.strokeRect(x, y, size, size);
        const k = size * 0.27; c.lineWidth = 1.6; c.beginPath(); c.moveTo(x + k, y + k); c.lineTo(x + size - k, y + size - k); c.moveTo(x + size - k, y + k); c.lineTo(x + k, y + size - k); c.stroke();
      }
    }
  }

  // one mark for several blocks: how many of them are in use, cached, free, from below
  function share(c, ink, blocks, x, y, size, pattern) {
    const { state } = ctx, used = blocks.filter((b) => state.ref[b]).length, cached = blocks.filter((b) => !state.ref[b] && state.hash[b]).length;
    const u = (size * used) / blocks.length, k = (size * cached) / blocks.length;
    c.globalAlpha = 0.62; c.fillStyle = ink.line; c.fillRect(x, y + size - u, size, u); c.globalAlpha = 1;
    c.fillStyle = pattern; c.fillRect(x, y + size - u - k, size, k);
    c.strokeStyle = ink.line; c.lineWidth = 0.5; c.strokeRect(x + 0.25, y + 0.25, size - 0.5, size - 0.5);
  }

  function moveLens(place) {
    if (!grid || grid.per > 1) { frame.hidden = true; lens.replaceChildren(); return; }
    const { columns, pitch, rows } = grid, col = Math.max(0, Math.min(columns - LENS[0], (place % columns) - 3)), row = Math.max(0, Math.min(rows - LENS[1], Math.floor(place / columns) - 1));
    corner = row * columns + col;
    frame.hidden = false;
    Object.assign(frame.style, { left: `${col * pitch - 3}px`, top: `${row * pitch - 3}px`, width: `${LENS[0] * pitch + 3}px`, height: `${LENS[1] * pitch + 3}px` });
    const blocks = Array.from({ length: LENS[1] }, (_, r) => order.slice(corner + r * columns, corner + r * columns + LENS[0]));
    const drawn = blocks.map((row) => row.map(cellOf));
    if (shown === String(blocks) && lens.children.length) return;  // the same cells: keep the focus where it is
    shown = String(blocks);
    const focused = lens.contains(document.activeElement) ? Number(document.activeElement.dataset.block) : null;
    lens.replaceChildren(...drawn.map((row) => h("div", { role: "row" }, row)));
    if (focused !== null) cells.get(ctx.cursor)?.focus({ preventScroll: true });
  }

  function cellOf(b) {
    if (!cells.has(b)) cells.set(b, poolCell(b, "small"));
    const cell = cells.get(b);
    cell.repaint(ctx);
    cell.tabIndex = b === ctx.cursor ? 0 : -1;
    return cell;
  }

  function drawLegend() {
    const sample = (cls, words) => h("span", null, h("i", { class: `sample dot ${cls}` }), words);
    fill(legend, sample("used", "in use"), sample("sharing", "shared"), ctx.many && ctx.selected && sample("mine", `in ${ctx.selected}'s table`), sample("cached", "cached"), sample("free", "free"), sample("evict", "evicted in this tick"));
  }

  canvas.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect(), place = Math.floor((e.clientY - box.top) / grid.pitch) * grid.columns + Math.floor((e.clientX - box.left) / grid.pitch);
    if (place >= 0 && place < order.length && grid.per === 1) { ctx.cursor = order[place]; moveLens(place); ctx.point(order[place]); }
  });
  canvas.addEventListener("click", () => ctx.pin(ctx.cursor));

  function update() {
    const n = counts(ctx);
    fill(top, makeup(ctx, n)[0]);
    order = arrange();
    if (cells.size > 2000) { cells = new Map(); shown = ""; }
    draw(); drawLegend();
    lens.setAttribute("aria-label", `Pool, ${ctx.state.blocks} blocks, ${n.used} in use, ${n.cached} cached, ${n.free} free`);
    moveLens(Math.max(0, order.indexOf(ctx.cursor)));
  }

  return {
    root, low, update,
    get columns() { return grid?.columns ?? 1; },
    focus(b) { moveLens(order.indexOf(b)); cells.get(b)?.focus(); },
  };
}
