// One page under the loop: the table, the query, K and V slot by slot, scores and weights, and the accumulator's sum.
import { fill, h, s, text } from "./dom.js";
import { num, two, valuesAt } from "./kernel_values.js";

const CELL = 15, ROW = 34, LEFT = 46, WIDE = 526;

// numbers as bars: up is positive, down and hollow is negative
function cells(x, y, values, width, height, scale, cls) {
  return values.map((v, i) => {
    const left = x + i * width, middle = y + height / 2, value = num(v), bar = Math.min(height / 2 - 2, (Math.abs(value) / scale) * (height / 2 - 2));
    return [s("rect", { class: "cell", x: left + 0.5, y: y + 0.5, width: width - 2, height: height - 1, rx: 2 }),
      Number.isNaN(value) ? s("path", { class: "nanmark", d: `M${left + 4} ${middle - 3}l${width - 9} 6M${left + width - 5} ${middle - 3}l${9 - width} 6` })
        : value >= 0 ? s("rect", { class: `up ${cls}`, x: left + 3, y: middle - Math.max(0.8, bar), width: width - 7, height: Math.max(0.8, bar) })
          : s("rect", { class: `down ${cls}`, x: left + 3.5, y: middle, width: width - 8, height: Math.max(0.8, bar) })];
  });
}

const largest = (...lists) => Math.max(1e-9, ...lists.flat().map((v) => Math.abs(num(v))).filter(Number.isFinite));

function tableRow(ctx, page) {
  const { table, who } = ctx.story, wide = Math.min(46, (WIDE - LEFT - 120) / table.length - 6);
  return [text(0, 33, "table", "dimtext"), table.map((block, j) => {
    const x = LEFT + j * (wide + 6), here = j === page - 1;
    return [text(x + wide / 2, 11, j + 1, "tick", "middle"), s("rect", { class: "block", x: x + 0.5, y: 16.5, width: wide - 1, height: 23, rx: 5 }),
      text(x + wide / 2, 32.5, block, `mono strong${j < page - 1 ? " past" : ""}`, "middle"), here && s("rect", { class: "ring", x: x - 3, y: 13, width: wide + 6, height: 30, rx: 7.5 })];
  }), text(LEFT + table.length * (wide + 6) + 6, 32.5, page ? `${who}'s page ${page} of ${table.length}` : `${who}'s blocks`, "dimtext")];
}

function slots(ctx, now, top) {
  const { size, dim } = ctx.story, wide = CELL * Math.min(dim, 8), scoreX = LEFT + wide + 14, weightX = scoreX + 96, valueX = weightX + 92;
  const out = [text(LEFT, top - 8, `K of block ${now.b}`, "dimtext"), text(scoreX, top - 8, `score q·k / √${dim}`, "dimtext"), text(weightX, top - 8, "weight p", "dimtext"), text(valueX, top - 8, `V of block ${now.b}`, "dimtext")];
  for (let i = 0; i < Math.min(size, 8); i++) {
    const y = top + i * ROW, middle = y + 17, real = !now.valid || now.valid[i];
    out.push(text(0, middle, `slot ${i}`, real ? "dimtext" : "losstext"));
    for (const [x, name] of [[LEFT, "k"], [valueX, "v"]]) {
      const row = now[name]?.[i];
      if (real && row) out.push(cells(x, y, row.slice(0, 8), CELL, 26, largest(now[name].flat()), "plain"));
      else if (real) out.push(s("rect", { class: "empty", x: x + 0.5, y: y + 0.5, width: wide - 2, height: 25, rx: 3 }));
      else out.push(s("rect", { class: "masked", x: x + 0.5, y: y + 0.5, width: wide - 2, height: 25, rx: 3 }), s("rect", { class: "label", x: x + wide / 2 - 42, y: y + 4, width: 82, height: 18, rx: 3 }),
        text(x + wide / 2 - 1, middle, row && row.includes("NaN") ? "NaN, read!" : row ? "NaN, masked" : "not A's".replace("A", ctx.story.who), "losstext", "middle"));
    }
    const score = now.s?.[i], weight = now.p?.[i];
    if (score !== undefined) {
      const masked = !Number.isFinite(num(score)), bar = masked ? 0 : (Math.abs(num(score)) / largest(now.s)) * 36;
      out.push(masked ? text(scoreX, middle, score, "losstext") : [s("rect", { class: `score${score === now.m2 ? " top" : ""}${score < 0 ? " neg" : ""}`, x: scoreX + 0.5, y: y + 5.5, width: Math.max(2, bar), height: 15, rx: 2 }), text(scoreX + Math.max(2, bar) + 6, middle, two(score), score === now.m2 ? "strong" : "")]);
    }
    if (weight !== undefined) out.push(weight === 0 ? text(weightX, middle, "0", "losstext") : [s("rect", { class: "weight", x: weightX + 0.5, y: y + 5.5, width: Math.max(2, Math.min(1.2, num(weight) || 0) * 36), height: 15, rx: 2 }), text(weightX + Math.max(2, Math.min(1.2, num(weight) || 0) * 36) + 6, middle, two(weight))]);
  }
  return out;
}

// acc so far, shrunk, plus this page's weighted values, is the new acc
function sum(ctx, now, start, top) {
  if (!start.acc || now.a === undefined) return [];
  const shrink = num(now.a), fresh = now.acc !== start.acc && "v" in now, shrunk = start.acc.map((v) => num(v) * shrink);
  const page = fresh ? now.acc.map((v, i) => num(v) - shrunk[i]) : null, scale = largest(start.acc, shrunk, fresh ? now.acc : [], page || []), step = 11, group = 8 * step;
  let x = 0;
  const out = [s("line", { class: "hair", x1: 0, x2: WIDE - 6, y1: top - 14, y2: top - 14 })];
  const part = (words, values, cls) => { out.push(text(x, top + 6, words, "dimtext"), values ? cells(x, top + 14, values.slice(0, 8), step, 44, scale, cls) : []); x += group; };
  const sign = (words) => { out.push(text(x + 22, top + 41, words, "sign", "middle")); x += 46; };
  part("acc so far", start.acc, "pale");
  out.push(s("path", { class: "arrow", d: `M${x + 4} ${top + 36}h34m-5 -4l5 4l-5 4` }), text(x + 20, top + 27, `×${shrink === 0 ? "0" : shrink.toFixed(3)}`, "strong tick", "middle"));
  x += 46;
  part("shrunk", shrunk, "plain"); sign("+"); part("p @ V", page, "own"); sign("="); part("acc", fresh ? now.acc : null, "ink");
  return out;
}

export function createPage(ctx) {
  const drawing = h("div", { class: "picture" });
  return {
    root: drawing,
    update() {
      const { run, at, story } = ctx, { now, start } = valuesAt(run, at), page = run.steps[at].page, fresh = {};
      for (let i = at; i >= 0 && run.steps[i].page === page; i--) for (const [k, v] of Object.entries(run.steps[i].made)) fresh[k] ??= v;
      const rows = Math.min(story.size, 8), top = 118, sumTop = top + rows * ROW + 32;
      const shown = page ? slots(ctx, fresh, top) : [text(LEFT, top + 20, "Nothing read yet.", "dimtext")];
      const words = page ? `Page ${page}: block ${fresh.b ?? "…"}` : "Before the loop";
      const svg = s("svg", { viewBox: `0 0 ${WIDE} ${sumTop + 64}`, width: "100%", role: "img", "aria-label": `${words}. ${run.steps[at].say}` },
        hatch(), tableRow(ctx, page), text(0, 79, "q", "dimtext strong"), now.query && cells(LEFT, 60, now.query.slice(0, 8), CELL, 28, largest(now.query), "plain"),
        text(LEFT + CELL * Math.min(8, story.dim) + 10, 79, `query of token ${story.tokens - 1}, head ${story.head}`, "dimtext"), shown.flat(4), page ? sum(ctx, { ...now, acc: fresh.acc ?? start.acc, a: fresh.a }, start, sumTop).flat(4) : []);
      fill(drawing, svg);
    },
  };
}

const hatch = () => s("defs", null, s("pattern", { id: "mvnan", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { class: "nanpaper", width: 6, height: 6 }), s("rect", { class: "nanline", width: 1.6, height: 6 })));
