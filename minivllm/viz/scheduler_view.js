// The scheduler view: the same recording as the engine view, seen as queues, rows of ticks and token budgets.
import { fill, glyph, h } from "./dom.js";
import { sentence } from "./block.js";
import { nowOf } from "./now.js";
import { Player, mount } from "./player.js";
import { recordingOf } from "./recording.js";
import { createPlayback } from "./controls.js";
import { createBudget, createLog } from "./log.js";
import { createGantt } from "./gantt.js";
import { createQueues } from "./queues.js";

const BUDGETS = [4, 8, 16, 32, 64], RULES = { fcfs: "first come", priority: "priority", "longest-prefix": "longest prefix", "shortest-prompt": "shortest prompt" };
const JUMPS = [["token", "first token", false], ["preempt", "preemption", true]];
const MORE_KEYS = [["f p", "next first token, preemption (Shift: previous)"], ["b", "token budget"], ["a", "add a request"], ["?", "this list"]];

class SchedulerDrawing extends Player {
  constructor(model, root) {
    super(model, root, recordingOf(model));
    this.read();
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.queues = createQueues(this); this.gantt = createGantt(this); this.log = createLog(this); this.budget = createBudget(this);
    this.playback = createPlayback(this, JUMPS, MORE_KEYS);
    fill(root, this.notice, this.edits(), this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, this.queues.root, this.gantt.root, this.playback.root, h("div", { class: "pair" }, this.budget.root, this.log.root));
    this.listen();
  }

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
    this.form.addEventListener("keydown", (e) => {
      if (e.key === "Escape") { e.stopPropagation(); this.open(false); }
      if (e.key === "Enter" && e.target.matches("input")) { e.preventDefault(); e.stopPropagation(); this.form.requestSubmit(); }  // JupyterLab swallows it
    });
    this.addButton = h("button", { "aria-expanded": "false", onclick: () => this.open(this.form.hidden) }, glyph("take"), "Add request");
    return h("div", null, h("div", { class: "bar", role: "toolbar", "aria-label": "Change the engine" }, h("span", { class: "lab" }, "token budget", this.sizes), this.switches, h("span", { class: "lab" }, "policy", h("span", { class: "pick" }, this.policy, glyph("down"))), this.addButton), this.form);
  }

  // a prompt of n words that no other request has
  madeUp(n) { const name = `r${Date.now() % 100000}`; return Array.from({ length: n }, (_, i) => `${name}.${i}`).join(" "); }
  open(yes) { this.form.hidden = !yes; this.addButton.setAttribute("aria-expanded", String(yes)); (yes ? this.prompt : this.addButton).focus(); }

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
    for (const part of [this.queues, this.gantt, this.playback, this.budget, this.log]) part.update();
    for (const b of this.switches) b.setAttribute("aria-checked", String(settings[b.dataset.setting]));
    const budget = settings.max_num_batched_tokens, sizes = BUDGETS.includes(budget) ? BUDGETS : [...BUDGETS, budget].sort((a, b) => a - b).slice(-5);
    if (this.drawnBudget !== budget) { this.drawnBudget = budget; fill(this.sizes, sizes.map((n) => h("button", { role: "radio", "aria-checked": String(n === budget), onclick: () => n !== this.settings().max_num_batched_tokens && this.set("max_num_batched_tokens", n) }, n))); }
    this.policy.value = settings.policy;
  }

  jump(kind, direction) {
    this.pause();
    const has = (i) => this.trace.ticks[i - 1].events.some((e) => e.kind === kind && (kind !== "token" || e.first));
    for (let i = this.at + direction; i >= 1 && i <= this.trace.edge; i += direction) if (has(i)) { this.go(i); return; }
    this.hint = `no ${direction > 0 ? "later" : "earlier"} ${kind === "token" ? "first token" : "preemption"} so far`; this.soon();
  }

  set(name, value) { if (this.at < this.trace.edge) this.hint = "applied at the live edge"; this.pause(); this.ask({ type: "set", name, value }); }

  // the playhead may have been set before its ticks were here
  heard(message) {
    if (message.type === "sync") this.at = this.recorded(this.model.get("playhead"));
    super.heard(message);
  }

  listen() {
    const draw = () => this.soon(), { model, root } = this;
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("click", (e) => { if (!e.target.closest("button, input, select, [tabindex='0']")) root.focus({ preventScroll: true }); });
    this.follow();
    model.on("change:settings", draw);
    const { stop } = this;
    this.stop = () => { stop(); model.off("change:settings", draw); };
  }

  key(e) {
    if (this.foreign(e)) return;
    const run = { f: () => this.jump("token", 1), F: () => this.jump("token", -1), p: () => this.jump("preempt", 1), P: () => this.jump("preempt", -1),
      b: () => this.sizes.querySelector("[aria-checked=true]")?.focus(), a: () => this.open(true), "?": () => this.playback.toggleKeys() }[e.key];
    if (run) { e.preventDefault(); e.stopPropagation(); run(); } else this.playKey(e);
  }
}

export default mount((model, root) => new SchedulerDrawing(model, root), "ev sv");
