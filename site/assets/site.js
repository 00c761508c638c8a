// Filters and sorting. What is chosen stands in the URL, so that a link shows what its sender saw.
"use strict";
(() => {
  // An older address: a table of the first page has a page of its own now.
  const moved = /^#b-([0-9a-f]{10})$/.exec(location.hash);
  if (moved && !document.getElementById(`b-${moved[1]}`)) location.replace(`${document.body.dataset.root ?? ""}boards/${moved[1]}.html`);
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
      document.getElementById("shown").textContent = `${shown} of ${boards.length} shown`;
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
  // On paper nothing can be opened; the numbers of a chart stay behind it, since the chart is drawn.
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details:not(.numbers)")) one.open = true; });

  // A table as CSV: what its cells say, small print in columns of its own left out.
  function csv(table) {
    const cells = (row) => [...row.cells].map((cell) => {
      const copy = cell.cloneNode(true);
      for (const one of copy.querySelectorAll("small, svg")) one.remove();
      const text = (cell.dataset.value || copy.textContent).trim().replace(/\s+/g, " ");
      const safe = /^[=+@\t]|^-(?![\d.])/.test(text) ? `'${text}` : text;
      return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    });
    return [...table.rows].filter((row) => !row.hidden).map((row) => cells(row).join(",")).join("\n") + "\n";
  }
  for (const table of document.querySelectorAll(".scroll > table:not(.plain)")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "csv";
    button.textContent = "CSV";
    button.setAttribute("aria-label", `${table.parentElement.getAttribute("aria-label") ?? "This table"} as CSV`);
    table.parentElement.after(button);
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
      link.download = `${document.title}.csv`.toLowerCase().replace(/[^a-z0-9.]+/g, "-");
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
  show();
})();
