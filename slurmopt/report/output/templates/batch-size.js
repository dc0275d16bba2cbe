// The page of a search for a batch size: rate and memory over size. Both scales of both charts are logarithmic.
"use strict";
const data = JSON.parse(document.getElementById("batch-data").textContent);

// Dots from the first place to the last, evenly on a logarithmic scale.
function dots(from, to, count) {
  return Array.from({ length: count }, (_, at) => from.map((value, i) => value * (to[i] / value) ** (at / count)));
}

function curve(id, values, limit, shown, label) {
  const known = data.sizes.map((size, i) => [size, values[i]]).filter(([, value]) => value > 0);
  if (!known.length) return;
  const points = known.map(([size, value]) => ({ value: [size, value], words: size + ": " + shown(value) }));
  const between = known.slice(1).flatMap((place, at) => dots(known[at], place, 24));
  const first = known[0][0], last = known[known.length - 1][0], low = Math.min(...known.map(([, value]) => value));
  const high = Math.max(...known.map(([, value]) => value)), near = limit > 0 && limit < 8 * high;
  const color = css("--b-compute"), dotted = { type: "scatter", symbol: "circle", symbolSize: 2, silent: true };
  const power = (value) => Math.log2(value);
  draw(id, 300, {
    grid: { left: 12, right: 24, top: 30, bottom: 10, containLabel: true },
    xAxis: { ...axis("", String), logBase: 2, min: 2 ** Math.floor(power(first)), max: 2 ** Math.max(Math.ceil(power(last)), Math.floor(power(first)) + 1) },
    yAxis: { ...axis("", shown), logBase: 2, min: 2 ** Math.floor(power(low)), max: 2 ** Math.ceil(power(near ? Math.max(limit, high) : high) + 0.01) },
    series: [
      { ...dotted, data: between, itemStyle: { color } },
      { ...dotted, data: near ? dots([first, limit], [last, limit], 120) : [], itemStyle: { color: css("--b-lost") } },
      { type: "scatter", symbol: "circle", symbolSize: 9, data: points, itemStyle: { color } },
    ],
  }, label + "; the same as a table below");
}

function drawAll() {
  curve("rate", data.rates, data.fast, (value) => String(Number(value.toPrecision(3))), "Rate over batch size");
  curve("memory", data.memory, data.room, bytes, "Peak memory over batch size");
}

document.getElementById("charts").hidden = false;
drawAll();
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
