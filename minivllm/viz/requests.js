// Who is here and which blocks they hold: block tables up to 64 blocks, one bar each above.
import { fill, glyph, h, listing, number, plural, runs } from "./dom.js";
import { badge, label, paint, split, strip, who } from "./block.js";

const MOST_CHIPS = 24;

function status(ctx, r) {
  const run = ctx.now.runs.get(r.id);
  if (r.status === "waiting") return r.preemptions ? "preempted" : "waiting";
  if (ctx.now.first.has(r.id)) return "first token";
  if (run && !run.decode) return r.preemptions ? "recomputing" : "prefilling";
  return r.computed >= r.prompt ? "decoding" : "prefilling";
}

// a chip has room for eight segments; above that it shows one bar
function small(ctx, filled, block) {
  const { size } = ctx.state, fresh = ctx.now.fresh.get(block) || 0;
  return size > 8 ? strip(17, (17 * filled) / size, (17 * fresh) / size) : strip(size, filled, fresh);
}

function chip(ctx, r, block, index) {
  const owners = ctx.owners[block] || [], shared = owners.length > 1;
  const node = h("div", { class: "chip" + (shared ? " shared" : ""), role: "listitem", "data-block": block, "data-chip": "",
    "aria-label": `logical ${index}, physical ${block}, ${filledBy(ctx, r, index)} of ${ctx.state.size} slots`,
    style: { ...(shared ? { "--f": "var(--ink2)", "--t": "transparent", "--x": "var(--ink2)" } : paint(ctx, r.id)) } },
    h("span", { class: "box" }, h("span", { class: "phys" }, block), small(ctx, filledBy(ctx, r, index), block)));
  if (shared) node.lastChild.style.backgroundImage = split(ctx, owners);
  const mark = badge(ctx, block);
  if (mark && !mark.classList.contains("release")) node.lastChild.append(mark);
  return h("div", { class: "slot" }, h("span", { class: "logical" }, index), node);
}

const filledBy = (ctx, r, index) => Math.min(ctx.state.size, Math.max(0, r.computed - index * ctx.state.size));

function table(ctx, r) {
  const { size } = ctx.state, shown = r.table.slice(0, MOST_CHIPS), last = r.table.length - 1;
  const sharing = r.table.filter((b) => (ctx.owners[b] || []).length > 1);
  const others = [...new Set(sharing.flatMap((b) => ctx.owners[b]))].filter((id) => id !== r.id);
  const notes = [];
  if (others.length) notes.push(h("span", null, `${plural(sharing.length, "block")} shared with ${listing(others, 3)}`));
  if (ctx.state.layout !== "paged") notes.push(h("span", null, `${r.computed} of ${plural(r.table.length * size, "reserved slot")} in use`));
  else if (last >= 0 && r.computed >= r.prompt && filledBy(ctx, r, last) < size) notes.push(h("span", { class: "right" }, `${filledBy(ctx, r, last)} of ${size} slots in the last`));
  const hits = ctx.now.hits.get(r.id);
  return [
    h("div", { class: "chips", role: "list", "aria-label": `${r.id}, ${status(ctx, r)}, ${plural(r.computed, "token")} in ${plural(r.table.length, "block")}` },
      shown.map((b, i) => chip(ctx, r, b, i))),
    r.table.length > MOST_CHIPS && h("p", { class: "note" }, `and ${r.table.length - MOST_CHIPS} more: ${runs(r.table.slice(MOST_CHIPS))}`),
    notes.length > 0 && h("p", { class: "note pair" }, notes),
    r.cached > 0 && h("p", { class: "note" }, glyph("hit"), ` ${r.parent ? `forked from ${r.parent}` : hits ? "hit now" : "hit at the start"}: ${plural(r.cached, "token")} not computed`),
  ];
}

// one dashed ghost per block needed; those that were missing in vermillion
function ghosts(ctx, r) {
  const wait = ctx.now.waits.get(r.id), need = wait && wait.need ? wait.need : Math.ceil(r.tokens / ctx.state.size);
  const memory = wait && (wait.reason === "memory" || wait.reason === "hole"), has = memory ? wait.available : need;
  const shown = wait ? Math.min(need, 21) : 0, short = need - has;
  let words = "";
  if (memory) {
    const now = ctx.free >= need && wait.reason === "memory" ? " There is room for it now." : "";
    words = [h("span", { class: "loss" }, wait.reason === "hole" ? `${plural(short, "block")} short in one piece` : `${plural(short, "block")} short`), ` when this tick was planned.${now}`];
  } else if (wait) words = { seats: "Every seat is taken.", budget: "The token budget of this tick is spent.", preempted: "A tick that preempts admits nobody." }[wait.reason] || wait.reason;
  else if (ctx.state.waiting.indexOf(r.id) > 0) words = `${ctx.state.layout === "paged" ? `Needs ${plural(need, "block")}. ` : ""}Behind ${ctx.state.waiting[ctx.state.waiting.indexOf(r.id) - 1]} in the line.`;
  else words = `Needs ${plural(need, "block")}; first in the line.`;
  return [
    shown > 0 && h("div", { class: "chips ghosts", "aria-label": `${r.id} needs ${plural(need, "block")}`, role: "img" },
      Array.from({ length: shown }, (_, i) => h("div", { class: "slot" }, h("span", { class: "logical" }, i), h("span", { class: i >= has ? "ghost missing" : "ghost" }, i >= has && glyph("evict", 11))))),
    words && h("p", { class: "note" }, words),
  ];
}

export function createRequests(ctx) {
  const root = h("section", { class: "requests", "aria-label": "Requests" });

  const abort = (r) => h("button", { class: "abort", "aria-label": `abort ${r.id}`, title: `abort ${r.id}`, onclick: () => ctx.ask({ type: "abort", request: r.id }) }, "abort");

  function full(live) {
    return live.map((r) => h("div", { class: "req", "data-request": r.id },
      h("div", { class: "h" }, who(ctx, r.id, r.status === "waiting" ? "waiting" : ""), h("b", null, status(ctx, r)), abort(r),
        h("span", { class: "r" }, r.status === "waiting" ? `since tick ${r.since}, ${plural(r.tokens, "token")}` : `${plural(r.computed, "token")} in ${plural(r.table.length, "block")}`)),
      r.status === "waiting" ? ghosts(ctx, r) : table(ctx, r)));
  }

  function bars(live) {
    const running = live.filter((r) => r.status === "running"), most = Math.max(1, ...running.map((r) => r.table.length));
    return [
      h("div", { class: "bars", role: "listbox", "aria-label": "Requests, blocks each", tabindex: "-1" }, running.map((r) => {
        const hits = Math.min(r.table.length, Math.floor((r.cached || 0) / ctx.state.size)), on = r.id === ctx.selected;
        return h("button", { class: "barrow" + (on ? " on" : ""), role: "option", "aria-selected": String(on), style: paint(ctx, r.id),
          "aria-label": `${r.id}, ${plural(r.table.length, "block")}, ${hits} hits`, onclick: () => ctx.select(r.id) },
          h("span", { class: "name" }, r.id), h("span", { class: "track" }, h("i", { class: "hits", style: { width: `${(100 * hits) / most}%` } }), h("i", { class: "own", style: { width: `${(100 * (r.table.length - hits)) / most}%` } })),
          h("span", { class: "n" }, number(r.table.length)));
      })),
      h("p", { class: "note" }, `${number(running.length)} running, ${number(live.length - running.length)} waiting`),
      ctx.selected && ctx.state.requests.get(ctx.selected)?.table.length > 0 && h("p", { class: "note" }, h("b", null, ctx.selected), ` holds ${runs(ctx.state.requests.get(ctx.selected).table)} `, abort({ id: ctx.selected })),
    ];
  }

  return {
    root,
    update() {
      const { state } = ctx, live = [...state.running, ...state.waiting].map((id) => state.requests.get(id));
      const many = state.blocks > 64 || live.length > 8;
      const scroll = root.querySelector(".bars")?.scrollTop;
      const ended = [...state.requests.values()].filter((r) => r.status === "finished").sort((a, b) => b.ended - a.ended).slice(0, 6);
      fill(root,
        h("h2", null, "Requests", h("span", { class: "q" }, many ? "blocks; hollow: hits" : "logical above, physical inside")),
        live.length ? (many ? bars(live) : full(live)) : h("p", { class: "note" }, "Nobody is here. Add a request."),
        !many && ended.length > 0 && h("div", { class: "req small mid done" }, glyph("finish"), " finished: ",
          ended.map((r, i) => [i ? ", " : "", who(ctx, r.id, "tiny"), r.ended === state.tick && state.tick > 0 ? " just now" : ` in tick ${r.ended}`])));
      if (scroll) root.querySelector(".bars").scrollTop = scroll;
    },
  };
}
