// One block, drawn at three sizes: the same outline, letter and slots wherever it appears.
import { glyph, h, s } from "./dom.js";
import { stateOf } from "./state.js";

// CSS variables of a request's colour; neutral when too many are live
export const paint = (ctx, id) => {
  const at = ctx.colour(id);
  return at === null ? { "--f": "var(--line)", "--t": "var(--raised)", "--x": "var(--ink2)", "--o": "var(--bg)" }
    : { "--f": `var(--f${at})`, "--t": `var(--t${at})`, "--x": `var(--x${at})`, "--o": `var(--o${at})` };
};

// a request's letter on its colour; of a long name the end, for names that belong together begin alike
export const who = (ctx, id, cls = "") => h("span", { class: "who " + cls, style: paint(ctx, id), title: id.length > 4 ? id : null }, id.length > 4 ? "…" + id.slice(-3) : id);

// a sentence from Python: text stays text, a request becomes its letter
export const sentence = (ctx, spans, cls = "inline") => spans.map((part) => (typeof part === "string" ? part : who(ctx, part.who, cls)));

// one segment per slot: written in this tick = full height, older = 62 %, empty = outline; one bar above 16 slots
export function strip(size, filled, fresh) {
  if (size > 16) {
    const bar = h("span", { class: "strip whole" });
    bar.append(h("i", { class: "full", style: { width: `${(100 * (filled - fresh)) / size}%` } }));
    if (fresh) bar.append(h("i", { class: "full fresh", style: { width: `${(100 * fresh) / size}%` } }));
    return bar;
  }
  const row = h("span", { class: "strip" + (size > 8 ? " tight" : "") });
  for (let i = 0; i < size; i++) row.append(h("i", { class: i >= filled ? "empty" : i >= filled - fresh ? "full fresh" : "full" }));
  return row;
}

// the event of this tick, on the corner: an eviction outranks the take that follows it
export function badge(ctx, b) {
  const kind = ctx.now.evicted.has(b) ? "evict" : ctx.now.taken.has(b) ? "take" : ctx.now.copied.has(b) ? "copy" : ctx.now.hit.has(b) ? "hit" : ctx.now.released.has(b) && !ctx.state.ref[b] ? "release" : null;
  return kind && h("span", { class: "badge " + kind }, glyph(kind, 9));
}

// owners side by side on their own tints, with a divider
export const split = (ctx, owners) => {
  const n = Math.min(owners.length, 4);
  const stops = owners.slice(0, n).map((id, i) => {
    const at = ctx.colour(id), tint = at === null ? "var(--raised)" : `var(--t${at})`;
    return `${tint} ${(100 * i) / n}% ${(100 * (i + 1)) / n}%`;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
};

const outline = () => s("svg", { class: "edge", "aria-hidden": "true" }, s("rect", { x: 0.6, y: 0.6, rx: 6.5 }));

// the words a screen reader hears
export function label(ctx, b) {
  const { state, owners, filled, now } = ctx, ids = owners[b], state_ = stateOf(state, b), parts = [`Block ${b}`];
  if (state_ === "free") parts.push("free");
  else if (state_ === "cached") parts.push("cached", "ref 0", `hash ${state.hash[b].slice(0, 4)}`);
  else parts.push(ids.length > 1 ? `shared by ${ids.slice(0, 4).join(" and ")}${ids.length > 4 ? ` and ${ids.length - 4} more` : ""}` : ids[0] || "in use");
  if (state.ref[b] > 1) parts.push(`ref ${state.ref[b]}`);
  if (state_ === "used") parts.push(`${filled[b]} of ${state.size} slots`);
  if (state_ === "used" && state.hash[b] && !now.evicted.has(b)) parts.push(`hash ${state.hash[b].slice(0, 4)}`);
  const place = state_ === "cached" ? state.free.indexOf(b) : -1;
  if (place >= 0) parts.push(`place ${place + 1} in the queue`);
  if (now.taken.has(b)) parts.push("taken in this tick");
  if (now.evicted.has(b)) { const { hash, home } = now.evicted.get(b); parts.push(`${home ? `${home}'s ` : ""}hash ${hash.slice(0, 4)} evicted`); }
  if (now.hit.has(b)) parts.push("hit in this tick");
  if (now.released.has(b) && state_ !== "used") parts.push("released in this tick");
  return parts.join(", ");
}

// a cell of the pool; `cell.paint(ctx)` redraws it only if something about it changed
export function poolCell(b, size) {
  const node = h("div", { class: "cell", role: "gridcell", tabindex: "-1", "data-block": b });
  let drawn = "";
  node.repaint = (ctx) => {
    const { state, owners, filled, now } = ctx, ids = owners[b], kind = stateOf(state, b);
    const evicted = now.evicted.get(b), fresh = now.fresh.get(b) || 0;
    const key = [kind, ids.join(" "), ids.map((i) => ctx.colour(i)).join(), filled[b], fresh, state.size, state.hash[b], state.ref[b], evicted?.hash, now.taken.has(b), now.hit.has(b), now.released.has(b), now.copied.has(b), size].join("|");
    node.setAttribute("aria-label", label(ctx, b));
    if (key === drawn) return;
    drawn = key;
    const shared = ids.length > 1;
    node.className = `cell ${kind}${shared ? " shared" : ""}${evicted ? " evicted" : ""}${fresh ? " written" : ""}`;
    for (const [k, v] of Object.entries(ids.length === 1 ? paint(ctx, ids[0]) : { "--f": "var(--ink2)", "--t": "transparent", "--x": "var(--ink2)" })) node.style.setProperty(k, v);
    node.style.backgroundImage = shared ? split(ctx, ids) : "";
    node.replaceChildren(outline(), h("span", { class: "id" }, b));
    if (shared) {
      node.append(h("span", { class: "ref" }, `ref ${state.ref[b]}`));
      const letters = ids.length > 3 ? [ids[0], `+${ids.length - 1}`] : ids;
      node.append(h("span", { class: "owners" }, letters.map((id, i) => h("b", { style: i && ids.length > 3 ? {} : paint(ctx, id) }, id))));
    } else if (kind === "used") node.append(h("b", { class: "owner" }, ids[0] ?? "·"));
    else if (kind === "cached") node.append(h("span", { class: "hash" }, glyph("publish", 10), state.hash[b].slice(0, 4)));
    if (evicted && kind === "used" && !shared) node.append(h("s", { class: "was" }, evicted.hash.slice(0, 4)));
    node.append(size === "full" ? strip(state.size, filled[b], fresh) : strip(17, (17 * filled[b]) / state.size, (17 * fresh) / state.size));
    const mark = badge(ctx, b);
    if (mark) node.append(mark);
  };
  return node;
}
