// Charts: drawn as SVG from the JSON beside each, in the colours of the style sheet, so that light, dark and paper
// need no second drawing; each can be taken away as SVG or PNG.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const COLOURS = 8;
  const DASHES = ["", "7 4", "2 3", "8 3 2 3", "12 4", "12 4 2 4"];
  const SYMBOLS = [
    (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
    (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
    (r) => `M0,${-1.2 * r}L${1.2 * r},${r}H${-1.2 * r}z`,
    (r) => `M${-r / 2.5},${-r}h${r / 1.25}v${r / 1.6}h${r / 1.6}v${r / 1.25}h${-r / 1.6}v${r / 1.6}h${-r / 1.25}v${-r / 1.6}h${-r / 1.6}v${-r / 1.25}h${r / 1.6}z`,
    (r) => `M0,${1.2 * r}L${1.2 * r},${-r}H${-1.2 * r}z`,
    (r) => `M${-r},${-r}L0,${-r / 3}L${r},${-r}L${r / 3},0L${r},${r}L0,${r / 3}L${-r},${r}L${-r / 3},0z`,
    (r) => `M${-r},${-r / 2}L0,${-r * 1.15}L${r},${-r / 2}V${r / 2}L0,${r * 1.15}L${-r},${r / 2}z`,
  ];
  const LETTER = 6.7;
  let count = 0;

  function put(parent, name, attributes = {}, text = null) {
    const one = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined && value !== "") one.setAttribute(key, value);
    if (text !== null) one.textContent = text;
    parent.append(one);
    return one;
  }

  function said(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e7 || size < 1e-4) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
    return size >= 1000 ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : String(Number(value.toPrecision(4)));
  }

  function steps(low, high, most) {
    const rough = (high - low) / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  // From values to places between 0 and 1, with the ticks of the axis.
  function scale(values, { log, words }, most) {
    if (words?.length) return { at: (v) => (v + 0.5) / words.length, ticks: words.map((text, i) => [i, text]) };
    const known = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [log ? 1 : 0, log ? 10 : 1];
    if (log) {
      const pad = Math.max((high / low) ** 0.04, 1.06);
      [low, high] = [low / pad, high * pad];
      const decades = Math.log10(high / low);
      const within = decades > 4 ? [1] : decades > 2.2 ? [1, 3] : [1, 2, 5];
      let ticks = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) for (const one of within) ticks.push(one * 10 ** e);
      ticks = ticks.map((v) => Number(v.toPrecision(6))).filter((v) => v >= low && v <= high);
      // Less than a decade: round numbers as on any other axis.
      if (ticks.length < 3) ticks = steps(low, high, Math.min(most, 5)).filter((v) => v > 0);
      return { at: (v) => (v > 0 ? Math.log(v / low) / Math.log(high / low) : NaN), ticks: ticks.map((v) => [v, said(v)]) };
    }
    if (low >= 0 && low <= 0.6 * high) low = 0;
    if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
    const pad = (high - low) * 0.04;
    [low, high] = [low === 0 ? 0 : low - pad, high + pad];
    return { at: (v) => (v - low) / (high - low), ticks: steps(low, high, most).map((v) => [v, said(v)]) };
  }

  // Values as pages have them: in full, evenly spaced, or those of the series before.
  function spelled(chart) {
    const values = (one) => (Array.isArray(one) ? one : Array.from({ length: one.count }, (_, i) => one.first + i * one.step));
    let before = {};
    chart.series = chart.series.map((one) => (before = { ...one, x: one.x ? values(one.x) : before.x, y: one.y ? values(one.y) : before.y }));
    return chart;
  }

  // Points whose table the filters hide are left out; a page without that table hides none.
  function filtered(one) {
    if (!one.of) return one;
    const there = one.of.map((id) => id === null || !document.getElementById(`b-${id}`)?.hidden);
    const kept = (values) => values && values.filter((_, i) => there[i]);
    return { ...one, x: kept(one.x), y: kept(one.y), text: kept(one.text), labels: kept(one.labels) };
  }

  // Areas stand on each other.
  function stacked(series) {
    let below = null;
    for (const one of series) {
      if (one.mode !== "area") continue;
      one.base = below ?? one.y.map(() => 0);
      one.y = one.y.map((v, i) => one.base[i] + (v ?? 0));
      below = one.y;
    }
    return series;
  }

  const colour = (one) => (one.colour ? `c-${one.colour}` : `c-s${one.style % COLOURS}`);
  const dash = (one) => DASHES[(one.dash ?? one.style) % DASHES.length];
  const symbol = (one, r) => SYMBOLS[(one.symbol ?? one.style) % SYMBOLS.length](r);

  function legendRows(series, width) {
    const rows = [[]];
    let x = 0;
    for (const one of series) {
      const text = one.name.length > 60 ? `${one.name.slice(0, 59)}…` : one.name;
      const wide = 38 + text.length * LETTER;
      if (x && x + wide > width) { rows.push([]); x = 0; }
      rows.at(-1).push({ one, text, x });
      x += wide;
    }
    return rows.filter((row) => row.length);
  }

  function path(one, sx, sy) {
    let text = "";
    let pen = false;
    one.x.forEach((x, i) => {
      const [px, py] = [sx(x), one.y[i] === null ? NaN : sy(one.y[i])];
      if (!Number.isFinite(px) || !Number.isFinite(py)) { pen = pen && Boolean(one.connect); return; }
      if (pen && one.step) text += `H${px.toFixed(1)}V${py.toFixed(1)}`;
      else text += `${pen ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`;
      pen = true;
    });
    return text;
  }

  function area(one, sx, sy) {
    const there = one.x.map((x, i) => [sx(x), sy(one.y[i]), sy(one.base[i])]);
    const line = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
    return `M${line(there.map(([x, y]) => [x, y]))}L${line(there.map(([x, , y]) => [x, y]).reverse())}z`;
  }

  function draw(element, chart) {
    const width = Math.max(260, Math.floor(element.clientWidth));
    if (!element.clientWidth) return;
    const series = stacked(chart.series.map(filtered));
    const shown = series.filter((one) => one.y.some((v) => v !== null));
    element.replaceChildren();
    element.classList.toggle("nothing", !shown.length);
    if (!shown.length) { element.dataset.drawn = "yes"; return; }
    const named = shown.filter((one) => !one.quiet);
    const legend = named.length > 1 || series.length > 1 ? legendRows(named, width - 12) : [];
    const plot = Number(element.dataset.height ?? 300);
    const [top, bottom] = [chart.marks?.length ? 26 : 10, 44];
    const ys = series.flatMap((one) => (one.base ? [...one.y, ...one.base] : one.y)).filter((v) => v !== null);
    const y = scale(ys, chart.y, Math.floor((plot - top - bottom) / 46));
    const left = 30 + LETTER * Math.max(...y.ticks.map(([, text]) => text.length), 2);
    const right = 14;
    const x = scale(series.flatMap((one) => one.x).filter((v) => v !== null), chart.x, Math.floor((width - left - right) / 80));
    const sx = (v) => left + x.at(v) * (width - left - right);
    const sy = (v) => plot - bottom - y.at(v) * (plot - top - bottom);
    const height = plot + legend.length * 19 + (legend.length ? 6 : 0);
    const svg = put(element, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });

    let end = -Infinity;
    for (const [value, text] of x.ticks) {
      const px = sx(value);
      put(svg, "line", { class: "grid", x1: px, x2: px, y1: top, y2: plot - bottom });
      const half = (text.length * LETTER) / 2;
      if (px - half < end + 6) continue;
      end = px + half;
      put(svg, "text", { class: "tick", x: Math.min(px, width - half), y: plot - bottom + 16, "text-anchor": "middle" }, text);
    }
    for (const [value, text] of y.ticks) {
      put(svg, "line", { class: "grid", x1: left, x2: width - right, y1: sy(value), y2: sy(value) });
      put(svg, "text", { class: "tick", x: left - 6, y: sy(value) + 4, "text-anchor": "end" }, text);
    }
    put(svg, "path", { class: "axis", d: `M${left},${top}V${plot - bottom}H${width - right}` });
    const fits = (text, room) => (text.length * LETTER > room ? `${text.slice(0, Math.max(8, Math.floor(room / LETTER) - 1))}…` : text);
    put(svg, "text", { class: "title", x: (left + width - right) / 2, y: plot - 8, "text-anchor": "middle" }, fits(chart.x.title, width - 20));
    const middle = (top + plot - bottom) / 2;
    put(svg, "text", { class: "title", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, fits(chart.y.title, plot - 20));
    for (const [value, text] of chart.marks ?? []) {
      put(svg, "line", { class: "mark", x1: sx(value), x2: sx(value), y1: top, y2: plot - bottom });
      put(svg, "text", { class: "tick", x: sx(value) + 3, y: top - 6 }, fits(text, 140));
    }

    const hits = [];
    const boxes = [];
    const id = `hatch-${++count}`;
    for (const one of series) {
      const named = `${colour(one)} series`;
      if (one.mode === "area") {
        if (one.style % 3 < 2) {
          const hatch = put(put(svg, "defs"), "pattern", { id: `${id}-${one.style}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" });
          put(hatch, "path", { class: `${colour(one)} line`, d: one.style % 3 ? "M0,0L8,8M8,0L0,8" : "M0,8L8,0", "stroke-width": 1 });
        }
        put(svg, "path", { class: `${colour(one)} area`, d: area(one, sx, sy) });
        if (one.style % 3 < 2) put(svg, "path", { d: area(one, sx, sy), fill: `url(#${id}-${one.style})` });
      } else if (one.mode.includes("lines")) {
        put(svg, "path", { class: `${named} line`, d: path(one, sx, sy), "stroke-dasharray": dash(one), "stroke-width": one.width ?? 2 });
      }
      one.x.forEach((value, i) => {
        if (value === null || one.y[i] === null) return;
        const [px, py] = [sx(value), sy(one.y[i])];
        if (!Number.isFinite(px) || !Number.isFinite(py)) return;
        if (one.mode.includes("markers")) {
          put(svg, "path", { class: `${named} ${one.hollow ? "hollow" : "point"}`, d: symbol(one, 5), transform: `translate(${px.toFixed(1)},${py.toFixed(1)})` });
          boxes.push([px - 6, py - 6, px + 6, py + 6]);
        }
        if (!one.quiet) hits.push([px, py, one.text?.[i] ?? one.name, value, one.mode === "area" ? one.y[i] - one.base[i] : one.y[i]]);
      });
    }
    // Names beside points, where there is room for them.
    for (const one of series) {
      (one.labels ?? []).forEach((text, i) => {
        if (!text || one.x[i] === null || one.y[i] === null) return;
        const [px, py] = [sx(one.x[i]), sy(one.y[i])];
        if (!Number.isFinite(px) || !Number.isFinite(py)) return;
        const wide = text.length * LETTER;
        for (const [dx, dy, anchor] of [[9, 4, "start"], [-9, 4, "end"], [0, -10, "middle"], [0, 19, "middle"]]) {
          const from = px + dx - (anchor === "end" ? wide : anchor === "middle" ? wide / 2 : 0);
          const box = [from, py + dy - 11, from + wide, py + dy + 3];
          if (box[0] < left || box[2] > width || box[1] < 0 || box[3] > plot - bottom) continue;
          if (boxes.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
          boxes.push(box);
          put(svg, "text", { class: "label", x: px + dx, y: py + dy, "text-anchor": anchor }, text);
          break;
        }
      });
    }
    legend.forEach((row, i) => {
      for (const { one, text, x: from } of row) {
        const py = plot + 10 + i * 19;
        const px = 8 + from;
        if (one.mode === "area") put(svg, "rect", { class: `${colour(one)} area`, x: px, y: py - 6, width: 22, height: 11 });
        if (one.mode.includes("lines")) put(svg, "line", { class: `${colour(one)} line`, x1: px, x2: px + 22, y1: py, y2: py, "stroke-dasharray": dash(one), "stroke-width": one.width ?? 2 });
        if (one.mode.includes("markers")) put(svg, "path", { class: `${colour(one)} ${one.hollow ? "hollow" : "point"}`, d: symbol(one, 5), transform: `translate(${px + 11},${py})` });
        const written = put(svg, "text", { class: "label", x: px + 27, y: py + 4 }, text);
        if (text !== one.name) put(written, "title", {}, one.name);
      }
    });
    point(element, svg, hits, width);
    element.dataset.drawn = "yes";
  }

  // What is nearest to the pointer is said in a box.
  function point(element, svg, hits, width) {
    const box = document.createElement("div");
    box.className = "tip";
    box.hidden = true;
    element.append(box);
    svg.addEventListener("pointermove", (event) => {
      const area = svg.getBoundingClientRect();
      const zoom = width / area.width;
      const [x, y] = [(event.clientX - area.left) * zoom, (event.clientY - area.top) * zoom];
      let [least, found] = [32 ** 2, null];
      for (const hit of hits) {
        const far = (hit[0] - x) ** 2 + (hit[1] - y) ** 2;
        if (far < least) [least, found] = [far, hit];
      }
      box.hidden = found === null;
      if (!found) return;
      box.textContent = `${found[2]}: ${said(found[3])}, ${said(found[4])}`;
      box.style.left = `${Math.min(found[0] / zoom + 10, Math.max(0, area.width - 230))}px`;
      box.style.top = `${found[1] / zoom + 12}px`;
    });
    svg.addEventListener("pointerleave", () => { box.hidden = true; });
  }

  // The drawing by itself: colours and letters as the page has them now, with its title.
  function alone(element, title) {
    const [svg, copy] = [element.querySelector("svg"), element.querySelector("svg").cloneNode(true)];
    const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
    const kept = ["fill", "stroke", "stroke-width", "fill-opacity", "font-size", "font-family"];
    from.forEach((one, i) => {
      const style = getComputedStyle(one);
      for (const name of kept) to[i].style.setProperty(name, style.getPropertyValue(name));
    });
    const { width, height } = svg.viewBox.baseVal;
    copy.setAttribute("xmlns", NS);
    copy.setAttribute("viewBox", `0 -30 ${width} ${height + 36}`);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height + 36);
    const body = getComputedStyle(document.body);
    const back = document.createElementNS(NS, "rect");
    for (const [key, value] of Object.entries({ y: -30, width, height: height + 36, fill: body.backgroundColor })) back.setAttribute(key, value);
    copy.prepend(back);
    put(copy, "text", { x: 8, y: -10, fill: body.color, "font-size": 14, "font-weight": 600, "font-family": body.fontFamily }, title);
    return { text: new XMLSerializer().serializeToString(copy), width, height: height + 36 };
  }

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function take(element, chart, kind) {
    const { text, width, height } = alone(element, `${chart.title} · ${document.title}`);
    const name = `${document.title} ${element.dataset.chart}`.toLowerCase().replace(/[^a-z0-9.]+/g, "-").slice(0, 80);
    const blob = new Blob([text], { type: "image/svg+xml" });
    if (kind === "svg") { save(blob, `${name}.svg`); return; }
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      const context = canvas.getContext("2d");
      context.scale(2, 2);
      context.drawImage(image, 0, 0);
      canvas.toBlob((one) => save(one, `${name}.png`));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }

  const data = (element) => spelled(JSON.parse(document.getElementById(`${element.dataset.chart}-data`).textContent));
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const width = Math.floor(target.clientWidth);
      if (width && width !== Number(target.dataset.width)) { target.dataset.width = width; draw(target, data(target)); }
    }
  });
  for (const element of document.querySelectorAll("[data-chart]")) {
    element.hidden = false;
    if (document.getElementById(`${element.dataset.chart}-data`)) {
      element.dataset.width = Math.floor(element.clientWidth);
      draw(element, data(element));
      sizes.observe(element);
    }
    const caption = element.parentElement.querySelector("figcaption");
    if (!caption) continue;
    const tools = caption.appendChild(document.createElement("p"));
    tools.className = "tools";
    for (const kind of ["svg", "png"]) {
      const button = tools.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = kind.toUpperCase();
      button.setAttribute("aria-label", `This chart as ${kind.toUpperCase()}`);
      button.addEventListener("click", () => { if (element.querySelector("svg")) take(element, data(element), kind); });
    }
  }
  // Other scripts change a chart's data (a price moved) and have it drawn again.
  window.benchCharts = {
    redraw: (id) => { const one = document.querySelector(`[data-chart="${CSS.escape(id)}"]`); if (one) draw(one, data(one)); },
    draw,
  };
})();
