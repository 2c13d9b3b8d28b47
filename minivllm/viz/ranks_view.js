// Ranks side by side: their heads and their memory; below, one layer, and the two places where all of them must meet.
import { fill, glyph, h, s, text } from "./dom.js";
import { Player, mount } from "./player.js";

const LEFT = 62, GAP = 4, pen = document.createElement("canvas").getContext("2d");
let ranksViews = 0;

class Ranks extends Player {
  constructor(model, root) {
    super(model, root, { low: 0, edge: 0, offset: 0 });
    this.uid = `rv${++ranksViews}-`;
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.cuts = model.get("picture").cuts;
    this.seg = h("span", { class: "seg", role: "radiogroup", "aria-label": "ranks" }, this.cuts.map((cut) => h("button", { role: "radio", onclick: () => this.choose(cut.ranks) }, cut.ranks)));
    this.columns = h("div", { class: "ranks" }); this.table = h("table"); this.layer = h("div", { class: "layer" });
    fill(root, this.notice, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken,
      h("div", { class: "bar" }, h("span", { class: "lab" }, "ranks", this.seg), h("span", { class: "small dim" }, h("kbd", null, "←"), " ", h("kbd", null, "→"), " fewer, more")), this.columns,
      h("div", { class: "two" }, h("section", null, h("h2", null, "Each of them", h("span", { class: "q" }, "all ranks have the same")), this.table), this.layer));
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("click", (e) => { if (!e.target.closest("button")) root.focus({ preventScroll: true }); });
    this.follow();
    const again = () => this.soon(), { stop } = this;
    model.on("change:ranks", again);
    this.stop = () => { stop(); model.off("change:ranks", again); };
  }

  get cut() { return this.cuts.find((cut) => cut.ranks === this.model.get("ranks")); }

  choose(ranks) { this.model.set("ranks", ranks); this.model.save_changes(); }

  key(e) {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -9, End: 9 }[e.key];
    if (!by || this.foreign(e)) return;
    e.preventDefault(); e.stopPropagation();
    const at = Math.max(0, Math.min(this.cuts.length - 1, this.cuts.indexOf(this.cut) + by));
    this.choose(this.cuts[at].ranks);
    if (e.target.closest("[role=radiogroup]")) this.seg.children[at].focus();
  }

  // ---- heads and memory

  rank(groups, n) {
    const { memory } = this.model.get("picture"), share = Math.min(1, this.cut.weights / memory), over = this.cut.weights >= memory;
    const heads = groups.map(([kv, queries, copy]) => h("div", { class: "group" }, h("span", { class: "kv" + (copy ? " copy" : ""), title: copy ? `KV head ${kv}, a copy` : `KV head ${kv}` }, kv, copy && glyph("copy", 9)), queries.map((q) => h("span", { class: "qh" }, q))));
    const words = `Rank ${n}: ${groups.map(([kv, queries, copy]) => `KV head ${kv}${copy ? ", a copy," : ""} for query heads ${queries.join(", ")}`).join("; ")}`;
    return h("div", { class: "rank", role: "group", "aria-label": words }, h("b", null, `rank ${n}`), h("div", { class: "heads", "aria-hidden": "true" }, heads),
      h("div", { class: "memory" + (over ? " over" : ""), "aria-hidden": "true" }, h("i", { style: { width: `${100 * share}%` } })));
  }

  drawRanks(wide) {
    const { heads } = this.cut, n = heads.length, rows = Math.ceil(n / Math.max(1, Math.floor((wide + 10) / 76)));
    this.columns.style.setProperty("--across", Math.ceil(n / rows));
    fill(this.columns, heads.map((groups, i) => this.rank(groups, i)));
    const key = (cls, words) => h("span", null, h("i", { class: cls }), words), copies = heads.some((groups) => groups.some(([, , copy]) => copy));
    this.columns.append(h("div", { class: "key small mid", "aria-hidden": "true" }, key("kv", "KV head"), copies && key("kv copy", "copy of a KV head"), key("qh", "query head, under the KV head it reads"), key("room", "memory: weights, then room for K and V")));
  }

  // ---- one layer

  drawLayer() {
    const { cut } = this, n = cut.ranks, W = this.layer.clientWidth || 600, H = n > 8 ? 12 : n > 4 ? 18 : 26, inner = W - LEFT, bar = n > 1 ? 26 : 0, hang = n > 1 ? 14 : 4;
    const box = (inner - 2 * bar - (n > 1 ? 3 : 1) * hang) / 2, x = [LEFT, LEFT + box + hang, LEFT + box + 2 * hang + bar, LEFT + 2 * box + 3 * hang + bar], bottom = n * (H + GAP) - GAP, font = getComputedStyle(this.root).fontFamily;
    const width = (words) => { pen.font = `11.5px ${font}`; return pen.measureText(words).width; }, fits = (...all) => (H < 16 ? "" : all.find((words) => width(words) + 12 <= box) ?? "");
    const [groups] = cut.heads, q = groups.reduce((sum, [, queries]) => sum + queries.length, 0), mlp = n > 1 ? `1/${n} of the columns` : "all columns";
    const label = { attention: fits(`${q} query and ${groups.length} KV head${groups.length > 1 ? "s" : ""}`, `${q} query, ${groups.length} KV`), mlp: fits(mlp) };
    const lane = (_, r) => {
      const y = r * (H + GAP), piece = (at, words) => [s("rect", { x: at + 0.5, y: y + 0.5, width: box - 1, height: H - 1, rx: 3, class: "work" }), words && text(at + box / 2, y + H / 2 + 4, words, "in", "middle")];
      return [(H >= 16 || r % 2 === 0) && text(0, y + H / 2 + 4, `rank ${r}`, "lab"), piece(x[0], label.attention), piece(x[2], label.mlp), n > 1 && s("path", { d: `M${x[0] + box} ${y + H / 2}H${x[1]}M${x[1] + bar} ${y + H / 2}H${x[2]}M${x[2] + box} ${y + H / 2}H${x[3]}`, class: "wire" })];
    };
    const meet = (at) => [s("rect", { x: at + 1, y: 1, width: bar - 2, height: bottom - 2, rx: 4, class: "meet" }), bottom > 80 && s("g", { transform: `translate(${at + bar / 2 + 4},${bottom / 2}) rotate(-90)` }, text(0, 0, "all-reduce", "on", "middle"))];
    const under = [text(x[0] + box / 2, bottom + 18, "attention", "lab", "middle"), text(x[2] + box / 2, bottom + 18, "MLP", "lab", "middle"), n > 1 && [text(x[1] + bar / 2, bottom + 18, "sum", "lab", "middle"), text(x[3] + bar, bottom + 18, "sum", "lab", "end")]];
    fill(this.layer, h("h2", null, `One of ${this.model.get("picture").layers} layers`, h("span", { class: "q" }, n > 1 ? "at an all-reduce nobody goes on before all have come; not to scale" : "one rank has nobody to wait for")),
      s("svg", { width: W, height: bottom + 24, role: "img", "aria-label": n > 1 ? `Attention, all-reduce, MLP, all-reduce, on ${n} ranks` : "Attention, MLP, on one rank" }, Array.from({ length: n }, lane), n > 1 && [meet(x[1]), meet(x[3])], under));
  }

  render() {
    const { cut } = this, words = `${cut.headline}. ${cut.say.map((part) => part.b ?? part).join("")}`;
    this.headline.textContent = cut.headline;
    fill(this.say, cut.say.map((part) => (part.b ? h("b", null, part.b) : part)));
    if (this.spoken.textContent !== words) this.spoken.textContent = words;
    for (const [i, b] of [...this.seg.children].entries()) { const on = this.cuts[i] === cut; b.setAttribute("aria-checked", String(on)); b.tabIndex = on ? 0 : -1; }
    fill(this.table, h("tbody", null, cut.rows.map(([name, value]) => h("tr", null, h("td", null, name), h("td", null, value)))));
    this.drawRanks(Math.max(300, this.root.clientWidth - 48)); this.drawLayer();
  }
}

export default mount((model, root) => new Ranks(model, root), "rv");
