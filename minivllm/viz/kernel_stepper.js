// The kernel stepper: receives the trace of one program, and of its broken twins, once; then moves on its own.
import { fill, followTheme, glyph, h } from "./dom.js";
import { createCode } from "./kernel_code.js";
import { createPage } from "./kernel_page.js";
import { createPass } from "./kernel_pass.js";

const BEAT = 700;
const HELP = [["← →", "back, step"], ["Home End", "start, end"], ["Space", "play or pause"], ["l", "by line or by page"], ["1 2 3 …", "break it, and mend it again"], ["?", "this list"]];

class Stepper {
  constructor(model, root) {
    Object.assign(this, { model, root, story: model.get("story"), playing: false });
    this.read();
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.code = createCode(this); this.page = createPage(this); this.pass = createPass(this);
    fill(root, h("div", { class: "head" }, this.headline, this.say), this.spoken,
      h("div", { class: "two" }, this.code.root, this.page.root), this.pass.root, this.controls());
    const draw = () => this.soon();
    for (const name of ["playhead", "fault", "by_page"]) model.on(`change:${name}`, draw);
    root.addEventListener("keydown", (e) => this.key(e));
    const resize = new ResizeObserver(draw), unfollow = followTheme(root);
    resize.observe(root);
    this.stop = () => { this.pause(); resize.disconnect(); unfollow(); for (const name of ["playhead", "fault", "by_page"]) model.off(`change:${name}`, draw); };
  }

  read() {
    this.run = this.story.runs[this.model.get("fault")];
    this.at = Math.min(this.model.get("playhead"), this.run.steps.length - 1);
    this.byPage = this.model.get("by_page");
  }

  controls() {
    const icon = (kind, name, act) => h("button", { class: "icon", "aria-label": name, title: name, onclick: act }, glyph(kind));
    this.play = h("button", { class: "on go", onclick: () => this.toggle() });
    this.home = icon("home", "start", () => this.go(0)); this.less = icon("back", "back", () => this.move(-1)); this.more = icon("step", "step", () => this.move(1)); this.end = icon("end", "end", () => this.go(Infinity));
    const mode = (on, words) => h("button", { role: "radio", "data-page": String(on), onclick: () => this.put("by_page", on) }, words);
    this.modes = h("span", { class: "seg", role: "radiogroup", "aria-label": "one step is" }, mode(false, "by line"), mode(true, "by page"));
    this.faults = Object.keys(this.story.runs).filter(Boolean).map((name) => h("button", { class: "fault", "aria-pressed": "false", "data-fault": name, onclick: () => this.breakIt(name) }, name));
    this.verdict = h("span", { class: "small verdict", role: "status" });
    this.list = h("dl", { class: "keylist", hidden: true }, HELP.map(([keys, words]) => [h("dt", null, keys.split(" ").map((k) => [h("kbd", null, k), " "])), h("dd", null, words)]));
    this.help = h("button", { class: "keys", "aria-expanded": "false", "aria-label": "all keys", onclick: () => this.keys() }, h("kbd", null, "?"), " all keys");
    return h("div", { class: "playbox" }, h("div", { class: "play", role: "toolbar", "aria-label": "Playback" }, this.home, this.less, this.play, this.more, this.end, this.modes,
      this.faults.length > 0 && h("span", { class: "lab next" }, "break it"), this.faults, h("span", { class: "sp" }), this.verdict, this.help), this.list);
  }

  put(name, value) { this.model.set(name, value); this.model.save_changes(); this.soon(); }
  go(step) { const to = Math.max(0, Math.min(this.run.steps.length - 1, step)); if (to !== this.at) { this.at = to; this.put("playhead", to); } }

  // by page: the last line of the next page, or of the one before
  move(by) {
    const { steps } = this.run;
    if (!this.byPage) { this.go(this.at + by); return; }
    const last = (page) => steps.findLastIndex((st) => st.page === page && !st.end), { page } = steps[this.at];
    if (by > 0) this.go(this.at < last(page) ? last(page) : last(page + 1) >= 0 ? last(page + 1) : Infinity);
    else this.go(steps[this.at].end ? last(page) : last(page - 1) >= 0 ? last(page - 1) : 0);
  }

  // the same page under another kernel
  breakIt(name) {
    const next = this.model.get("fault") === name ? "" : name;
    this.model.set("fault", next);
    this.model.set("playhead", Math.min(this.at, this.story.runs[next].steps.length - 1));
    this.model.save_changes();
    this.soon();
  }

  toggle() { if (this.playing) this.pause(); else { if (this.at === this.run.steps.length - 1) this.go(0); this.playing = true; this.beat(); } this.soon(); }
  pause() { clearTimeout(this.timer); if (this.playing) { this.playing = false; this.soon(); } }
  beat() { this.timer = setTimeout(() => { if (!this.playing || !this.root.isConnected) return; this.move(1); if (this.at >= this.run.steps.length - 1) this.pause(); else this.beat(); }, this.byPage ? 2 * BEAT : BEAT); }
  keys() { this.list.hidden = !this.list.hidden; this.help.setAttribute("aria-expanded", String(!this.list.hidden)); }
  soon() { this.frame ||= requestAnimationFrame(() => { this.frame = 0; if (this.root.isConnected) this.render(); }); }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const fault = this.faults[Number(e.key) - 1];
    const act = { ArrowLeft: () => { this.pause(); this.move(-1); }, ArrowRight: () => { this.pause(); this.move(1); }, Home: () => { this.pause(); this.go(0); }, End: () => { this.pause(); this.go(Infinity); },
      l: () => this.put("by_page", !this.byPage), "?": () => this.keys(), " ": e.target.closest("button") ? null : () => this.toggle() }[e.key] || (fault && (() => this.breakIt(fault.dataset.fault)));
    if (act) { e.preventDefault(); e.stopPropagation(); act(); }
  }

  render() {
    this.read();
    const step = this.run.steps[this.at], last = this.run.steps.length - 1, fault = this.model.get("fault");
    fill(this.headline, step.end ? "Done" : step.page ? `Page ${step.page}` : "Start", h("small", null, step.page && !step.end ? `of ${this.story.pages}` : `${this.story.pages} pages`));
    const words = this.byPage && step.page && !step.end ? this.summary(step.page) : step.say;
    this.say.textContent = words;
    if (!this.playing && this.spoken.textContent !== words) this.spoken.textContent = words;
    for (const part of [this.code, this.page, this.pass]) part.update();
    fill(this.play, glyph(this.playing ? "pause" : "play"), this.playing ? "Pause" : "Play");
    this.home.disabled = this.less.disabled = this.at === 0; this.end.disabled = this.more.disabled = this.at === last;
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

// while the live view is there, the static snapshot above it would say the same twice
function quietSnapshot(root) {
  const area = root.closest(".jp-OutputArea");
  const images = area ? [...area.querySelectorAll("img.mv-snapshot")].map((img) => img.closest(".jp-OutputArea-child")).filter(Boolean) : [];
  for (const node of images) node.style.display = "none";
  return () => { for (const node of images) node.style.display = ""; };
}

export default {
  render({ model, el }) {
    const root = h("div", { class: "mv ks", tabindex: "-1", "data-lm-suppress-shortcuts": true, role: "group", "aria-label": "Kernel stepper" });
    el.append(root);
    const view = new Stepper(model, root);
    view.render();
    requestAnimationFrame(() => { view.render(); view.restore = quietSnapshot(root); });
    return () => { view.stop(); view.restore?.(); };
  },
};
