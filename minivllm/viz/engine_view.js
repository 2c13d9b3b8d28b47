// The engine view: receives the trace once, then steps, plays and scrubs on its own; asks Python only at the live edge.
import { fill, glyph, h } from "./dom.js";
import { sentence } from "./block.js";
import { nowOf } from "./now.js";
import { Player, mount } from "./player.js";
import { recordingOf } from "./recording.js";
import { createPool } from "./pool.js";
import { createBigPool } from "./big_pool.js";
import { createRequests } from "./requests.js";
import { createBudget, createLog } from "./log.js";
import { createLife } from "./life.js";
import { createTimeline } from "./timeline.js";
import { ENGINE_JUMPS, ENGINE_KEYS, createEdits, createPlayback } from "./controls.js";
import { createLinks } from "./links.js";

const MANY = 6, WIDE = 64, BIG = 1000;
let serial = 0;

class View extends Player {
  constructor(model, root) {
    super(model, root, recordingOf(model));
    Object.assign(this, { uid: `mv${++serial}-`, cursor: 0, focused: null, pinned: null, ringed: [], selected: null });
    this.name = model.get("trace").engine;
    this.simulated = this.name.endsWith("simulation");
    this.build();
  }

  build() {
    const ctx = this;
    this.read();
    this.edits = createEdits(ctx); this.playback = createPlayback(ctx, ENGINE_JUMPS, ENGINE_KEYS); this.requests = createRequests(ctx); this.log = createLog(ctx);
    this.budget = createBudget(ctx); this.life = createLife(ctx); this.timeline = createTimeline(ctx);
    this.small = createPool(ctx); this.big = createBigPool(ctx);
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.poolBox = h("div", { class: "c2" }); this.lowBox = h("div", { class: "c4" }); this.legend = h("div", { class: "legend", "aria-hidden": "true" });
    this.side = h("div", { class: "c3" });
    this.cols = h("div", { class: "cols" }, h("div", { class: "c1" }, this.requests.root), this.poolBox, this.lowBox, this.side);
    fill(this.root, this.notice, this.edits.root, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, this.cols, this.playback.root, this.timeline.root);
    this.links = createLinks(ctx, this.root);
    this.listen();
  }

  // ---- what is shown

  read() {
    this.state = this.trace.at(this.at);
    this.edgeState = this.trace.at(this.trace.edge);
    Object.assign(this, { tick: this.at > 0 ? this.trace.ticks[this.at - 1] : null, between: this.at === this.trace.edge ? this.trace.tail : [] });
    const { owners, fill } = this.state.owners();
    this.owners = owners; this.filled = fill;
    this.now = nowOf(this.trace, this.at, this.state);
    this.many = this.state.running.length + this.state.waiting.length > MANY;
    this.free = this.state.ref.reduce((n, ref) => n + (ref ? 0 : 1), 0);
    if (this.many && !this.state.requests.get(this.selected)?.table.length) this.selected = this.state.running[0] ?? null;
    this.cursor = Math.min(this.cursor, this.state.blocks - 1);
  }

  // index of a request's colour; null = neutral, because too many are live to tell colours apart
  colour(id) { return this.many ? (id === this.selected ? 0 : null) : this.trace.colours[id] ?? null; }

  said(i) {
    const spans = i > 0 ? this.trace.ticks[i - 1].say : [this.trace.edge ? "Before the first tick." : "Nothing has run yet: press → to run one tick."];
    const between = i === this.trace.edge ? this.trace.tail.slice(-2).filter((b) => b.say.length).flatMap((b) => [" ", ...b.say]) : [];
    return [...spans, ...between];
  }

  // the tokens in a block, as words, if Python told them
  words(b) {
    const id = (this.owners[b] || [])[0] ?? this.state.writer[b], request = this.state.requests.get(id), words = this.trace.words?.[id];
    const index = request ? request.table.indexOf(b) : -1;
    return words && index >= 0 ? words.slice(index * this.state.size, index * this.state.size + Math.min(this.filled[b], 8)) : [];
  }

  render() {
    this.read();
    if (this.drawn !== this.at) { this.root.classList.add("stepping"); clearTimeout(this.settled); this.settled = setTimeout(() => this.root.classList.remove("stepping"), 200); this.drawn = this.at; }
    this.arrange();
    fill(this.headline, `Tick ${this.at + this.trace.offset}`, h("small", null, `of ${this.trace.edge + this.trace.offset}`));
    fill(this.say, sentence(this, this.said(this.at)));
    this.speak();
    for (const part of [this.edits, this.playback, this.requests, this.pool, this.log, this.budget, this.life, this.timeline, this.links]) part.update();
  }

  // small pools sit between requests and log; from 65 blocks on the pool takes the width, the rest goes under it
  arrange() {
    const { blocks } = this.state, pool = blocks > BIG ? this.big : this.small, wide = blocks > WIDE;
    if (this.pool === pool && this.wide === wide) return;
    Object.assign(this, { pool, wide });
    fill(this.poolBox, pool.root, pool === this.small && this.legend, !wide && this.life.root);
    fill(this.lowBox, pool.low, wide && this.life.root, wide && this.budget.root);
    fill(this.side, this.log.root, !wide && this.budget.root);
    this.lowBox.hidden = !wide;
    this.root.classList.toggle("big", wide);
    this.drawLegend();
  }

  // read aloud: every tick when stepping or slow, only on pause when playing fast
  speak() {
    if (this.playing && this.speed < 1800) return;
    const words = this.said(this.at).map((p) => (typeof p === "string" ? p : p.who)).join("");
    const all = this.at > 0 ? `Tick ${this.at + this.trace.offset}. ${words}` : words;
    if (this.spoken.textContent !== all) this.spoken.textContent = all;
  }

  drawLegend() {
    const sample = (cls, words) => h("span", null, h("i", { class: `sample ${cls}` }), words), corner = (kind, words) => h("span", null, h("span", { class: `badge ${kind}` }, glyph(kind, 9)), words);
    fill(this.legend, sample("free", "free"), sample("cached", "cached: ref 0, hash kept"), sample("one", "in use by one"), sample("shared", "shared"),
      h("span", null, h("span", { class: "strip sample" }, h("i", { class: "full" }), h("i", { class: "full" }), h("i", { class: "full fresh" }), h("i", { class: "empty" })), "tall: written this tick"),
      corner("take", "taken"), corner("evict", "old content evicted"), corner("hit", "hit"), corner("release", "released"));
  }

  // ---- asking Python

  set(name, value) {
    if (this.at < this.trace.edge) this.hint = "applied at the live edge";
    this.pause();
    this.ask({ type: "set", name, value });
  }

  // ---- pointing at blocks

  point(block) { if (this.focused !== block) { this.focused = block; this.life.update(); this.links.update(); } }
  pin(block) { this.pinned = this.pinned === block ? null : block; this.life.update(); this.links.update(); }
  ring(blocks) { this.ringed = blocks; this.links.update(); }
  select(id) { this.selected = id; this.soon(); }

  listen() {
    const { root, model } = this, blockOf = (e) => { const node = e.target.closest?.("[data-block]"); return node && root.contains(node) ? Number(node.dataset.block) : null; };
    root.addEventListener("pointerover", (e) => this.point(blockOf(e)));
    root.addEventListener("pointerleave", () => this.point(null));
    root.addEventListener("focusin", (e) => { const b = blockOf(e); if (b !== null) { this.cursor = b; this.point(b); } });
    root.addEventListener("focusout", (e) => { if (blockOf(e) !== null) this.point(null); });
    root.addEventListener("click", (e) => { const b = blockOf(e); if (b !== null) this.pin(b); });
    root.addEventListener("keydown", (e) => this.key(e));
    this.follow();
  }

  key(e) {
    if (this.foreign(e)) return;
    const inPool = e.target.closest(".grid, .lens");
    const act = () => { e.preventDefault(); e.stopPropagation(); };
    if (inPool) {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.pool.columns, ArrowDown: this.pool.columns }[e.key];
      if (by) { act(); const to = this.cursor + by; if (to >= 0 && to < this.state.blocks) { this.cursor = to; this.pool.update(); this.pool.focus(to); } return; }
      if (e.key === "Enter") { act(); this.pin(this.cursor); return; }
      if (e.key === "Escape") { act(); this.pinned = null; this.ringed = []; this.playback.root.querySelector(".go").focus(); return; }
      if (e.key === "[") { act(); this.back(); return; }
      if (e.key === "]") { act(); this.step(); return; }
    }
    if (e.key === "Escape") { this.pinned = null; this.links.update(); this.life.update(); return; }
    const run = { h: () => this.jump("hit", 1), H: () => this.jump("hit", -1), e: () => this.jump("evict", 1), E: () => this.jump("evict", -1), p: () => this.jump("preempt", 1), P: () => this.jump("preempt", -1),
      g: () => { this.cursor = Math.max(0, this.cursor); this.pool.focus(this.cursor); }, b: () => this.edits.focusSize(), a: () => this.edits.openAdd(), "?": () => this.playback.toggleKeys() }[e.key];
    if (run) { act(); run(); return; }
    this.playKey(e);
  }
}

export default mount((model, root) => new View(model, root), "ev");
