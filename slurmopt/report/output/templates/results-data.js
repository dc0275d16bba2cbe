// The results page: its data, and how values become places on a scale, words and colours. All words come from configs and
// trainings that nobody has checked: they are set as text, never as HTML.
"use strict";
const data = JSON.parse(document.getElementById("results-data").textContent);
const count = data.points.length;
const everyPoint = Array.from({ length: count }, (_, at) => at);
const ranked = data.metric === null ? null : data.columns[data.metric];
const axes = data.columns.filter((column) => column.role === "axis" && column !== ranked);
axes.sort((a, b) => place(a) - place(b));

function place(axis) {
  const found = data.order.indexOf(axis.name);
  return found < 0 ? data.order.length : found;
}

const stateOf = (at) => data.states.names[data.states.cells[at]];
const kindOf = (at) => data.states.kinds[data.states.cells[at]];
// What the charts show: the metric, whether its largest value is the best, the points that have it, and the best of them.
let metric = ranked, maximize = data.maximize, best = data.best;
const hasMetric = (at) => metric !== null && kindOf(at) === "good" && metric.names === null && metric.cells[at] !== null;
let measured = everyPoint.filter(hasMetric);
const bad = everyPoint.filter((at) => kindOf(at) === "bad");

function written(value, digits = 4) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) {
    return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return String(Number(value.toPrecision(digits)));
}

function duration(seconds) {
  if (seconds < 60) return Number(seconds.toFixed(seconds < 10 ? 1 : 0)) + "s";
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first], next = parts[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return Math.floor(seconds / size) + unit + (rest ? String(rest).padStart(2, "0") + next[1] : "");
}

function cellText(column, at, digits = 6) {
  const cell = column.cells[at];
  if (column.names) return cell === null ? "" : column.names[cell];
  if (cell === null) return column.odd[at] || "";
  return column.role === "time" ? duration(cell) : written(cell, digits);
}

const cut = (words, most) => (words.length > most ? words.slice(0, most - 1) + "…" : words);

// A scale: where a value lies, from `min` to `max`; where its ticks are; and what is written at a place.
function scaleOf(column, points = everyPoint) {
  if (column.names) return categories(column);
  const to = column.log ? Math.log10 : (value) => value;
  const back = column.log ? (at) => 10 ** at : (at) => at;
  const values = points.map((at) => column.cells[at]).filter((value) => value !== null);
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  let min = distinct.length ? to(distinct[0]) : 0, max = distinct.length ? to(distinct[distinct.length - 1]) : 1;
  if (min === max) { const room = column.log ? 0.5 : Math.abs(min) * 0.1 || 1; min -= room; max += room; }
  const ticks = distinct.length <= 8 ? apart(distinct.map(to), min, max) : round(min, max, column.log);
  const write = column.role === "time" ? duration : (value) => written(value, 3);
  return {
    min, max, ticks,
    at: (point) => (column.cells[point] === null ? null : to(column.cells[point])),
    label: (at) => write(back(at)),
    brief: (at) => (column.role === "time" ? duration(back(at)) : written(back(at), 2)),
    few: distinct.length <= 12 && distinct.length < values.length,
    closest: Math.min(max - min, ...distinct.slice(1).map((value, at) => to(value) - to(distinct[at]))),
  };
}

function categories(column) {
  const size = column.names.length, step = Math.ceil(size / 12);
  return {
    min: size > 1 ? 0 : -1, max: Math.max(1, size - 1),
    ticks: column.names.map((_, at) => at).filter((at) => at % step === 0),
    at: (point) => column.cells[point],
    few: size <= 30, closest: 1,
    label: (at) => (Number.isInteger(at) && column.names[at] !== undefined ? cut(column.names[at], 16) : ""),
  };
}

function apart(places, min, max) {
  const kept = [];
  for (const at of places) if (!kept.length || (at - kept[kept.length - 1]) / (max - min) > 0.07) kept.push(at);
  return kept;
}

function round(min, max, log) {
  const ticks = [];
  if (log) {
    const every = Math.max(1, Math.ceil((max - min) / 6)), factors = max - min < 1.6 ? [1, 2, 5] : [1];
    for (let power = Math.floor(min); power <= max; power += every) {
      for (const factor of factors) ticks.push(power + Math.log10(factor));
    }
  } else {
    const rough = (max - min) / 5, unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((factor) => unit * factor >= rough);
    for (let tick = Math.ceil(min / step); tick * step <= max + step * 1e-9; tick++) ticks.push(Number((tick * step).toPrecision(12)));
  }
  return ticks.filter((at) => at >= min - 1e-9 && at <= max + 1e-9);
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The colour of a share from 0, the worst, to 1, the best.
function ramp() {
  const stops = ["--worst", "--middle", "--best"].map(css).map(channels);
  return (share) => {
    const at = Math.max(0, Math.min(1, share)) * 2, first = Math.min(1, Math.floor(at)), part = at - first;
    return "rgb(" + stops[first].map((from, i) => Math.round(from + part * (stops[first + 1][i] - from))).join(",") + ")";
  };
}

// Black or white, whichever is read better on a colour: one of them always has a contrast above 4.5.
function inkOn(colour) {
  const parts = colour.match(/\d+/g).map((part) => part / 255);
  const [red, green, blue] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

// How good a value of the metric is among those of the points that finished: 0 to 1.
function goodness(scale) {
  return (at) => {
    const share = (at - scale.min) / (scale.max - scale.min);
    return maximize ? share : 1 - share;
  };
}

function element(name, className, words) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (words !== undefined) made.textContent = words;
  return made;
}

function pointLines(at) {
  const lines = [["point " + data.points[at], stateOf(at)]];
  const named = metric ? [metric, ...axes] : axes;
  for (const column of named.slice(0, 12)) {
    const words = cellText(column, at);
    if (words) lines.push([column.name, cut(words, 60)]);
  }
  if (data.errors[at]) lines.push(["error", cut(data.errors[at], 120)]);
  return lines;
}
