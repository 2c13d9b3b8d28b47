// Replicas side by side, and the router in front of them: one routing decision at a time, all of them on one axis below.
import { fill, glyph, h, number, plural, s, text } from "./dom.js";
import { Player, mount } from "./player.js";
import { createPlayback } from "./controls.js";

const JUMPS = [["copy", "computed again", true]], GAP = 12, MOST_SQUARES = 12;
const FLEET_KEYS = [["m", "next request that is computed again although another replica knew it (Shift: previous)"], ["r", "next router (Shift: previous)"], ["?", "this list"]];
let fleetViews = 0;

// the decisions of the fleet that is chosen, as a player sees them
const decisions = (model) => ({
  low: 0, offset: 0,
  get told() { return model.get("trace").fleets.find((fleet) => fleet.name === model.get("router")); },
  get frames() { return this.told.frames; },
  get edge() { return this.frames.length - 1; },
  next(_, from, step) { for (let t = from + step; t >= 1 && t <= this.edge; t += step) if (this.frames[t].lost) return t; return null; },
});

class FleetDrawing extends Player {
  constructor(model, root) {
    super(model, root, decisions(model));
    this.uid = `fl${++fleetViews}-`;
    this.seen = 0;  // later decisions are not drawn until they were shown: the next one is there to be predicted
    this.names = model.get("trace").fleets.map((fleet) => fleet.name);
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.seg = h("span", { class: "seg", role: "radiogroup", "aria-label": "router" }, this.names.map((name) => h("button", { role: "radio", onclick: () => this.route(name) }, name)));
    this.about = h("span", { class: "small mid" });
    this.columns = h("div", { class: "replicas" });
    this.track = h("div", { class: "axis", role: "slider", tabindex: "0", "aria-label": "Decision", "aria-valuemin": "0" });
    this.legend = h("div", { class: "key small mid" });
    this.playback = createPlayback(this, JUMPS, FLEET_KEYS);
    fill(root, this.patterns(), this.notice, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken,
      h("div", { class: "bar" }, this.names.length > 1 && h("span", { class: "lab" }, "router", this.seg), this.about), this.columns,
      h("section", { class: "timeline", "aria-label": "Decisions" }, h("h2", null, "Every decision", h("span", { class: "q" }, "a bar per request, as high as its prompt, in the row of the replica it went to")), this.legend, this.track), this.playback.root);
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("click", (e) => { if (!e.target.closest("button, .axis")) root.focus({ preventScroll: true }); });
    this.scrub();
    this.follow();
    const again = () => { this.at = this.recorded(this.at); this.soon(); }, { stop } = this;
    model.on("change:router", again);
    this.stop = () => { stop(); model.off("change:router", again); };
  }

  get ends() { return ["before the first decision", "last decision"]; }

  // ---- moving

  go(index) { super.go(index); this.seen = Math.max(this.seen, this.at); }

  step() { if (this.at < this.trace.edge) this.go(this.at + 1); else { this.pause(); this.hint = "that was the last decision"; this.soon(); } }

  jump(kind, direction) { super.jump(kind, direction); if (this.hint) this.hint = `nothing ${direction > 0 ? "later" : "earlier"} is computed again`; }

  route(name) { this.hint = ""; this.model.set("router", name); this.model.save_changes(); }

  turn(by) { const { names } = this; this.route(names[(names.indexOf(this.model.get("router")) + by + names.length) % names.length]); }

  key(e) {
    if (this.foreign(e)) return;
    const run = { m: () => this.jump("copy", 1), M: () => this.jump("copy", -1), r: () => this.turn(1), R: () => this.turn(-1), "?": () => this.playback.toggleKeys() }[e.key];
    if (run) { e.preventDefault(); e.stopPropagation(); run(); } else this.playKey(e);
  }

  scrub() {
    const { track } = this, goto = (e) => { this.pause(); this.go(Math.round((e.clientX - track.getBoundingClientRect().left - this.x0) / this.pitch)); };
    track.addEventListener("pointerdown", (e) => { if (e.clientX - track.getBoundingClientRect().left < this.x1 + 4) { track.setPointerCapture(e.pointerId); goto(e); } });
    track.addEventListener("pointermove", (e) => { if (track.hasPointerCapture(e.pointerId)) goto(e); });
  }

  // ---- pieces: the colour says whose, solid is there, hatched is not (or only cached), vermillion is computed again

  patterns() {
    const hatch = (id, cls) => s("pattern", { id: this.uid + id, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)", class: cls }, s("rect", { width: 4, height: 4, class: "paper" }), s("rect", { width: 1.5, height: 4, class: "thread" }));
    return s("svg", { width: 0, height: 0, class: "defs", "aria-hidden": "true" }, s("defs", null, [-1, 0, 1, 2, 3, 4, 5].map((tone) => hatch(`t${tone}`, this.cls(tone))), hatch("again", "again")));
  }

  cls(tone) { return tone < 0 ? "neutral" : `tone${tone}`; }

  tone(frame) { const { few } = this.model.get("trace"); return few ? few[frame.group] ?? -1 : frame.group === this.shown.group ? 0 : -1; }

  piece(x, y, w, height, kind, tone = -1) {
    if (w <= 0 || height <= 0) return null;
    const inset = Math.min(0.5, w / 4, height / 4);
    return s("rect", { x: x + inset, y: y + inset, width: Math.max(0.6, w - 2 * inset), height: Math.max(0.6, height - 2 * inset), class: `piece ${kind} ${this.cls(tone)}`, fill: kind === "solid" ? null : kind === "hatch" ? `url(#${this.uid}t${tone})` : kind === "again" ? `url(#${this.uid}again)` : "none" });
  }

  who(frame) { return h("span", { class: `who inline ${this.cls(this.tone(frame))}` }, frame.call); }

  sample(kind, tone) { return s("svg", { width: 22, height: 12, "aria-hidden": "true" }, this.piece(0, 0, 22, 12, kind, tone)); }

  // ---- one replica

  replica(n, width) {
    const { shown: frame } = this, chosen = frame.to === n, load = frame.loads[n], found = frame.found[n], blocks = this.trace.told.blocks[n], [requests, known, tokens] = frame.sums[n];
    const count = (state) => frame.pools[n].reduce((sum, [kind, , k]) => sum + (kind === state ? k : 0), 0), used = count("used"), cached = count("cached");
    const pool = `${number(used)} in use, ${number(cached)} cached, ${number(blocks - used - cached)} free`;
    const knows = frame.to === null ? "" : `${number(found)} of ${number(frame.tokens)}`, again = chosen ? frame.lost : 0, fresh = frame.tokens - found;
    const does = again ? h("span", { class: "loss" }, `computes ${number(fresh)}, ${again === fresh ? "all" : number(again)} of them again`) : chosen ? `computes ${number(fresh)}` : "";
    const sofar = requests ? `${plural(requests, "request")}, ${Math.round((100 * known) / tokens)} % known` : "nothing";
    const part = (name, words, drawing, note) => h("div", { class: "part" }, h("div", { class: "line" }, h("span", { class: "mid" }, name), h("b", null, words)), drawing, note !== undefined && h("div", { class: "say2 small mid" }, note));
    return h("div", { class: "replica" + (chosen ? " chosen" : ""), role: "group", "aria-label": `Replica ${n}${chosen ? ", chosen" : ""}: ${plural(load, "request")}; pool ${pool}${knows && `; knows ${knows} tokens`}; so far ${sofar}` },
      h("div", { class: "top" }, h("b", null, `Replica ${n}`), chosen && h("span", { class: "here" }, glyph("arrive", 11), width < 170 ? "here" : "goes here")),
      part("load", plural(load, "request"), this.squares(load, chosen, width)),
      part("pool", plural(blocks, "block"), this.pool(n, width), pool),
      part("knows of it", knows || "–", this.known(n, width), does),
      h("div", { class: "line sofar" }, h("span", { class: "mid" }, "so far"), h("span", null, sofar)));
  }

  // a square per request that is there, and the one that joins
  squares(load, chosen, width) {
    const most = Math.min(MOST_SQUARES, Math.floor(width / 13) - 5), shown = Math.min(load, most), x = shown * 13 + (load > shown ? 26 : 0);
    return s("svg", { width, height: 12, "aria-hidden": "true" }, Array.from({ length: shown }, (_, i) => this.piece(i * 13, 1, 10, 10, "solid")), load > shown && text(shown * 13, 10, `+${load - shown}`, "tick"), chosen && [this.piece(x, 1, 10, 10, "joins", this.tone(this.shown)), text(x + 15, 10, "joins", "tick")]);
  }

  pool(n, width) {
    let x = 0;
    const unit = width / this.trace.told.blocks[n], pieces = this.shown.pools[n].map(([state, tone, blocks]) => { const w = blocks * unit, made = this.piece(x, 0, w, 20, state === "used" ? "solid" : "hatch", tone); x += w; return made; });
    return s("svg", { width, height: 20, "aria-hidden": "true" }, pieces, this.piece(x, 0, width - x, 20, "free"));
  }

  // the prompt to scale: known here; computed, if it goes here; and what of that another replica knew
  known(n, width) {
    const { shown: frame } = this, chosen = frame.to === n, tone = this.tone(frame), unit = width / Math.max(1, frame.tokens), known = frame.found[n] * unit, again = (chosen ? frame.lost : 0) * unit;
    if (frame.to === null) return s("svg", { width, height: 14, "aria-hidden": "true" }, this.piece(0, 0, width, 14, "free"));
    return s("svg", { width, height: 14, "aria-hidden": "true" }, this.piece(0, 0, known, 14, "solid", tone), this.piece(known, 0, again, 14, "again"), this.piece(known + again, 0, width - known - again, 14, chosen ? "hatch" : "free", tone));
  }

  drawReplicas(wide) {
    const n = this.shown.loads.length, across = Math.min(n, Math.max(1, Math.floor((wide + 14) / 178))), rows = Math.ceil(n / across), even = Math.ceil(n / rows);
    const width = Math.min(400, (wide + 14) / even - 14) - 26;  // without padding and border
    this.columns.style.setProperty("--across", even);
    this.columns.classList.toggle("tight", width < 170);
    fill(this.columns, this.shown.loads.map((_, i) => this.replica(i, Math.floor(width))));
  }

  // ---- all decisions

  bar(frame, k, most) {
    const y = 34 + frame.to * (this.lane + GAP) + this.lane, u = this.lane / most, tone = this.tone(frame), known = frame.found[frame.to], w = Math.max(1.5, Math.min(16, this.pitch * 0.8)), x = this.x0 + k * this.pitch - w / 2;
    const kh = known * u, ah = frame.lost * u, rest = Math.max(0, (frame.tokens - known - frame.lost) * u);
    return s("g", { class: k > this.at ? "col future" : "col" }, s("title", null, `${k}: ${frame.call}, replica ${frame.to} knows ${number(known)} of ${plural(frame.tokens, "token")}`),
      this.piece(x, y - kh, w, kh, "solid", tone), this.piece(x, y - kh - ah, w, ah, "again"), this.piece(x, y - kh - ah - rest, w, rest, "hatch", tone));
  }

  drawTrack(wide) {
    const { frames, edge } = this.trace, n = this.shown.loads.length, narrow = wide < 820, most = Math.max(...frames.map((f) => f.tokens)), lane = n > 4 ? 30 : 44, bottom = 34 + n * (lane + GAP);
    this.lane = lane; this.x0 = narrow ? 84 : 96; this.x1 = wide - (narrow ? 120 : 190); this.pitch = (this.x1 - this.x0) / (edge + 0.5);
    const X = (k) => this.x0 + k * this.pitch, w = Math.max(this.pitch, 4);
    const lanes = this.shown.sums.map(([requests, known, tokens], r) => {
      const y = 34 + r * (lane + GAP) + lane, here = this.shown.to === r;
      return [s("path", { d: `M${this.x0} ${y + 0.5}H${this.x1}`, class: "hair" }), text(0, y - 6, `replica ${r}`, here ? "lab strong" : "lab"),
        s("text", { x: this.x1 + 16, y: y - 6, class: "lab" }, tokens ? [s("tspan", { class: "strong" }, number(tokens - known)), narrow ? " unknown" : ` unknown of ${number(tokens)}`] : "nothing yet")];
    });
    fill(this.track, s("svg", { width: wide, height: bottom + 14, "aria-hidden": "true" }, s("rect", { class: "playhead", x: X(this.at) - w / 2, y: 26, width: w, height: bottom - 26, rx: Math.min(4, w / 2) }),
      s("path", { d: `M${X(0)} 12H${X(edge)}`, class: "rail" }), s("path", { d: `M${X(0)} 12H${X(this.at)}`, class: "past" }), lanes, frames.slice(1, this.seen + 1).map((frame, i) => this.bar(frame, i + 1, most)),
      s("g", { class: "knob", transform: `translate(${X(this.at)},0)` }, s("rect", { x: -17, y: 1, width: 34, height: 22, rx: 11 }), text(0, 16.5, this.at, "knobtext", "middle")),
      text(0, 16, "decision", "lab"), text(this.x1 + 16, 16, `of ${number(edge)}`, "lab"), text(X(edge), bottom + 8, number(edge), "tick", "middle"), text(X(0), bottom + 8, "0", "tick", "middle")));
    const { few } = this.model.get("trace"), item = (drawing, words) => h("span", null, drawing, words);
    fill(this.legend, item(this.sample("solid", few ? -1 : 0), "known there"), item(this.sample("hatch", few ? -1 : 0), "computed"), frames.some((f) => f.lost) && item(this.sample("again"), "computed again: another replica knew it"),
      few ? [Object.entries(few).map(([name, tone]) => h("span", { class: `who tiny ${this.cls(tone)}` }, name)), h("span", null, "grey in a pool: used by several")] : this.shown.group && item(h("span", { class: "who tiny tone0" }, this.shown.group), "has the colour, all others are grey"));
    for (const [name, value] of [["max", edge], ["now", this.at], ["text", `${this.at} of ${edge}${this.shown.call && `: ${this.shown.call} to replica ${this.shown.to}`}`]]) this.track.setAttribute(`aria-value${name}`, value);
  }

  render() {
    const { told, frames, edge } = this.trace, frame = frames[this.at], wide = Math.max(300, this.root.clientWidth - 48), router = this.model.get("router");
    this.shown = frame; this.seen = Math.max(this.seen, this.at);
    fill(this.headline, `Decision ${this.at}`, h("small", null, `of ${number(edge)}${frame.at && `, at ${frame.at}`}`));
    fill(this.say, frame.say.map((part) => (part.b ? h("b", null, part.b) : part.who ? this.who(frame) : part)));
    const all = `Decision ${this.at}. ${frame.say.map((part) => part.b ?? part.who ?? part).join("")}`;
    if ((!this.playing || this.speed >= 1800) && this.spoken.textContent !== all) this.spoken.textContent = all;
    for (const [i, b] of [...this.seg.children].entries()) { b.setAttribute("aria-checked", String(this.names[i] === router)); b.tabIndex = this.names[i] === router ? 0 : -1; }
    this.about.textContent = told.about;
    this.drawReplicas(wide); this.drawTrack(wide); this.playback.update();
  }
}

export default mount((model, root) => new FleetDrawing(model, root), "ev fl");
