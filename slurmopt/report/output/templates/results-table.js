// The table of the results page: sorted by a click on a head, filtered by words, by comparisons, and by the charts.
"use strict";
const table = { sort: null, down: false, most: 100, within: null, text: "", state: "" };
const heads = [{ name: "point", of: (at) => data.points[at], words: (at) => String(data.points[at]), number: true }];
for (const column of data.columns) {
  const of = (at) => { const cell = column.cells[at]; return column.names && cell !== null ? column.names[cell] : cell; };
  heads.push({ name: column.name, of, words: (at) => cellText(column, at), number: !column.names });
}
heads.push({ name: "state", of: stateOf, words: (at) => stateOf(at) + (data.errors[at] ? ": " + data.errors[at] : "") });

function makeHeads() {
  document.querySelectorAll("#table thead th").forEach((cell, at) => {
    const button = element("button", "", heads[at].name);
    button.type = "button";
    button.addEventListener("click", () => sortBy(at));
    cell.replaceChildren(button);
    if (heads[at].number && at) cell.classList.add("n");
  });
}

function sortBy(at) {
  table.down = table.sort === at ? !table.down : false;
  table.sort = at;
  document.querySelectorAll("#table thead th").forEach((cell, other) => {
    if (other === at) cell.setAttribute("aria-sort", table.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  fill();
}

// Points without a value come last, whichever way.
function compare(a, b) {
  const { of } = heads[table.sort], x = of(a), y = of(b);
  if (x === null || y === null) return (x === null) - (y === null);
  const less = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
  return table.down ? -less : less;
}

const COMPARISON = /^(.+?)(<=|>=|<|>|=)(.+)$/;
const compares = { "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "=": (a, b) => a === b };

function testOf(word) {
  const [, name, sign, value] = COMPARISON.exec(word) || [];
  const head = name === undefined ? undefined : heads.find((one) => one.name.toLowerCase() === name.toLowerCase());
  if (head && value.trim() && Number.isFinite(Number(value)) && head.number) {
    return (at) => head.of(at) !== null && compares[sign](head.of(at), Number(value));
  }
  if (head && sign === "=") return (at) => head.words(at).toLowerCase() === value.toLowerCase();
  const small = word.toLowerCase();
  return (at) => heads.some((one) => one.words(at).toLowerCase().includes(small));
}

function fitting() {
  const tests = table.text.split(/\s+/).filter(Boolean).map(testOf);
  if (table.within) tests.push((at) => table.within.has(at));
  if (table.state) tests.push((at) => stateOf(at) === table.state);
  const found = everyPoint.filter((at) => tests.every((test) => test(at)));
  return table.sort === null ? found : found.sort(compare);
}

function fill() {
  const found = fitting(), rows = found.slice(0, table.most).map(rowOf);
  document.querySelector("#table tbody").replaceChildren(...rows);
  const all = found.length === count, some = rows.length < found.length;
  const words = (some ? "the first " + rows.length + " of " : "") + found.length.toLocaleString("en") + (all ? "" : " of " + count.toLocaleString("en"));
  const order = table.sort === null ? (ranked ? ", the best first" : "") : ", by " + heads[table.sort].name;
  document.getElementById("shown").textContent = words + order;
  document.getElementById("more").hidden = !some;
  document.getElementById("clear").hidden = !(table.within || table.text || table.state);
}

function rowOf(at) {
  const row = element("tr", data.points[at] === data.best ? "best" : "");
  heads.forEach((head, place) => {
    const last = place === heads.length - 1;
    const cell = element(place ? "td" : "th", last ? kindOf(at) : place && head.number ? "n" : "", head.words(at));
    if (!place) cell.scope = "row";
    if (cell.textContent.length > 30) cell.title = cell.textContent;
    row.append(cell);
  });
  return row;
}

// The points within the ranges marked in the chart; null: no range is marked.
function selection(points) {
  if (points === null && table.within === null) return;
  table.within = points;
  const told = document.getElementById("picked");
  told.textContent = points === null ? "" : points.size + " of " + count + " points lie within the marked ranges.";
  if (points !== null) {
    const button = element("button", "", "Clear the ranges");
    button.type = "button";
    button.addEventListener("click", clearAll);
    told.append(button);
  }
  fill();
}

// A point that was clicked in a chart.
function pick(at) {
  const told = document.getElementById("picked");
  told.textContent = pointLines(at).map(([name, value]) => name + " " + value).join(" · ");
}

function clearAll() {
  table.text = table.state = "";
  table.within = null;
  document.getElementById("filter").value = document.getElementById("filter-state").value = "";
  document.getElementById("picked").textContent = "";
  if (parallel.shown.length) drawParallel();
  fill();
}
