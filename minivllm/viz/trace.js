// The recording: ticks of events, and the state after any of them. A checkpoint every few ticks keeps going back cheap.
import { State } from "./state.js";

const EVERY = 16;

// what happened without the tidying up after a failure
function untilFailure(events) {
  const failure = events.findIndex((e) => e.kind === "fail");
  if (failure < 0) return events;
  const mended = events.findIndex((e) => e.kind === "mend");
  return [...events.slice(0, failure), ...(mended < 0 ? [] : events.slice(mended + 1))];
}

export class Trace {
  constructor(offset = 0, low = 0) {
    this.offset = offset;   // engine tick of index 0
    this.low = low;         // first index that can be shown: 1 when the recording began late
    this.ticks = [];        // payload of tick i+1
    this.tail = [];         // what happened since the last complete tick
    this.colours = {};
    this.words = {};        // tokens of each request's prompt, as short words
    this.totals = [];       // numbers for the timeline, one per tick, 0 = before the first
    this.head = new State(); // after the last complete tick, to go on from
    this.checkpoints = [];  // [i]: the state after tick i * EVERY
    this.cache = new Map();
  }

  get edge() { return this.ticks.length; }

  append(tick) {
    if (tick.tick !== this.edge + 1) return;  // already here: a second view asked for the same ticks
    Object.assign(this.colours, tick.colours);
    this.words = { ...tick.words, ...this.words };
    this.ticks.push(tick);
    this.tail = [];
    this.cache.clear();
    if (this.edge === 1) this.totals = [summary(this.at(0), [], null)];
    for (const event of tick.events) this.head.apply(event);
    this.totals.push(summary(this.head, tick.opening ? [] : untilFailure(tick.events), this.totals[this.edge - 1]));
    if (this.edge % EVERY === 0) this.checkpoints[this.edge / EVERY] = this.head.clone();
  }

  // the timeline's numbers for one tick
  total(i) { return this.edge ? this.totals[i] : summary(this.at(0), [], null); }

  between(item) { Object.assign(this.colours, item.colours); Object.assign(this.words, item.words); this.tail.push(item); this.cache.clear(); }

  // events that belong to what is shown at tick i; at the live edge also those since then
  events(i) {
    const told = i > 0 && !this.ticks[i - 1].opening ? untilFailure(this.ticks[i - 1].events) : [];
    return i === this.edge ? [...told, ...this.tail.map((t) => t.event)] : told;
  }

  at(i) {
    if (this.cache.size > 8) this.cache.clear();
    if (!this.cache.has(i)) this.cache.set(i, this.replay(i));
    return this.cache.get(i);
  }

  replay(i) {
    let from = Math.floor(i / EVERY), state = null;
    while (from >= 0 && !this.checkpoints[from]) from -= 1;
    state = from >= 0 ? this.checkpoints[from].clone() : new State();
    for (let t = Math.max(0, from * EVERY); t < i; t++) for (const event of this.ticks[t].events) state.apply(event);
    if (i === 0 && this.edge) for (const event of this.ticks[0].events) { if (event.kind === "start") break; state.apply(event); }
    if (i === this.edge) for (const item of this.tail) state.apply(item.event);
    return state;
  }

  // ticks, in order, in which an event of this kind happened
  next(kind, from, step) {
    for (let i = from + step; i >= Math.max(1, this.low) && i <= this.edge; i += step) if (this.totals[i].count[kind]) return i;
    return null;
  }

  // every change of one block's reference count: [{tick, ref, word, who}], and the words of the rest of its life
  life(block) {
    const steps = [];
    let ref = 0, writer = null, own = null;
    for (let i = 1; i <= this.edge + 1; i++) {
      const events = i <= this.edge ? this.ticks[i - 1].events : this.tail.map((t) => t.event);
      const opening = i <= this.edge && this.ticks[i - 1].opening, before = steps.length;
      for (const e of events) {
        if (e.kind === "engine") { if (!e.rebuilt) continue; if (ref) steps.push({ tick: i, ref: 0, word: "new pool" }); ref = 0; continue; }
        const touches = e.block === block || (e.kind === "copy" && e.source === block) || (e.kind === "fork" && e.blocks.includes(block))
          || (e.kind === "reserve" && block >= e.block && block < e.block + e.reserved);
        if (!touches) continue;
        if (e.kind === "evict") { const last = writer; steps.push({ tick: i, ref, word: "evicted", who: last, loss: true }); continue; }
        if (e.kind === "publish") { writer = e.request; steps.push({ tick: i, ref, word: "publish", who: e.request, hash: e.hash.slice(0, 4) }); continue; }
        if (e.kind === "take" || e.kind === "reserve" || (e.kind === "copy" && e.block === block)) ref = 1;
        else if (e.kind === "copy") ref -= 1;
        else if (e.kind === "fork") ref += 1;
        else if (e.kind === "hit" || e.kind === "release") ref = e.ref;
        else continue;
        own = e.request;
        steps.push({ tick: i, ref, word: e.kind === "reserve" || e.kind === "copy" ? "take" : e.kind === "fork" ? "hit" : e.kind, who: e.request });
      }
      if (opening) { steps.length = before; if (ref) steps.push({ tick: i, ref, word: "held", who: own }); }
    }
    return steps;
  }
}

function summary(state, events, before) {
  const { fill } = state.owners();
  const total = { used: 0, cached: 0, held: 0, filled: 0, blocks: state.blocks, size: state.size, computed: 0, reused: 0, asked: before ? before.asked : 0, hits: before ? before.hits : 0, count: {}, who: {} };
  state.ref.forEach((ref, b) => {
    if (ref) { total.used += 1; total.held += state.size; total.filled += fill[b]; } else if (state.hash[b]) total.cached += 1;
  });
  for (const e of events) {
    total.count[e.kind] = (total.count[e.kind] || 0) + 1;
    if (e.request) (total.who[e.kind] ||= []).push(e.request);
    if (e.kind === "run" && !e.decode) total.computed += e.count;
    if (e.kind !== "admit") continue;
    total.reused += e.cached;
    // who starts again finds its own blocks, which saves no work: no hit, as in Python's Metrics
    if (e.resumed || !state.caching) continue;
    total.asked += (state.requests.get(e.request) ?? state.before.get(e.request)).prompt;
    total.hits += e.cached;
  }
  return total;
}
