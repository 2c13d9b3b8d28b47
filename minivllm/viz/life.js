// The life of one block: its reference count as a step line over the ticks, with words on the steps.
import { fill, h, s, text } from "./dom.js";
import { who } from "./block.js";

const X0 = 44, ROW = 27;
const WORDS = { take: (e) => `${e.who} takes it`, hit: (e) => `${e.who} hits it`, release: (e) => `${e.who} lets go`, "new pool": () => "new pool", held: (e) => `${e.who} held it before` };

export function createLife(ctx) {
  const root = h("section", { class: "card life", "aria-label": "The life of a block" });

  let W = 416, X1 = 406;

  function chart(steps, top) {
    W = Math.max(240, root.clientWidth - 32); X1 = W - 10;
    const edge = Math.max(ctx.trace.edge, 1), rows = Math.min(top, 4), height = 30 + rows * ROW + 18;
    const low = ctx.trace.low, X = (t) => X0 + ((Math.min(t, edge) - low) * (X1 - X0)) / Math.max(edge - low, 8), scale = rows / top, Y = (r) => height - 22 - r * scale * ROW;
    const grid = [];
    for (let r = 0; r <= top; r++) if (top <= 4 || r === 0 || r === top) grid.push(s("line", { x1: X0, x2: X1, y1: Y(r), y2: Y(r), class: "hair" }), text(X0 - 10, Y(r) + 4, `ref ${r}`, "tick", "end"));
    const line = (points) => "M" + points.map(([t, r]) => `${X(t)} ${Y(r)}`).join("L");
    const past = [[low, 0]], future = [];
    let ref = 0;
    for (const e of steps) {
      const own = e.tick <= ctx.at || (ctx.at === ctx.trace.edge) ? past : future;
      if (own === future && !future.length) { past.push([ctx.at, ref]); future.push([ctx.at, ref]); }
      if (e.ref !== ref) own.push([e.tick, ref], [e.tick, e.ref]);
      ref = e.ref;
    }
    if (future.length) future.push([edge, ref]); else past.push([ctx.at, ref]);
    const now = past.at(-1);
    if (!future.length && ctx.at < edge) future.push(now, [edge, ref]);
    const ticks = new Map();
    for (const e of steps) ticks.set(e.tick, e);
    return s("svg", { width: W, height, "aria-hidden": "true" }, grid,
      future.length > 1 && s("path", { d: line(future), class: "future" }), s("path", { d: line(past), class: "past" }),
      labels(steps, X, Y), s("circle", { cx: X(now[0]), cy: Y(now[1]), r: 4.5, class: "now" }), axis(steps, X, height));
  }

  // tick numbers under the steps; those that would touch the one before are left out
  function axis(steps, X, height) {
    const marks = [...new Set([...steps.map((e) => e.tick), ctx.at])].sort((a, b) => a - b), out = [];
    const nowAt = X(ctx.at);
    let last = -99;
    for (const t of marks) {
      const now = t === ctx.at, x = X(t), left = nowAt > X1 - 20 ? 62 : 34;
      if (!now && (x - last < 18 || (x < nowAt ? nowAt - x < left : x - nowAt < 34))) continue;
      last = x;
      out.push(text(x, height - 2, now ? `${t + ctx.trace.offset}, now` : t + ctx.trace.offset, `tick ${t > ctx.at ? "later" : ""} ${now ? "strong" : ""}`, x > X1 - 20 ? "end" : "middle"));
    }
    return out;
  }

  // words where there is room, most recent first
  function labels(steps, X, Y) {
    const placed = [], out = [];
    let ref = 0;
    const told = steps.map((e, i) => { const before = ref; ref = e.ref; return { ...e, before, i }; });
    for (const e of told.filter((e) => WORDS[e.word]).reverse()) {
      const hash = told.slice(e.i + 1).find((n) => n.word === "publish" && e.word === "take" && !told.slice(e.i + 1, n.i).some((m) => m.word === "take"));
      const later = e.tick > ctx.at;
      const words = (later ? WORDS[e.word](e).replace("takes", "will take").replace("hits", "will hit").replace("lets go", "will let go") : WORDS[e.word](e)) + (hash && !later ? `, hash ${hash.hash}` : "");
      const width = words.length * 6.3, tight = X(e.tick) + width + 12 > X1, end = tight || e.word === "hit", above = tight && e.word !== "hit";
      const x = above ? X1 : end ? X(e.tick) - 8 : X(e.tick) + 8, y = Y(Math.max(e.ref, e.before)) + (above ? -7 : 17);
      const box = [end ? x - width : x, y - 12, end ? x : x + width, y];
      if (box[0] < X0 - 2 || placed.some((p) => box[0] < p[2] && p[0] < box[2] && box[1] < p[3] && p[1] < box[3])) continue;
      placed.push(box);
      out.push(text(x, y, words, later ? "word later" : "word", end ? "end" : "start"));
      if (out.length > 7) break;
    }
    return out;
  }

  return {
    root,
    update() {
      const b = ctx.focused ?? ctx.pinned;
      if (b === null || b === undefined || b >= ctx.state.blocks) {
        fill(root, h("p", { class: "small mid" }, "Point at a block to see its life; click it to keep it here."));
        return;
      }
      const steps = ctx.trace.life(b), top = Math.max(2, ...steps.map((e) => e.ref)), ids = ctx.owners[b] || [];
      const owner = ids.length ? ctx.state.requests.get(ids[0]) : null, index = owner ? owner.table.indexOf(b) : -1;
      const hash = ctx.state.hash[b], writer = ctx.state.writer[b];
      fill(root,
        h("div", { class: "lifehead" }, h("b", null, `The life of block ${b}`),
          h("span", { class: "small mid" }, ids.slice(0, 4).map((id) => who(ctx, id, "tiny")), ids.length > 4 ? ` +${ids.length - 4} ` : " ",
            index >= 0 ? `logical block ${index}` : hash ? ["cached, written by ", who(ctx, writer, "tiny")] : "free"),
          h("span", { class: "pills" }, ctx.words(b).map((w) => h("span", { class: "tok" }, w)), hash && h("span", { class: "tok mono" }, `# ${hash.slice(0, 4)}`))),
        steps.length ? chart(steps, top) : h("p", { class: "small mid" }, "Nobody has used it yet."),
        h("p", { class: "hidden" }, steps.filter((e) => e.tick <= ctx.at).map((e) => `tick ${e.tick + ctx.trace.offset}: ${WORDS[e.word] ? WORDS[e.word](e) : e.word}, ref ${e.ref}`).join("; ")));
    },
  };
}
