// Elements without a framework. Text always becomes a text node: a prompt can never turn into markup.

function build(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(4).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

// replaces the children of an element
export const fill = (node, ...children) => { node.replaceChildren(...children.flat(4).filter((c) => c !== null && c !== undefined && c !== false)); return node; };

// a glyph as an element of its own; GLYPHS holds constant paths
export function glyph(kind, size = 12) {
  const node = s("svg", { class: "g", width: size, height: size, viewBox: "0 0 12 12", "aria-hidden": "true" });
  node.innerHTML = GLYPHS[kind] || "";
  return node;
}

// a glyph inside a drawing, centred on (x, y)
export function mark(kind, x, y, size, cls = "") {
  const node = s("g", { class: "g " + cls, transform: `translate(${x - size / 2},${y - size / 2}) scale(${size / 12})` });
  node.innerHTML = GLYPHS[kind];
  return node;
}

export const text = (x, y, words, cls = "", anchor = "start") => s("text", { x, y, class: cls, "text-anchor": anchor }, String(words));

export const number = (n) => n.toLocaleString("en-US");
export const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;

export const listing = (items, most = 6) => {
  const shown = items.slice(0, most);
  if (items.length > most) shown.push(`${items.length - most} more`);
  return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
};

// consecutive ids joined: 13–28, 40
export const runs = (ids) => {
  const groups = [];
  for (const id of ids) {
    const last = groups.at(-1);
    if (last && id === last[1] + 1) last[1] = id; else groups.push([id, id]);
  }
  return groups.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
};

// percentages that add up to 100 (largest remainder)
export function percents(parts) {
  const whole = parts.reduce((a, b) => a + b, 0);
  if (!whole) return parts.map(() => 0);
  const exact = parts.map((p) => (100 * p) / whole), floor = exact.map(Math.floor);
  const order = exact.map((e, i) => [e - floor[i], i]).sort((a, b) => b[0] - a[0]);
  for (let left = 100 - floor.reduce((a, b) => a + b, 0), i = 0; i < left && i < order.length; i++) floor[order[i][1]] += 1;
  return floor;
}

// the page's theme: JupyterLab, VS Code and Colab each say it in their own way
export function followTheme(root, changed = () => {}) {
  const read = () => {
    const { dataset, classList } = document.body, html = document.documentElement;
    const said = dataset.jpThemeLight ?? (classList.contains("vscode-dark") ? "false" : classList.contains("vscode-light") ? "true" : null);
    const dark = said !== null ? said === "false" : html.getAttribute("theme") === "dark" || html.dataset.theme === "dark" || (!html.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "dark" : "light";
  };
  read();
  const observer = new MutationObserver(() => { const before = root.dataset.theme; read(); if (before !== root.dataset.theme) changed(); });
  observer.observe(document.body, { attributes: true });
  observer.observe(document.documentElement, { attributes: true });
  return () => observer.disconnect();
}
