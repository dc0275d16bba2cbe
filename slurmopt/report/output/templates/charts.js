// Drawing charts on a page: one holder each, with a label for screen readers and a tip for the pointer. Words are set as
// text, never as HTML.
"use strict";
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const made = new Map();

function draw(id, height, option, label) {
  const holder = document.getElementById(id);
  holder.style.height = height + "px";
  let chart = made.get(id);
  if (!chart) {
    chart = charts.init(holder, null, { renderer: "svg" });
    chart.on("mouseover", showTip);
    chart.on("mouseout", () => { document.getElementById("tip").hidden = true; });
    made.set(id, chart);
  }
  chart.resize();
  const style = { fontFamily: getComputedStyle(document.body).fontFamily, color: css("--soft") };
  chart.setOption({ animation: false, textStyle: style, ...option }, true);
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", label);
}

function showTip(event) {
  const tip = document.getElementById("tip"), pointer = event.event && event.event.event;
  if (!pointer || !event.data || !event.data.words) return;
  tip.textContent = event.data.words;
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(innerWidth - tip.offsetWidth - 4, pointer.clientX + 14)) + "px";
  tip.style.top = Math.max(4, pointer.clientY - tip.offsetHeight - 12) + "px";
}

function bytes(size) {
  const unit = Math.min(4, Math.floor(Math.log2(size) / 10));
  return Number((size / 1024 ** unit).toPrecision(3)) + ["", "K", "M", "G", "T"][unit];
}

function axis(name, label) {
  const line = { lineStyle: { color: css("--soft") } };
  return { type: "log", name, nameTextStyle: { color: css("--soft") }, axisLabel: { color: css("--soft"), fontSize: 11, hideOverlap: true, formatter: label }, axisLine: { show: true, ...line }, splitLine: { lineStyle: { color: css("--line") } } };
}
