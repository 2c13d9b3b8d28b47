// Hash chains: two prompts compared block by block. Python compares and words it; here it is drawn, and choices are sent.
import { fill, glyph, h, mark, s, text } from "./dom.js";
import { Player, mount } from "./player.js";

const KEYS = [["↑ ↓", "from block to block"], ["Home End", "first block, last block"], ["n", "next mismatch (Shift: previous)"], ["t", "hash with or without the parent"], ["b", "block_size"], ["?", "this list"]];
const TOP = 58, PH = 26, GAP = 4, MISSES = new Set(["first", "after", "wrong"]), SAID = { hit: "hit", last: "same hash, not reused", first: "first mismatch", after: "other hash", wrong: "same hash after another past", open: "not compared" };
const HOW = (size) => `hash = H( parent hash, ${size} token ids, extra keys ). Only full blocks have one. The first parent is the root, the same for everyone.`;
const pen = document.createElement("canvas").getContext("2d");

// lines of at most `most` characters, broken at spaces
function wrapped(words, most) {
  const lines = [""];
  for (const word of words.split(" ")) if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push(word); else lines.push(`${lines.pop()} ${word}`.trim());
  return lines;
}

class Chains extends Player {
  constructor(model, root) {
    super(model, root, { low: 0, offset: 0, get edge() { return model.get("picture").rows.length - 1; } });
    this.asked = 0;
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.chains = h("div", { class: "chains" }); this.moves = this.slider(); this.why = h("div", { class: "small mid" });
    this.list = h("dl", { class: "keylist", hidden: true }, KEYS.map(([names, words]) => [h("dt", null, names.split(" ").map((k) => [h("kbd", null, k), " "])), h("dd", null, words)]));
    fill(root, this.notice, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, this.controls(), this.list, this.chains, h("div", { class: "foot" }, this.moves, this.why));
    root.addEventListener("keydown", (e) => { if (!this.foreign(e)) this.key(e); });
    this.follow();
    const again = () => this.soon(), { stop } = this;
    model.on("change:picture", again);
    this.stop = () => { stop(); model.off("change:picture", again); };
  }

  get picture() { return this.model.get("picture"); }
  set(name, value) { this.asked += 1; this.ask({ type: "set", name, value }); }
  heard(message) { const left = this.asked - (message.type === "done"); super.heard(message); this.asked = Math.max(0, left); }

  controls() {
    const choice = (name, label, values) => {
      this[name] = h("span", { class: "seg", role: "radiogroup", "aria-label": label }, values.map(([value, words]) => h("button", { role: "radio", "data-value": String(value), onclick: () => this.set(name, value) }, words)));
      return h("span", { class: "lab" }, label, this[name]);
    };
    this.hintBox = h("span", { class: "small mid", role: "status" });
    this.help = h("button", { class: "keys", "aria-expanded": "false", "aria-label": "all keys", onclick: () => this.toggleKeys() }, h("kbd", null, "?"), " all keys");
    return h("div", { class: "bar", role: "toolbar", "aria-label": "Compare" }, choice("chained", "hash of", [[true, "parent hash + tokens"], [false, "tokens alone"]]), choice("block_size", "block_size", this.picture.sizes.map((n) => [n, n])),
      h("button", { onclick: (e) => this.mismatch(e.shiftKey ? -1 : 1) }, glyph("step"), "next mismatch"), this.hintBox, h("span", { class: "sp" }), this.help);
  }

  toggleKeys() { this.list.hidden = !this.list.hidden; this.help.setAttribute("aria-expanded", String(!this.list.hidden)); }
  toRow(at) { this.focusing = true; this.go(at); this.soon(); }

  // the next row that differs, and after the last one the first again
  mismatch(by) {
    const { rows } = this.picture, inside = this.chains.contains(document.activeElement), n = rows.length;
    for (let i = inside ? 1 : 0; i <= n; i++) { const at = (((this.at + by * i) % n) + n) % n; if (MISSES.has(rows[at].state) || rows[at].differ.length) { this.toRow(at); return; } }
    this.hint = "no block differs"; this.soon();
  }

  key(e) {
    if (e.target.closest("[role=radiogroup]") && /^Arrow/.test(e.key)) { this.playKey(e); return; }
    const inside = this.chains.contains(e.target), to = (at) => () => this.toRow(Math.max(0, Math.min(this.trace.edge, at)));
    const run = { ArrowUp: to(this.at - 1), ArrowDown: to(inside ? this.at + 1 : this.at), Home: to(0), End: to(this.trace.edge), n: () => this.mismatch(1), N: () => this.mismatch(-1),
      t: () => this.set("chained", !this.picture.chained), b: () => this.block_size.querySelector("[aria-checked=true]").focus(), "?": () => this.toggleKeys() }[e.key];
    if (run) { e.preventDefault(); e.stopPropagation(); run(); }
  }

  // ---- the rows

  measure() {
    const W = Math.max(320, this.root.clientWidth - 48), size = this.picture.block_size, wide = W > 920, tight = W < 690, cols = Math.min(size, tight ? 2 : 4), lines = Math.ceil(size / cols);
    const hw = tight ? 50 : 54, gap = tight ? 8 : 14, spine = wide ? 100 : tight ? 52 : 64, notes = wide ? 200 : 0, lx = 22;
    const pw = Math.min(cols === 2 ? 104 : 72, Math.floor(((W - lx - notes - 2 * (hw + gap) - spine) / 2 + GAP) / cols) - GAP), pills = cols * (pw + GAP) - GAP, lh = lx + pills + gap, rh = lh + hw + spine, rx = rh + hw + gap;
    const ph = lines * (PH + GAP) - GAP, pitch = ph + 22;
    return { W, size, wide, cols, hw, pw, pills, lx, lh, rh, rx, ph, pitch, left: lh + hw / 2, right: rh + hw / 2, y: (k) => TOP + k * pitch, first: TOP + (ph - PH) / 2 - 1 };
  }

  // a word as large as its pill allows, else cut
  word(x, y, words, width) {
    let size = 12.5, shown = words;
    const room = () => { pen.font = `${size}px ${this.font}`; return pen.measureText(shown).width <= width - 8; };
    while (size > 10.5 && !room()) size -= 0.5;
    while (shown.length > 1 && !room()) shown = shown.slice(0, shown.endsWith("…") ? -2 : -1) + "…";
    return s("text", { x, y, "text-anchor": "middle", style: { "font-size": `${size}px` } }, shown, shown !== words && s("title", null, words));
  }

  head(g) {
    const chip = (x, at, letter, words) => [s("rect", { x: x + 0.5, y: 4.5, width: 19, height: 19, rx: 5, class: "chip", style: { fill: `var(--f${at})`, stroke: `var(--x${at})` } }), s("text", { x: x + 10, y: 18.5, class: "letter", "text-anchor": "middle", style: { fill: `var(--o${at})` } }, letter), text(x + 28, 19, words, "head")];
    const root = this.picture.chained ? [s("path", { d: `M${g.left} 30V${g.first}M${g.right} 30V${g.first}`, class: "link" }), ...[g.left, g.right].map((x) => s("circle", { cx: x, cy: 30, r: 3.5, class: "rootdot" })), text(g.left - 10, 34, "root", "dim", "end"), text(g.right + 10, 34, "root", "dim")] : [];
    return s("g", { "aria-hidden": "true" }, chip(g.lx, 0, "A", "in the cache"), chip(g.rx, 1, "B", "just arrived"), text((g.left + g.right) / 2, 19, "same hash?", "mid", "middle"), root);
  }

  half(x, y, g, side) {
    const w = g.hw / 2, r = 5, at = x + side * w, to = at + w;
    return s("path", { d: side ? `M${at} ${y}H${to - r}q${r} 0 ${r} ${r}V${y + PH - r}q0 ${r} ${-r} ${r}H${at}Z` : `M${to} ${y}H${at + r}q${-r} 0 ${-r} ${r}V${y + PH - r}q0 ${r} ${r} ${r}H${to}Z`, class: side ? "halfB" : "halfA" });
  }

  side(row, k, side, g) {
    const { parts } = this.picture, words = row.words[side], name = row.names[side], x0 = side ? g.rx : g.lx, X = side ? g.rh : g.lh, y = g.y(k), c = y + g.ph / 2;
    if (!words.length) return [];
    const pills = Array.from({ length: g.size }, (_, i) => {
      const x = x0 + (i % g.cols) * (g.pw + GAP), py = y + Math.floor(i / g.cols) * (PH + GAP), box = (cls) => s("rect", { x: x + 0.75, y: py + 0.75, width: g.pw - 1.5, height: PH - 1.5, rx: 5, class: cls });
      if (i >= words.length) return box("slot");
      return s("g", { class: `word${row.differ.includes(i) ? " other" : ""}${parts === k && row.differ[0] === i ? " lit" : ""}` }, box("pill"), this.word(x + g.pw / 2, py + 17.5, words[i], g.pw));
    });
    const top = c - PH / 2, linked = row.state === "hit" || row.state === "last";
    return [...pills, s("path", { d: side ? `M${g.rx - 2} ${c}H${X + g.hw + 2}` : `M${g.lx + g.pills + 2} ${c}H${X - 2}`, class: "wire" }),
      ...(linked && name ? [0, 1].map((half) => this.half(X, top, g, half)) : []),
      s("rect", { x: X + 0.75, y: top + 0.75, width: g.hw - 1.5, height: PH - 1.5, rx: 5, class: linked ? "name two" : "name" }),
      text(X + g.hw / 2, c + (name ? 4.5 : 4), name || "not full", name ? "hash mono" : "nofull", "middle")];
  }

  // whether the two hashes agree, between them
  verdict(row, k, g) {
    if (row.names.includes(null)) return [];
    const c = g.y(k) + g.ph / 2, mx = (g.left + g.right) / 2, spine = s("path", { d: `M${g.lh + g.hw + 8} ${c}H${mx - 15}M${mx + 15} ${c}H${g.rh - 8}`, class: "spine" });
    if (row.names[0] !== row.names[1]) return [spine, s("circle", { cx: mx, cy: c, r: row.state === "first" ? 11 : 9, class: "ball" }), s("path", { d: `M${mx - 4} ${c - 2}H${mx + 4}M${mx - 4} ${c + 2}H${mx + 4}M${mx - 2.5} ${c + 5}L${mx + 2.5} ${c - 5}`, class: "unequal" })];
    const slash = `M${mx - 6} ${c + 11}L${mx + 6} ${c - 11}`;
    return [spine, mark("hit", mx, c, row.state === "wrong" ? 24 : 20, row.state === "wrong" ? "loss" : ""), row.state === "wrong" && [s("path", { d: slash, class: "slash under" }), s("path", { d: slash, class: "slash" })]];
  }

  row(row, k, g) {
    const { rows, parts, chained, notes } = this.picture, y = g.y(k), end = g.rx + g.pills, next = rows[k + 1], pale = parts !== null && k > parts && row.state !== "wrong";
    const heard = ["A", "B"].map((who, i) => (row.words[i].length ? `${who}: ${row.words[i].join(" ")}, ${row.names[i] ? `hash ${row.names[i]}` : "not full, no hash"}` : `${who} has no such block`));
    const arrow = (i, x) => chained && next && row.names[i] && next.names[i] && s("path", { d: `M${x} ${y + g.ph / 2 + PH / 2 + 1}V${g.y(k + 1) + g.ph / 2 - PH / 2 - 3}m-3.5 -4l3.5 4.5l3.5 -4.5`, class: `link${parts !== null && k >= parts ? " broken" : ""}` });
    const said = notes.find((note) => note.first <= k && k <= note.last).words;
    return s("g", { class: `row ${row.state}${pale ? " pale" : ""}`, role: "listitem", tabindex: k === this.at ? "0" : "-1", "data-row": k, "aria-label": `Block ${k}, ${SAID[row.state]}. ${heard.join(". ")}. ${said}`, onfocus: () => { if (k !== this.at) this.go(k); } },
      s("rect", { x: 0.5, y: y - 5, width: end + 5, height: g.ph + 10, rx: 8, class: "ring" }), text(g.lx - 12, y + g.ph / 2 + 4.5, k, "no", "end"), arrow(0, g.left), arrow(1, g.right), this.side(row, k, 0, g), this.side(row, k, 1, g), this.verdict(row, k, g));
  }

  note({ first, last, words, loss }, g) {
    const x = g.rx + g.pills + 28, y0 = g.y(first), y1 = g.y(last) + g.ph, lines = wrapped(words, 27), m = (y0 + y1) / 2;
    return s("g", { class: loss ? "loss" : "" }, s("path", { d: `M${x - 16} ${y0 + 1}q6 0 6 6V${y1 - 7}q0 6 -6 6`, class: "brace" }), lines.map((line, i) => text(x, m + 4.5 + (i - (lines.length - 1) / 2) * 16, line, "note")));
  }

  // ---- the movable word

  slider() {
    if (!this.picture.move) return null;
    this.range = h("input", { type: "range", min: "0", step: "1", "aria-label": "block that holds the word", oninput: () => this.set("place", Number(this.range.value)), onkeydown: (e) => this.slide(e) });
    this.bars = h("div"); this.moveHead = h("h2");
    return h("div", null, this.moveHead, h("div", { class: "track" }, this.bars, this.range));
  }

  // the notebook takes the arrow keys before a slider's own handling: answer them here
  slide(e) {
    const at = Number(this.range.value), last = Number(this.range.max), to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: last }[e.key];
    if (to === undefined) return;
    e.preventDefault(); e.stopPropagation();
    if (to >= 0 && to <= last && to !== at) { this.range.value = to; this.set("place", to); }
  }

  drawMoves() {
    const m = this.picture.move, n = m.hits.length, most = Math.max(...m.hits), best = m.hits.indexOf(most), W = Math.max(320, Math.min(620, this.moves.clientWidth)), x0 = 76, bw = (W - x0 - 116) / n;
    const u = Math.max(3, Math.min(13, 78 / Math.max(1, most))), base = most * u + 26, seam = u > 7 ? 3 : 1, every = Math.ceil(18 / bw), mid = (k) => x0 + (k + 0.5) * bw, x = mid(m.block), rail = base + 12, bar = Math.max(3, bw - 17);
    pen.font = `700 12px ${this.font}`;
    const half = Math.max(18, pen.measureText(m.word).width / 2 + 12), pull = mid(best) - x - half - 16;
    fill(this.moveHead, m.kind ? `Drag the ${m.kind}` : `Drag “${m.word}”`, h("span", { class: "q" }, `${this.picture.chained ? "" : "with the parent hash, "}every block before it can be shared${m.early ? " while nothing else differs" : ""}, none after it`));
    const column = (hits, k) => s("g", { class: `column${k === m.block ? " here" : ""}${k === m.block || k === best ? " key" : ""}` }, Array.from({ length: hits }, (_, j) => s("rect", { x: mid(k) - bar / 2, y: base - (j + 1) * u + 0.5, width: bar, height: u - seam, rx: u > 7 ? 2 : 0, class: "count" })),
      (k % every === 0 || k === m.block) && [text(mid(k), base - hits * u - 6, hits, "", "middle"), text(mid(k), base + 38, k, "before", "middle")]);
    fill(this.bars, s("svg", { width: W, height: base + 44, "aria-hidden": "true" }, s("path", { d: `M${x0} ${rail}H${x0 + n * bw}`, class: "rail" }), m.hits.map(column),
      pull > 8 && s("path", { d: `M${x + half + 8} ${rail}h${pull}m-6 -4l6 4l-6 4`, class: "pull" }), s("rect", { x: x - half - 4, y: rail - 15, width: 2 * half + 8, height: 30, rx: 15, class: "halo" }), s("rect", { x: x - half, y: rail - 11, width: 2 * half, height: 22, rx: 11, class: "knob" }), text(x, rail + 4.5, m.word, "knobword", "middle"),
      text(x0 - 10, base - 4, "blocks hit", "mid", "end"), text(x0 - 10, base + 38, "before it", "mid", "end"), wrapped(m.kept, 15).map((line, i) => text(x0 + n * bw + 12, base - most * u + 6 + i * 17, line))));
    this.range.max = n - 1;
    if (!this.asked) this.range.value = m.block;
    this.range.style.left = `${mid(0) - 8}px`; this.range.style.width = `${mid(n - 1) - mid(0) + 16}px`;
    this.range.setAttribute("aria-valuetext", `block ${m.block}: ${m.hits[m.block]} blocks hit`);
  }

  render() {
    const p = this.picture, inside = this.focusing || this.chains.contains(document.activeElement), said = p.say.map((part) => part.b ?? part).join(""), all = `${p.headline}. ${said}`;
    this.font = getComputedStyle(this.root).fontFamily; this.at = Math.min(this.at, this.trace.edge); this.focusing = false;
    const g = this.measure();
    this.headline.textContent = p.headline; this.hintBox.textContent = this.hint;
    fill(this.say, p.say.map((part) => (part.b ? h("b", null, part.b) : part)));
    if (this.spoken.textContent !== all) this.spoken.textContent = all;
    for (const name of ["chained", "block_size"]) for (const b of this[name].children) b.setAttribute("aria-checked", String(b.dataset.value === String(p[name])));
    fill(this.chains, s("svg", { width: g.W, height: g.y(p.rows.length) - 14, role: "list", "aria-label": all }, this.head(g), p.rows.map((row, k) => this.row(row, k, g)), g.wide && s("g", { "aria-hidden": "true" }, p.notes.map((note) => this.note(note, g)))));
    if (inside) this.chains.querySelector(`[data-row="${this.at}"]`).focus({ preventScroll: false });
    fill(this.why, h("h2", null, "How a block gets its name"), h("p", null, p.chained ? HOW(p.block_size) : `hash = H( ${p.block_size} token ids, extra keys ): the past is left out.`), p.why && h("p", null, p.why));
    this.why.classList.toggle("still", !this.moves);
    if (this.moves) this.drawMoves();
  }
}

export default mount((model, root) => new Chains(model, root), "hc");
