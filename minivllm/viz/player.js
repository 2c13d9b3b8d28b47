// Moving through time: step, back, play, scrub. Behind the live edge alone; at the edge Python is asked for one more tick.
import { fill, followTheme, h } from "./dom.js";

export class Player {
  // trace: { low, edge, offset } - first and last index that can be shown, and the tick number of index 0
  constructor(model, root, trace) {
    Object.assign(this, { model, root, trace, hint: "", playing: false, speed: 900, asked: false });
    this.at = this.recorded(model.get("playhead"));
    this.alarm = h("div", { class: "alarm", role: "alert", hidden: true });
    this.notice = h("div", { class: "notice", role: "status", hidden: true });
  }

  // what Home and End lead to, in words
  get ends() { return ["first tick", "live edge"]; }

  recorded(tick) { return Math.max(this.trace.low, Math.min(this.trace.edge, tick - this.trace.offset)); }

  // at most one drawing per frame, however much has changed
  soon() { this.frame ||= requestAnimationFrame(() => { this.frame = 0; if (this.root.isConnected) this.render(); }); }

  go(index) {
    const to = Math.max(this.trace.low, Math.min(this.trace.edge, index));
    this.hint = "";
    if (to !== this.at) { this.at = to; this.model.set("playhead", to + this.trace.offset); this.model.save_changes(); }
    this.soon();
  }

  back() { this.pause(); this.go(this.at - 1); }

  step() {
    if (this.at < this.trace.edge) this.go(this.at + 1);
    else if (!this.asked) { this.asked = true; this.ask({ type: "goto", tick: this.trace.edge + this.trace.offset + 1 }); }
  }

  jump(kind, direction) {
    const found = this.trace.next(kind, this.at, direction), name = { evict: "eviction", preempt: "preemption", refuse: "refusal" }[kind] || kind;
    this.pause();
    if (found === null) { this.hint = `no ${direction > 0 ? "later" : "earlier"} ${name} so far`; this.soon(); } else this.go(found);
  }

  togglePlay() { if (this.playing) this.pause(); else { this.playing = true; this.hint = ""; this.beat(); this.soon(); } }
  pause() { clearTimeout(this.timer); if (this.playing) { this.playing = false; this.soon(); } }

  setSpeed(ms) {
    this.speed = ms;
    this.root.classList.toggle("fast", ms < 300);
    if (this.playing) { clearTimeout(this.timer); this.beat(); }
    this.soon();
  }

  beat() {
    this.timer = setTimeout(() => { if (!this.playing || !this.root.isConnected) return; this.step(); this.beat(); }, this.speed);
  }

  // after a restart of the kernel nobody is there to be asked: sending throws, and what was recorded can still be looked at
  ask(message) {
    if (this.model.get("disabled")) return;
    try { this.model.send(message); } catch {
      this.asked = false;
      this.pause();
      this.alarm.hidden = false;
      fill(this.alarm, "The kernel that this view belongs to is gone: run its cell again. What was recorded can still be stepped through.");
    }
  }

  heard(message) {
    if (message.type === "done") {
      this.asked = false;
      if (message.idle && message.of === "goto" && this.at === this.trace.edge) { this.pause(); this.hint = "all done: nobody runs or waits"; }
    }
    // ticks that were run before this view was drawn come with "sync": only now can it stand where Python left the playhead
    this.at = message.type === "sync" ? this.recorded(this.model.get("playhead")) : Math.min(this.at, this.trace.edge);
    this.soon();
  }

  // errors and notices from Python; a stale view does nothing any more
  status() {
    const error = this.model.get("error"), notice = this.model.get("notice"), disabled = this.model.get("disabled");
    this.alarm.hidden = !error;
    fill(this.alarm, error, error && h("span", { class: "mid" }, " You can go on."));
    this.notice.hidden = !notice;
    this.notice.textContent = notice;
    this.root.classList.toggle("stale", disabled);
    this.root.inert = disabled;
    if (error || notice) this.pause();
  }

  // keys that belong to a field or to the browser
  foreign(e) { return e.target.matches("input, textarea, select") || e.ctrlKey || e.metaKey || e.altKey; }

  playKey(e) {
    const act = () => { e.preventDefault(); e.stopPropagation(); }, radio = e.target.closest("[role=radiogroup]");
    if (radio && /^Arrow/.test(e.key)) {
      const all = [...radio.querySelectorAll("button")], to = all[all.indexOf(e.target) + (e.key === "ArrowRight" || e.key === "ArrowDown" ? 1 : -1)];
      act(); to?.focus(); return;
    }
    const run = { ArrowLeft: () => this.back(), ArrowRight: () => { this.pause(); this.step(); }, Home: () => { this.pause(); this.go(this.trace.low); }, End: () => { this.pause(); this.go(this.trace.edge); } }[e.key];
    if (run) { act(); run(); } else if (e.key === " " && !e.target.closest("button")) { act(); this.togglePlay(); }
  }

  // listen to the model, the theme and the width until `stop()`
  follow() {
    const { model } = this, message = (m) => this.heard(m), status = () => this.status();
    const moved = () => { const t = this.recorded(model.get("playhead")); if (t !== this.at) { this.at = t; this.soon(); } };
    const heard = [["msg:custom", message], ["change:playhead", moved], ...["error", "notice", "disabled"].map((name) => [`change:${name}`, status])];
    for (const [name, handler] of heard) model.on(name, handler);
    // watching a line without height: drawing changes the root's height, never this
    const ruler = h("div", { class: "ruler" });
    this.root.prepend(ruler);
    let width = ruler.clientWidth;
    const resize = new ResizeObserver(() => { if (ruler.clientWidth !== width) { width = ruler.clientWidth; this.render(); } });
    resize.observe(ruler);
    const unfollow = followTheme(this.root, () => this.soon());
    document.fonts?.ready.then(() => this.soon());
    this.stop = () => { this.pause(); resize.disconnect(); unfollow(); for (const [name, handler] of heard) model.off(name, handler); };
    this.status();
  }
}

// while the live view is there, the static snapshot above it would say the same twice
function hideSnapshot(root) {
  const area = root.closest(".jp-OutputArea");
  const images = area ? [...area.querySelectorAll("img.mv-snapshot")].map((img) => img.closest(".jp-OutputArea-child")).filter(Boolean) : [];
  for (const node of images) node.style.display = "none";
  return () => { for (const node of images) node.style.display = ""; };
}

// the anywidget interface around a player
export const mount = (create, cls) => ({
  render({ model, el }) {
    const name = model.get("title") || model.get("trace").engine || "";
    const root = h("div", { class: `mv ${cls}`, tabindex: "-1", "data-lm-suppress-shortcuts": true, role: "group", "aria-label": name });
    el.append(root);
    const view = create(model, root);
    view.render();
    let restore = () => {};
    requestAnimationFrame(() => { view.render(); restore = hideSnapshot(root); });
    return () => { view.stop(); restore(); };
  },
});
