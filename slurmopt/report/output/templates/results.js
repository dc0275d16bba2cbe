// The controls of the results page, and when it draws.
"use strict";
const get = (id) => document.getElementById(id);

function options(select, words, chosen) {
  select.replaceChildren(...words.map(([value, name]) => {
    const option = element("option", "", name);
    option.value = value;
    return option;
  }));
  select.value = chosen;
}

function controls() {
  makeHeads();
  options(get("filter-state"), [["", "all"], ...data.states.names.map((name) => [name, name])], "");
  get("filter").addEventListener("input", (event) => { table.text = event.target.value; table.most = 100; fill(); });
  get("filter-state").addEventListener("change", (event) => { table.state = event.target.value; table.most = 100; fill(); });
  get("clear").addEventListener("click", clearAll);
  get("more").addEventListener("click", () => { table.most += 100; fill(); });
  const column = heads.find((head, at) => at && head.number);
  get("filter-example").textContent = column ? column.name + ">" + written(column.of(0) === null ? 0 : column.of(0), 2) : "point>7";
  get("filters").hidden = get("filter-hint").hidden = count < 2;
  fill();
}

function key(parent, mark, words) {
  const span = element("span");
  span.append(mark, words);
  parent.append(span);
}

// A small picture of a line or of a mark, made of elements and never of strings.
function mark(kind, colour, dash) {
  const space = "http://www.w3.org/2000/svg", picture = document.createElementNS(space, "svg");
  picture.setAttribute("width", 24);
  picture.setAttribute("height", 10);
  picture.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(space, "path");
  const paths = { line: "M0 5H24", cross: "M8 1L16 9M16 1L8 9", diamond: "M12 0L17 5L12 10L7 5Z" };
  shape.setAttribute("d", paths[kind]);
  shape.setAttribute("style", "fill: none; stroke-width: 2; stroke: var(" + colour + "); stroke-dasharray: " + (dash || "none"));
  picture.append(shape);
  return picture;
}

function rampKey(parent, worst, best, after) {
  const span = element("span");
  span.append(worst, element("i", "ramp"), best + after);
  parent.append(span);
}

function metricKeys(parent) {
  parent.replaceChildren();
  if (measured.length) {
    const scale = scaleOf(metric, measured), ends = [scale.min, scale.max].map(scale.label);
    if (!maximize) ends.reverse();
    rampKey(parent, ends[0], ends[1], " " + metric.name + (metric.log ? ", logarithmic" : ""));
  }
}

function heatKeys(what, least, most, cells, amount) {
  const parent = get("heat-keys");
  parent.replaceChildren();
  if (least < most) {
    const ends = [least, most].map((value) => written(value, 3));
    if (!COUNTS[what] && !maximize) ends.reverse();
    rampKey(parent, ends[0], ends[1], " " + (COUNTS[what] || what + " " + metric.name));
  }
  if (cells.some((cell) => !cell.points)) key(parent, element("b", "", "–"), "no point");
  const empty = cells.filter((cell) => cell.points && amount(cell) === undefined);
  if (empty.some((cell) => !cell.failed)) key(parent, element("b", "", "…"), "no result");
  if (!COUNTS[what] && cells.some((cell) => cell.failed)) key(parent, element("b", "bad", "✕"), "failed");
}

function setUpParallel() {
  if (!parallel.shown.length) parallel.shown = axes.slice(0, metric ? 7 : 8);
  const enough = axes.length > 1 || (axes.length === 1 && metric !== null);
  get("parallel").closest("section").hidden = !enough;
  if (!enough) { parallel.shown = []; return; }
  const choices = [...axes, ...data.columns.filter((column) => column.role !== "axis" && column !== metric)];
  parallel.shown = choices.filter((column) => parallel.shown.includes(column));
  get("chooser").querySelectorAll("label").forEach((label) => label.remove());
  for (const column of choices) get("chooser").querySelector("fieldset").append(axisBox(column, choices));
}

function axisBox(column, choices) {
  const label = element("label"), box = element("input");
  box.type = "checkbox";
  box.checked = parallel.shown.includes(column);
  box.addEventListener("change", () => {
    parallel.shown = choices.filter((one) => (one === column ? box.checked : parallel.shown.includes(one)));
    if (parallel.shown.length + (metric ? 1 : 0) > 1) drawParallel();
  });
  label.append(box, column.name);
  return label;
}

function parallelKeys() {
  const parent = get("parallel-keys");
  metricKeys(parent);
  if (bad.length) key(parent, mark("line", "--bad", "6 4"), bad.length + " failed");
  const others = everyPoint.filter((at) => !hasMetric(at) && kindOf(at) !== "bad");
  if (others.length) key(parent, mark("line", "--soft", metric ? "2 3" : ""), others.length + (metric ? " without a result" : " points"));
}

function setUpHeat() {
  if (axes.length < 2) { get("heat-section").hidden = true; return false; }
  const names = axes.map((axis, at) => [String(at), axis.name]);
  options(get("heat-x"), names, "0");
  options(get("heat-y"), names, "1");
  heatWays();
  for (const id of ["heat-x", "heat-y", "heat-what"]) get(id).addEventListener("change", drawHeat);
  return true;
}

function heatWays() {
  const ways = measured.length ? [["mean", "mean " + metric.name], ["best", "best " + metric.name]] : [];
  if (bad.length) ways.push(["failed", "failed points"]);
  ways.push(["points", "all points"]);
  const before = get("heat-what").value;
  options(get("heat-what"), ways, ways.some(([way]) => way === before) ? before : ways[0][0]);
}

// Panels far below are drawn once they come near.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawPanel(entry.target);
}, { rootMargin: "300px" });
const panels = new Map();

function drawPanel(holder) {
  if (!panels.has(holder) || !measured.length) return;
  near.unobserve(holder);
  drawAlone(holder, panels.get(holder));
}

function setUpAlone() {
  get("each-section").hidden = !measured.length || !axes.length;
  if (get("each-section").hidden) return;
  for (const axis of panels.size ? [] : axes.slice(0, 12)) {
    const figure = element("figure"), holder = element("div", "chart");
    const caption = element("figcaption", "", axis.name);
    if (axis.log) caption.append(" ", element("small", "", "logarithmic"));
    figure.append(caption, holder);
    get("each").append(figure);
    panels.set(holder, axis);
    near.observe(holder);
  }
  const parent = get("each-keys");
  parent.replaceChildren(element("span", "", metric.name + (metric.log ? ", logarithmic," : "") + " over each axis" + (axes.length > 12 ? "; the first 12 of " + axes.length : "")));
  key(parent, mark("diamond", "--c2"), "mean");
  if (bad.length) key(parent, mark("cross", "--bad"), "failed, at the foot");
}

function drawAll(again) {
  if (parallel.shown.length) { parallelKeys(); drawParallel(); }
  if (hasHeat) drawHeat();
  if (again) for (const holder of panels.keys()) if (made.has(holder)) drawPanel(holder);
}

controls();
get("charts").hidden = count < 1 || !axes.length;
setUpParallel();
const hasHeat = setUpHeat();
setUpAlone();
setUpMetric();
let width = 0;
new ResizeObserver(() => {
  const now = get("charts").clientWidth;
  if (now && now !== width) { drawAll(width > 0); width = now; }
}).observe(get("charts"));
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => drawAll(true));
addEventListener("beforeprint", () => { for (const holder of panels.keys()) drawPanel(holder); });
addEventListener("scroll", hideTip, { passive: true });
