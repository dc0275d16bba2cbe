// The menu of the results page: which metric the charts show, and whether its smallest or its largest value is the best.
"use strict";
const SMALLEST = /loss|err|perplexity|ppl|nll|wer|cer|mse|mae|fid|time|seconds/i;
const shownBy = data.columns.filter((column) => column === ranked || (column.role === "metric" && column.cells.some((cell) => cell !== null)));

function setUpMetric() {
  get("metric-choices").hidden = !axes.length || shownBy.length < (ranked ? 2 : 1);
  const names = shownBy.map((column, at) => [String(at), column.name]);
  options(get("metric"), ranked ? names : [["", "none"], ...names], ranked ? String(shownBy.indexOf(ranked)) : "");
  options(get("direction"), [["", "smallest"], ["largest", "largest"]], maximize ? "largest" : "");
  get("metric").addEventListener("change", () => {
    const column = shownBy[get("metric").value] || null;
    showMetric(column, column === ranked ? data.maximize : !SMALLEST.test(column.name));
  });
  get("direction").addEventListener("change", () => showMetric(metric, get("direction").value === "largest"));
}

function showMetric(column, largest) {
  metric = column;
  maximize = largest;
  measured = everyPoint.filter(hasMetric);
  best = metric === ranked && maximize === data.maximize ? data.best : bestPoint();
  get("direction").value = maximize ? "largest" : "";
  setUpParallel();
  if (hasHeat) heatWays();
  setUpAlone();
  drawAll(true);
}

function bestPoint() {
  const better = (a, b) => (maximize ? metric.cells[a] >= metric.cells[b] : metric.cells[a] <= metric.cells[b]);
  return measured.length ? data.points[measured.reduce((a, b) => (better(a, b) ? a : b))] : null;
}
