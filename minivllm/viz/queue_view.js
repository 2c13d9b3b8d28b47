// The free queue: the same recording as the engine view, seen as references, a line of blocks, and what eviction costs.
import { fill, glyph, h, number, plural, s } from "./dom.js";
import { label, paint, sentence, split, strip, who } from "./block.js";
import { nowOf } from "./now.js";
import { Player, mount } from "./player.js";
import { recordingOf } from "./recording.js";
import { createPlayback } from "./controls.js";
import { createLinks } from "./links.js";

const JUMPS = [["hit", "hit", false], ["evict", "eviction", true], ["release", "release", false]], ORDERS = { lru: "LRU", fifo: "FIFO", yours: "yours" };
const MORE_KEYS = [["h e r", "next hit, eviction, release (Shift: previous)"], ["g", "into the queue; there the arrows move by block, [ and ] step, Enter pins, Esc leaves"], ["o", "eviction order"], ["?", "this list"]];
const MOST_USED = 34, MOST_ENTRIES = 48, PALE_ABOVE = 6;
const BACK = { lru: "back: a released block with a hash joins here, tail first", fifo: "back: a block that is cached for the first time joins here", yours: "back: where a released block joins is up to your order" };

// an arrow there and one back, between two neighbours of the queue
const arrows = () => s("svg", { class: "arrows", width: 24, height: 20, viewBox: "0 0 24 20", "aria-hidden": "true" }, s("path", { d: "M3 5h17m-4 -3.2l4 3.2l-4 3.2M21 15h-17m4 -3.2l-4 3.2l4 3.2" }));
const up = () => s("svg", { class: "upward", width: 10, height: 14, viewBox: "0 0 10 14", "aria-hidden": "true" }, s("path", { d: "M5 13V1.5m-3.6 4.6l3.6 -4.6l3.6 4.6" }));
const content = (id, index) => (/\d$/.test(id) ? `${id}:${index}` : `${id}${index}`);

class QueueDrawing extends Player {
  constructor(model, root) {
    super(model, root, recordingOf(model));
    Object.assign(this, { focused: null, pinned: null, ringed: [] });
    this.read();
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    const part = (cls, name) => h("section", { class: cls, "aria-label": name });
    this.use = part("inuse", "In use"); this.line = part("freequeue", "Free queue"); this.map = part("hashmap", "Hash to block"); this.left = part("left", "What is left");
    this.seg = h("span", { class: "seg", role: "radiogroup", "aria-label": "eviction order" });
    this.playback = createPlayback(this, JUMPS, MORE_KEYS, h("span", { class: "lab order", title: "a change empties the pool: running requests compute again" }, "order", this.seg, h("span", { class: "small dim" }, "a change empties the pool")));
    this.ringing = h("p", { class: "small dim ringing" });
    fill(root, this.notice, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, this.use, this.line, h("div", { class: "pair" }, this.map, this.left), this.playback.root, this.ringing);
    this.links = createLinks(this, root);
    this.listen();
  }

  read() {
    this.state = this.trace.at(this.at);
    this.tick = this.at > 0 ? this.trace.ticks[this.at - 1] : null;
    this.between = this.at === this.trace.edge ? this.trace.tail : [];
    const { owners, fill: filled } = this.state.owners();
    Object.assign(this, { owners, filled, now: nowOf(this.trace, this.at, this.state) });
    this.many = this.state.running.length + this.state.waiting.length > PALE_ABOVE;
    this.facts = (this.between.at(-1) ?? this.tick)?.queue ?? this.untouched();
  }

  // before the first tick: every block is free, in order
  untouched() {
    const all = this.state.ref.map((_, b) => b), whole = all.length <= 24;
    return { size: all.length, front: whole ? all : all.slice(0, 14), back: whole ? [] : all.slice(-8), homes: {}, left: null, say: [] };
  }

  colour(id) { return this.many ? null : this.trace.colours[id] ?? null; }

  said(i) {
    const since = i === this.trace.edge ? this.trace.tail.slice(-2).filter((b) => b.say.length).flatMap((b) => [" ", ...b.say]) : [];
    return [...(i > 0 ? this.facts.say : [this.trace.edge ? "Before the first tick." : "Nothing has run yet: press → to run one tick."]), ...since];
  }

  render() {
    const walk = document.activeElement?.closest?.(".walk"), held = this.root.contains(walk) ? [walk.dataset.walk, Number(document.activeElement.dataset.block)] : null;
    this.read();
    const { at, trace } = this, words = this.said(at).map((p) => (typeof p === "string" ? p : p.who)).join("");
    fill(this.headline, `Tick ${at + trace.offset}`, h("small", null, `of ${trace.edge + trace.offset}`));
    fill(this.say, sentence(this, this.said(at)));
    const all = at > 0 ? `Tick ${at + trace.offset}. ${words}` : words;
    if ((!this.playing || this.speed >= 1800) && this.spoken.textContent !== all) this.spoken.textContent = all;
    this.drawUse(); this.drawLine(); this.drawMap(); this.drawLeft();
    this.playback.update(); this.drawOrder();
    if (held) this.enter(...held);
    this.links.update();
  }

  heading(words, ...note) { return h("h2", null, words, h("span", { class: "q" }, note)); }

  // one tab stop per row of blocks; the arrows move inside
  walk(name, cls, items) {
    const row = h("div", { class: `walk ${cls}`, role: "list", "data-walk": name, "aria-label": name }, items), first = row.querySelector("[data-block]");
    if (first) first.tabIndex = 0;
    return row;
  }

  enter(name, block) {
    const all = [...this.root.querySelectorAll(`[data-walk="${name}"] [data-block]`)], to = all.find((n) => Number(n.dataset.block) === block) ?? all[0];
    if (to) { for (const n of all) n.tabIndex = n === to ? 0 : -1; to.focus({ preventScroll: false }); }
  }

  tinted(b) { const ids = this.owners[b]; return ids.length > 1 ? { "background-image": split(this, ids), "--x": "var(--ink2)" } : ids.length ? paint(this, ids[0]) : {}; }

  // who counts on what: blocks grouped by the requests that point at them, in the order of their tables
  drawUse() {
    const groups = new Map(), seen = new Set(), { requests, running, waiting, ref } = this.state;
    for (const id of [...running, ...waiting]) for (const b of requests.get(id).table) {
      if (b === undefined || seen.has(b)) continue;
      seen.add(b);
      const key = this.owners[b].join("\n");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(b);
    }
    const sorted = [...groups.values()].sort((a, b) => this.owners[b[0]].length - this.owners[a[0]].length), shown = sorted.slice(0, 12);
    const each = seen.size <= MOST_USED ? MOST_USED : Math.max(2, Math.floor(MOST_USED / shown.length) - 1);
    const letters = (ids) => (ids.length > 3 ? [who(this, ids[0], "tiny"), h("span", { class: "who tiny more" }, `+${ids.length - 1}`)] : ids.map((id) => who(this, id, "tiny")));
    const block = (b) => h("div", { class: "unit" }, h("div", { class: "stack" }, letters(this.owners[b])),
      h("div", { class: "box used", role: "listitem", tabindex: "-1", "data-block": b, "aria-label": label(this, b), style: this.tinted(b) }, b), h("div", { class: ref[b] > 1 ? "refs many" : "refs" }, `ref ${ref[b]}`));
    fill(this.use, this.heading("In use", seen.size ? `${plural(seen.size, "block")}, each with as many references as tables that point at it. Not in the queue, so never evicted.` : "no block: nobody holds one"),
      this.walk("In use", "units", shown.map((all) => h("div", { class: "group" }, all.slice(0, each).map(block), all.length > each && h("div", { class: "unit more" }, `+${number(all.length - each)}`)))),
      sorted.length > shown.length && h("p", { class: "note" }, `and ${plural(sorted.slice(12).reduce((n, g) => n + g.length, 0), "block")} of others`));
  }

  item(b, last) {
    const hash = this.state.hash[b], home = this.facts.homes[b];
    return h("div", { class: "place" }, h("div", { class: `item ${hash ? "cached" : "free"}`, role: "listitem", tabindex: "-1", "data-block": b, "aria-label": label(this, b) + (home ? `, block ${home[1]} of ${home[0]}` : "") },
      s("svg", { class: "edge", "aria-hidden": "true" }, s("rect", { x: 0.7, y: 0.7, rx: 7.5 })), h("div", { class: "top" }, h("b", { class: "mono" }, b), home && h("span", { class: "home", style: paint(this, home[0]), title: `block ${home[1]} of ${home[0]}` }, content(...home))),
      h("div", { class: "key" }, hash ? [glyph("publish", 10), h("span", { class: "mono" }, hash.slice(0, 4))] : "no hash"),
      strip(this.state.size, hash ? this.state.size : 0, 0)), !last && arrows());
  }

  drawLine() {
    const { front, back, size } = this.facts, between = size - front.length - back.length, count = front.length + back.length + (back.length ? 1 : 0), wide = this.root.clientWidth - 48;
    const most = Math.max(2, Math.floor((wide + 24) / (wide < 820 ? 96 : 104))), rows = Math.ceil(count / most), columns = Math.max(1, Math.ceil(count / rows));
    const gap = back.length > 0 && h("div", { class: "place" }, h("div", { class: "item gap" }, h("b", null, number(between)), h("span", null, "more between")), arrows());
    const contiguous = this.state.layout !== "paged";
    fill(this.line, this.heading("Free queue", contiguous ? "this layout has holes, not a queue" : size ? `${plural(size, "block")} with ref 0, in the order in which they would be taken; a hit lifts a block out of the middle` : "empty: every block is referenced"),
      size > 0 && [this.walk("Free queue", "queue", [front.map((b, i) => this.item(b, !back.length && i === front.length - 1)), gap, back.map((b, i) => this.item(b, i === back.length - 1))]),
        h("div", { class: "edges" }, h("span", null, rows > 1 ? "front, at the top left: taken there" : [up(), "front: taken here"]), h("span", null, BACK[this.model.get("order")] ?? BACK.yours, up()))]);
    this.line.style.setProperty("--columns", columns);
  }

  drawMap() {
    const { hash } = this.state, gone = [...this.now.evicted].map(([b, e]) => ({ hash: e.hash, block: b, gone: true }));
    const kept = hash.flatMap((key, b) => (key ? [{ hash: key, block: b }] : [])), order = (a, b) => (a.hash < b.hash ? -1 : a.hash > b.hash ? 1 : a.block - b.block);
    const shown = [...gone.slice(0, MOST_ENTRIES / 2), ...kept.sort(order).slice(0, Math.max(0, MOST_ENTRIES - gone.length))].sort(order), more = gone.length + kept.length - shown.length;
    const arrow = () => s("svg", { class: "to", width: 11, height: 8, viewBox: "0 0 11 8", "aria-hidden": "true" }, s("path", { d: "M1 4h9m-3.2 -3l3.2 3l-3.2 3" }));
    const entry = (e) => (e.gone ? h("div", { class: "entry gone", role: "listitem", "aria-label": `hash ${e.hash.slice(0, 4)} went in this tick, with block ${e.block}` }, h("s", { class: "mono" }, e.hash.slice(0, 4)), glyph("evict", 10))
      : h("div", { class: `entry ${this.state.ref[e.block] ? "used" : "cached"}`, role: "listitem", tabindex: "-1", "data-block": e.block, "aria-label": label(this, e.block), style: this.tinted(e.block) }, h("span", { class: "mono" }, e.hash.slice(0, 4)), arrow(), h("b", { class: "mono" }, e.block)));
    fill(this.map, this.heading("Hash to block", `${kept.length === 1 ? "1 entry" : `${number(kept.length)} entries`}${gone.length ? `; ${gone.length} went in this tick, with ${gone.length === 1 ? "its block" : "their blocks"}` : ""}`),
      shown.length ? this.walk("Hash to block", "entries", shown.map(entry)) : h("p", { class: "note" }, "No block is full and computed yet, so nothing can be hit."), more > 0 && h("p", { class: "note" }, `and ${number(more)} more`));
  }

  drawLeft() {
    const left = this.facts.left;
    if (!left) { fill(this.left, this.heading("What is left of a prompt"), h("p", { class: "note" }, "Nobody has finished and left anything in this pool.")); return; }
    const link = (from, to) => h("i", { class: "link" + (from === null || to === null ? " broken" : "") });
    const skips = left.blocks.length < left.had, cell = ([index, b], i) => {
      const kind = b === null ? "gone" : index < left.hit ? "whole" : "cut", name = content(left.who, index);
      const jump = i > 0 && index > left.blocks[i - 1][0] + 1;
      return [i > 0 && (jump ? h("span", { class: "skip" }, "…") : link(left.blocks[i - 1][1], b)), h("div", { class: "piece" }, h("div", { class: `box ${kind}`, role: "listitem", tabindex: b === null ? null : "-1", "data-block": b, style: paint(this, left.who),
        "aria-label": b === null ? `${name} is gone` : `${name} is in block ${b}${kind === "cut" ? ", but what comes before it is gone" : ""}` }, b === null ? glyph("evict") : b), h("span", { class: "name" }, name))];
    };
    fill(this.left, this.heading(["What is left of ", who(this, left.who, "tiny"), left.prompt ? "'s prompt" : "'s prompt and answer"], left.gone ? `${left.gone === 1 ? "1 block is" : `${number(left.gone)} blocks are`} gone` : "nothing is gone yet"),
      h("div", { class: "chainrow" }, this.walk("What is left", "chain", left.blocks.map(cell)), h("div", { class: "verdict" + (left.hit ? "" : " none") }, h("b", null, `${number(left.hit)} of ${number(left.had)}`), h("span", null, "can be hit"))),
      skips && h("p", { class: "note" }, `${number(left.had - left.blocks.length)} blocks between are not drawn`));
  }

  drawOrder() {
    const order = this.model.get("order"), key = `${this.model.get("orders").join()} ${order}`;
    if (this.drawnOrder === key) return;
    this.drawnOrder = key;
    fill(this.seg, this.model.get("orders").map((name) => h("button", { role: "radio", "aria-checked": String(name === order), tabindex: name === order ? "0" : "-1", onclick: () => name !== this.model.get("order") && this.set("eviction", name) }, ORDERS[name] ?? name)));
  }

  // a change is made at the live edge, where the pool starts over
  set(name, value) { this.pause(); this.ask({ type: "set", name, value }); this.hint = `${this.at < this.trace.edge ? "applied at the live edge: " : ""}the pool starts over, empty`; }

  point(block) { if (this.focused !== block) { this.focused = block; this.ring(); } }
  pin(block) { this.pinned = this.pinned === block ? null : block; this.ring(); }
  ring() {
    const b = this.focused ?? this.pinned;
    this.ringing.textContent = b === null ? "" : `ringed: block ${b}, in all its places${this.pinned === b ? " (pinned, Esc lets go)" : ""}`;
    this.links.update();
  }

  listen() {
    const draw = () => this.soon(), { model, root } = this, blockOf = (e) => { const node = e.target.closest?.("[data-block]"); return node && root.contains(node) ? Number(node.dataset.block) : null; };
    root.addEventListener("pointerover", (e) => this.point(blockOf(e)));
    root.addEventListener("pointerleave", () => this.point(null));
    root.addEventListener("focusin", (e) => { const b = blockOf(e); if (b !== null) this.point(b); });
    root.addEventListener("focusout", (e) => { if (blockOf(e) !== null) this.point(null); });
    root.addEventListener("click", (e) => { const b = blockOf(e); if (b !== null) this.pin(b); else if (!e.target.closest("button")) root.focus({ preventScroll: true }); });
    root.addEventListener("keydown", (e) => this.key(e));
    this.follow();
    model.on("change:order", draw); model.on("change:orders", draw);
    const { stop } = this;
    this.stop = () => { stop(); model.off("change:order", draw); model.off("change:orders", draw); };
  }

  key(e) {
    if (this.foreign(e)) return;
    const act = (run) => { e.preventDefault(); e.stopPropagation(); run?.(); }, row = e.target.closest("[data-walk]");
    if (row) {
      const all = [...row.querySelectorAll("[data-block]")], by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[e.key];
      if (by) { act(() => { const to = all[all.indexOf(e.target) + by]; if (to) this.enter(row.dataset.walk, Number(to.dataset.block)); }); return; }
      if (e.key === "Enter") { act(() => this.pin(Number(e.target.dataset.block))); return; }
      if (e.key === "Escape") { act(() => { this.pinned = null; this.playback.root.querySelector(".go").focus(); this.ring(); }); return; }
      if (e.key === "[" || e.key === "]") { act(() => (e.key === "[" ? this.back() : this.step())); return; }
    }
    const run = { h: () => this.jump("hit", 1), H: () => this.jump("hit", -1), e: () => this.jump("evict", 1), E: () => this.jump("evict", -1), r: () => this.jump("release", 1), R: () => this.jump("release", -1),
      g: () => this.enter("Free queue", this.pinned), o: () => this.seg.querySelector("[aria-checked=true]")?.focus(), "?": () => this.playback.toggleKeys(), Escape: () => { this.pinned = null; this.ring(); } }[e.key];
    if (run) act(run); else this.playKey(e);
  }
}

export default mount((model, root) => new QueueDrawing(model, root), "ev qv");
