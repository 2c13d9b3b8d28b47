// The whole pass: every token's score as a lollipop, the running maximum as a step line, and per page block, shrink, sum.
import { fill, h, mark, s, text } from "./dom.js";
import { num, two } from "./kernel_values.js";

const TOP = 22, HEIGHT = 104;

// what each page brought, each number from the line that made it; later ones are the future
function pages(run, upTo) {
  const found = [];
  let block = null;
  run.steps.forEach((step, i) => {
    const { made } = step, known = (name) => (name in made && i <= upTo ? { [name === "m2" ? "m" : name]: num(made[name]) } : {});
    if ("b" in made) block = made.b;
    if (!step.page || step.end) return;
    if ("s" in made) found.push({ page: step.page, block, scores: made.s, future: i > upTo });
    if (found.at(-1)?.page === step.page) Object.assign(found.at(-1), known("m2"), known("m"), known("a"), known("l"));
  });
  return found;
}

export function createPass(ctx) {
  const drawing = h("div", { class: "pass" });
  const root = h("section", { "aria-label": "The whole pass" }, h("h2", null, "The whole pass", h("span", { class: "q" }, `one program, ${ctx.story.pages} pages in table order, ${ctx.story.tokens} tokens; no score matrix is ever stored`)), drawing);
  return {
    root,
    update() {
      const all = pages(ctx.run, ctx.at), here = ctx.run.steps[ctx.at].page, lanes = all.reduce((n, p) => n + p.scores.length, 0);
      const width = Math.max(300, drawing.clientWidth || 900), beside = width >= 520, left = 92, right = width - (beside ? 112 : 4), step = (right - left) / Math.max(1, lanes), base = TOP + HEIGHT;
      const reach = 1.15 * Math.max(1e-9, ...all.flatMap((p) => p.scores.map((v) => Math.abs(num(v)))).filter(Number.isFinite));
      const y = (v) => TOP + HEIGHT / 2 - (v / reach) * (HEIGHT / 2), out = [];
      let x = left, line = "", top = null;
      for (const p of all) {
        const end = x + p.scores.length * step, middle = (x + end) / 2, group = [];
        if (p.page === here) out.push(s("rect", { class: "here", x, y: TOP - 14, width: end - x, height: HEIGHT + 86, rx: 5 }));
        if (x > left) out.push(s("line", { class: "hair", x1: x, x2: x, y1: TOP - 6, y2: base + 68 }));
        p.scores.forEach((v, i) => {
          const at = x + (i + 0.5) * step, score = num(v);
          group.push(Number.isFinite(score) ? [s("line", { class: "stem", x1: at, x2: at, y1: y(0), y2: y(score) }), s("circle", { class: score === p.m ? "dot top" : "dot", cx: at, cy: y(score), r: step < 9 ? 2 : 4 })] : mark("evict", at, base - 4, 9, "loss"));
        });
        const known = Number.isFinite(p.m), shrinks = p.page > 1 && p.a !== 1;
        if (known) { line += line ? `V${y(p.m)}H${end}` : `M${x} ${y(p.m)}H${end}`; if (top === null || p.m > top) out.push(text(x + 6, y(p.m) - 6, `m ${two(p.m)}`, "tick strong")); top = p.m; }
        group.push(text(middle, base + 18, lanes > 40 || width < 700 ? p.block : `block ${p.block}`, "dimtext", "middle"));
        if ("a" in p) group.push(text(middle, base + 42, p.page === 1 ? "–" : shrinks ? p.a.toFixed(3) : "1", shrinks ? "strong" : "pale", "middle"));
        if ("l" in p) group.push(text(middle, base + 64, Number.isNaN(p.l) ? "NaN" : p.l.toFixed(2), Number.isNaN(p.l) ? "losstext" : "", "middle"));
        out.push(s("g", { class: p.future ? "future" : "" }, group.flat(2)));
        x = end;
      }
      out.push(s("path", { class: "max", d: line || "M0 0" }), s("line", { class: "hair", x1: left, x2: right, y1: y(0), y2: y(0) }),
        text(left - 10, y(0) + 4, "0", "tick", "end"), text(0, y(0) - 12, "score of", "dimtext"), text(0, y(0) + 5, "each token", "dimtext"), text(0, base + 18, "page", "dimtext"), text(0, base + 42, "shrink a", "dimtext"), text(0, base + 64, "sum l", "dimtext"),
        beside && [top !== null && text(right + 12, y(top) + 4, "running max", "dimtext"), text(right + 12, base + 2, "masked", "losstext"), text(right + 12, base + 64, "out = acc / l", "dimtext")]);
      fill(drawing, s("svg", { width, height: base + 74, role: "img", "aria-label": `Scores of ${lanes} slots on ${all.length} pages` }, out.flat(4).filter(Boolean)));
    },
  };
}
