// Four pools of the same size, each a strip to scale; the refused request lies under the hole that it does not fit.
import { fill, h, percents, s, text } from "./dom.js";
import { Player, mount } from "./player.js";
import { createPlayback } from "./controls.js";

const KINDS = ["used", "later", "never", "hole", "free"], H = 34;
const LEGEND = [["used", "holds K and V now"], ["later", "promised, will be used later"], ["never", "promised, will never be used"], ["hole", "hole: too short for the next request"], ["free", "free"]];
const BITS = { later: "later", never: "never", hole: "holes", free: "free" };
const STRIP_KEYS = [["r f", "next refusal, finish (Shift: previous)"], ["?", "this list"]];
let strips = 0;

const listed = (names) => [names.slice(0, -1).join(", "), ...names.slice(-1)].filter(Boolean).join(" and ");

const framesOf = (model) => {
  const given = model.get("trace");
  if (model.minivllmFrames?.given !== given) model.minivllmFrames = { given, frames: [...given.frames] };
  return model.minivllmFrames.frames;
};

function recording(model) {
  return {
    low: 0, offset: 0,
    get frames() { return framesOf(model); },
    get edge() { return this.frames.length - 1; },
    // a tick in which another request is refused, or somebody ends
    next(kind, from, step) {
      const is = (t) => this.frames[t].rows.some((row, i) => {
        const before = this.frames[t - 1].rows[i];
        return kind === "finish" ? row.done > before.done : row.refused && row.refused.who !== before.refused?.who;
      });
      for (let t = from + step; t >= 1 && t <= this.edge; t += step) if (is(t)) return t;
      return null;
    },
  };
}

class Strips extends Player {
  constructor(model, root) {
    super(model, root, recording(model));
    this.uid = `ms${++strips}-`;
    if (!model.minivllmListens) {
      model.minivllmListens = true;
      model.on("msg:custom", (m) => { if (m.type === "frame") framesOf(model)[m.at] = m.frame; });
      model.send({ type: "hello", have: this.trace.frames.length });
    }
    const choice = (name, label, values) => {
      const seg = h("span", { class: "seg", role: "radiogroup", "aria-label": label }, values.map((v) => h("button", { role: "radio", "data-value": v, onclick: () => { this.pause(); this.ask({ type: "set", name, value: v }); } }, v)));
      this[name] = seg;
      return h("span", { class: "lab choice" }, label, seg);
    };
    this.playback = createPlayback(this, [["refuse", "refusal", true], ["finish", "finish", false]], STRIP_KEYS, h("span", { class: "choices" }, choice("longest", "longest allowed", [64, 128, 256]), choice("block_size", "block_size", [4, 16, 64])));
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.rows = h("div");
    fill(root, this.patterns(), this.notice, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, this.legend(), this.rows, this.playback.root);
    root.addEventListener("keydown", (e) => { if (this.foreign(e)) return; this.key(e); });
    this.follow();
    model.on("change:trace", this.again = () => this.soon());
    model.on("change:predictions", this.again);
    const stop = this.stop;
    this.stop = () => { stop(); model.off("change:trace", this.again); model.off("change:predictions", this.again); };
  }

  key(e) {
    const run = { r: () => this.jump("refuse", 1), R: () => this.jump("refuse", -1), f: () => this.jump("finish", 1), F: () => this.jump("finish", -1), "?": () => this.playback.toggleKeys() }[e.key];
    if (run) { e.preventDefault(); e.stopPropagation(); run(); } else this.playKey(e);
  }

  patterns() {
    const hatch = (id, angle, paper, width, ink) => s("pattern", { id: this.uid + id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` }, s("rect", { width: 5, height: 5, class: paper }), s("rect", { width, height: 5, class: ink }));
    const dots = s("pattern", { id: this.uid + "never", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, s("rect", { width: 6, height: 6, class: "tint" }), s("circle", { cx: 1.5, cy: 1.5, r: 1.05, class: "alarmfill" }), s("circle", { cx: 4.5, cy: 4.5, r: 1.05, class: "alarmfill" }));
    return s("svg", { width: 0, height: 0, class: "defs", "aria-hidden": "true" }, s("defs", null, hatch("later", 45, "paper", 1.5, "inkfill"), hatch("over", -45, "paper", 2, "alarmfill"), dots));
  }

  box(x, y, w, height, kind, rx = 0) {
    if (w <= 0.5) return null;
    const pattern = kind === "later" || kind === "never" ? `url(#${this.uid}${kind})` : null;
    return s("rect", { x: x + 0.5, y: y + 0.5, width: Math.max(0, w - 1), height: height - 1, rx, class: `piece ${kind}`, fill: pattern });
  }

  legend() {
    return h("div", { class: "legend", "aria-hidden": "true" }, LEGEND.map(([kind, words]) => h("span", null, s("svg", { width: 26, height: 14 }, this.box(0, 0, 26, 14, kind, 2)), words)),
      h("span", null, s("svg", { width: 14, height: 12 }, s("path", { d: "M1.5 2H12.5L7 10Z", class: "guess" })), "your prediction"));
  }

  // the pool, its letters, and the refused request to scale under the largest hole
  strip(row, paged, width) {
    const { slots } = this.model.get("trace"), u = width / slots, parts = [], y = 2;
    let who = "";
    for (const [kind, at, size, owner] of row.pieces) {
      const x = at * u, w = size * u, rounded = kind === "hole" || kind === "free";
      parts.push(this.box(rounded ? x + 1 : x, y, rounded ? w - 2 : w, H, kind, rounded ? 2 : 0));
      if (kind === "used" && (paged || owner !== who) && w > 9) parts.push(text(paged ? x + w / 2 : x + 8, y + 22, owner, "owner", paged ? "middle" : "start"));
      if ((kind === "used" || kind === "later") && owner !== who && !paged) parts.push(s("rect", { x: x - 0.75, y: y - 2, width: 1.5, height: H + 4, class: "seam" }));
      if (kind === "hole" && w > 26) parts.push(text(x + w / 2, y + 22, size, "hole", "middle"));
      if (!rounded) who = owner;
    }
    if (paged) parts.push(...this.scattered(row, u, width));
    else if (row.refused) parts.push(...this.refused(row.refused, u, width, slots));
    const below = parts.some((part) => part?.classList?.contains("below"));
    return s("svg", { width, height: below ? 84 : 66, role: "img", "aria-label": this.words(row) }, parts);
  }

  refused(r, u, width, slots) {
    const y = H + 14, fits = r.at + r.need <= slots, from = (fits ? r.at : Math.max(0, r.at + r.hole - r.need)) * u, over = fits ? (r.at + r.hole) * u : from, short = Math.min(r.need, slots) - r.hole;
    const end = from + Math.min(r.need, slots) * u, narrow = width < 620;
    const why = r.prompt < r.hole && r.need > r.prompt * 2 ? (width < 400 ? `${r.prompt} tokens fit in ${r.hole}, it asks ${r.need}` : `its ${r.prompt} tokens would fit in ${r.hole}, but it asks for ${r.need}`) : narrow ? `asks ${r.need}, hole ${r.hole}, free ${r.free}` : `asks for ${r.need}, largest hole ${r.hole}, free in all ${r.free}`;
    const long = why.length * 6 + 76, right = end + 10 + long < width, left = !right && from > long;
    const label = s("text", { x: right ? end + 10 : left ? from - 10 : 0, y: right || left ? y + 12.5 : y + 31, class: right || left ? "why" : "why below", "text-anchor": left ? "end" : "start" }, s("tspan", { class: "name" }, r.who), ` refused: ${why}`);
    return [
      r.hole > 0 && s("path", { d: `M${r.at * u} ${H + 4}V${y + 16}M${(r.at + r.hole) * u} ${H + 4}V${y + 16}`, class: "plumb" }),
      s("rect", { x: from + 0.75, y: y + 0.75, width: Math.max(2, end - from - 1.5), height: 14.5, rx: 3, class: "asked" }),
      short > 0 && s("rect", { x: over + 1.5, y: y + 1.5, width: Math.max(1.5, short * u - 3), height: 13, rx: 1.5, fill: `url(#${this.uid}over)` }), label,
    ].filter(Boolean);
  }

  // in the paged pool: the blocks of those that others turn away
  scattered(row, u, width) {
    const { rows } = this.trace.frames[this.at], turned = new Set(rows.map((r, i) => (this.paged(i) ? null : r.refused?.who)).filter(Boolean));
    const { block_size } = this.model.get("trace"), here = row.running.filter((id) => turned.has(id)), marks = new Set();
    for (const [kind, at, , owner] of row.pieces) if (here.includes(owner) && kind !== "free") marks.add(Math.floor(at / block_size));
    const empty = row.totals.later + row.totals.never;
    const names = listed(here), run = here.length > 0 ? ` run${here.length === 1 ? "s" : ""} in scattered blocks (underlined). ` : "", room = width / 6.2 - names.length - run.length;
    const left = [`Only last blocks have empty slots: ${empty}.`, `Empty slots: ${empty}.`].find((said) => said.length <= room) ?? "";
    const words = s("text", { x: 0, y: H + 24, class: "said" }, here.length > 0 && s("tspan", { class: "name" }, names), run, row.running.length ? left : "");
    return [...[...marks].map((b) => s("rect", { x: b * block_size * u + 1, y: H + 4, width: block_size * u - 2, height: 3, rx: 1.5, class: "under" })), words];
  }

  paged(i) { return this.model.get("trace").rows[i].name === "Paged"; }

  words(row) { const p = percents(KINDS.map((k) => row.totals[k])); return `${row.running.length} running, ${KINDS.map((k, i) => `${p[i]} % ${k}`).join(", ")}${row.refused ? `, ${row.refused.who} refused` : ""}`; }

  // how much: the same slots sorted, 0 to 100 %, with the prediction on the same axis
  sums(row, name, width) {
    const values = KINDS.map((k) => row.totals[k]), whole = values.reduce((a, b) => a + b, 0) || 1, pc = percents(values), guess = this.model.get("predictions")[name];
    let x = 0;
    const parts = KINDS.map((kind, i) => { const w = (values[i] / whole) * width, piece = this.box(x, 10, w, 12, kind); x += w; return piece; });
    if (guess) { const g = (width * guess.percent) / 100; parts.push(s("path", { d: `M${g - 5.5} 2H${g + 5.5}L${g} 9.5Z`, class: "guess" })); }
    const bits = Object.entries(BITS).filter(([kind]) => row.totals[kind]).map(([kind, word]) => `${pc[KINDS.indexOf(kind)]} % ${word}`).join(", ");
    return h("div", { class: "sums" }, h("div", { class: "big" }, h("b", null, `${row.running.length} running`), ", ", h("b", null, `${pc[0]} %`), " used"),
      s("svg", { width, height: 23, "aria-hidden": "true" }, parts), h("div", { class: "small mid" }, bits || "empty"),
      guess && this.at > 0 && [null, this.at].includes(guess.tick) && h("div", { class: "small dim" }, `you said ${guess.percent} %, off by ${Math.round(Math.abs(guess.percent - pc[0]))}`));
  }

  render() {
    this.at = Math.min(this.at, this.trace.edge);  // the settings may have begun a shorter recording
    const trace = this.model.get("trace"), frame = this.trace.frames[this.at], whole = this.root.clientWidth - 48, narrow = whole <= 880, tight = whole <= 520;
    const width = Math.max(200, tight ? whole : narrow ? whole - 224 : whole - 150 - 210 - 56);
    const said = frame.say.map((p) => (typeof p === "string" ? p : p.b)).join("");
    fill(this.headline, `Tick ${this.at}`, h("small", null, `of ${this.trace.edge}`));
    fill(this.say, frame.say.map((p) => (typeof p === "string" ? p : h("b", null, p.b))));
    const all = `Tick ${this.at}. ${said}`;
    if (!(this.playing && this.speed < 1800) && this.spoken.textContent !== all) this.spoken.textContent = all;
    fill(this.rows, trace.rows.map(({ name, rule }, i) => h("div", { class: "row" }, h("div", null, h("h2", null, name), h("div", { class: "rule" }, rule)), this.strip(frame.rows[i], this.paged(i), width), this.sums(frame.rows[i], name, narrow ? 200 : 210))));
    for (const name of ["longest", "block_size"]) for (const b of this[name].children) b.setAttribute("aria-checked", String(Number(b.dataset.value) === trace[name]));
    this.playback.update();
  }
}

export default mount((model, root) => new Strips(model, root), "ms");
