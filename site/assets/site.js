// Filters and sorting. What is chosen stands in the URL, so that a link shows what its sender saw.
"use strict";
(() => {
  const boards = [...document.querySelectorAll(".board")];
  const form = document.getElementById("filters");
  const OTHER = { asc: "desc", desc: "asc" };
  // Columns in which more is better, or simply more; of all others the least comes first.
  const MOST_FIRST = new Set(["output", "change", "total", "goodput", "arms", "path", "requests", "output_throughput", "total_throughput", "request_throughput", "profit_tokenstep"]);
  const state = () => new URLSearchParams(location.search);

  function remember(params, replace) {
    const text = params.toString();
    const url = location.pathname + (text ? "?" + text : "") + location.hash;
    history[replace ? "replaceState" : "pushState"](null, "", url);
  }

  // What a cell says as a number, where it says one: "1,234 1,100…1,400", "12.5 ms", "▲ +3.4 % better", "×12".
  function said(text) {
    const found = /^(?:[▲▼] )?([×+-]?)([\d,]*\.?\d+(?:e[+-]?\d+)?)( ms| %)?(?= |$)/.exec(text);
    // A table's baseline is its own measure.
    if (text === "baseline") return 0;
    if (!found) return text === "–" ? "" : text;
    const number = Number(found[2].replaceAll(",", "")) * (found[1] === "-" ? -1 : 1);
    const scale = { " ms": 1e-3, " %": 1e-2 }[found[3]] ?? 1;
    // A factor beside changes in percent.
    return found[1] === "×" ? number - 1 : number * scale;
  }

  function sorted(table, key, direction) {
    const headers = [...table.tHead.rows[0].cells];
    const column = headers.findIndex((header) => header.dataset.key === key);
    for (const header of headers) header.removeAttribute("aria-sort");
    const body = table.tBodies[0];
    const rows = [...body.rows];
    rows.forEach((row, place) => { row.dataset.place ??= place; });
    if (column < 0) {
      rows.sort((a, b) => a.dataset.place - b.dataset.place);
    } else {
      headers[column].setAttribute("aria-sort", direction === "asc" ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value ?? said(row.cells[column].textContent.trim());
      const sign = direction === "asc" ? 1 : -1;
      rows.sort((a, b) => {
        // What is INVALID or has no number stays below, whichever way the rest is sorted.
        const rank = a.classList.contains("unranked") - b.classList.contains("unranked");
        if (rank) return rank;
        const [x, y] = [value(a), value(b)];
        if ((x === "") !== (y === "")) return x === "" ? 1 : -1;
        const numeric = Number(x) - Number(y);
        return sign * (Number.isNaN(numeric) ? String(x).localeCompare(String(y)) : numeric) || a.dataset.place - b.dataset.place;
      });
    }
    body.append(...rows);
  }

  function show() {
    const params = state();
    if (form) {
      let shown = 0;
      for (const select of form.querySelectorAll("select")) {
        const wanted = params.get(select.name) ?? "";
        select.value = [...select.options].some((option) => option.value === wanted) ? wanted : "";
      }
      const chosen = [...form.querySelectorAll("select")].filter((select) => select.value);
      for (const board of boards) {
        board.hidden = chosen.some((select) => board.dataset[select.name] !== select.value);
        shown += !board.hidden;
      }
      const none = document.getElementById("none");
      if (none) none.hidden = shown > 0;
      document.getElementById("shown").textContent = `${shown} of ${boards.length} tables shown`;
    }
    for (const row of document.querySelectorAll("#glance tbody tr")) {
      const answers = [...row.querySelectorAll("[data-of]")];
      for (const one of answers) one.hidden = document.getElementById(`b-${one.dataset.of}`).hidden;
      row.hidden = answers.every((one) => one.hidden);
    }
    // Columns without an answer only push the others aside.
    const glance = document.getElementById("glance");
    if (glance) {
      for (let i = 1; i < glance.tHead.rows[0].cells.length; i++) {
        const column = [...glance.rows].map((row) => row.cells[i]);
        const used = column.some((cell) => !cell.parentElement.hidden && cell.querySelector("[data-of]:not([hidden])"));
        for (const cell of column) cell.hidden = !used;
      }
    }
    window.benchCharts?.redraw("pareto");
    const [key, direction] = (params.get("sort") ?? "").split("-");
    for (const table of document.querySelectorAll("table.sortable")) sorted(table, key, direction);
  }

  for (const header of document.querySelectorAll("table.sortable thead th[data-key]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const params = state();
      const [key, direction] = (params.get("sort") ?? "").split("-");
      // The best first, then the other way, then as it was.
      const first = MOST_FIRST.has(header.dataset.key) ? "desc" : "asc";
      const mine = key === header.dataset.key;
      if (mine && direction !== first) params.delete("sort");
      else params.set("sort", `${header.dataset.key}-${mine ? OTHER[first] : first}`);
      remember(params);
      show();
    });
  }
  if (form) {
    form.hidden = false;
    form.addEventListener("change", (event) => {
      const params = state();
      if (event.target.value) params.set(event.target.name, event.target.value);
      else params.delete(event.target.name);
      remember(params);
      show();
    });
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      const params = state();
      for (const select of form.querySelectorAll("select")) params.delete(select.name);
      remember(params);
      show();
    });
  }
  addEventListener("popstate", show);
  // On paper nothing can be opened.
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
  show();
})();
