// Live edits at the top, playback below. Every key has a button; the list of keys is behind "?".
import { fill, glyph, h, number } from "./dom.js";

const SIZES = [1, 2, 4, 8, 16], POLICIES = { fcfs: "first come", priority: "priority", "longest-prefix": "longest prefix", "shortest-prompt": "shortest prompt" };
export const SPEEDS = [[1800, "½×"], [900, "1×"], [225, "4×"]];
export const ENGINE_KEYS = [["h e p", "next hit, eviction, preemption (Shift: previous)"],
  ["g", "into the pool; there the arrows move by block, [ and ] step, Enter pins, Esc leaves"], ["b", "block_size"], ["a", "add a request"], ["?", "this list"]];
export const ENGINE_JUMPS = [["hit", "hit", false], ["evict", "eviction", true], ["preempt", "preemption", true]];

const sizesAround = (size) => (SIZES.includes(size) ? SIZES : [...SIZES, size].sort((a, b) => a - b).slice(-6));

export function createEdits(ctx) {
  const root = h("div", { class: "bar", role: "toolbar", "aria-label": "Change the engine" });
  const sizes = h("span", { class: "seg", role: "radiogroup", "aria-label": "block_size" });
  const blocks = h("span", { class: "blocks", "aria-live": "off" }), change = (by) => ctx.set("num_blocks", Math.max(1, ctx.edgeState.blocks + by * stride()));
  const stride = () => Math.max(1, Math.round(ctx.edgeState.blocks / 24));
  const own = h("option", { value: "", hidden: true });  // a policy of the user's own, by its class
  const policy = h("select", { "aria-label": "policy", onchange: () => ctx.set("policy", policy.value) }, Object.entries(POLICIES).map(([v, words]) => h("option", { value: v }, words)), own);
  const cache = h("button", { class: "switch", role: "switch", "aria-label": "prefix cache", onclick: () => ctx.set("enable_prefix_caching", !ctx.edgeState.caching) }, h("i"), h("span"));
  const prompt = h("textarea", { rows: "2", "aria-label": "prompt", placeholder: ctx.simulated ? "words; equal beginnings share blocks" : "a prompt" });
  const most = h("input", { type: "number", min: "1", max: "512", value: "12", "aria-label": "most tokens to generate" });
  const form = h("form", { class: "add", hidden: true, onsubmit: (e) => { e.preventDefault(); if (!prompt.value.trim()) { prompt.focus(); return; } ctx.ask({ type: "add", prompt: prompt.value, max_tokens: Number(most.value) || 12 }); toggle(false); } },
    h("label", { class: "wide" }, "prompt", prompt), h("label", null, "at most", most, "tokens"), h("button", { class: "on", type: "submit" }, "Add"), h("button", { type: "button", onclick: () => toggle(false) }, "Cancel"));
  const add = h("button", { "aria-expanded": "false", onclick: () => toggle(form.hidden) }, glyph("take"), "Add request");
  const toggle = (open) => { form.hidden = !open; add.setAttribute("aria-expanded", String(open)); (open ? prompt : add).focus(); };
  form.addEventListener("keydown", (e) => { if (e.key === "Escape") { e.stopPropagation(); toggle(false); } });
  fill(root, h("span", { class: "lab" }, "block_size", sizes), h("span", { class: "lab" }, "pool", h("span", { class: "seg" }, h("button", { "aria-label": "smaller pool", onclick: () => change(-1) }, glyph("minus")), blocks, h("button", { "aria-label": "larger pool", onclick: () => change(1) }, glyph("take")))),
    h("span", { class: "lab" }, "policy", h("span", { class: "pick" }, policy, glyph("down"))), h("span", { class: "lab" }, "prefix cache", cache), add, h("span", { class: "sp" }), h("span", { class: "small dim name" }, ctx.name));
  let drawn = null;
  return {
    root: h("div", null, root, form),
    openAdd: () => toggle(true),
    focusSize: () => sizes.querySelector("[aria-checked=true]")?.focus(),
    update() {
      const s = ctx.edgeState, contiguous = s.layout !== "paged";
      if (drawn !== s.size) {
        drawn = s.size;
        fill(sizes, sizesAround(s.size).map((n) => h("button", { role: "radio", "aria-checked": String(n === s.size), tabindex: n === s.size ? "0" : "-1", onclick: () => n !== s.size && ctx.set("block_size", n) }, n)));
      }
      blocks.textContent = `${number(s.blocks)} blocks`;
      own.textContent = s.policy in POLICIES ? "" : s.policy;
      policy.value = s.policy in POLICIES ? s.policy : "";
      cache.setAttribute("aria-checked", String(s.caching)); cache.lastChild.textContent = s.caching ? "on" : "off"; cache.disabled = contiguous;
    },
  };
}

// jumps: [event kind, word, whether it is a loss]; extra: controls of one widget only
export function createPlayback(ctx, jumps, keys = [], extra = null) {
  const icon = (kind, name, act) => h("button", { class: "icon", "aria-label": name, title: name, onclick: act }, glyph(kind));
  const [first, last] = ctx.ends, playKeys = [["← →", "step back, step"], ["Home End", `${first}, ${last}`], ["Space", "play or pause"]];
  const home = icon("home", first, () => ctx.go(ctx.trace.low)), back = icon("back", "back", () => ctx.back()), step = icon("step", "step", () => ctx.step()), end = icon("end", last, () => ctx.go(ctx.trace.edge));
  const play = h("button", { class: "on go", onclick: () => ctx.togglePlay() });
  const speed = h("span", { class: "seg", role: "radiogroup", "aria-label": "speed" }, SPEEDS.map(([ms, words]) => h("button", { role: "radio", "data-ms": ms, onclick: () => ctx.setSpeed(ms) }, words)));
  const next = ([kind, words, loss]) => h("button", { "data-next": kind, onclick: (e) => ctx.jump(kind, e.shiftKey ? -1 : 1) }, h("span", { class: loss ? "loss" : "" }, glyph(kind === "refuse" ? "evict" : kind)), words);
  const help = h("button", { class: "keys", "aria-expanded": "false", "aria-label": "all keys", onclick: () => toggle() }, h("kbd", null, "?"), " all keys");
  const list = h("dl", { class: "keylist", hidden: true }, [...playKeys, ...keys].map(([names, words]) => [h("dt", null, names.split(" ").map((k) => [h("kbd", null, k), " "])), h("dd", null, words)]));
  const toggle = () => { list.hidden = !list.hidden; help.setAttribute("aria-expanded", String(!list.hidden)); };
  const hint = h("span", { class: "small mid hint", role: "status" });
  const bar = h("div", { class: "play", role: "toolbar", "aria-label": "Playback" }, home, back, play, step, end, speed, h("span", { class: "lab next" }, "next"), jumps.map(next), extra, hint, h("span", { class: "sp" }),
    h("span", { class: "keys long" }, h("kbd", null, "←"), " ", h("kbd", null, "→"), " step  ", h("kbd", null, "Space"), " play"), help);
  return {
    root: h("div", { class: "playbox" }, bar, list),
    toggleKeys: toggle,
    update() {
      fill(play, glyph(ctx.playing ? "pause" : "play"), ctx.playing ? "Pause" : "Play");
      home.disabled = back.disabled = ctx.at <= ctx.trace.low;
      end.disabled = ctx.at === ctx.trace.edge;
      for (const b of speed.children) b.setAttribute("aria-checked", String(Number(b.dataset.ms) === ctx.speed));
      hint.textContent = ctx.hint;
    },
  };
}
