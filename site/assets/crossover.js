// The map's lines for another load or other requests: which way of batching wins, from the loads where both are equal.
"use strict";
(() => {
  const form = document.querySelector("[data-map]");
  const data = JSON.parse(document.getElementById("crossover-data").textContent);
  const fields = [...form.querySelectorAll("select")];

  function compute() {
    const running = Number(form.elements.running.value);
    const size = form.elements.size.value;
    const script = document.getElementById("map-data");
    const chart = JSON.parse(script.textContent);
    for (const [place, exclusive] of [[0, true], [1, false]]) {
      chart.series[place].y = data.rows.flatMap(([bandwidth, equal]) => [
        ...equal[size].map((one) => ((one !== null && one < running) === exclusive ? bandwidth : null)), null]);
    }
    script.textContent = JSON.stringify(chart);
    const note = document.querySelector("#map figcaption .note");
    note.textContent = note.textContent.replace(/\d+ total tokens a request, \d+ running/, `${size} total tokens a request, ${running} running`);
    window.benchCharts?.redraw("map");
  }

  function show() {
    const params = new URLSearchParams(location.search);
    for (const field of fields) {
      const wanted = params.get(field.name);
      field.value = [...field.options].some((one) => one.value === wanted) ? wanted : field.dataset.default;
    }
    compute();
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    const params = new URLSearchParams(location.search);
    for (const field of fields) {
      if (field.value === field.dataset.default) params.delete(field.name);
      else params.set(field.name, field.value);
    }
    const text = params.toString();
    history.pushState(null, "", location.pathname + (text ? "?" + text : "") + location.hash);
    compute();
  });
  addEventListener("popstate", show);
  show();
})();
