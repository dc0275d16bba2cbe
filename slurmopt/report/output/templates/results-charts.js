// The charts of the results page, by Apache ECharts. Scales are linear for it: results-data.js maps values to places.
"use strict";
const made = new Map();
const font = () => getComputedStyle(document.body).fontFamily;
const CROSS = "path://M2 0L5 3L8 0L10 2L7 5L10 8L8 10L5 7L2 10L0 8L3 5L0 2Z";

function draw(id, option, label, onPoint) {
  const holder = typeof id === "string" ? document.getElementById(id) : id;
  let chart = made.get(holder);
  if (!chart) {
    chart = charts.init(holder, null, { renderer: "svg" });
    made.set(holder, chart);
    chart.on("mouseover", (event) => showTip(event, onPoint(event)));
    chart.on("mouseout", hideTip);
    chart.on("click", (event) => { const at = onPoint(event).point; if (at !== undefined) pick(at); });
  }
  chart.resize();
  chart.setOption({ animation: false, textStyle: { fontFamily: font(), color: css("--soft") }, ...option }, true);
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", label);
  return chart;
}

function showTip(event, { lines }) {
  const tip = document.getElementById("tip"), pointer = event.event && event.event.event;
  if (!lines || !pointer) return;
  tip.replaceChildren(...lines.map(([name, value], at) => {
    const line = element("div");
    line.append(element(at ? "i" : "b", "", name), " ", value);
    return line;
  }));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(innerWidth - box.width - 4, pointer.clientX + 14)) + "px";
  tip.style.top = Math.max(4, pointer.clientY + box.height + 20 > innerHeight ? pointer.clientY - box.height - 12 : pointer.clientY + 14) + "px";
}

function hideTip() { document.getElementById("tip").hidden = true; }

// What keeps words readable on top of lines.
const halo = () => ({ textBorderColor: css("--card"), textBorderWidth: 4 });

function axisStyle(scale, width, more) {
  return {
    type: "value", min: scale.min, max: scale.max,
    axisLabel: { customValues: scale.ticks, formatter: scale.label, color: css("--soft"), fontSize: 11, hideOverlap: true, ...(width ? { width, overflow: "truncate" } : {}), ...more },
    axisTick: { customValues: scale.ticks, lineStyle: { color: css("--soft") } },
    axisLine: { show: true, lineStyle: { color: css("--soft") } },
    splitLine: { show: false },
  };
}

// All points: one line per point. The order is that of drawing: the best come last, on top.
const parallel = { shown: [], order: [] };

function drawParallel() {
  const holder = document.getElementById("parallel"), narrow = holder.clientWidth < 620;
  const shown = metric ? [...parallel.shown, metric] : parallel.shown;
  const scales = shown.map((column) => roomy(scaleOf(column)));
  const colour = ramp(), metricScale = metric && scaleOf(metric, measured), good = metric && goodness(metricScale);
  const rank = (at) => (hasMetric(at) ? 1 + good(metricScale.at(at)) : kindOf(at) === "bad" ? 1.8 : 0);
  parallel.order = [...everyPoint].sort((a, b) => rank(a) - rank(b));
  const many = count > 300;
  const lines = parallel.order.map((at) => ({
    value: scales.map((scale) => { const place = scale.at(at); return place === null ? NaN : place + aside(at) * scale.room; }),
    lineStyle: lineStyle(at, hasMetric(at) ? colour(good(metricScale.at(at))) : null, many),
  }));
  holder.style.height = narrow ? 50 + 66 * shown.length + "px" : "360px";
  const end = narrow ? { left: 16, right: 22, top: 26, bottom: 34 } : { left: 50, right: 70, top: 42, bottom: 16 };
  const chart = draw("parallel", {
    parallel: { ...end, layout: narrow ? "vertical" : "horizontal", parallelAxisDefault: { areaSelectStyle: { width: 18, borderColor: css("--accent"), color: css("--accent"), opacity: 0.25 } } },
    parallelAxis: scales.map((scale, dim) => ({
      dim, name: cut(shown[dim].name, narrow ? 30 : 18), nameLocation: narrow || (shown[dim] === metric && !maximize) ? "start" : "end", nameGap: narrow ? 8 : 14,
      nameTextStyle: { color: css("--ink"), fontWeight: 600, fontSize: 12, ...halo(), ...(narrow ? { align: "left", verticalAlign: "bottom", padding: [0, 0, 12, 8] } : {}) },
      inverse: shown[dim] === metric && !maximize && !narrow,
      ...axisStyle(scale, narrow ? 60 : 90, { ...halo(), color: css("--ink") }), z: 10,
    })),
    series: [{ type: "parallel", data: lines, progressive: 0, smooth: 0, activeOpacity: 0.9, inactiveOpacity: 0.04, emphasis: { lineStyle: { width: 3, opacity: 1 } } }],
  }, parallelLabel(shown), (event) => (event.seriesType === "parallel" && event.dataIndex !== undefined ? { point: parallel.order[event.dataIndex], lines: pointLines(parallel.order[event.dataIndex]) } : {}));
  if (!parallel.listens) {
    parallel.listens = true;
    chart.on("axisareaselected", () => brushed(chart));
  }
  brushed(chart);
}

// Of few values each is shared by many points: their lines lie beside each other, the best in the middle.
function roomy(scale) {
  const width = scale.max - scale.min, room = scale.few ? Math.min(1, count / 60) * Math.min(0.06 * width, 0.3 * scale.closest) : 0;
  return { ...scale, room, min: scale.min - room, max: scale.max + room };
}

function aside(at) {
  return data.points[at] === best ? 0 : ((data.points[at] * 0.6180339887) % 1) * 2 - 1;
}

function lineStyle(at, colour, many) {
  const first = data.points[at] === best;
  if (colour) return { color: colour, width: first ? 3.5 : many ? 1 : 1.6, opacity: first ? 1 : many ? 0.55 : 0.8 };
  if (kindOf(at) === "bad") return { color: css("--bad"), width: many ? 1 : 1.4, type: [6, 4], opacity: many ? 0.5 : 0.8 };
  return { color: css("--soft"), width: 1, type: kindOf(at) === "good" ? "solid" : [2, 3], opacity: 0.6 };
}

function parallelLabel(shown) {
  const names = shown.map((column) => column.name).join(", ");
  const words = "Parallel coordinates of " + count + " points over " + names;
  return words + (best === null ? "" : "; the best is point " + best) + (bad.length ? "; " + bad.length + " failed" : "");
}

function brushed(chart) {
  const series = chart.getModel().getSeries()[0];
  const any = chart.getOption().parallelAxis.some((axis, at) => (chart.getModel().getComponent("parallelAxis", at).activeIntervals || []).length);
  selection(any ? new Set(series.getRawIndicesByActiveState("active").map((at) => parallel.order[at])) : null);
}

const COUNTS = { points: "points", failed: "failed points" };

// Two axes: a cell for each pair of values, or of bins of values.
function bins(column) {
  const used = everyPoint.filter((at) => column.cells[at] !== null);
  if (column.names) return named(column, used);
  const distinct = [...new Set(used.map((at) => column.cells[at]))].sort((a, b) => a - b);
  if (distinct.length <= 16) return { labels: distinct.map((value) => written(value)), of: (at) => distinct.indexOf(column.cells[at]) };
  const scale = scaleOf(column), size = 8, width = (scale.max - scale.min) / size;
  const labels = Array.from({ length: size }, (_, at) => scale.brief(scale.min + at * width) + " … " + scale.brief(scale.min + (at + 1) * width));
  return { labels, of: (at) => (column.cells[at] === null ? -1 : Math.min(size - 1, Math.floor((scale.at(at) - scale.min) / width))) };
}

function named(column, used) {
  const most = 20;
  if (column.names.length <= most) return { labels: column.names, of: (at) => (column.cells[at] === null ? -1 : column.cells[at]) };
  const often = new Array(column.names.length).fill(0);
  for (const at of used) often[column.cells[at]]++;
  const kept = often.map((_, at) => at).sort((a, b) => often[b] - often[a]).slice(0, most - 1).sort((a, b) => a - b);
  const where = new Map(kept.map((name, at) => [name, at]));
  const labels = [...kept.map((name) => column.names[name]), "all others"];
  return { labels, of: (at) => (column.cells[at] === null ? -1 : where.has(column.cells[at]) ? where.get(column.cells[at]) : kept.length) };
}

function heatCells(x, y) {
  const cells = x.labels.map(() => y.labels.map(() => ({ values: [], failed: 0, points: 0 })));
  for (const at of everyPoint) {
    const column = x.of(at), row = y.of(at);
    if (column < 0 || row < 0) continue;
    const cell = cells[column][row];
    cell.points++;
    if (hasMetric(at)) cell.values.push(metric.cells[at]);
    else if (kindOf(at) === "bad") cell.failed++;
  }
  for (const cell of cells.flat()) {
    if (!cell.values.length) continue;
    cell.mean = cell.values.reduce((sum, value) => sum + value, 0) / cell.values.length;
    cell.best = cell.values.reduce((a, b) => (maximize ? Math.max(a, b) : Math.min(a, b)));
  }
  return cells;
}

function drawHeat() {
  const [across, down, what] = ["heat-x", "heat-y", "heat-what"].map((id) => document.getElementById(id).value);
  const x = bins(axes[across]), y = bins(axes[down]), cells = heatCells(x, y);
  const amount = (cell) => (COUNTS[what] ? (cell.points ? cell[what] : undefined) : cell[what]);
  const amounts = cells.flat().map(amount).filter((value) => value !== undefined);
  const least = Math.min(...amounts), most = Math.max(...amounts);
  const log = !COUNTS[what] && metric.log && least > 0, to = log ? Math.log : (value) => value;
  const share = (value) => (most > least ? (to(value) - to(least)) / (to(most) - to(least)) : 1);
  const good = (value) => (COUNTS[what] || maximize ? share(value) : most > least ? 1 - share(value) : 1);
  const holder = document.getElementById("heat"), colour = ramp();
  const room = (holder.clientWidth - 110) / x.labels.length, labelled = room > 40;
  const items = cells.flatMap((row, i) => row.map((cell, j) => {
    const value = amount(cell), empty = value === undefined;
    const words = empty ? (cell.failed ? "✕ " + cell.failed : cell.points ? "…" : "–") : written(value, 3) + (cell.failed && !COUNTS[what] && room > 70 ? "  ✕ " + cell.failed : "");
    return {
      value: [i, j, empty ? 0 : value],
      itemStyle: { color: empty ? css("--empty") : colour(good(value)), borderColor: css("--card"), borderWidth: 2 },
      label: { show: labelled || empty, formatter: () => words, fontSize: 11, color: empty ? css(cell.failed ? "--bad" : "--soft") : inkOn(colour(good(value))) },
    };
  }));
  const names = { color: css("--soft"), fontSize: 11, overflow: "truncate" };
  const style = { axisTick: { show: false }, axisLine: { show: false } };
  holder.style.height = 80 + Math.max(68, 34 * y.labels.length) + "px";
  draw("heat", {
    grid: { left: 12, right: 12, top: 30, bottom: 26, containLabel: true },
    xAxis: { type: "category", data: x.labels.map(String), name: cut(axes[across].name, 30), nameLocation: "middle", nameGap: 28, nameTextStyle: { color: css("--ink"), fontSize: 12, fontWeight: 600 }, axisLabel: { ...names, width: Math.max(60, room - 6), hideOverlap: true }, ...style },
    yAxis: { type: "category", data: y.labels.map(String), name: cut(axes[down].name, 30), nameTextStyle: { color: css("--ink"), align: "left", fontSize: 12, fontWeight: 600 }, axisLabel: { ...names, width: 100 }, ...style },
    series: [{ type: "heatmap", data: items, emphasis: { itemStyle: { borderColor: css("--ink"), borderWidth: 2 } } }],
  }, heatLabel(axes[across], axes[down], what), (event) => heatTip(event, x, y, cells, across, down));
  made.get(holder).off("mouseover");
  made.get(holder).on("mouseover", (event) => showTip(event, heatTip(event, x, y, cells, across, down)));
  heatKeys(what, least, most, cells.flat(), amount);
  heatTable(x, y, cells, amount, axes[across], axes[down]);
}

function heatLabel(across, down, what) {
  const of = COUNTS[what] ? "Number of " + COUNTS[what] : what + " " + metric.name;
  return of + " over " + across.name + " and " + down.name + "; the same as a table below";
}

function heatTip(event, x, y, cells, across, down) {
  if (event.seriesType !== "heatmap" || !event.value) return {};
  const [i, j] = event.value, cell = cells[i][j];
  const lines = [[axes[across].name, x.labels[i]], [axes[down].name, y.labels[j]]];
  if (cell.values.length) lines.push(["mean " + metric.name, written(cell.mean)], ["best", written(cell.best)]);
  lines.push(["points", cell.points + (cell.failed ? ", " + cell.failed + " failed" : "")]);
  return { lines };
}

function heatTable(x, y, cells, amount, across, down) {
  const table = element("table"), head = element("tr");
  head.append(element("th", "", down.name + " \\ " + across.name), ...x.labels.map((label) => element("th", "n", label)));
  head.childNodes.forEach((cell) => { cell.scope = "col"; });
  const rows = y.labels.map((label, j) => {
    const row = element("tr"), name = element("th", "", label);
    name.scope = "row";
    row.append(name, ...x.labels.map((_, i) => {
      const cell = cells[i][j], value = amount(cell);
      const words = value !== undefined ? written(value) : cell.failed ? cell.failed + " failed" : cell.points ? "no result" : "no point";
      return element("td", "n", words);
    }));
    return row;
  });
  table.append(head, ...rows);
  document.getElementById("heat-table").replaceChildren(table);
}

// Each axis alone: the metric over the values of the axis.
function drawAlone(holder, axis) {
  const scale = scaleOf(axis), height = scaleOf(metric, measured), colour = ramp(), good = goodness(height);
  const sorted = measured.filter((at) => axis.cells[at] !== null).reverse(), step = Math.max(1, sorted.length / 800);
  const dots = [];
  for (let at = sorted.length - 1; at >= 0; at -= step) dots.unshift(sorted[Math.round(at)]);
  const failed = bad.filter((at) => axis.cells[at] !== null).slice(0, 200);
  const x = (at) => scale.at(at) + (axis.names ? (((data.points[at] * 0.618) % 1) - 0.5) * 0.3 : 0);
  const room = (scale.max - scale.min) * (axis.names ? 0.5 / Math.max(1, axis.names.length - 1) : 0.05), rise = (height.max - height.min) * 0.06;
  const point = (at) => ({
    value: [x(at), height.at(at)], at,
    itemStyle: { color: colour(good(height.at(at))), borderColor: css("--soft"), borderWidth: 0.5, opacity: 1 },
    symbolSize: data.points[at] === best ? 13 : sorted.length > 300 ? 5 : 7,
  });
  const means = averages(axis, scale, height);
  const rules = { customValues: height.ticks, inside: true, length: holder.clientWidth - 70, lineStyle: { color: css("--line") } };
  const foot = { min: 0, max: 1, show: false, type: "value" };
  draw(holder, {
    grid: { left: 56, right: 14, top: 12, bottom: 28 },
    xAxis: { ...axisStyle(scale, 70), min: scale.min - room, max: scale.max + room, axisLine: { onZero: false, lineStyle: { color: css("--soft") } } },
    yAxis: [{ ...axisStyle(height, 46), min: height.min - rise * (failed.length ? 2.5 : 1), max: height.max + rise, axisLine: { show: false, onZero: false }, axisTick: rules }, foot],
    series: [
      { type: "scatter", data: dots.map(point) },
      { type: "scatter", symbol: "diamond", symbolSize: 11, silent: true, data: means, itemStyle: { color: "transparent", borderColor: css("--c2"), borderWidth: 2 } },
      { type: "scatter", yAxisIndex: 1, symbol: CROSS, symbolSize: 8, data: failed.map((at) => ({ value: [x(at), 0.05], at })), itemStyle: { color: css("--bad") } },
    ],
  }, metric.name + " over " + axis.name + ": " + sorted.length + " points" + (failed.length ? ", " + failed.length + " failed" : ""),
  (event) => (event.data && event.data.at !== undefined ? { point: event.data.at, lines: pointLines(event.data.at) } : {}));
}

function averages(axis, scale, height) {
  const groups = new Map();
  for (const at of measured) {
    if (axis.cells[at] === null) continue;
    const place = scale.at(at);
    if (!groups.has(place)) groups.set(place, []);
    groups.get(place).push(metric.cells[at]);
  }
  if (groups.size > 12 || groups.size === measured.length) return [];
  const to = metric.log ? Math.log10 : (value) => value;
  return [...groups].map(([place, values]) => [place, to(values.reduce((sum, value) => sum + value, 0) / values.length)]);
}
