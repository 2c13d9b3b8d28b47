// This tick in a dozen lines, grouped like the code (plan, launch, collect), and where its token budget went.
import { fill, glyph, h, number, plural, s, text } from "./dom.js";
import { paint, sentence, who } from "./block.js";

export function createLog(ctx) {
  const root = h("section", { class: "log", "aria-label": "This tick" });
  const line = ([, kind, spans, blocks]) => h("li", { class: `e ${kind === "evict" || kind === "preempt" ? "loss" : ""}`, tabindex: blocks.length ? "0" : null,
    onpointerenter: () => ctx.ring(blocks), onpointerleave: () => ctx.ring([]), onfocus: () => ctx.ring(blocks), onblur: () => ctx.ring([]) },
    glyph(kind), h("span", null, spans.map((part) => (typeof part === "string" ? part : part.who))));
  return {
    root,
    update() {
      const lines = ctx.tick ? ctx.tick.log : [];
      const since = ctx.between.filter((b) => b.say.length);
      const groups = ["plan", "launch", "collect"].map((phase) => [phase, lines.filter((l) => l[0] === phase)]).filter(([, own]) => own.length);
      fill(root, h("h2", null, "This tick"),
        groups.length ? groups.map(([phase, own]) => [h("h3", null, phase), h("ul", null, own.map(line))]) : h("p", { class: "note" }, "Nothing has run yet."),
        since.length > 0 && [h("h3", null, "since then"), h("ul", null, since.slice(-6).map((b) => h("li", { class: "e" }, glyph(b.event.kind === "arrive" ? "arrive" : b.event.kind === "finish" ? "finish" : "step"), h("span", null, sentence(ctx, b.say, "tiny")))))]);
    },
  };
}

function verdict(ctx, used) {
  const { waits } = ctx.now, wait = [...waits.values()][0], budget = ctx.state.budget;
  if (wait && (wait.reason === "memory" || wait.reason === "hole")) return `Memory stops ${wait.request} here, not the budget.`;
  if (wait && wait.reason === "budget") return `The budget stops ${wait.request} here, not memory.`;
  if (wait && wait.reason === "seats") return `${wait.request} finds no seat; budget and memory would do.`;
  if (wait) return `${wait.request} must wait: this tick preempted.`;
  if (used >= budget) return "The budget is used up.";
  return used ? "Everyone who could run did." : "";
}

export function createBudget(ctx) {
  const root = h("section", { class: "budget", "aria-label": "Token budget" });
  return {
    root,
    update() {
      const budget = ctx.state.budget, rows = [...ctx.now.runs.values()].sort((a, b) => b.decode - a.decode);
      const used = rows.reduce((sum, r) => sum + r.count, 0), decodes = rows.filter((r) => r.decode), prefills = rows.filter((r) => !r.decode);
      const heading = h("h2", null, "Token budget", h("span", { class: "q" }, budget ? `${number(used)} of ${number(budget)} tokens used` : `${number(used)} tokens`));
      const prefill = prefills.reduce((sum, r) => sum + r.count, 0);
      const words = [decodes.length && `${decodes.length} decode${decodes.length > 1 ? "s" : ""}, solid`, prefill && `${number(prefill)} prefill, hatched`, budget > used && `${number(budget - used)} unused`].filter(Boolean).join("; ");
      let drawing = null;
      if (budget && budget <= 64) {
        const cells = rows.flatMap((r) => Array.from({ length: r.count }, (_, i) => h("i", { class: r.decode ? "decode" : "prefill", style: paint(ctx, r.request) }, i === 0 && (r.request.length < 3 || r.count > 2) && h("b", null, r.request))));
        drawing = h("div", { class: "tokens", style: { "--n": Math.min(budget, 16) } }, cells, Array.from({ length: Math.max(0, budget - used) }, () => h("i", { class: "unused" })));
      } else if (budget) {
        drawing = h("div", { class: "makeup share" }, decodes.length > 0 && h("i", { class: "decode", style: { ...(decodes.length === 1 ? paint(ctx, decodes[0].request) : paint(ctx, "")), "flex-grow": decodes.length } }), prefills.map((r) => h("i", { class: r.decode ? "decode" : "prefill", style: { ...paint(ctx, r.request), "flex-grow": r.count } })), budget > used && h("i", { class: "unused", style: { "flex-grow": budget - used } }));
      }
      const said = verdict(ctx, used);
      fill(root, heading, drawing, words && h("p", { class: "note" }, words, "."), said && h("p", { class: "note" }, said));
    },
  };
}
