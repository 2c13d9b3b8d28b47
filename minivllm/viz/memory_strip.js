// The memory strip: four layouts over the same requests, all ticks in the browser; a changed setting is run anew by Python.
import { fill, followTheme, glyph, h, s } from "./dom.js";
import { patterns, row, sample } from "./strip_row.js";

const NAMES = ["Max", "Pow2", "Oracle", "Paged"], WORDS = { used: "holds K and V now", later: "promised, will be used later", never: "promised, will never be used", hole: "hole: too short for the next request", free: "free" };

class Strips {
  constructor(model, root) {
    Object.assign(this, { model, root, playing: false });
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" }); this.alarm = h("div", { class: "alarm", role: "alert", hidden: true });
    this.rows = h("div", { class: "rows" });
    const legend = h("div", { class: "legend", "aria-hidden": "true" }, Object.entries(WORDS).map(([kind, words]) => h("span", null, sample(kind), words)), this.hasSaid() && h("span", null, s("svg", { width: 14, height: 12 }, s("path", { class: "said", d: "M1.5 2h11l-5.5 8z" })), "your prediction"));
    fill(root, patterns(), this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, legend, this.rows, this.controls());
    const draw = () => this.soon();
    for (const name of ["playhead", "story", "error"]) model.on(`change:${name}`, draw);
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("click", (e) => { if (!e.target.closest("button")) root.focus({ preventScroll: true }); });
    const resize = new ResizeObserver(draw), unfollow = followTheme(root);
    resize.observe(root);
    this.stop = () => { this.pause(); resize.disconnect(); unfollow(); for (const name of ["playhead", "story", "error"]) model.off(`change:${name}`, draw); };
  }

  get story() { return this.model.get("story"); }
  get last() { return this.story.say.length - 1; }
  get at() { return Math.min(this.model.get("playhead"), this.last); }
  hasSaid() { return Object.keys(this.story.said).length > 0; }

  controls() {
    const icon = (kind, name, act) => h("button", { class: "icon", "aria-label": name, title: name, onclick: act }, glyph(kind));
    this.home = icon("home", "first tick", () => this.go(0)); this.less = icon("back", "back", () => { this.pause(); this.go(this.at - 1); }); this.more = icon("step", "step", () => { this.pause(); this.go(this.at + 1); }); this.end = icon("end", "last tick", () => this.go(this.last));
    this.play = h("button", { class: "on go", onclick: () => this.toggle() });
    this.choices = Object.fromEntries(Object.entries({ longest: "longest allowed", block_size: "block_size" }).map(([name, words]) => [name, h("span", { class: "seg", role: "radiogroup", "aria-label": words })]));
    this.hint = h("span", { class: "small mid", role: "status" });
    this.list = h("dl", { class: "keylist", hidden: true }, [["← →", "back, step"], ["Home End", "first, last tick"], ["Space", "play or pause"], ["r f", "next refusal of somebody else, next finish (Shift: previous)"], ["?", "this list"]].map(([keys, words]) => [h("dt", null, keys.split(" ").map((k) => [h("kbd", null, k), " "])), h("dd", null, words)]));
    this.help = h("button", { class: "keys", "aria-expanded": "false", "aria-label": "all keys", onclick: () => this.keys() }, h("kbd", null, "?"), " all keys");
    const next = (kind, words, loss) => h("button", { "data-next": kind, onclick: (e) => this.jump(kind, e.shiftKey ? -1 : 1) }, h("span", { class: loss ? "loss" : "" }, glyph(loss ? "evict" : "finish")), words);
    return h("div", { class: "playbox" }, h("div", { class: "play", role: "toolbar", "aria-label": "Playback" }, this.home, this.less, this.play, this.more, this.end, h("span", { class: "lab next" }, "next"), next("refusal", "refusal", true), next("finish", "finish"),
      h("span", { class: "lab next" }, "longest allowed", this.choices.longest), h("span", { class: "lab" }, "block_size", this.choices.block_size), this.hint, h("span", { class: "sp" }), this.help), this.list);
  }

  go(tick) { const to = Math.max(0, Math.min(this.last, tick)); if (to !== this.at) { this.model.set("playhead", to); this.model.save_changes(); } this.hint.textContent = ""; this.soon(); }

  // the next tick in which a contiguous layout turns away somebody new, or anybody finishes
  jump(kind, direction) {
    this.pause();
    const { frames } = this.story, key = (i) => NAMES.map((name) => (kind === "refusal" ? (name === "Paged" ? "" : frames[name][i].refused?.[0]) : frames[name][i].done.length)).join();
    for (let i = this.at + direction; i >= 1 && i <= this.last; i += direction) if (key(i) !== key(i - 1)) { this.go(i); return; }
    this.hint.textContent = `no ${direction > 0 ? "later" : "earlier"} ${kind}`;
  }

  toggle() { if (this.playing) this.pause(); else { if (this.at === this.last) this.go(0); this.playing = true; this.beat(); } this.soon(); }
  pause() { clearTimeout(this.timer); if (this.playing) { this.playing = false; this.soon(); } }
  beat() { this.timer = setTimeout(() => { if (!this.playing || !this.root.isConnected) return; this.go(this.at + 1); if (this.at >= this.last) this.pause(); else this.beat(); }, 600); }
  keys() { this.list.hidden = !this.list.hidden; this.help.setAttribute("aria-expanded", String(!this.list.hidden)); }
  soon() { this.frame ||= requestAnimationFrame(() => { this.frame = 0; if (this.root.isConnected) this.render(); }); }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const run = { ArrowLeft: () => { this.pause(); this.go(this.at - 1); }, ArrowRight: () => { this.pause(); this.go(this.at + 1); }, Home: () => { this.pause(); this.go(0); }, End: () => { this.pause(); this.go(this.last); },
      r: () => this.jump("refusal", 1), R: () => this.jump("refusal", -1), f: () => this.jump("finish", 1), F: () => this.jump("finish", -1), "?": () => this.keys(), " ": e.target.closest("button") ? null : () => this.toggle() }[e.key];
    if (run) { e.preventDefault(); e.stopPropagation(); run(); }
  }

  render() {
    const { story, at, last } = this, now = Object.fromEntries(NAMES.map((name) => [name, story.frames[name][at]])), words = story.say[at];
    fill(this.headline, `Tick ${at}`, h("small", null, `of ${last}`));
    fill(this.say, words.split(/\b(Max|Pow2|Oracle|Paged)\b/).map((part) => (NAMES.includes(part) ? h("b", null, part) : part)));
    if (!this.playing && this.spoken.textContent !== `Tick ${at}. ${words}`) this.spoken.textContent = `Tick ${at}. ${words}`;
    const box = this.rows.clientWidth || 900, width = box < 760 ? box - 228 : box - 150 - 210 - 48, refused = NAMES.slice(0, 3).map((name) => now[name].refused?.[0]).filter(Boolean);
    fill(this.rows, NAMES.map((name) => row(name, now[name], story, Math.max(240, width), [...new Set(refused)])));
    fill(this.play, glyph(this.playing ? "pause" : "play"), this.playing ? "Pause" : "Play");
    this.home.disabled = this.less.disabled = at === 0; this.more.disabled = this.end.disabled = at === last;
    for (const [name, box_] of Object.entries(this.choices)) fill(box_, story.choices[name].map((n) => h("button", { role: "radio", "aria-checked": String(n === story.options[name]), onclick: () => { this.pause(); this.model.send({ name, value: n }); } }, n)));
    const error = this.model.get("error");
    this.alarm.hidden = !error; this.alarm.textContent = error;
  }
}

// while the live view is there, the static card above it would say the same twice
function hideCard(root) {
  const area = root.closest(".jp-OutputArea");
  const images = area ? [...area.querySelectorAll("img.mv-snapshot")].map((img) => img.closest(".jp-OutputArea-child")).filter(Boolean) : [];
  for (const node of images) node.style.display = "none";
  return () => { for (const node of images) node.style.display = ""; };
}

export default {
  render({ model, el }) {
    const root = h("div", { class: "mv ms", tabindex: "-1", "data-lm-suppress-shortcuts": true, role: "group", "aria-label": "Memory under four rules" });
    el.append(root);
    const view = new Strips(model, root);
    view.render();
    requestAnimationFrame(() => { view.render(); view.restore = hideCard(root); });
    return () => { view.stop(); view.restore?.(); };
  },
};
