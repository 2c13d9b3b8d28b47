// What this tick did, by block and by request: the badges, the fresh slots, the rows that ran. Gone at the next tick.

export function nowOf(trace, i, state) {
  const now = { evicted: new Map(), taken: new Set(), hit: new Set(), released: new Set(), copied: new Set(), fresh: new Map(), runs: new Map(), waits: new Map(), first: new Set(), hits: new Map() };
  const before = i > 0 ? trace.at(i - 1) : null;
  const events = trace.events(i);
  // an in-place change of the pool voids what was told about blocks before it
  const from = events.findLastIndex((e) => e.kind === "engine" && e.rebuilt && e.changed.length) + 1;
  for (const e of events.slice(from)) {
    if (e.kind === "evict") now.evicted.set(e.block, { hash: e.hash, home: before ? before.writer[e.block] : null });
    else if (e.kind === "take") now.taken.add(e.block);
    else if (e.kind === "reserve") for (let b = e.block; b < e.block + e.reserved; b++) now.taken.add(b);
    else if (e.kind === "copy") now.copied.add(e.block);
    else if (e.kind === "hit") { now.hit.add(e.block); now.hits.set(e.request, (now.hits.get(e.request) || 0) + 1); }
    else if (e.kind === "release") now.released.add(e.block);
    else if (e.kind === "run") now.runs.set(e.request, e);
    else if (e.kind === "wait") now.waits.set(e.request, e);
    else if (e.kind === "token" && e.first) now.first.add(e.request);
    else if (e.kind === "preempt") now.runs.delete(e.request);
  }
  for (const [id, run] of now.runs) {
    const r = state.requests.get(id), table = r && r.table.length ? r.table : before?.requests.get(id)?.table || [];
    for (let p = run.start; p < run.start + run.count; p++) {
      const block = table[Math.floor(p / state.size)];
      if (block !== undefined && state.ref[block]) now.fresh.set(block, (now.fresh.get(block) || 0) + 1);
    }
  }
  return now;
}
