// The recording of an engine in the browser: one per model, shared by all drawings of it, fed by Python's messages.
import { Trace } from "./trace.js";

export function recordingOf(model) {
  if (model.minivllmTrace) return model.minivllmTrace;
  const { ticks = [], between = [], offset = 0, low = 0 } = model.get("trace"), trace = new Trace(offset, low);
  for (const tick of ticks) trace.append(tick);
  for (const item of between) trace.between(item);
  model.minivllmTrace = trace;
  model.on("msg:custom", (m) => {
    if (m.type === "tick") trace.append(m);
    else if (m.type === "between") trace.between(m);
    else if (m.type === "sync") { for (const t of m.ticks) trace.append(t); trace.tail = []; for (const item of m.between) trace.between(item); trace.cache.clear(); }
  });
  model.send({ type: "hello", have: trace.edge });
  return trace;
}
