// The page of a benchmark of collectives: bus bandwidth over size, and a cell for each link. Words come from recordings
// that nobody has checked: they are set as text, never as HTML. Both scales of the first chart are logarithmic.
"use strict";
const data = JSON.parse(document.getElementById("collectives-data").textContent);
const COLOURS = ["--b-communication", "--b-input", "--b-compute", "--b-checkpoint", "--b-unused"];
const SYMBOLS = ["circle", "rect", "triangle", "diamond", "pin"];

function drawBandwidths() {
  const series = data.collectives.flatMap((one, at) => {
    const color = css(COLOURS[at % COLOURS.length]), symbol = SYMBOLS[at % SYMBOLS.length];
    const points = one.sizes.map((size, i) => ({ value: [size, one.busbw[i]], words: one.name + ", " + bytes(size) + ": " + one.busbw[i].toPrecision(3) + " GB/s" }));
    return [
      { type: "scatter", symbol: "circle", symbolSize: 2, silent: true, data: one.fit, itemStyle: { color, opacity: 0.8 } },
      { type: "scatter", symbol, symbolSize: 9, data: points, itemStyle: { color } },
    ];
  });
  const sizes = data.collectives.flatMap((one) => one.sizes), power = (size) => Math.log2(size) / 2;
  draw("busbw", 380, {
    grid: { left: 12, right: 24, top: 30, bottom: 10, containLabel: true },
    xAxis: { ...axis("", bytes), logBase: 4, min: 4 ** Math.floor(power(Math.min(...sizes))), max: 4 ** Math.ceil(power(Math.max(...sizes)) + 0.01) },
    yAxis: axis("GB/s", (value) => String(Number(value.toPrecision(2)))),
    series,
  }, "Bus bandwidth over size of " + data.collectives.map((one) => one.name).join(", ") + "; the same as a table below");
  document.getElementById("busbw-keys").replaceChildren(...data.collectives.map((one, at) => key(one.name, at)));
}

function key(name, at) {
  const words = document.createElement("span"), dot = document.createElement("i");
  dot.className = "swatch";
  dot.style.background = css(COLOURS[at % COLOURS.length]);
  words.append(dot, name);
  return words;
}

function drawLinks() {
  const names = data.ends, values = data.links.map(([, , value]) => value).filter((value) => value > 0);
  const low = Math.log(Math.min(...values)), high = Math.log(Math.max(...values));
  const stops = ["--worst", "--middle", "--best"].map(css).map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const colour = (value) => {
    const share = (high > low ? (Math.log(value) - low) / (high - low) : 1) * 2, first = Math.min(1, Math.floor(share));
    return "rgb(" + stops[first].map((from, i) => Math.round(from + (share - first) * (stops[first + 1][i] - from))).join(",") + ")";
  };
  const cells = data.links.filter(([, , value]) => value > 0).flatMap(([a, b, value]) => [[a, b], [b, a]].map((place) => ({
    value: [...place, value], words: names[a] + " ↔ " + names[b] + ": " + value.toPrecision(3) + " GB/s",
    itemStyle: { color: colour(value), borderColor: css("--card"), borderWidth: names.length > 40 ? 0 : 1 },
  })));
  const ends = { type: "category", data: names, axisTick: { show: false }, axisLine: { show: false }, axisLabel: { color: css("--soft"), fontSize: 11, hideOverlap: true, width: 90, overflow: "truncate" } };
  draw("links", Math.min(620, 80 + 30 * names.length), {
    grid: { left: 12, right: 12, top: 12, bottom: 6, containLabel: true },
    xAxis: ends, yAxis: { ...ends, inverse: true },
    series: [{ type: "heatmap", data: cells, progressive: 0 }],
  }, "Bandwidth of " + data.links.length + " links; the same as a table below");
}

function drawAll() {
  if (data.collectives.length) drawBandwidths();
  if (data.links.length) drawLinks();
}

document.getElementById("charts").hidden = false;
drawAll();
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
