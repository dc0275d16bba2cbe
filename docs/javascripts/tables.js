// A table that is wider than the page, or on a phone has tall and narrow cells, is shown row by row, each value with the
// name of its column.
const phone = 500, tall = 90; // px
const tables = [...document.querySelectorAll(".md-content .md-typeset table:not([class])")];

for (const table of tables) {
  const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
  for (const row of table.querySelectorAll("tbody tr"))
    [...row.cells].forEach((cell, column) => cell.setAttribute("data-column", names[column] ?? ""));
}

function fit() {
  for (const table of tables) {
    table.removeAttribute("data-by-row");
    const room = table.closest(".md-content__inner").clientWidth;
    const narrow = room < phone && [...table.querySelectorAll("td")].some((cell) => cell.offsetHeight > tall);
    table.toggleAttribute("data-by-row", table.scrollWidth > room || narrow);
  }
}

fit();
addEventListener("resize", fit);
