// The kernel stepper: receives the trace of one program, and of its broken twins, once; then moves on its own.
import { fill, h } from "./dom.js";
import { Player, mount } from "./player.js";
import { createPlayback } from "./controls.js";
import { createCode } from "./kernel_code.js";
import { createPage } from "./kernel_page.js";
import { createPass } from "./kernel_pass.js";

const STEP_KEYS = [["m", "next new maximum (Shift: previous)"], ["l", "by line or by page"], ["1 2 3 …", "break it, and mend it again"], ["?", "this list"]];

// the steps of the run that is shown, as a player wants them
const stepsOf = (model) => ({ low: 0, offset: 0, get edge() { return model.get("story").runs[model.get("fault")].steps.length - 1; } });

class Stepper extends Player {
  get ends() { return ["first step", "last step"]; }

  constructor(model, root) {
    super(model, root, stepsOf(model));
    this.story = model.get("story");
    this.read();
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.code = createCode(this); this.page = createPage(this); this.pass = createPass(this);
    this.playback = createPlayback(this, [["take", "new maximum", false]], STEP_KEYS, this.extras());
    fill(root, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, h("div", { class: "two" }, this.code.root, this.page.root), this.pass.root, this.playback.root);
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("click", (e) => { if (!e.target.closest("button")) root.focus({ preventScroll: true }); });
    this.follow();
    const draw = () => this.soon(), { stop } = this;
    for (const name of ["fault", "by_page"]) model.on(`change:${name}`, draw);
    this.stop = () => { stop(); for (const name of ["fault", "by_page"]) model.off(`change:${name}`, draw); };
  }

  read() {
    this.run = this.story.runs[this.model.get("fault")];
    this.at = Math.min(this.at, this.trace.edge);
    this.byPage = this.model.get("by_page");
  }

  extras() {
    const mode = (on, words) => h("button", { role: "radio", "data-page": String(on), onclick: () => this.put("by_page", on) }, words);
    this.modes = h("span", { class: "seg", role: "radiogroup", "aria-label": "one step is" }, mode(false, "by line"), mode(true, "by page"));
    this.faults = Object.keys(this.story.runs).filter(Boolean).map((name) => h("button", { class: "fault", "aria-pressed": "false", "data-fault": name, onclick: () => this.breakIt(name) }, name));
    this.verdict = h("span", { class: "small verdict", role: "status" });
    return h("span", { class: "extras" }, this.modes, this.faults.length > 0 && h("span", { class: "lab next" }, "break it"), this.faults, this.verdict);
  }

  put(name, value) { this.model.set(name, value); this.model.save_changes(); this.read(); this.soon(); }
  // by page: the last line of the next page, or of the one before
  page_(by) {
    const { steps } = this.run, last = (page) => steps.findLastIndex((st) => st.page === page && !st.end), { page, end } = steps[this.at];
    if (by > 0) return page > 0 && this.at < last(page) ? last(page) : last(page + 1) >= 0 ? last(page + 1) : this.trace.edge;
    return end ? last(page) : last(page - 1) >= 0 ? last(page - 1) : 0;
  }

  step() { if (this.at === this.trace.edge) { if (this.playing) this.pause(); } else this.go(this.byPage ? this.page_(1) : this.at + 1); }
  back() { this.pause(); this.go(this.byPage ? this.page_(-1) : this.at - 1); }
  togglePlay() { if (!this.playing && this.at === this.trace.edge) this.go(0); super.togglePlay(); }

  // the next line that raises the running maximum
  jump(_, direction) {
    this.pause();
    for (let i = this.at + direction; i >= 0 && i <= this.trace.edge; i += direction) if ("m2" in this.run.steps[i].made && /rises/.test(this.run.steps[i].say)) { this.go(i); return; }
    this.hint = `no ${direction > 0 ? "later" : "earlier"} new maximum`; this.soon();
  }

  // the same page under another kernel
  breakIt(name) {
    const next = this.model.get("fault") === name ? "" : name;
    this.model.set("fault", next);
    this.at = Math.min(this.at, this.trace.edge);
    this.model.set("playhead", this.at);
    this.model.save_changes();
    this.read();
    this.soon();
  }

  key(e) {
    if (this.foreign(e)) return;
    const fault = this.faults[Number(e.key) - 1];
    const run = { m: () => this.jump("", 1), M: () => this.jump("", -1), l: () => this.put("by_page", !this.byPage), "?": () => this.playback.toggleKeys() }[e.key] || (fault && (() => this.breakIt(fault.dataset.fault)));
    if (run) { e.preventDefault(); e.stopPropagation(); run(); } else this.playKey(e);
  }

  render() {
    this.read();
    const step = this.run.steps[this.at], fault = this.model.get("fault");
    fill(this.headline, step.end ? "Done" : step.page ? `Page ${step.page}` : "Start", h("small", null, step.page && !step.end ? `of ${this.story.pages}` : `${this.story.pages} pages`));
    const words = this.byPage && step.page && !step.end ? this.summary(step.page) : step.say;
    this.say.textContent = words;
    if (!this.playing && this.spoken.textContent !== words) this.spoken.textContent = words;
    for (const part of [this.code, this.page, this.pass, this.playback]) part.update();
    for (const b of this.modes.children) b.setAttribute("aria-checked", String((b.dataset.page === "true") === this.byPage));
    for (const b of this.faults) b.setAttribute("aria-pressed", String(b.dataset.fault === fault));
    this.verdict.textContent = `${fault ? `with ${fault} it` : "it"} ${this.run.verdict}`;
    this.verdict.classList.toggle("loss", fault !== "");
  }

  // what matters of a page, in its lines' own words
  summary(page) {
    const own = this.run.steps.filter((st) => st.page === page && !st.end), of = (name) => own.find((st) => name in st.made)?.say || "";
    return [`Page ${page} of ${this.story.pages}.`, of("valid"), of("m2"), page > 1 ? of("a") : "", own.find((st) => /NaN/.test(st.say))?.say || ""].filter(Boolean).join(" ");
  }
}

export default mount((model, root) => new Stepper(model, root), "ks");
