// K and V step by step: the picture comes from Python as one drawing per run; here it only moves through the steps.
import { fill, followTheme, glyph, h } from "./dom.js";

const BEAT = 450;

// the drawing is made by our own Python from numbers alone; no prompt text is in it
function drawing(panel) {
  const box = h("div", { class: "panel", role: "img", "aria-label": panel.label });
  box.innerHTML = `<svg class="kvg" xmlns="http://www.w3.org/2000/svg">${panel.svg}</svg>`;
  const svg = box.firstChild, note = h("p", { class: "note" });
  box.append(note);
  return { box, svg, note, panel };
}

export default {
  render({ model, el }) {
    const last = model.get("say").length - 1;
    const root = h("div", { class: "mv kvgrowth", tabindex: "-1", role: "group", "aria-label": model.get("title") || "K and V, step by step", "data-lm-suppress-shortcuts": true });
    const headline = h("div", { class: "t" }), say = h("output", { class: "say", "aria-live": "polite" });
    const defs = h("div", { class: "hidden", "aria-hidden": "true" });
    defs.innerHTML = `<svg class="kvg" width="0" height="0">${model.get("style")}</svg>`;
    const drawn = model.get("panels").map(drawing), box = h("div", { class: "panels" }, drawn.map((d) => d.box));
    let timer = null;

    const go = (to) => { model.set("at", Math.max(0, Math.min(last, to))); model.save_changes(); };
    const pause = () => { clearInterval(timer); timer = null; draw(); };
    const play = () => {
      if (timer) { pause(); return; }
      if (model.get("at") === last) go(0);
      timer = setInterval(() => { if (model.get("at") >= last || !root.isConnected) pause(); else go(model.get("at") + 1); }, BEAT);
      draw();
    };
    const icon = (kind, name, act) => h("button", { class: "icon", "aria-label": name, title: name, onclick: () => { pause(); act(); } }, glyph(kind));
    const home = icon("home", "first step", () => go(0)), back = icon("back", "back", () => go(model.get("at") - 1));
    const step = icon("step", "step", () => go(model.get("at") + 1)), end = icon("end", "last step", () => go(last));
    const go_on = h("button", { class: "on go", onclick: play });
    const slider = h("input", { type: "range", min: "0", max: String(last), "aria-label": "step", oninput: () => { pause(); go(Number(slider.value)); } });

    function draw() {
      const at = model.get("at");
      fill(headline, at ? `Step ${at}` : "Before", h("small", null, `of ${last}`));
      say.textContent = model.get("say")[at];
      for (const { svg, note, panel } of drawn) {
        for (const row of svg.querySelectorAll(".row")) row.classList.toggle("future", Number(row.dataset.step) > at);
        for (const kept of svg.querySelectorAll(".kept")) kept.setAttribute("width", kept.dataset.pitch * panel.kept[at]);
        const here = svg.querySelector(".here"), frame = panel.frames[at];
        for (const [name, value] of Object.entries(frame)) here.setAttribute(name, value);
        note.textContent = panel.notes[at];
      }
      slider.value = at;
      slider.setAttribute("aria-valuetext", `${at} of ${last}`);
      home.disabled = back.disabled = at === 0;
      step.disabled = end.disabled = at === last;
      fill(go_on, glyph(timer ? "pause" : "play"), timer ? "Pause" : "Play");
    }

    root.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const run = { ArrowLeft: () => go(model.get("at") - 1), ArrowRight: () => go(model.get("at") + 1), Home: () => go(0), End: () => go(last) }[e.key];
      if (run) { e.preventDefault(); e.stopPropagation(); pause(); run(); } else if (e.key === " " && !e.target.closest("button")) { e.preventDefault(); e.stopPropagation(); play(); }
    });
    root.addEventListener("click", (e) => { if (!e.target.closest("button, input")) root.focus({ preventScroll: true }); });
    fill(root, defs, h("div", { class: "head" }, headline, say), box, h("div", { class: "play", role: "toolbar", "aria-label": "Playback" }, home, back, go_on, step, end, slider, h("span", { class: "keys long" }, h("kbd", null, "←"), " ", h("kbd", null, "→"), " step  ", h("kbd", null, "Space"), " play")));
    el.append(root);
    for (const { svg, panel } of drawn) { svg.setAttribute("viewBox", `0 0 ${panel.width} ${panel.height}`); svg.setAttribute("width", panel.width); svg.setAttribute("height", panel.height); }
    model.on("change:at", draw);
    const unfollow = followTheme(root);
    draw();
    const restore = hideTwin(root);
    return () => { clearInterval(timer); model.off("change:at", draw); unfollow(); restore(); };
  },
};

// while the live picture is there, the static one above it would say the same twice
function hideTwin(root) {
  let hidden = [];
  requestAnimationFrame(() => {
    const area = root.closest(".jp-OutputArea");
    hidden = area ? [...area.querySelectorAll("img.mv-snapshot")].map((img) => img.closest(".jp-OutputArea-child")).filter(Boolean) : [];
    for (const node of hidden) node.style.display = "none";
  });
  return () => { for (const node of hidden) node.style.display = ""; };
}
