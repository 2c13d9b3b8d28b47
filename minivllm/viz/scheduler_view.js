// The scheduler view: the same recording as the engine view, seen as queues, rows of ticks and token budgets.
import { fill, followTheme, glyph, h } from "./dom.js";
import { sentence } from "./block.js";
import { nowOf } from "./now.js";
import { Trace } from "./trace.js";
import { createBudget, createLog } from "./log.js";
import { createGantt } from "./gantt.js";
import { createQueues } from "./queues.js";

const BUDGETS = [4, 8, 16, 32, 64], RULES = { fcfs: "first come", priority: "priority", "longest-prefix": "longest prefix", "shortest-prompt": "shortest prompt" };
const PACE = [[1800, "½×"], [900, "1×"], [225, "4×"]], LIST = [["← →", "step back, step"], ["Home End", "first tick, live edge"], ["Space", "play or pause"], ["f p", "next first token, preemption (Shift: previous)"], ["b", "token budget"], ["a", "add a request"], ["?", "this list"]];

function recordingOf(model) {
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

class SchedulerDrawing {
  constructor(model, root) {
    Object.assign(this, { model, root, trace: recordingOf(model), playing: false, speed: 900, hint: "" });
    this.at = this.index(model.get("playhead"));
    this.read();
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.alarm = h("div", { class: "alarm", role: "alert", hidden: true }); this.notice = h("div", { class: "notice", role: "status", hidden: true });
    this.queues = createQueues(this); this.gantt = createGantt(this); this.log = createLog(this); this.budget = createBudget(this);
    fill(root, this.notice, this.edits(), this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, this.queues.root, this.gantt.root, this.playback(), h("div", { class: "pair" }, this.budget.root, this.log.root));
    this.listen();
  }

  index(tick) { return Math.max(this.trace.low, Math.min(this.trace.edge, tick - this.trace.offset)); }
  settings() { return this.model.get("settings"); }

  read() {
    this.state = this.trace.at(this.at);
    this.tick = this.at > 0 ? this.trace.ticks[this.at - 1] : null;
    this.between = this.at === this.trace.edge ? this.trace.tail : [];
    this.now = nowOf(this.trace, this.at, this.state);
    this.many = Object.keys(this.trace.colours).length > 24;
  }

  colour(id) { return this.many ? null : this.trace.colours[id] ?? null; }
  ring() {}

  edits() {
    this.sizes = h("span", { class: "seg", role: "radiogroup", "aria-label": "token budget" });
    const toggle = (name, words) => h("button", { class: "switch", role: "switch", "aria-label": words, "data-setting": name, onclick: () => this.set(name, !this.settings()[name]) }, h("i"), words);
    this.switches = [toggle("mix_prefill_decode", "mixed steps"), toggle("enable_chunked_prefill", "chunked prefill")];
    this.policy = h("select", { "aria-label": "policy", onchange: () => this.set("policy", this.policy.value) }, Object.entries(RULES).map(([v, words]) => h("option", { value: v }, words)));
    this.prompt = h("input", { type: "number", min: "1", max: "4096", value: "12", "aria-label": "prompt tokens" });
    this.most = h("input", { type: "number", min: "1", max: "512", value: "6", "aria-label": "tokens to generate" });
    this.form = h("form", { class: "add", hidden: true, onsubmit: (e) => { e.preventDefault(); this.ask({ type: "add", prompt: this.madeUp(Number(this.prompt.value) || 1), max_tokens: Number(this.most.value) || 1 }); this.open(false); } },
      h("label", null, "prompt of", this.prompt, "tokens"), h("label", null, "answer of", this.most), h("button", { class: "on", type: "submit" }, "Add"), h("button", { type: "button", onclick: () => this.open(false) }, "Cancel"));
    this.form.addEventListener("keydown", (e) => { if (e.key === "Escape") { e.stopPropagation(); this.open(false); } });
    this.addButton = h("button", { "aria-expanded": "false", onclick: () => this.open(this.form.hidden) }, glyph("take"), "Add request");
    return h("div", null, h("div", { class: "bar", role: "toolbar", "aria-label": "Change the engine" }, h("span", { class: "lab" }, "token budget", this.sizes), this.switches, h("span", { class: "lab" }, "policy", h("span", { class: "pick" }, this.policy, glyph("down"))), this.addButton), this.form);
  }

  // a prompt of n words that no other request has
  madeUp(n) { const name = `r${Date.now() % 100000}`; return Array.from({ length: n }, (_, i) => `${name}.${i}`).join(" "); }
  open(yes) { this.form.hidden = !yes; this.addButton.setAttribute("aria-expanded", String(yes)); (yes ? this.prompt : this.addButton).focus(); }

  playback() {
    const icon = (kind, name, act) => h("button", { class: "icon", "aria-label": name, title: name, onclick: act }, glyph(kind));
    this.home = icon("home", "first tick", () => this.go(this.trace.low)); this.less = icon("back", "back", () => this.back()); this.more = icon("step", "step", () => this.step()); this.end = icon("end", "live edge", () => this.go(this.trace.edge));
    this.play = h("button", { class: "on go", onclick: () => this.togglePlay() });
    this.speeds = h("span", { class: "seg", role: "radiogroup", "aria-label": "speed" }, PACE.map(([ms, words]) => h("button", { role: "radio", "data-ms": ms, onclick: () => { this.speed = ms; this.soon(); } }, words)));
    const next = (kind, words, loss) => h("button", { "data-next": kind, onclick: (e) => this.jump(kind, e.shiftKey ? -1 : 1) }, h("span", { class: loss ? "loss" : "" }, glyph(kind)), words);
    this.list = h("dl", { class: "keylist", hidden: true }, LIST.map(([keys, words]) => [h("dt", null, keys.split(" ").map((k) => [h("kbd", null, k), " "])), h("dd", null, words)]));
    this.help = h("button", { class: "keys", "aria-expanded": "false", "aria-label": "all keys", onclick: () => this.keys() }, h("kbd", null, "?"), " all keys");
    this.hintBox = h("span", { class: "small mid hint", role: "status" });
    return h("div", { class: "playbox" }, h("div", { class: "play", role: "toolbar", "aria-label": "Playback" }, this.home, this.less, this.play, this.more, this.end, this.speeds, h("span", { class: "lab next" }, "next"), next("token", "first token"), next("preempt", "preemption", true), this.hintBox, h("span", { class: "sp" }), this.help), this.list);
  }

  keys() { this.list.hidden = !this.list.hidden; this.help.setAttribute("aria-expanded", String(!this.list.hidden)); }

  said(i) {
    const spans = i > 0 ? this.trace.ticks[i - 1].say : [this.trace.edge ? "Before the first tick." : "Nothing has run yet: press → to run one tick."];
    return [...spans, ...(i === this.trace.edge ? this.trace.tail.slice(-2).flatMap((b) => [" ", ...b.say]) : [])];
  }

  render() {
    this.read();
    const { at, trace } = this, settings = this.settings(), words = this.said(at).map((p) => (typeof p === "string" ? p : p.who)).join("");
    fill(this.headline, `Tick ${at + trace.offset}`, h("small", null, `of ${trace.edge + trace.offset}`));
    fill(this.say, sentence(this, this.said(at)));
    const all = at > 0 ? `Tick ${at + trace.offset}. ${words}` : words;
    if ((!this.playing || this.speed >= 1800) && this.spoken.textContent !== all) this.spoken.textContent = all;
    for (const part of [this.queues, this.gantt, this.budget, this.log]) part.update();
    fill(this.play, glyph(this.playing ? "pause" : "play"), this.playing ? "Pause" : "Play");
    this.home.disabled = this.less.disabled = at === trace.low; this.end.disabled = at === trace.edge;
    for (const b of this.speeds.children) b.setAttribute("aria-checked", String(Number(b.dataset.ms) === this.speed));
    for (const b of this.switches) b.setAttribute("aria-checked", String(settings[b.dataset.setting]));
    const budget = settings.max_num_batched_tokens, sizes = BUDGETS.includes(budget) ? BUDGETS : [...BUDGETS, budget].sort((a, b) => a - b).slice(-5);
    if (this.drawnBudget !== budget) { this.drawnBudget = budget; fill(this.sizes, sizes.map((n) => h("button", { role: "radio", "aria-checked": String(n === budget), onclick: () => n !== this.settings().max_num_batched_tokens && this.set("max_num_batched_tokens", n) }, n))); }
    this.policy.value = settings.policy;
    this.hintBox.textContent = this.hint;
  }

  soon() { this.frame ||= requestAnimationFrame(() => { this.frame = 0; if (this.root.isConnected) this.render(); }); }

  go(tick) {
    const to = Math.max(this.trace.low, Math.min(this.trace.edge, tick));
    this.hint = "";
    if (to !== this.at) { this.at = to; this.model.set("playhead", to + this.trace.offset); this.model.save_changes(); }
    this.soon();
  }

  back() { this.pause(); this.go(this.at - 1); }
  step() { if (this.at < this.trace.edge) this.go(this.at + 1); else if (!this.asked) { this.asked = true; this.ask({ type: "goto", tick: this.trace.edge + this.trace.offset + 1 }); } }

  jump(kind, direction) {
    this.pause();
    const has = (i) => this.trace.ticks[i - 1].events.some((e) => e.kind === kind && (kind !== "token" || e.first));
    for (let i = this.at + direction; i >= 1 && i <= this.trace.edge; i += direction) if (has(i)) { this.go(i); return; }
    this.hint = `no ${direction > 0 ? "later" : "earlier"} ${kind === "token" ? "first token" : "preemption"} so far`; this.soon();
  }

  togglePlay() { if (this.playing) this.pause(); else { this.playing = true; this.beat(); this.soon(); } }
  pause() { clearTimeout(this.timer); if (this.playing) { this.playing = false; this.soon(); } }
  beat() { this.timer = setTimeout(() => { if (!this.playing || !this.root.isConnected) return; this.step(); this.beat(); }, this.speed); }
  ask(message) { if (!this.model.get("disabled")) this.model.send(message); }
  set(name, value) { if (this.at < this.trace.edge) this.hint = "applied at the live edge"; this.pause(); this.ask({ type: "set", name, value }); }

  heard(message) {
    if (message.type === "done") {
      this.asked = false;
      if (message.idle && message.of === "goto" && this.at === this.trace.edge) { this.pause(); this.hint = "all done: add a request to go on"; }
    }
    if (message.type === "sync") this.at = this.index(this.model.get("playhead"));  // the playhead was set before its ticks were here
    this.at = Math.min(this.at, this.trace.edge);
    this.soon();
  }

  status() {
    const error = this.model.get("error"), notice = this.model.get("notice");
    this.alarm.hidden = !error; this.alarm.textContent = error ? `${error} The engine is as it was; you can go on.` : "";
    this.notice.hidden = !notice; this.notice.textContent = notice;
    this.root.classList.toggle("stale", this.model.get("disabled")); this.root.inert = this.model.get("disabled");
    if (error || notice) this.pause();
  }

  listen() {
    const { model, root } = this, message = (m) => this.heard(m), moved = () => { const t = this.index(model.get("playhead")); if (t !== this.at) { this.at = t; this.soon(); } }, status = () => this.status(), draw = () => this.soon();
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("click", (e) => { if (!e.target.closest("button, input, select, [tabindex='0']")) root.focus({ preventScroll: true }); });
    const heard = [["msg:custom", message], ["change:playhead", moved], ["change:settings", draw], ...["error", "notice", "disabled"].map((n) => [`change:${n}`, status])];
    for (const [name, act] of heard) model.on(name, act);
    const resize = new ResizeObserver(draw), unfollow = followTheme(root);
    resize.observe(root);
    this.stop = () => { this.pause(); resize.disconnect(); unfollow(); for (const [name, act] of heard) model.off(name, act); };
    this.status();
  }

  key(e) {
    if (e.target.matches("input, textarea, select") || e.ctrlKey || e.metaKey || e.altKey) return;
    const run = { ArrowLeft: () => this.back(), ArrowRight: () => { this.pause(); this.step(); }, Home: () => { this.pause(); this.go(this.trace.low); }, End: () => { this.pause(); this.go(this.trace.edge); },
      f: () => this.jump("token", 1), F: () => this.jump("token", -1), p: () => this.jump("preempt", 1), P: () => this.jump("preempt", -1), b: () => this.sizes.querySelector("[aria-checked=true]")?.focus(), a: () => this.open(true), "?": () => this.keys(),
      " ": e.target.closest("button") ? null : () => this.togglePlay() }[e.key];
    if (run) { e.preventDefault(); e.stopPropagation(); run(); }
  }
}

// while the live view is there, the static chart above it would say the same twice
function hideChart(root) {
  const area = root.closest(".jp-OutputArea");
  const images = area ? [...area.querySelectorAll("img.mv-snapshot")].map((img) => img.closest(".jp-OutputArea-child")).filter(Boolean) : [];
  for (const node of images) node.style.display = "none";
  return () => { for (const node of images) node.style.display = ""; };
}

export default {
  render({ model, el }) {
    const root = h("div", { class: "mv ev sv", tabindex: "-1", "data-lm-suppress-shortcuts": true, role: "group", "aria-label": model.get("title") || model.get("trace").engine });
    el.append(root);
    const view = new SchedulerDrawing(model, root);
    view.render();
    requestAnimationFrame(() => { view.render(); view.restore = hideChart(root); });
    return () => { view.stop(); view.restore?.(); };
  },
};
