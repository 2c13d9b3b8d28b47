// The engine view: receives the trace once, then steps, plays and scrubs on its own; asks Python only at the live edge.
import { fill, followTheme, glyph, h } from "./dom.js";
import { sentence } from "./block.js";
import { nowOf } from "./now.js";
import { Trace } from "./trace.js";
import { createPool } from "./pool.js";
import { createBigPool } from "./big_pool.js";
import { createRequests } from "./requests.js";
import { createBudget, createLog } from "./log.js";
import { createLife } from "./life.js";
import { createTimeline } from "./timeline.js";
import { createEdits, createPlayback } from "./controls.js";
import { createLinks } from "./links.js";

const MANY = 6, WIDE = 64, BIG = 1000;
let serial = 0;

// one recording per model, shared by all drawings of it
function traceOf(model) {
  if (model.minivllmTrace) return model.minivllmTrace;
  const { ticks = [], between = [], offset = 0, low = 0 } = model.get("trace"), trace = new Trace(offset, low);
  for (const tick of ticks) trace.append(tick);
  for (const item of between) trace.between(item);
  model.minivllmTrace = trace;
  model.on("msg:custom", (m) => {
    if (m.type === "tick") trace.append(m);
    else if (m.type === "between") trace.between(m);
    else if (m.type === "sync") { for (const t of m.ticks) trace.append(t); trace.tail = []; for (const item of m.between) trace.between(item); trace.cache.clear(); }
  });
  model.send({ type: "hello", have: trace.edge });
  return trace;
}

class View {
  constructor(model, root) {
    Object.assign(this, { model, root, trace: traceOf(model), uid: `mv${++serial}-`, cursor: 0, focused: null, pinned: null, ringed: [], selected: null, hint: "", playing: false, speed: 900, waiting: 0 });
    this.at = this.recorded(model.get("playhead"));
    this.name = model.get("trace").engine;
    this.simulated = this.name.endsWith("simulation");
    this.build();
  }

  // the index of an engine tick in the recording
  recorded(tick) { return Math.max(this.trace.low, Math.min(this.trace.edge, tick - this.trace.offset)); }

  build() {
    const ctx = this;
    this.read();
    this.edits = createEdits(ctx); this.playback = createPlayback(ctx); this.requests = createRequests(ctx); this.log = createLog(ctx);
    this.budget = createBudget(ctx); this.life = createLife(ctx); this.timeline = createTimeline(ctx);
    this.small = createPool(ctx); this.big = createBigPool(ctx);
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.alarm = h("div", { class: "alarm", role: "alert", hidden: true }); this.notice = h("div", { class: "notice", role: "status", hidden: true });
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

  soon() { this.frame ||= requestAnimationFrame(() => { this.frame = 0; if (this.root.isConnected) this.render(); }); }

  // ---- moving through time

  go(tick) {
    const to = Math.max(this.trace.low, Math.min(this.trace.edge, tick));
    this.hint = "";
    if (to !== this.at) { this.at = to; this.tell(); }
    this.soon();
  }

  tell() { this.model.set("playhead", this.at + this.trace.offset); this.model.save_changes(); }
  back() { this.pause(); this.go(this.at - 1); }

  // behind the edge the browser moves alone; at the edge Python runs one more tick
  step() {
    if (this.at < this.trace.edge) this.go(this.at + 1);
    else if (!this.asked) { this.asked = true; this.ask({ type: "goto", tick: this.trace.edge + this.trace.offset + 1 }); }
  }

  jump(kind, direction) {
    const found = this.trace.next(kind, this.at, direction), name = { hit: "hit", evict: "eviction", preempt: "preemption" }[kind];
    this.pause();
    if (found === null) { this.hint = `no ${direction > 0 ? "later" : "earlier"} ${name} so far`; this.soon(); } else this.go(found);
  }

  togglePlay() { if (this.playing) this.pause(); else { this.playing = true; this.hint = ""; this.beat(); this.soon(); } }
  pause() { clearTimeout(this.timer); if (this.playing) { this.playing = false; this.soon(); } }
  setSpeed(ms) { this.speed = ms; this.root.classList.toggle("fast", ms < 300); if (this.playing) { clearTimeout(this.timer); this.beat(); } this.soon(); }

  beat() {
    this.timer = setTimeout(() => { if (!this.playing || !this.root.isConnected) return; this.step(); this.beat(); }, this.at === this.trace.low ? 200 : this.speed);
  }

  // ---- asking Python

  ask(message) { if (!this.model.get("disabled")) { this.waiting += 1; this.model.send(message); } }

  set(name, value) {
    if (this.at < this.trace.edge) this.hint = "applied at the live edge";
    this.pause();
    this.ask({ type: "set", name, value });
  }

  heard(message) {
    if (message.type === "done") {
      this.asked = false; this.waiting -= 1;
      if (message.idle && message.of === "goto" && this.at === this.trace.edge) { this.pause(); this.hint = "all done: add a request to go on"; }
    }
    this.at = Math.min(this.at, this.trace.edge);
    this.soon();
  }

  status() {
    const error = this.model.get("error"), notice = this.model.get("notice");
    this.alarm.hidden = !error;
    fill(this.alarm, error, error && h("span", { class: "mid" }, " The engine is as it was; you can go on."));
    this.notice.hidden = !notice;
    this.notice.textContent = notice;
    this.root.classList.toggle("stale", this.model.get("disabled"));
    this.root.inert = this.model.get("disabled");
    if (error || notice) this.pause();
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
    const message = (m) => this.heard(m), moved = () => { const t = this.recorded(model.get("playhead")); if (t !== this.at) { this.at = t; this.soon(); } }, status = () => this.status();
    model.on("msg:custom", message); model.on("change:playhead", moved);
    for (const name of ["error", "notice", "disabled"]) model.on(`change:${name}`, status);
    const resize = new ResizeObserver(() => this.soon());
    resize.observe(root);
    const unfollow = followTheme(root);
    document.fonts?.ready.then(() => this.soon());
    this.stop = () => {
      this.pause(); resize.disconnect(); unfollow();
      model.off("msg:custom", message); model.off("change:playhead", moved);
      for (const name of ["error", "notice", "disabled"]) model.off(`change:${name}`, status);
    };
    this.status();
  }

  key(e) {
    if (e.target.matches("input, textarea, select") || e.ctrlKey || e.metaKey || e.altKey) return;
    const inPool = e.target.closest(".grid, .lens"), onButton = e.target.closest("button"), radio = e.target.closest("[role=radiogroup]");
    const act = () => { e.preventDefault(); e.stopPropagation(); };
    if (radio && /^Arrow/.test(e.key)) {
      const all = [...radio.querySelectorAll("button")], to = all[all.indexOf(e.target) + (e.key === "ArrowRight" || e.key === "ArrowDown" ? 1 : -1)];
      act(); to?.focus(); return;
    }
    if (inPool) {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.pool.columns, ArrowDown: this.pool.columns }[e.key];
      if (by) { act(); const to = this.cursor + by; if (to >= 0 && to < this.state.blocks) { this.cursor = to; this.pool.update(); this.pool.focus(to); } return; }
      if (e.key === "Enter") { act(); this.pin(this.cursor); return; }
      if (e.key === "Escape") { act(); this.pinned = null; this.ringed = []; this.playback.root.querySelector(".go").focus(); return; }
      if (e.key === "[") { act(); this.back(); return; }
      if (e.key === "]") { act(); this.step(); return; }
    }
    if (e.key === "Escape") { this.pinned = null; this.links.update(); this.life.update(); return; }
    const run = { ArrowLeft: () => this.back(), ArrowRight: () => { this.pause(); this.step(); }, Home: () => { this.pause(); this.go(this.trace.low); }, End: () => { this.pause(); this.go(this.trace.edge); },
      h: () => this.jump("hit", 1), H: () => this.jump("hit", -1), e: () => this.jump("evict", 1), E: () => this.jump("evict", -1), p: () => this.jump("preempt", 1), P: () => this.jump("preempt", -1),
      g: () => { this.cursor = Math.max(0, this.cursor); this.pool.focus(this.cursor); }, b: () => this.edits.focusSize(), a: () => this.edits.openAdd(), "?": () => this.playback.toggleKeys() }[e.key];
    if (run) { act(); run(); return; }
    if (e.key === " " && !onButton) { act(); this.togglePlay(); }
  }
}

// while the live view is there, the static snapshot above it would say the same twice
function hideSnapshot(root) {
  const area = root.closest(".jp-OutputArea");
  const images = area ? [...area.querySelectorAll("img.mv-snapshot")].map((img) => img.closest(".jp-OutputArea-child")).filter(Boolean) : [];
  for (const node of images) node.style.display = "none";
  return () => { for (const node of images) node.style.display = ""; };
}

export default {
  render({ model, el }) {
    const root = h("div", { class: "mv ev", tabindex: "-1", "data-lm-suppress-shortcuts": true, role: "group", "aria-label": model.get("title") || model.get("trace").engine });
    el.append(root);
    const view = new View(model, root);
    view.render();
    requestAnimationFrame(() => { view.render(); view.restore = hideSnapshot(root); });
    return () => { view.stop(); view.restore?.(); };
  },
};
