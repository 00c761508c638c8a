// Charts: Plotly's script is fetched when the first chart comes near the view, and each is drawn when it does.
"use strict";
(() => {
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
  const COLOURS = 8;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();
  let script;

  function load(url) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = url;
      element.onload = resolve;
      element.onerror = reject;
      document.head.append(element);
    });
  }

  async function plotly(url) {
    await (script ??= load(url));
    return window.Plotly;
  }

  // A chart's data stands in the page, or in a script of its own, which a page opened from a file can load.
  async function data(element) {
    const there = document.getElementById(`${element.dataset.chart}-data`);
    if (there) return JSON.parse(there.textContent);
    if (!window.benchCharts[element.dataset.chart]) await load(element.dataset.source);
    return window.benchCharts[element.dataset.chart];
  }

  // Points whose table the filters hide are left out; a page without that table hides none.
  function filtered(one) {
    if (!one.of) return one;
    const there = one.of.map((id) => id === null || !document.getElementById(`b-${id}`)?.hidden);
    const kept = (values) => values && values.filter((_, i) => there[i]);
    return { ...one, x: kept(one.x), y: kept(one.y), text: kept(one.text) };
  }

  function traces(chart, style) {
    return chart.series.map(filtered).map((one) => {
      const colour = style(`--s${one.style % COLOURS}`);
      const trace = {
        name: one.name, x: one.x, y: one.y, mode: one.mode, type: "scatter", yaxis: one.axis,
        line: { color: colour, width: 2, dash: DASHES[one.style % DASHES.length] },
        marker: { color: colour, size: 9, symbol: SYMBOLS[one.style % SYMBOLS.length] + (one.hollow ? "-open" : ""), line: { color: style(one.hollow ? `--s${one.style % COLOURS}` : "--back"), width: one.hollow ? 2 : 1 } },
        hoverlabel: { bgcolor: style("--panel"), bordercolor: colour, font: { color: style("--text") } },
        ...coloured(one.extra, style),
      };
      // Plotly reads a little HTML in texts; what a run is called is no HTML.
      const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
      trace.name = plain(one.name);
      // What the filters leave nothing of has no place in the legend.
      if (one.of && !one.x.some((value) => value !== null)) trace.showlegend = false;
      if (one.text) { trace.hovertext = one.text.map(plain); trace.text = (one.labels ?? one.text).map(plain); trace.hovertemplate = "%{hovertext}<br>%{x:.4g}, %{y:.4g}<extra></extra>"; }
      if (one.error) trace.error_y = { type: "data", symmetric: false, array: one.error[1], arrayminus: one.error[0], color: colour };
      return trace;
    });
  }

  // What a page says of looks names colours as the style sheet does: "--bad".
  function coloured(value, style) {
    if (typeof value === "string") return value.startsWith("--") ? style(value) : value;
    if (Array.isArray(value)) return value.map((one) => coloured(one, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, style)]));
  }

  function axis(one, style) {
    return {
      title: { text: one.title, standoff: 8 }, type: one.log ? "log" : undefined, dtick: one.log ? "D2" : undefined, tickformat: one.log ? "~g" : undefined, gridcolor: style("--line"),
      linecolor: style("--quiet"), zerolinecolor: style("--line"), color: style("--text"), automargin: true,
    };
  }

  async function draw(element) {
    const chart = await data(element);
    const Plotly = await plotly(element.dataset.script);
    const computed = getComputedStyle(document.documentElement);
    const style = (name) => computed.getPropertyValue(name).trim();
    const layout = {
      paper_bgcolor: style("--back"), plot_bgcolor: style("--back"), margin: { l: 64, r: 16, t: 8, b: 56 },
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: style("--text") },
      xaxis: axis(chart.x, style), yaxis: axis(chart.y, style), hovermode: "closest",
      legend: { orientation: "h", y: -0.25, font: { color: style("--text") } }, showlegend: chart.series.length > 1,
      ...coloured(chart.layout, style),
    };
    if (layout.yaxis2) layout.yaxis2 = { ...axis({ title: layout.yaxis2.title.text }, style), showgrid: false, ...layout.yaxis2 };
    const found = traces(chart, style);
    // Before it is drawn: Plotly asks for the size.
    element.classList.toggle("nothing", !found.some((one) => one.y.some((value) => value !== null)));
    await Plotly.react(element, found, layout, { displaylogo: false, responsive: true, displayModeBar: false });
    drawn.add(element);
    element.dataset.drawn = "yes";
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "200px" });
  for (const element of document.querySelectorAll("[data-chart]")) {
    element.hidden = false;
    seen.observe(element);
  }
  dark.addEventListener("change", () => drawn.forEach(draw));
  // Other scripts change a chart's data (a price moved) and have it drawn again.
  window.benchCharts = { redraw: (id) => { const one = document.querySelector(`[data-chart="${id}"]`); if (drawn.has(one)) draw(one); } };
})();
