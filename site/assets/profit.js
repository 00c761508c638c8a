// Profits at the reader's own prices: the formulas of `bench profit`, over the exact sums that the page carries.
"use strict";
(() => {
  const MILLION = 1e6;

  const profit = {
    // Π = ρ0·O - τ·Q - c·T - τ·E
    tokenstep: (work, { rho0, tau, c }) =>
      rho0 * work.tokens - (tau * work.held + c * work.working + tau * work.externality),
    money: (arm, prices) =>
      prices.prompt * arm.prompt_tokens + prices.output * arm.output_tokens - prices.hour * (arm.seconds / 3600),
    rate: (work) => (work.working ? work.tokens / work.working : 0),
    // c* = τ(E_x - E_LJF)/(T_LJF - T_x); null unless both did the same work.
    breakEven(x, base, tau) {
      const [a, b] = [x.work, base.work];
      if (!a || !b || a.tokens * base.runs !== b.tokens * x.runs || a.held * base.runs !== b.held * x.runs) return null;
      const saved = b.working / base.runs - a.working / x.runs;
      const added = a.externality / x.runs - b.externality / base.runs;
      const c = saved ? (tau * added) / saved : null;
      if (c === null || c < 0 || (c === 0 && saved < 0)) {
        return { pays: saved > 0 || (saved === 0 && added < 0) ? "always" : "never", c: null, saved, added };
      }
      return { pays: saved > 0 ? "above" : "below", c, saved, added };
    },
  };
  window.benchProfit = profit;

  for (const section of document.querySelectorAll("[data-profit]")) priced(section);

  // A page may hold several boards; the address is of the first that has what it names.
  function priced(section) {
    const prefix = section.dataset.profit;
    const data = JSON.parse(document.getElementById(`${prefix}profit-sums`).textContent);
    const form = document.getElementById(`${prefix}prices`);
    const fields = [...form.elements].filter((one) => one.name);
    const sliders = [...form.querySelectorAll("input[type=range]")];

    function shown(value) {
      if (value === null || !Number.isFinite(value)) return "–";
      if (Math.abs(value) >= 1000) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
      return String(Number(value.toPrecision(4)));
    }

    function read(name) {
      const field = form.elements[name];
      return field.value === "" || !field.validity.valid ? null : Number(field.value);
    }

    function put(cell, value, text = shown(value)) {
      cell.textContent = text;
      cell.dataset.value = value ?? "";
    }

    // Gives a chart and the table beneath it new numbers: `points` is an x and a y for each arm of each series.
    function update(id, points) {
      id = prefix + id;
      const script = document.getElementById(`${id}-data`);
      if (!script) return;
      const chart = JSON.parse(script.textContent);
      chart.series.forEach((series, i) => {
        series.x = points[i].map((one) => one[0]);
        series.y = points[i].map((one) => one[1]);
      });
      script.textContent = JSON.stringify(chart);
      const rows = document.querySelectorAll(`#${CSS.escape(id)} details tbody tr`);
      points.flat().forEach(([x, y], i) => {
        put(rows[i].cells[2], x);
        put(rows[i].cells[3], y);
      });
      window.benchCharts?.redraw(id);
    }

    function compute() {
      const constants = { rho0: read("rho0"), tau: read("tau"), c: read("c") };
      const prices = { prompt: read("in"), output: read("out"), hour: read("hour") };
      const known = (values) => Object.values(values).every((one) => one !== null);
      const place = data.gaps.indexOf(read("alpha"));
      const [all, priced] = [known(constants), known(prices)];
      const over = (lines, value) => lines.map((line) => line.map((i) => value(data.arms[i])));
      prices.prompt /= MILLION;
      prices.output /= MILLION;
      update("tokenstep", over(data.series.steps, (arm) => [
        profit.rate(arm.work), all ? profit.tokenstep(arm.work, constants) / arm.runs : null]));
      update("violations", over(data.series.steps, (arm) => [
        profit.rate(arm.work), (100 * arm.work.over[place]) / arm.work.busy]));
      update("money", over(data.series.money, (arm) => [
        arm.output_tokens / arm.seconds, priced ? profit.money(arm, prices) / (arm.seconds / 3600) : null]));
      const note = (id, change) => {
        const one = document.querySelector(`#${CSS.escape(prefix + id)} figcaption .note`);
        if (one) one.textContent = change(one.textContent);
      };
      note("violations", (text) => text.replace(/α = \d+/, `α = ${data.gaps[place]}`));
      note("money", (text) => text.split("; ")[0] + (priced ? "" : `; ${data.needs_prices}`));
      const base = data.arms.find((arm) => arm.policy === data.baseline);
      for (const row of section.querySelectorAll("tr[data-arm]")) {
        const arm = data.arms.find((one) => one.id === row.dataset.arm);
        const end = constants.tau === null ? null : profit.breakEven(arm, base, constants.tau);
        if (end === null) continue;
        row.cells[1].textContent = end.pays;
        put(row.cells[2], end.c);
      }
      // A price below zero, or no number, is none: the address and the charts both leave it out.
      const wrong = fields.filter((one) => !one.validity.valid).map((one) => form.querySelector(`label[for="${one.id}"]`).textContent.trim());
      const missing = [all ? "" : "ρ0, τ and c", priced ? "" : "three prices"].filter(Boolean);
      const said = wrong.length ? `${wrong.join(" and ")}: give a number, 0 or more.` : missing.length ? `For all charts give ${missing.join(" and ")}, each 0 or more.` : "All charts are at these prices.";
      document.getElementById(`${prefix}priced`).textContent = said;
      for (const slider of sliders) {
        const field = document.getElementById(slider.dataset.for);
        slider.value = field.value === "" ? 0 : field.value;
      }
    }

    function show() {
      const params = new URLSearchParams(location.search);
      for (const field of fields) {
        field.value = params.get(field.name) ?? field.dataset.default;
        // What is no number, or no choice, is as if it were not there.
        if (field.value === "" || !field.validity.valid) field.value = field.dataset.default;
      }
      compute();
    }

    function remember() {
      const params = new URLSearchParams(location.search);
      for (const field of fields) {
        if (field.value === field.dataset.default || !field.validity.valid) params.delete(field.name);
        else params.set(field.name, field.value);
      }
      const text = params.toString();
      // A price is turned, not visited: Back leaves the page rather than undoing one notch after the other.
      history.replaceState(null, "", location.pathname + (text ? "?" + text : "") + location.hash);
    }

    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", (event) => {
      const target = event.target.dataset.for;
      if (target) document.getElementById(target).value = event.target.value;
      compute();
    });
    form.addEventListener("change", remember);
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      for (const field of fields) field.value = field.dataset.default;
      remember();
      compute();
    });
    addEventListener("popstate", show);
    show();
  }
})();
