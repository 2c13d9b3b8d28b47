// Events to states: the twin of `recorder.Replay` in Python. A state is what the engine looks like between two ticks.

export class State {
  constructor() {
    Object.assign(this, { size: 1, layout: "paged", policy: "fcfs", caching: true, budget: 0, tick: 0 });
    Object.assign(this, { ref: [], hash: [], writer: [], free: [], running: [], waiting: [], requests: new Map(), before: new Map() });
  }

  clone() {
    const copy = Object.assign(new State(), this);
    for (const list of ["ref", "hash", "writer", "running", "waiting"]) copy[list] = this[list].slice();
    copy.requests = new Map([...this.requests].map(([id, r]) => [id, { ...r, table: r.table.slice() }]));
    return copy;
  }

  get blocks() { return this.ref.length; }

  // owners[b]: request ids in admission order; fill[b]: slots that hold K/V somebody can still use
  owners() {
    const owners = Array.from(this.ref, () => []), fill = new Int32Array(this.blocks);
    for (const id of [...this.running, ...this.waiting]) {
      const { table, computed } = this.requests.get(id);
      table.forEach((block, index) => {
        owners[block].push(id);
        fill[block] = Math.max(fill[block], Math.min(this.size, Math.max(0, computed - index * this.size)));
      });
    }
    this.ref.forEach((ref, b) => { if (!ref) fill[b] = this.hash[b] ? this.size : 0; });
    return { owners, fill };
  }

  apply(event) { const handler = APPLY[event.kind]; if (handler) handler(this, event, this.requests.get(event.request)); }
}

export const stateOf = (state, block) => state.ref[block] ? "used" : state.hash[block] ? "cached" : "free";

const without = (list, item) => list.filter((other) => other !== item);

const APPLY = {
  engine(s, e) {
    s.size = e.block_size; s.layout = e.layout; s.policy = e.policy; s.caching = e.prefix_caching; s.budget = e.max_num_batched_tokens;
    if (!e.rebuilt) return;
    for (const id of s.running) Object.assign(s.requests.get(id), { status: "waiting", computed: 0, table: [], extent: null, since: s.tick });
    s.waiting = [...s.running, ...s.waiting]; s.running = [];
    // a history opens here; after a failure it is told anew, and says nothing of when somebody came or finished
    if (!e.changed.length) { s.before = s.requests; s.requests = new Map(); s.waiting = []; }
    s.ref = new Array(e.num_blocks).fill(0); s.hash = new Array(e.num_blocks).fill(null); s.writer = new Array(e.num_blocks).fill(null);
    s.free = e.num_blocks <= 1024 ? s.ref.map((_, b) => b) : [];
  },
  start(s, e) { s.tick = e.tick; },
  end(s, e) { s.free = e.free; },
  arrive(s, e) {
    s.requests.set(e.request, { id: e.request, prompt: e.prompt_tokens, tokens: e.prompt_tokens + e.generated, max: e.max_tokens,
      status: "waiting", computed: 0, cached: e.cached, table: [], since: s.before.get(e.request)?.since ?? s.tick + 1, preemptions: e.preemptions });
    s.waiting.push(e.request);
  },
  limit(s, e, r) { r.max = e.max_tokens; },
  hit(s, e, r) { s.ref[e.block] = e.ref; r.table[e.index] = e.block; },
  take(s, e, r) { s.ref[e.block] = 1; r.table[e.index] = e.block; },
  copy(s, e, r) { s.ref[e.source] -= 1; s.ref[e.block] = 1; r.table[e.index] = e.block; },
  reserve(s, e, r) {
    for (let i = 0; i < e.reserved; i++) { r.table[i] = e.block + i; s.ref[e.block + i] = 1; }
    r.extent = [e.block, e.blocks];
  },
  evict(s, e) { s.hash[e.block] = null; },
  reset(s, e) { for (const block of e.blocks) s.hash[block] = null; },
  admit(s, e, r) {
    r.status = "running"; r.computed = e.cached; if (!e.resumed) r.cached = e.cached; r.admitted = s.tick;
    s.waiting = without(s.waiting, e.request); s.running.push(e.request);
  },
  fork(s, e) {
    s.requests.set(e.request, { id: e.request, prompt: e.prompt_tokens, tokens: e.tokens, max: e.max_tokens, status: "running",
      computed: e.computed, cached: Math.min(e.computed, e.prompt_tokens), table: e.blocks.slice(), since: s.tick, preemptions: 0, parent: e.parent });
    for (const block of e.blocks) s.ref[block] += 1;
    s.running.push(e.request);
  },
  preempt(s, e, r) {
    r.status = "waiting"; r.computed = 0; r.preemptions += 1; r.since = s.tick;
    s.running = without(s.running, e.request); s.waiting.unshift(e.request);
  },
  run(s, e, r) { r.computed = e.start + e.count; },
  token(s, e, r) { if (r) r.tokens += 1; },
  publish(s, e) { s.hash[e.block] = e.hash; s.writer[e.block] = e.request; },
  release(s, e, r) { s.ref[e.block] = e.ref; if (r) { r.table = without(r.table, e.block); r.extent = null; } },
  finish(s, e, r) {
    r.status = "finished"; r.ended = s.before.get(e.request)?.ended ?? s.tick;
    s.running = without(s.running, e.request); s.waiting = without(s.waiting, e.request);
  },
};
