// Two arms side by side. What is chosen stands in the URL; what a table holds is fetched when it is asked for.
"use strict";
(() => {
  const form = document.getElementById("choice");
  const known = window.benchCompare;
  if (!form || !known?.index) return;
  const { metrics, boards, best } = known.index;
  const key = new Set(known.index.key);
  const choice = form.elements;
  const board = new Map();
  const label = new Map();
  for (const one of boards) {
    for (const [id, text] of one.arms) {
      board.set(id, one);
      label.set(id, text);
    }
  }
  const level = (id) => board.get(id).arms.find((one) => one[0] === id);

  // A script is what a page opened from a file can fetch.
  const asked = new Map();
  function load(name) {
    if (!asked.has(name)) {
      asked.set(name, new Promise((resolve) => {
        const element = document.createElement("script");
        element.src = `${form.dataset.script}${name}.js`;
        element.onload = () => resolve(known[name]);
        element.onerror = () => resolve(null);
        document.head.append(element);
      }));
    }
    return asked.get(name);
  }

  const number = (value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    // Of an interval that says nothing not every digit.
    if (Math.abs(value) >= 1e12) return value.toExponential(1);
    if (Math.abs(value) >= 1000) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
    return String(Number(value.toPrecision(4)));
  };

  // A ratio as a change: percent, a factor beyond ten.
  const change = (ratio) => {
    if (ratio === null || ratio === undefined || !Number.isFinite(ratio)) return "–";
    if (ratio > 10) return `×${number(Number(ratio.toPrecision(3)))}`;
    const percent = 100 * (ratio - 1);
    if (Math.abs(percent) < 0.005) return "0.0 %";
    const digits = Math.abs(percent) < 0.095 ? 2 : 1;
    return `${percent < 0 ? "-" : "+"}${Math.abs(percent).toFixed(digits)} %`;
  };

  function fill(select, options, wanted) {
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    select.value = wanted;
  }

  function row(table, cells, marks = {}) {
    const tr = document.querySelector(`#${table} tbody`).insertRow();
    cells.forEach((one, i) => {
      const cell = i ? tr.insertCell() : tr.appendChild(document.createElement("th"));
      if (!i) cell.scope = "row";
      if (one instanceof Node) cell.append(one);
      else if (typeof one === "object" && one !== null) {
        cell.textContent = one.text;
        cell.className = one.className ?? "num";
        if ("value" in one) cell.dataset.value = one.value ?? "";
      } else cell.textContent = one;
    });
    Object.assign(tr.dataset, marks);
  }

  function link(id) {
    const one = document.createElement("a");
    one.href = `runs/${id}/index.html`;
    one.textContent = label.get(id);
    return one;
  }

  function tableLink(one) {
    const found = document.createElement("a");
    found.href = `boards/${one.id}.html`;
    found.textContent = one.name;
    return found;
  }

  // What the URL says; what it says wrong is as if it were not there.
  function state() {
    const params = new URLSearchParams(location.search);
    let a = params.get("a");
    if (!board.has(a)) a = boards[0].baseline ?? boards[0].arms[0][0];
    let b = params.get("b");
    if (!board.has(b)) b = (board.get(a).arms.find((one) => one[0] !== a) ?? [a])[0];
    return { a, b, mode: params.get("mode") === "best" ? "best" : "" };
  }

  function remember({ a, b, mode }) {
    const params = new URLSearchParams(location.search);
    params.set("a", a);
    params.set("b", b);
    if (mode) params.set("mode", mode);
    else params.delete("mode");
    history.pushState(null, "", `${location.pathname}?${params}${location.hash}`);
    show();
  }

  // The arms to show: as chosen, or each policy's best among tables that differ in N and B alone.
  function resolved({ a, b, mode }) {
    if (mode !== "best") return { a, b, told: "", family: null };
    const [one, other] = [board.get(a), board.get(b)];
    if (!one.family || one.family !== other.family) {
      const why = one.family === other.family
        ? "There is no other table that differs from this one in N and B alone: the arms are shown as chosen."
        : "The two tables differ in more than N and B: the arms are shown as chosen.";
      return { a, b, told: why, family: null };
    }
    const at = (id) => best[one.family][label.get(id)];
    if (!at(a) || !at(b)) return { a, b, told: "A policy has no valid run among these tables: the arms are shown as chosen.", family: null };
    const count = boards.filter((each) => each.family === one.family).length;
    const told = `Each policy at the N and B, of ${count} tables, where its total tokens per second are highest.`;
    return { a: at(a), b: at(b), told, family: one.family };
  }

  function pairOf(sources, a, b) {
    for (const source of sources) {
      const found = source?.pairs[`${a} ${b}`];
      if (found) return { ...found, turned: false };
      const turned = source?.pairs[`${b} ${a}`];
      if (turned) return { ...turned, turned: true };
    }
    return null;
  }

  // B over A from A over B: exact, since intervals are symmetric in the logarithm.
  function turn([ratio, low, high, p, word, one, other]) {
    const inverse = (value) => (value ? 1 / value : null);
    return [inverse(ratio), inverse(high), inverse(low), p, { better: "worse", worse: "better" }[word] ?? word, other, one];
  }

  function reason(a, b) {
    if (a === b) return board.get(a).arms.length > 1 ? "A and B are the same." : "This table has one arm only: choose another table for B.";
    const [one, other] = [board.get(a), board.get(b)];
    if (one.kind !== other.kind) return `Values only: ${one.kind} and ${other.kind} numbers are never ranked against each other.`;
    if (one !== other) return "Values only: the two stand in different tables, so they differ in more than the policy.";
    return "Values only: of so large a table the build compares the first arms with each other and all with the baseline.";
  }

  let turnOf = 0;
  async function show() {
    const mine = ++turnOf;
    const chosen = state();
    for (const side of ["a", "b"]) {
      const id = chosen[side];
      fill(choice[`t${side}`], boards.map((one) => [one.id, one.name]), board.get(id).id);
      fill(choice[side], board.get(id).arms.map((one) => [one[0], one[1]]), id);
    }
    choice.mode.value = chosen.mode;
    const { a, b, told, family } = resolved(chosen);
    const names = [board.get(a).id, board.get(b).id, ...(family ? [family] : [])];
    const sources = await Promise.all(names.map(load));
    // Another choice was made while the scripts were on their way.
    if (mine !== turnOf) return;
    const status = document.getElementById("told");
    if (sources.includes(null)) {
      status.textContent = "The numbers of this table could not be loaded: is the site complete?";
      document.getElementById("comparison").hidden = true;
      return;
    }
    status.textContent = told;
    draw(a, b, sources);
    document.getElementById("comparison").hidden = false;
  }

  function draw(a, b, sources) {
    for (const id of ["arms", "differences", "metrics", "rest"]) document.querySelector(`#${id} tbody`).replaceChildren();
    const one = sources[0].arms[a];
    const other = sources[1].arms[b];
    for (const [side, id] of [["A", a], ["B", b]]) {
      const [, , verdict, repeats] = level(id);
      row("arms", [side, link(id), board.get(id).kind, verdict, { text: String(repeats) }, tableLink(board.get(id))]);
    }
    const settings = [...new Set([...Object.keys(one.spec), ...Object.keys(other.spec)])];
    const differing = settings.filter((name) => one.spec[name] !== other.spec[name]);
    for (const name of differing) row("differences", [name, one.spec[name] ?? "–", other.spec[name] ?? "–"], { setting: name });
    if (!differing.length) row("differences", ["nothing", "", ""]);

    const pair = a === b ? null : pairOf(sources, a, b);
    const invalid = [a, b].filter((id) => level(id)[2] === "INVALID").map((id) => label.get(id));
    const why = pair === null ? reason(a, b) : pair.refusal ? `Values only: ${pair.refusal}` : "";
    document.getElementById("why").textContent = invalid.length ? `${invalid.join(" and ")}: INVALID, so ranked nowhere. ${why}` : why;
    for (const [name, text, unit, better] of metrics) {
      const found = pair?.rows[name];
      const [ratio, low, high, p, word, held, against] = found ? (pair.turned ? turn(found) : found) : [null, null, null, null, null];
      const [x, y] = held === undefined ? [one.values[name] ?? [], other.values[name] ?? []] : [[held], [against]];
      if (x[0] === undefined && y[0] === undefined) continue;
      const interval = low === null ? "–" : `${change(low)} … ${change(high)}`;
      const said = better === "neither" ? "–" : word ?? (invalid.length ? "not ranked" : "–");
      const sign = { better: "▲ ", worse: "▼ " }[said] ?? "";
      const plain = ratio ?? (x[0] && y[0] !== undefined ? y[0] / x[0] : null);
      const named = document.createElement("span");
      const way = document.createElement("small");
      way.textContent = better === "neither" ? "" : ` ${better} is better`;
      named.append(text, way);
      row(key.has(name) ? "metrics" : "rest", [
        named, unit || "–",
        { text: number(x[0]), value: x[0] }, { text: number(y[0]), value: y[0] },
        { text: change(plain), value: plain }, { text: interval, className: "nowrap" }, { text: p !== null && p < 1e-4 ? "< 0.0001" : number(p), value: p },
        { text: sign + said, className: { better: "better", worse: "worse" }[said] ?? "same" },
      ], { metric: name });
    }
    const rest = document.querySelectorAll("#rest tbody tr").length;
    document.getElementById("others").hidden = !rest;
    document.querySelector("#others summary").textContent = `The other ${rest} metrics`;
    const notes = pair?.notes ?? [];
    document.getElementById("notes").replaceChildren(...notes.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    const { a, b, mode } = state();
    const next = { a, b, mode: choice.mode.value };
    const side = event.target.name.slice(-1);
    if (event.target.name === "a" || event.target.name === "b") next[side] = event.target.value;
    if (event.target.name === "ta" || event.target.name === "tb") {
      const arms = boards.find((one) => one.id === event.target.value).arms;
      // The same policy in the other table, where it has one.
      next[side] = (arms.find((one) => one[1] === label.get(next[side])) ?? arms[0])[0];
    }
    remember(next);
  });
  document.getElementById("swap").addEventListener("click", () => {
    const { a, b, mode } = state();
    remember({ a: b, b: a, mode });
  });
  addEventListener("popstate", show);
  show();
})();
