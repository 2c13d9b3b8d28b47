// K and V step by step: the picture comes from Python, one drawing per run; here it only moves through the steps.
import { fill, h } from "./dom.js";
import { Player, mount } from "./player.js";
import { createPlayback } from "./controls.js";

// a drawing is made by our own Python from numbers alone: no prompt text is in it
function drawing(panel) {
  const box = h("div", { class: "panel", role: "img", "aria-label": panel.label }), note = h("p", { class: "note" });
  box.innerHTML = `<svg class="kvg" width="${panel.width}" height="${panel.height}" viewBox="0 0 ${panel.width} ${panel.height}">${panel.svg}</svg>`;
  box.append(note);
  return { box, svg: box.firstChild, note, panel };
}

class Growth extends Player {
  get ends() { return ["first token", "last token"]; }

  constructor(model, root) {
    super(model, root, { low: 0, offset: 0, edge: model.get("say").length - 1 });
    this.headline = h("div", { class: "t" }); this.say = h("output", { class: "say", "aria-live": "polite" });
    this.drawn = model.get("panels").map(drawing);
    const defs = h("div", { class: "hidden", "aria-hidden": "true" });
    defs.innerHTML = `<svg class="kvg" width="0" height="0">${model.get("sheet")}</svg>`;
    this.playback = createPlayback(this, []);
    fill(root, this.notice, this.alarm, defs, h("div", { class: "head" }, this.headline, this.say), h("div", { class: "panels" }, this.drawn.map((d) => d.box)), this.playback.root);
    root.addEventListener("keydown", (e) => { if (!this.foreign(e)) { if (e.key === "?") this.playback.toggleKeys(); else this.playKey(e); } });
    root.addEventListener("click", (e) => { if (!e.target.closest("button")) root.focus({ preventScroll: true }); });
    this.follow();
  }

  step() { if (this.at === this.trace.edge) this.pause(); else this.go(this.at + 1); }
  togglePlay() { if (!this.playing && this.at === this.trace.edge) this.go(0); super.togglePlay(); }

  render() {
    const { at } = this, said = this.model.get("say")[at];
    fill(this.headline, at ? `Step ${at}` : "Before", h("small", null, `of ${this.trace.edge}`));
    if (this.say.textContent !== said) this.say.textContent = said;
    for (const { svg, note, panel } of this.drawn) {
      for (const row of svg.querySelectorAll(".row")) row.classList.toggle("future", Number(row.dataset.step) > at);
      for (const kept of svg.querySelectorAll(".kept")) kept.setAttribute("width", kept.dataset.pitch * panel.kept[at]);
      for (const [name, value] of Object.entries(panel.frames[at])) svg.querySelector(".here").setAttribute(name, value);
      note.textContent = panel.notes[at];
    }
    this.playback.update();
  }
}

export default mount((model, root) => new Growth(model, root), "kvgrowth");
