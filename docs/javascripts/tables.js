// A table that is wider than the page is shown row by row, each value with the name of its column.
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
    table.toggleAttribute("data-by-row", table.scrollWidth > room);
  }
}

fit();
addEventListener("resize", fit);
