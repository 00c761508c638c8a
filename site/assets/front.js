// The first page: which load, model and kind the grid shows, and the chart of the cell that is pointed at.
"use strict";
(() => {
  const form = document.getElementById("view");
  if (!form) return;
  const grids = [...document.querySelectorAll("section.grid")];
  const fields = [...form.elements].filter((one) => one.name);
  const usual = form.querySelector("[data-default]").value;
  const told = document.getElementById("peek-arms");
  const arms = JSON.parse(told.textContent);
  const plot = document.querySelector("[data-chart=peek]");
  let at = told.dataset.first;

  function peek(id) {
    if (!arms[id]) return;
    at = id;
    const { title, axis, arms: points } = arms[id];
    document.getElementById("peek-title").textContent = title;
    document.getElementById("peek-link").href = `boards/${id}.html`;
    const values = points.map(([, x]) => x);
    window.benchCharts?.draw(plot, {
      title, x: { title: "TTFT mean, seconds", log: Math.min(...values) > 0 && Math.max(...values) > 4 * Math.min(...values) }, y: { title: axis },
      series: points.map(([name, x, y], style) => ({ name, x: [x], y: [y], style, mode: "markers", labels: [name.slice(0, 24)] })),
    });
  }

  function show() {
    const params = new URLSearchParams(location.search);
    const there = (name, wanted) => fields.some((one) => one.name === name && (one.type === "radio" ? one.value === wanted : [...one.options].some((option) => option.value === wanted)));
    const wanted = (name) => { const value = params.get(name) ?? ""; return there(name, value) ? value : name === "load" ? usual : ""; };
    for (const one of fields) {
      if (one.type === "radio") one.checked = one.value === wanted(one.name);
      else one.value = wanted(one.name);
    }
    for (const grid of grids) grid.hidden = grid.dataset.load !== wanted("load");
    let first = null;
    for (const cell of document.querySelectorAll("section.grid td")) {
      const fitting = [...cell.querySelectorAll(".cell")].filter((one) => ["model", "kind"].every((name) => !wanted(name) || one.dataset[name] === wanted(name)));
      for (const one of cell.querySelectorAll(".cell")) one.hidden = one !== fitting[0];
      const rest = cell.querySelector(".rest");
      if (rest) { rest.hidden = fitting.length < 2; rest.textContent = `+${fitting.length - 1} more`; }
      if (fitting[0] && !cell.closest("section").hidden && (!first || (fitting[0].classList.contains("gain") && !first.classList.contains("gain")))) first = fitting[0];
    }
    const shown = document.querySelector(`section.grid:not([hidden]) .cell:not([hidden])[data-board="${at}"]`);
    if (shown || first) peek((shown ?? first).dataset.board);
  }

  for (const cell of document.querySelectorAll(".cell")) {
    for (const event of ["pointerenter", "focus"]) cell.addEventListener(event, () => peek(cell.dataset.board));
  }
  form.hidden = false;
  document.body.classList.add("scripted");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target }) => {
    const params = new URLSearchParams(location.search);
    if (target.value && !(target.name === "load" && target.value === usual)) params.set(target.name, target.value);
    else params.delete(target.name);
    const text = params.toString();
    history.pushState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
    show();
  });
  addEventListener("popstate", show);
  let width = 0;
  new ResizeObserver(() => { if (plot.clientWidth !== width) { width = plot.clientWidth; peek(at); } }).observe(plot);
  show();
})();
