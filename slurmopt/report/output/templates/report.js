// The shared cursor of the curves: pointer, touch and arrow keys move it, and every panel tells its values there.
(function () {
  "use strict";
  var curves = document.querySelector(".curves");
  if (!curves) return;
  var data = JSON.parse(document.getElementById("series").textContent);
  var when = document.querySelector(".when");
  var panels = Array.prototype.slice.call(curves.querySelectorAll(".panel"));
  var times = data[0].times;
  var at = times.length - 1;
  var formats = {
    percent: function (value) { return (100 * value).toFixed(1) + " %"; },
    bytes: function (value) { return (value / 1073741824).toFixed(1) + " GiB"; },
    watts: function (value) { return value.toFixed(0) + " W"; },
    celsius: function (value) { return value.toFixed(0) + " °C"; }
  };
  function told(value, unit) {
    if (value === null || value === undefined) return "no value";
    return formats[unit] ? formats[unit](value) : Number(value.toPrecision(3)) + (unit ? " " + unit : "");
  }
  function nearest(list, time) {
    var low = 0, high = list.length - 1;
    while (high - low > 1) {
      var middle = (low + high) >> 1;
      if (list[middle] < time) low = middle; else high = middle;
    }
    return Math.abs(list[low] - time) <= Math.abs(list[high] - time) ? low : high;
  }
  function move(index) {
    at = Math.max(0, Math.min(times.length - 1, index));
    var time = times[at], span = Math.max(1, times[times.length - 1] - times[0]), words = [];
    curves.style.setProperty("--x", (time - times[0]) / span);
    curves.classList.add("on");
    panels.forEach(function (panel, number) {
      var series = data[number], here = nearest(series.times, time);
      Array.prototype.forEach.call(panel.querySelectorAll(".legend b"), function (cell, line) {
        cell.textContent = told(series.lines[line][here], series.unit);
        if (!line) words.push(panel.querySelector("h3").textContent + " " + cell.textContent);
      });
    });
    var date = new Date(time * 1000);
    var label = date.toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
    when.textContent = label;
    curves.setAttribute("aria-valuenow", at);
    curves.setAttribute("aria-valuetext", label + ": " + words.join(", "));
  }
  function follow(event) {
    var box = panels[0].querySelector(".plot").getBoundingClientRect();
    var share = Math.max(0, Math.min(1, (event.clientX - box.left) / Math.max(1, box.width)));
    move(nearest(times, times[0] + share * (times[times.length - 1] - times[0])));
  }
  curves.addEventListener("pointermove", follow);
  curves.addEventListener("pointerdown", follow);
  curves.addEventListener("keydown", function (event) {
    var page = Math.max(1, Math.round(times.length / 20));
    var steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page };
    if (event.key === "Home") move(0);
    else if (event.key === "End") move(times.length - 1);
    else if (steps[event.key]) move(at + steps[event.key]);
    else return;
    event.preventDefault();
  });
})();
