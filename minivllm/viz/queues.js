// Where everybody stands: the line of those who wait, the seats of those who run, and who is done.
import { fill, glyph, h, number, plural } from "./dom.js";
import { who } from "./block.js";

function progress(ctx, r) {
  const run = ctx.now.runs.get(r.id);
  if (r.computed < r.prompt) return `prompt ${r.computed} of ${r.prompt}`;
  if (r.preemptions && run && !run.decode) return `recomputed ${r.computed}`;
  return `token ${r.tokens - r.prompt} of ${r.max}`;
}

const REASONS = { memory: "no blocks left", hole: "no hole large enough", seats: "no seat", budget: "no budget", preempted: "this tick preempted" };

export function createQueues(ctx) {
  const waiting = h("div", { class: "lane", role: "list", "aria-label": "waiting" }), running = h("div", { class: "lane", role: "list", "aria-label": "running" }), done = h("div", { class: "lane", role: "list", "aria-label": "done" });
  const heads = [h("h2"), h("h2"), h("h2")];
  const root = h("section", { class: "queues", "aria-label": "Queues" }, h("div", { class: "q1" }, heads[0], waiting), h("span", { class: "flow", "aria-hidden": "true" }, glyph("step", 14)), h("div", { class: "q2" }, heads[1], running), h("span", { class: "flow", "aria-hidden": "true" }, glyph("step", 14)), h("div", { class: "q3" }, heads[2], done));
  const item = (r, words, cls = "", badge = null) => h("div", { class: `person ${cls}`, role: "listitem" }, who(ctx, r.id, cls === "waits" ? "waiting" : ""), h("span", { class: "small mid" }, words), badge);
  return {
    root,
    update() {
      const { state, now } = ctx, at = (id) => state.requests.get(id), seats = ctx.settings().max_num_seqs;
      const ended = [...state.requests.values()].filter((r) => r.status === "finished").sort((a, b) => a.ended - b.ended);
      fill(heads[0], "Waiting", h("span", { class: "q" }, state.waiting.length ? "first in line left" : "nobody"));
      fill(heads[1], "Running", h("span", { class: "q" }, seats > 64 ? plural(state.running.length, "request") : `${state.running.length} of ${plural(seats, "seat")}`));
      fill(heads[2], "Done", h("span", { class: "q" }, number(ended.length)));
      fill(waiting, state.waiting.slice(0, 8).map((id) => {
        const r = at(id), wait = now.waits.get(id), lost = r.preemptions && r.since === state.tick;
        return item(r, lost ? "preempted" : wait ? REASONS[wait.reason] || wait.reason : `prompt ${r.prompt}`, "waits", lost ? h("span", { class: "loss" }, glyph("preempt")) : wait && h("span", { class: wait.reason === "memory" || wait.reason === "hole" ? "loss" : "mid" }, glyph("wait")));
      }), state.waiting.length > 8 && h("span", { class: "small mid" }, `+${state.waiting.length - 8}`));
      fill(running, state.running.slice(0, 12).map((id) => item(at(id), progress(ctx, at(id)), now.runs.has(id) ? "" : "idle", now.first.has(id) && glyph("token"))),
        seats <= 8 && Array.from({ length: Math.max(0, seats - state.running.length) }, () => h("span", { class: "seat", "aria-hidden": "true" })), state.running.length > 12 && h("span", { class: "small mid" }, `+${state.running.length - 12}`));
      fill(done, ended.slice(-10).map((r) => h("span", { class: "person tinyone", role: "listitem" }, who(ctx, r.id, "tiny"), r.ended === state.tick && glyph("finish"))));
    },
  };
}
