// Roofline: one decode step under the ceilings of a machine. Python computes and words it; here it is drawn, and choices are sent.
import { fill, h, s, text } from "./dom.js";
import { Player, mount } from "./player.js";

const HIGH = 400, LEFT = 56, TOP = 22, BOTTOM = 44, BOX = 24, GAP = 12;
const pen = document.createElement("canvas").getContext("2d");
const line = (d, cls) => s("path", { d, class: cls });
const diamond = (x, y, cls) => line(`M${x} ${y - 7}l6.5 7l-6.5 7l-6.5 -7Z`, cls);
const clamp = (low, value, high) => Math.max(low, Math.min(high, value));

class Roof extends Player {
  constructor(model, root) {
    super(model, root, { low: 0, edge: 0, offset: 0 });
    this.wishes = new Map(); this.busy = null;
    this.headline = h("div", { class: "t" }); this.say = h("span", { class: "say", "aria-hidden": "true" });
    this.spoken = h("output", { class: "hidden spoken", "aria-live": "polite" });
    this.chart = h("div", { class: "chart", onpointerdown: (e) => this.grab(e), onpointermove: (e) => this.drag(e), onpointerup: () => { this.held = false; }, onpointercancel: () => { this.held = false; } });
    this.heading = h("h2"); this.legend = h("div", { class: "legend small mid", "aria-hidden": "true" });
    this.sliders = this.picture.sliders.map((slider, i) => this.slider(slider, i));
    this.bar = h("div", { class: "bytes" }); this.table = h("table"); this.source = h("p", { class: "source" });
    this.lanes = this.picture.lanes && h("div", { class: "lanes" });
    const side = h("div", { class: "side" }, h("h2", null, "One decode step"), this.sliders.map((each) => each.row), h("div", { class: "small mid what" }, "bytes it has to read"), this.bar, this.table, this.source);
    fill(root, this.notice, this.alarm, h("div", { class: "head" }, this.headline, this.say), this.spoken, h("div", { class: "two" }, h("div", null, this.heading, this.chart, this.legend), side), this.lanes);
    this.follow();
    const again = () => this.soon(), { stop } = this;
    model.on("change:picture", again);
    this.stop = () => { stop(); model.off("change:picture", again); };
  }

  get picture() { return this.model.get("picture"); }

  // ---- choices: one message on its way, then the latest wish

  want(i, at) {
    const { input, value } = this.sliders[i], { name, stops } = this.picture.sliders[i], to = clamp(0, at, stops.length - 1);
    input.value = to; value.textContent = stops[to]; this.paint(input);
    this.wishes.set(name, to); this.next();
  }

  next() {
    if (this.busy !== null || !this.wishes.size) return;
    const [[name, at]] = this.wishes;
    this.wishes.delete(name); this.busy = name;
    this.ask({ type: "set", name, at });
  }

  heard(message) { if (message.type === "done") this.busy = null; super.heard(message); this.next(); }

  slider({ name, label, stops }, i) {
    const input = h("input", { type: "range", min: "0", max: String(stops.length - 1), step: "1", "aria-label": label, "data-name": name, oninput: () => this.want(i, Number(input.value)), onkeydown: (e) => this.key(e, i) });
    const value = h("b");
    return { input, value, row: h("label", { class: "slide" }, h("span", null, label), input, value) };
  }

  // the notebook takes the arrow keys before a slider's own handling: answer them here
  key(e, i) {
    const at = Number(this.sliders[i].input.value), by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 4, PageDown: -4, Home: -1e3, End: 1e3 }[e.key];
    if (by === undefined || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault(); e.stopPropagation();
    this.want(i, at + by);
  }

  grab(e) { if (e.target.closest(".here")) { e.preventDefault(); this.held = true; this.chart.setPointerCapture(e.pointerId); this.chart.querySelector(".here").focus({ preventScroll: true }); } }

  drag(e) {
    if (!this.held) return;
    const wanted = e.clientX - this.chart.getBoundingClientRect().left, { along } = this.picture.sliders[0], far = (k) => Math.abs(this.X(along[k]) - wanted);
    const best = along.reduce((b, _, k) => (far(k) < far(b) ? k : b), 0);
    if (best !== Number(this.sliders[0].input.value)) this.want(0, best);
  }

  paint(input) { input.style.setProperty("--at", `${(100 * input.value) / input.max}%`); }
  width(words, font) { pen.font = `${font} ${this.font}`; return pen.measureText(words).width; }

  // ---- the chart

  grid(W) {
    const { x, y, xticks, yticks, unit } = this.picture.axes, x1 = W - 12, y0 = HIGH - BOTTOM, log = Math.log10;
    const X = (v) => LEFT + ((log(v) - log(x[0])) / (log(x[1]) - log(x[0]))) * (x1 - LEFT), Y = (v) => y0 - ((log(v) - log(y[0])) / (log(y[1]) - log(y[0]))) * (y0 - TOP);
    Object.assign(this, { X, Y, x1, y0 });
    return [xticks.map(([v, words]) => [line(`M${X(v)} ${TOP}V${y0}`, "grid"), text(X(v), y0 + 18, words, "tick", "middle")]), yticks.map(([v, words]) => [line(`M${LEFT} ${Y(v)}H${x1}`, "grid"), text(LEFT - 8, Y(v) + 4, words, "tick", "end")]),
      text((LEFT + x1) / 2, y0 + 37, "work per byte read, FLOP/B", "mid", "middle"), s("g", { transform: `translate(14,${(TOP + y0) / 2}) rotate(-90)` }, text(0, 0, `speed, ${unit}`, "mid", "middle"))];
  }

  roof() {
    const { X, Y, x1, y0, picture: { roof: r, axes, here } } = this, start = Math.max(axes.x[0], axes.y[0] / r.bandwidth), rx = X(r.ridge), ry = Y(r.compute), nx = r.never && X(r.never);
    const left = nx && rx - nx < 96, low = Math.max(here.x, ...this.picture.points.map((p) => p.x)) > r.ridge / 6, foot = low ? Math.max(start * 1.6, axes.x[0] * 2.7) : r.ridge / 1.2, turn = (-Math.atan2(Y(1) - Y(10), X(10) - X(1)) * 180) / Math.PI;
    return [line(`M${rx} ${ry + 6}V${y0}`, "dots"), text(rx + 6, y0 - 8, r.words, "tick"),
      nx && [line(`M${nx} ${Y(r.never * r.bandwidth)}V${y0}`, "dots"), r.limit.map((words, i) => text(left ? nx - 6 : nx + 6, y0 - 26 + 18 * i, words, "tick", left ? "end" : "start"))],
      line(`M${X(start)} ${Y(start * r.bandwidth)}L${rx} ${ry}H${x1}`, "roof"), text(Math.min(rx - 2, x1 - this.width(r.flat, "12.5px")), ry - 15, r.flat, "mid"),
      s("g", { transform: `translate(${X(foot)},${Y(foot * r.bandwidth)}) rotate(${turn})` }, text(0, -10, r.slope, "mid", low ? "start" : "end"))];
  }

  points() {
    const { X, Y, picture: { points, here } } = this, hx = X(here.x), marks = [], words = [];
    let lastLeft = -1e3, lastRight = hx;
    for (const p of points) {
      const x = X(p.x), y = Y(p.y), me = p.measured && Y(p.measured), same = p.x === here.x;
      if (same) continue;
      if (me) marks.push(line(`M${x} ${y}V${me}`, "gap"), s("rect", { x: x - 4.5, y: me - 4.5, width: 9, height: 9, rx: 1, class: "taken" }));
      marks.push(s("circle", { cx: x, cy: y, r: 4.5, class: "dot" }));
      if (x > hx && x - hx < 60) { if (x - lastRight >= 12) { words.push(text(x + 11, y + 16, p.words, "mid")); lastRight = x + 24; } }
      else if (Math.abs(hx - x) >= 30 && x - lastLeft >= 24) { words.push(p.batch === 1 ? text(x + 10, y + 15, p.words, "mid") : text(x - 11, y - 7, p.words, "mid", "end")); lastLeft = x; }
    }
    return [marks, words];
  }

  prefill(note) {
    const { X, Y, x1, picture: { prefill: p, roof } } = this;
    if (!p) return [];
    const [cx, cy] = [X(p.cold[0]), Y(p.cold[1])], words = p.words.map((each, i) => text(Math.min(x1, cx + 72), cy + 25 + 17 * i, each, "mid halo", "end"));
    if (!p.warm) return [words, diamond(cx, cy, "cold"), text(Math.min(x1, cx + 72), cy + 59, p.change, "strong", "end")];
    const [wx, wy] = [X(p.warm[0]), Y(p.warm[1])], far = cx - wx > 60, tx = clamp(wx + 44, X(roof.ridge) + 9, x1 - Math.max(this.width(p.hit, "12.5px"), this.width(p.change, "600 12.5px")));
    let ty = Math.max(wy + 22, Math.min(cy + 70, wy + 60));
    if (note && tx < note.x + note.width + 8 && ty + 20 > note.y - 16 && ty < note.y + 36) ty = note.y + 40;
    const bend = `M${cx - 6} ${cy + 7}C${cx - 30} ${cy + (wy - cy) * 0.55} ${wx + (cx - wx) * 0.3} ${wy + 24} ${wx + 10} ${wy + 4}m7 -3.5l-7.5 3.2l5.5 6`;
    return [far && line(bend, "jump"), words, diamond(cx, cy, "cold"), diamond(wx, wy, "warm"), text(tx, ty, p.hit, "mid"), text(tx, ty + 17, p.change, "strong")];
  }

  // the ringed point, and what was measured below it
  here() {
    const { X, Y, picture: { here: p, roof, sliders } } = this, x = X(p.x), y = Y(p.y), flat = p.x > roof.ridge, tight = x - LEFT < this.width(p.words, "700 12.5px") + 16;
    const label = flat ? text(x, y + 30, p.words, "strong", "middle") : tight ? text(x + 15, y + 19, p.words, "strong") : text(x - 14, y - 13, p.words, "strong", "end");
    const me = p.measured && Y(p.measured), loss = p.loss, nx = x + 30, ny = me && Math.max(me + 4.5, tight ? y + 44 : y + 25);
    const note = me ? { x: nx, y: ny, width: this.width(p.loss || "measured", "600 12.5px") } : null;
    const parts = me ? [line(`M${x} ${y}V${me}`, loss ? "short" : "gap"), line(`M${x + 6} ${me}L${nx - 6} ${ny - 4.5}`, "lead"), s("rect", { x: x - 4.5, y: me - 4.5, width: 9, height: 9, rx: 1, class: "taken now" }), text(nx, ny, "measured"), loss && text(nx, ny + 17.5, loss, "lossy")] : [];
    const ring = s("g", { class: "here", tabindex: "0", role: "slider", "aria-label": "requests, the ringed point", "aria-valuemin": "0", "aria-valuemax": String(sliders[0].stops.length - 1), "aria-valuenow": String(sliders[0].at), "aria-valuetext": `${p.words}, ${this.picture.headline}`, onkeydown: (e) => this.key(e, 0) },
      s("circle", { cx: x, cy: y, r: 20, class: "touch" }), s("circle", { cx: x, cy: y, r: 15.5, class: "focus" }), s("circle", { cx: x, cy: y, r: 11, class: "ring" }), s("circle", { cx: x, cy: y, r: 5.5, class: "dot" }));
    return { note, drawn: [s("g", { "aria-hidden": "true" }, parts, label), ring] };
  }

  drawChart() {
    const all = Math.max(320, this.root.clientWidth - 48), W = all > 900 ? Math.min(700, all - 410) : all, inside = this.chart.contains(document.activeElement);
    const grid = this.grid(W), { note, drawn } = this.here(), p = this.picture;
    fill(this.chart, s("svg", { width: W, height: HIGH, role: "group", "aria-label": this.spokenWords }, s("g", { "aria-hidden": "true" }, grid, this.roof(), this.prefill(note), this.points()), drawn));
    if (inside) this.chart.querySelector(".here").focus({ preventScroll: true });
    const key = (mark, words) => h("span", null, s("svg", { width: 14, height: 14 }, mark), words);
    fill(this.legend, key(s("circle", { cx: 7, cy: 7, r: 4.5, class: "dot" }), "decode, limit"), p.points.some((each) => each.measured) && key(s("rect", { x: 2.5, y: 2.5, width: 9, height: 9, rx: 1, class: "taken" }), "decode, measured"), p.prefill && key(diamond(7, 7, "cold"), "prefill, limit"));
  }

  // ---- beside it

  drawSide() {
    const { sliders, bar, rows, source } = this.picture, w = this.bar.clientWidth || 380, cut = clamp(2, bar.share * w, w - 2), room = [cut - 2, w - cut - 2];
    sliders.forEach(({ name, at, value }, i) => {
      const { input, value: shown } = this.sliders[i];
      if (!this.wishes.has(name) && this.busy !== name) { input.value = at; shown.textContent = value; this.paint(input); }
      input.setAttribute("aria-valuetext", `${shown.textContent}${{ batch: " requests", context: " tokens" }[name] ?? ""}`);
    });
    const inner = [0, 1].map((i) => [bar.words[i], bar.short[i]].find((words) => this.width(words, "600 12px") + 20 <= room[i]));
    const under = bar.sizes.map((size, i) => (inner[i] ? size : `${bar.short[i]} ${size}`));
    fill(this.bar, s("svg", { width: w, height: 48, "aria-hidden": "true" }, s("rect", { x: 0.5, y: 0.5, width: Math.max(1, cut - 2), height: 26, rx: Math.min(3, cut / 3), class: "weights" }), s("rect", { x: cut + 0.5, y: 0.5, width: Math.max(1, w - cut - 1), height: 26, rx: 3, class: "kv" }),
      inner[0] && text(9, 18, inner[0]), inner[1] && text(cut + 11, 18, inner[1], "on"), text(0, 44, under[0], "mid"), text(w, 44, under[1], "mid", "end")), h("span", { class: "hidden" }, `${bar.words[0]} ${bar.sizes[0]}, ${bar.words[1]} ${bar.sizes[1]}`));
    const sign = () => s("svg", { width: 14, height: 11, class: "sign", "aria-hidden": "true" }, line("M1.5 1.5H12.5L7 9.5Z", "told"));
    fill(this.table, h("tbody", null, rows.map(([name, value, note]) => h("tr", null, h("td", null, name, name === "you predicted" && [" ", sign()]), h("td", null, value), h("td", null, note)))));
    this.source.textContent = source;
  }

  // ---- three steps, twice

  drawLanes() {
    const l = this.picture.lanes, W = Math.max(480, this.root.clientWidth - 48), narrow = W < 900, x0 = 116, x1 = W - (narrow ? 96 : 150), X = (t) => x0 + (t / l.end) * (x1 - x0), ys = [8, 8 + BOX + GAP, 118, 118 + BOX + GAP], foot = ys[3] + BOX + 24;
    const box = ({ row, start, end, words, idle }) => {
      const x = X(start), w = Math.max(1, X(end) - x - 1.5), y = ys[row], gpu = row % 2, size = narrow && !gpu ? 10.5 : 11.5, full = [`${words}, ${l.gpu}`, words].find((each) => this.width(each, `600 ${size}px`) + 8 <= w), shown = gpu ? full : w >= this.width(words, `${size}px`) + 2 ? words : "";
      return [s("rect", { x: x + 0.75, y: y + 0.75, width: w, height: BOX - 1.5, rx: Math.min(3, w / 2), class: idle ? "idle" : gpu ? "gpu" : "cpu" }), idle ? text(x + w / 2, y + BOX + 15, `idle ${(end - start).toFixed(2)}`, "lossy small", "middle") : shown && s("text", { x: x + w / 2 + 0.75, y: y + 16.5, class: gpu ? "on" : "", "text-anchor": "middle", style: { "font-size": `${size}px` } }, shown)];
    };
    // from the end of a plan to the start of its step
    const links = l.boxes.filter((b) => b.words.startsWith("p")).map((p) => {
      const g = l.boxes.find((b) => b.row === p.row + 1 && b.words === `step ${p.words.slice(1)}`), y = ys[p.row];
      return X(g.start) - X(p.end) < 2 ? line(`M${X(p.end)} ${y + BOX}v${GAP}`, "link") : line(`M${X(p.end)} ${y + BOX / 2}H${X(g.start) - 4}q4 0 4 4V${y + BOX + GAP}`, "link wait");
    });
    const ends = [0, 2].map((row) => Math.max(...l.boxes.filter((b) => b.row === row).map((b) => b.end)));
    const says = l.says.map(([time, words], i) => [text(X(ends[i]) + 10, ys[2 * i] + BOX + 8, time, "time"), text(X(ends[i]) + 10, ys[2 * i] + BOX + 25, narrow ? words.replace("a step, ", "") : words, "mid")]);
    fill(this.lanes, h("h2", null, "Same three steps, twice", h("span", { class: "q" }, l.note)), s("svg", { width: W, height: foot + 26, role: "img", "aria-label": `step(), one by one: ${l.says[0].join(" ")}. run(), one in flight: ${l.says[1].join(" ")}.` },
      s("defs", null, s("pattern", { id: "roofline-idle", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 5, height: 5, class: "idle0" }), s("rect", { width: 1.4, height: 5, class: "idle1" }))),
      line(`M${X(l.done)} ${foot}V4`, "dots"), [["step()", "one by one"], ["run()", "one in flight"]].map(([name, how], i) => [text(0, ys[2 * i] + 16, name, "name"), text(0, ys[2 * i + 1] + 16, how, "tick")]), ys.map((y, i) => text(x0 - 10, y + 16.5, i % 2 ? "GPU" : "CPU", "mid", "end")),
      links, l.boxes.map(box), says, line(`M${x0} ${foot}H${x1}`, "axis"), l.ticks.filter((t) => t <= l.end).map((t) => [line(`M${X(t)} ${foot}v5`, "axis"), text(X(t), foot + 19, t ? String(Number(t.toPrecision(6))) : "0 ms", "tick", "middle")])));
  }

  render() {
    const p = this.picture;
    this.font = getComputedStyle(this.root).fontFamily;
    this.spokenWords = `${p.headline}. ${p.say.map((part) => part.b ?? part).join("")}`;
    this.headline.textContent = p.headline;
    fill(this.say, p.say.map((part) => (part.b ? h("b", null, part.b) : part)));
    if (this.spoken.textContent !== this.spokenWords) this.spoken.textContent = this.spokenWords;
    fill(this.heading, p.heading, h("span", { class: "q" }, "drag the ringed point"));
    this.drawChart(); this.drawSide();
    if (this.lanes) this.drawLanes();
  }
}

export default mount((model, root) => new Roof(model, root), "rf");
