// What a kernel's variables are after each line, and how they are written beside it.

// values after step i, and those when its page began
export function valuesAt(run, i) {
  const now = {};
  let start = {}, page = 0;
  for (const step of run.steps.slice(0, i + 1)) {
    if (step.page !== page) { page = step.page; start = { ...now }; }
    Object.assign(now, step.made);
  }
  return { now, start };
}

export const num = (v) => (v === "NaN" ? NaN : v === "∞" ? Infinity : v === "−∞" ? -Infinity : Number(v));
const minus = (words) => words.replace("-", "−");
export const two = (v) => (typeof v === "string" ? v : minus(v.toFixed(2)));
export const three = (v) => (typeof v === "string" ? v : Number.isInteger(v) ? String(v) : minus(v.toFixed(3)));

const flat = (v) => (Array.isArray(v) ? v.flat(2) : [v]);
export const hasNaN = (v) => flat(v).includes("NaN");

// one line's result in a few characters
export function beside(code, step, now, start, story) {
  const name = code.trim().split(" ")[0], { made } = step, touch = Object.values(step.touched)[0];
  if (touch && touch.outside) return `${touch.outside} out of bounds`;
  if (code.trim().startsWith("for ")) return `j = ${now.j}`;
  if (name === "m2") return start.m === "−∞" || made.m2 === start.m ? two(made.m2) : `${two(start.m)} → ${two(made.m2)}`;
  if (name === "l") return start.l ? `${three(start.l)} → ${three(made.l)}` : three(made.l);
  if (name === "valid") return `${made.valid.filter(Boolean).length} of ${made.valid.length} slots`;
  if (name === "k" || name === "v") return hasNaN(made[name]) ? "NaN read" : `${now.valid.filter(Boolean).length} of ${now.valid.length} rows`;
  if (name === "at") return `${story.size * story.dim} places`;
  const parts = Object.entries(made).filter(([key]) => !"WGHDB".includes(key));
  if (!parts.length) return "";
  return parts.map(([key, v]) => {
    if (!Array.isArray(v)) return parts.length > 1 ? `${key} ${three(v)}` : three(v);
    if (hasNaN(v)) return "NaN";
    return v.length <= 4 ? v.map((x) => (x === 0 ? "0" : two(x))).join(" ") : parts.length > 1 ? "" : `${v.length} numbers`;
  }).filter(Boolean).join("  ");
}
