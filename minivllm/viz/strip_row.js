// One layout: its memory to scale, and the request it turned away drawn under the largest hole.
import { h, percents, s, text } from "./dom.js";

const KIND = ["used", "later", "never", "hole", "free"], HEIGHT = 34;

export const patterns = () => s("svg", { width: 0, height: 0, style: { position: "absolute" }, "aria-hidden": "true" }, s("defs", null,
  s("pattern", { id: "mslater", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { class: "paper", width: 5, height: 5 }), s("rect", { class: "ink", width: 1.5, height: 5 })),
  s("pattern", { id: "msnever", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, s("rect", { class: "tint", width: 6, height: 6 }), s("circle", { class: "spot", cx: 1.5, cy: 1.5, r: 1.05 }), s("circle", { class: "spot", cx: 4.5, cy: 4.5, r: 1.05 })),
  s("pattern", { id: "msover", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" }, s("rect", { class: "paper", width: 5, height: 5 }), s("rect", { class: "spot", width: 2, height: 5 }))));

export const sample = (kind) => s("svg", { width: 26, height: 14, "aria-hidden": "true" }, s("rect", { class: kind, x: 0.5, y: 0.5, width: 25, height: 13, rx: 2 }));

function memory(frame, unit) {
  const out = [];
  for (const [start, slots, kind, who] of frame.parts) {
    const x = start * unit, width = slots * unit;
    if (width < 0.4) continue;
    out.push(s("rect", { class: KIND[kind], x: x + 0.5, y: 2.5, width: Math.max(0.5, width - 1), height: HEIGHT - 1, rx: kind >= 3 ? 2 : 0 }));
    if (kind === 0 && width > 13) out.push(text(x + Math.min(8, width / 2 - 4), 24, who, "letter"));
    if (kind === 3 && width > 26) out.push(text(x + width / 2, 24, slots, "losstext strong", "middle"));
  }
  return out;
}

// the refused request, to scale, under the largest hole
function refusal(frame, unit, total, width) {
  const [who, need, largest, free, real] = frame.refused, holes = frame.parts.filter((p) => p[2] >= 3).map(([at, slots]) => [at, slots]);
  if (!holes.length) return [text(0, HEIGHT + 26, [who, " refused: asks for ", need, ", nothing is free"].join(""), "losstext")];
  const [at, size] = holes.reduce((a, b) => (b[1] > a[1] ? b : a)), y = HEIGHT + 14, right = at + need <= total, x0 = (right ? at : Math.max(0, at + size - need)) * unit, over = need - size;
  const tight = width < 560, words = free < need ? (real <= largest ? ` refused: would use ${real}, but asks for ${need}; free ` : ` refused: asks for ${need}, free in all `)
    : tight ? ` refused: asks ${need}, largest hole ${largest}, free ` : ` refused: asks for ${need}, largest hole ${largest}, free in all `;
  const long = 6.7 * (words.length + String(free).length + 1), after = x0 + need * unit + 10, left = x0 - 10 - long > 0, x = after + long <= width ? after : left ? x0 - 10 : 0, low = x === 0;
  const label = s("text", { class: "losstext", x, y: low ? y + 32 : y + 12.5, "text-anchor": x === x0 - 10 ? "end" : "start" }, s("tspan", { class: "strong" }, who), words, s("tspan", { class: "strong" }, String(free)));
  return [s("path", { class: "drop", d: `M${at * unit} ${HEIGHT + 4}V${y + 16}M${(at + size) * unit} ${HEIGHT + 4}V${y + 16}` }), s("rect", { class: "asks", x: x0 + 0.75, y: y + 0.75, width: Math.max(2, need * unit - 1.5), height: 14.5, rx: 3 }),
    over > 0 && s("rect", { class: "over", x: (right ? (at + size) * unit : x0) + 1.5, y: y + 1.5, width: Math.max(1.5, over * unit - 3), height: 13, rx: 1.5 }), label];
}

function scattered(frame, unit, who) {
  const mine = who.filter((name) => frame.running.includes(name)), empty = frame.parts.filter((p) => p[2] === 1 || p[2] === 2).reduce((n, p) => n + p[1], 0);
  const bars = frame.parts.filter((p) => mine.includes(p[3])).map(([start, slots]) => s("rect", { class: "under", x: start * unit + 1, y: HEIGHT + 5, width: Math.max(1, slots * unit - 2), height: 3, rx: 1.5 }));
  const named = mine.length ? `${mine.join(" and ")} run${mine.length > 1 ? "" : "s"} in scattered blocks (underlined). ` : "", wait = frame.refused ? `${frame.refused[0]} waits: ${frame.refused[3]} slots are left. ` : "";
  return [...bars, text(0, HEIGHT + 25, `${named}${wait}Only last blocks have empty slots: ${empty}.`, "words")];
}

export function row(name, frame, story, width, refusedElsewhere) {
  const unit = width / story.slots, sums = [0, 1, 2, 3, 4].map((k) => frame.parts.filter((p) => p[2] === k).reduce((n, p) => n + p[1], 0)), share = percents(sums), bar = 200, said = story.said[name];
  const below = name === "Paged" ? scattered(frame, unit, refusedElsewhere) : frame.refused ? refusal(frame, unit, story.slots, width) : [];
  const told = [`${frame.running.length} running, ${share[0]} % used`, frame.refused ? `${frame.refused[0]} refused, asks for ${frame.refused[1]}, largest hole ${frame.refused[2]}, free ${frame.refused[3]}` : ""].filter(Boolean).join("; ");
  let x = 0;
  const parts = sums.map((slots, k) => { const w = (slots / story.slots) * bar, node = w > 0.4 && s("rect", { class: KIND[k], x: x + 0.5, y: 10.5, width: Math.max(0.5, w - 1), height: 11 }); x += w; return node; });
  const mark = said === undefined ? null : s("path", { class: "said", d: `M${(bar * said) / 100 - 5.5} 1h11l-5.5 8z` });
  const words = [[1, "later"], [2, "never"], [3, "holes"], [4, "free"]].filter(([k]) => share[k]).map(([k, word]) => `${share[k]} % ${word}`).join(", ");
  return h("div", { class: "row", "data-layout": name },
    h("div", null, h("h2", null, name), h("p", { class: "rule" }, story.rules[name])),
    s("svg", { width, height: 70, role: "img", "aria-label": `${name}: ${told}` }, memory(frame, unit), below.filter(Boolean)),
    h("div", { class: "sums" }, h("p", { class: "big" }, h("b", null, `${frame.running.length} running`), ", ", h("b", null, `${share[0]} %`), " used"), s("svg", { width: bar, height: 23, "aria-hidden": "true" }, parts.filter(Boolean), mark),
      h("p", { class: "small mid" }, words, said !== undefined && [h("br"), h("span", { class: "dim" }, `you said ${Math.round(said)} %, off by ${Math.abs(Math.round(said) - share[0])}`)])));
}
