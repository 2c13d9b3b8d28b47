// The kernel's own lines, each beside the value it has just made.
import { fill, h } from "./dom.js";
import { beside, valuesAt } from "./kernel_values.js";

export function createCode(ctx) {
  const list = h("ol", { class: "code" });
  const root = h("section", { class: "codebox", "aria-label": "The kernel" },
    h("h2", null, "The kernel", h("span", { class: "q" }, "and what each line just made")), list,
    h("p", { class: "small mid" }, h("i", { class: "bar" }), "the three barred lines are the exercise; ", h("span", { class: "mono" }, "tl."), " is left out"));
  return {
    root,
    update() {
      const { run, at, story } = ctx, here = run.steps[at], latest = new Map();
      for (let i = 0; i <= at; i++) {
        const step = run.steps[i];
        if (step.page === here.page || step.page === 0) latest.set(step.line, i);
      }
      fill(list, run.code.map((code, line) => {
        const done = latest.get(line), told = done === undefined ? "" : beside(code, run.steps[done], ...Object.values(valuesAt(run, done)), story);
        const lost = told.includes("NaN") || told.includes("out of bounds");
        return h("li", { class: `${line === here.line ? "now" : done === undefined ? "yet" : ""}${run.own.includes(line) ? " own" : ""}${lost ? " lost" : ""}`, "aria-current": line === here.line ? "step" : null },
          h("span", null, code.slice(4).replaceAll("    ", "  ").replace('float("-inf")', "-inf")), h("span", { class: "v" }, told));
      }));
    },
  };
}
