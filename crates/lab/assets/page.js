// The report page: the plot, the switch between light and dark, copy and save.
//
// Everything else of the page is plain HTML and works without this file. The points come ready
// grouped in #plot-data; nothing is computed from them here but positions on the screen.
(function () {
  "use strict";

  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // ---- light and dark ----------------------------------------------------------------------

  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  function remembered() {
    try { return localStorage.getItem("forebay-theme"); } catch { return null; }
  }

  function remember(theme) {
    try { localStorage.setItem("forebay-theme", theme); } catch { /* no storage, no memory */ }
  }

  function themeSwitch(redraw) {
    const button = byId("theme");
    const name = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", "Switch to " + (isDark() ? "light" : "dark") + " colours");
    };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      name();
      redraw();
    });
    prefersDark.addEventListener("change", () => { name(); redraw(); });

    // Paper is white: print the plot in the light colours, then go back.
    let before;
    window.addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      root.dataset.theme = "light";
      redraw();
    });
    window.addEventListener("afterprint", () => {
      if (before) { root.dataset.theme = before; } else { delete root.dataset.theme; }
      redraw();
    });
  }

  // ---- copy and save -----------------------------------------------------------------------

  function copyButton() {
    const button = byId("copy");
    const command = byId("command");
    button.hidden = false;
    button.addEventListener("click", async () => {
      let done = false;
      try {
        await navigator.clipboard.writeText(command.textContent);
        done = true;
      } catch {
        // Pages opened from a file may not write to the clipboard; select, so that a key can.
        getSelection().selectAllChildren(command);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }

  function saveButton() {
    const button = byId("save");
    button.hidden = false;
    button.addEventListener("click", () => {
      const report = JSON.stringify(JSON.parse(byId("report-data").textContent), null, 2) + "\n";
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([report], { type: "application/json" }));
      link.download = "report.json";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // ---- the plot ----------------------------------------------------------------------------

  const DASH = [7, 5];

  // Depth 0, then one step for each doubling: 1, 2, 4, 8 ... are equally far apart.
  const position = (depth) => (depth === 0 ? 0 : Math.log2(depth) + 1);

  function short(value) {
    const trimmed = (number) => String(Number(number.toPrecision(3)));
    if (value >= 1e6) { return trimmed(value / 1e6) + " M"; }
    if (value >= 1e3) { return trimmed(value / 1e3) + " k"; }
    return trimmed(value);
  }

  // The marker of a backend, so that colour is never the only difference.
  function trace(path, shape, x, y, r) {
    const corners = {
      square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
      diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
      up: [[0, -1.25], [1.2, 0.95], [-1.2, 0.95]],
      down: [[0, 1.25], [1.2, -0.95], [-1.2, -0.95]],
    }[shape];
    if (!corners) {
      path.arc(x, y, r, 0, Math.PI * 2);
      return;
    }
    corners.forEach(([dx, dy], index) => {
      if (index === 0) { path.moveTo(x + dx * r, y + dy * r); } else { path.lineTo(x + dx * r, y + dy * r); }
    });
    path.closePath();
  }

  const SHAPES = { sync: "square", threads: "up", aio: "diamond", uring: "circle", fio: "down" };

  // A short stretch of a line with its marker, for legend and hover.
  function swatch(line) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", "34");
    svg.setAttribute("height", "12");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("class", "ink-" + line.backend);
    const add = (name, attributes) => {
      const part = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) { part.setAttribute(key, value); }
      svg.append(part);
    };
    const stroke = { stroke: "currentColor", "stroke-width": 2 };
    if (line.cache === "buffered") { stroke["stroke-dasharray"] = "6 4"; }
    add("line", { x1: 0, x2: 34, y1: 6, y2: 6, ...stroke });
    const marks = [];
    trace({
      arc: (x, y, r) => add("circle", { cx: x, cy: y, r: r, fill: "currentColor" }),
      moveTo: (x, y) => marks.push(x + "," + y),
      lineTo: (x, y) => marks.push(x + "," + y),
      closePath: () => add("polygon", { points: marks.join(" "), fill: "currentColor" }),
    }, SHAPES[line.backend], 17, 6, 3.8);
    return svg;
  }

  function element(name, content, className) {
    const made = document.createElement(name);
    if (className) { made.className = className; }
    made.append(content);
    return made;
  }

  function Plot(data) {
    const frame = byId("canvas");
    const hover = byId("hover");
    const legend = byId("legend");
    const xs = data.depths.map(position);
    const lines = data.lines.map((line) => ({ ...line, shown: true }));
    let scale = "linear";
    let pointedAt = -1; // index of the line whose legend entry is under the pointer
    let chart = null;
    let ink = {};

    // Colours live in the style sheet; a hidden element tells what they are just now.
    function readInk() {
      const probe = element("span", "");
      frame.append(probe);
      const read = (name) => {
        probe.className = "ink-" + name;
        return getComputedStyle(probe).color;
      };
      ink = { soft: read("soft"), grid: read("grid"), sheet: read("sheet") };
      for (const line of lines) { ink[line.backend] = read(line.backend); }
      probe.remove();
    }

    const isCold = (point) => point !== null && point.standing === "cold";
    const drawable = (value) => value !== null && (scale === "linear" || value > 0);
    const coldRate = (point) => (isCold(point) && drawable(point.rate) ? point.rate : null);

    // The scale covers cold figures only: one answered by memory would flatten all others.
    function range() {
      const values = [];
      for (const line of lines) {
        if (!line.shown) { continue; }
        for (const point of line.points) {
          if (isCold(point)) { values.push(point.rate, point.high ?? point.rate, point.low ?? point.rate); }
        }
      }
      const positive = values.filter((value) => value > 0);
      if (positive.length === 0) { return scale === "log" ? [1, 10] : [0, 1]; }
      const most = Math.max(...positive);
      return scale === "log" ? [Math.min(...positive) / 1.3, most * 1.3] : [0, most * 1.06];
    }

    function logSplits(low, high) {
      const splits = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        for (const step of [1, 2, 5]) {
          const value = step * 10 ** power;
          if (value >= low && value <= high) { splits.push(value); }
        }
      }
      return splits;
    }

    function alpha(index) {
      return pointedAt < 0 || pointedAt === index ? 1 : 0.18;
    }

    // Slowest to fastest round, as a band under each unbroken stretch of a line.
    function drawBands(u) {
      const ctx = u.ctx;
      ctx.save();
      lines.forEach((line, index) => {
        if (!line.shown) { return; }
        ctx.fillStyle = ink[line.backend];
        ctx.strokeStyle = ink[line.backend];
        ctx.globalAlpha = 0.14 * alpha(index);
        ctx.lineWidth = 5 * devicePixelRatio;
        let run = [];
        const close = () => {
          if (run.length > 0) {
            ctx.beginPath();
            run.forEach(([x, , high], i) => (i === 0 ? ctx.moveTo(x, high) : ctx.lineTo(x, high)));
            run.slice().reverse().forEach(([x, low]) => ctx.lineTo(x, low));
            if (run.length === 1) { ctx.stroke(); } else { ctx.fill(); }
          }
          run = [];
        };
        line.points.forEach((point, i) => {
          if (!isCold(point) || !drawable(point.low) || !drawable(point.high)) { close(); return; }
          run.push([
            u.valToPos(xs[i], "x", true),
            u.valToPos(point.low, "y", true),
            u.valToPos(point.high, "y", true),
          ]);
        });
        close();
      });
      ctx.restore();
    }

    // Markers: filled for a cold figure, a ring around one with a remark, a cross without a
    // line for one that was not cold, at the upper edge when it lies beyond the scale.
    function drawMarkers(u) {
      const ctx = u.ctx;
      const unit = devicePixelRatio;
      const r = (u.width < 500 ? 3.2 : 4) * unit;
      ctx.save();
      ctx.setLineDash([]);
      lines.forEach((line, index) => {
        if (!line.shown) { return; }
        ctx.globalAlpha = alpha(index);
        ctx.strokeStyle = ink[line.backend];
        line.points.forEach((point, i) => {
          if (point === null || !drawable(point.rate)) { return; }
          const x = u.valToPos(xs[i], "x", true);
          let y = u.valToPos(point.rate, "y", true);
          if (point.standing === "cold") {
            ctx.fillStyle = ink[line.backend];
            ctx.lineWidth = 1.5 * unit;
            ctx.beginPath();
            trace(ctx, SHAPES[line.backend], x, y, r);
            ctx.fill();
            if (point.remarks.length > 0) {
              ctx.beginPath();
              ctx.arc(x, y, r * 2.1, 0, Math.PI * 2);
              ctx.stroke();
            }
            return;
          }
          const edge = u.bbox.top + r * 2.6;
          const beyond = y < edge;
          y = Math.max(y, edge);
          ctx.lineWidth = 2 * unit;
          ctx.beginPath();
          ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y + r);
          ctx.moveTo(x + r, y - r); ctx.lineTo(x - r, y + r);
          if (beyond) {
            ctx.moveTo(x - r, y - r * 1.7); ctx.lineTo(x, y - r * 2.7); ctx.lineTo(x + r, y - r * 1.7);
          }
          ctx.stroke();
        });
      });
      ctx.restore();
    }

    function size() {
      const width = frame.clientWidth;
      return { width, height: Math.round(Math.min(440, Math.max(280, width * 0.48))) };
    }

    function options() {
      const font = "12px " + getComputedStyle(root).getPropertyValue("--sans");
      const wide = size().width > 560;
      const axis = {
        stroke: () => ink.soft,
        font,
        labelFont: font,
        grid: { stroke: () => ink.grid, width: 1 },
        ticks: { stroke: () => ink.grid, width: 1, size: 5 },
      };
      return {
        ...size(),
        padding: [10, 12, 0, 0],
        legend: { show: false },
        cursor: {
          x: true,
          y: false,
          points: { show: false },
          drag: { x: false, y: false, setScale: false },
          dataIdx: (u, series, index) => index,
          move: (u, left, top) => (left < 0 ? [left, top] : [u.valToPos(xs[u.posToIdx(left)], "x"), top]),
        },
        scales: {
          x: { time: false, range: () => [xs[0] - 0.35, xs[xs.length - 1] + 0.35] },
          y: { distr: scale === "log" ? 3 : 1, range },
        },
        axes: [
          {
            ...axis,
            grid: { show: false },
            label: "look-ahead depth, in blocks",
            labelSize: 22,
            size: 30,
            splits: () => xs,
            filter: (u, splits) => {
              const room = u.bbox.width / devicePixelRatio / Math.max(1, splits.length);
              const step = Math.ceil(30 / Math.max(room, 1));
              return splits.map((split, i) => (i % step === 0 ? split : null));
            },
            values: (u, splits) =>
              splits.map((split) => (split === null ? "" : String(data.depths[xs.indexOf(split)]))),
          },
          {
            ...axis,
            size: wide ? 58 : 46,
            splits: scale === "log" ? (u, i, low, high) => logSplits(low, high) : undefined,
            filter: (u, splits) => splits,
            values: (u, splits) => splits.map(short),
          },
        ],
        series: [{}].concat(lines.map((line, index) => ({
          label: line.label,
          show: line.shown,
          stroke: () => ink[line.backend],
          width: 2,
          dash: line.cache === "buffered" ? DASH : undefined,
          alpha: alpha(index),
          spanGaps: false,
          points: { show: false },
        }))),
        hooks: { drawAxes: [drawBands], draw: [drawMarkers], setCursor: [showHover] },
      };
    }

    function hoverRow(line, point) {
      const row = element("tr", "", point.standing === "cold" ? "" : "set-apart");
      const apart = { "not-cold": " (not cold)", unmeasured: "" }[point.standing] ?? "";
      row.append(
        element("td", swatch(line)),
        element("td", line.label, "name"),
        element("td", point.rate === null ? "not measured" : point.text + apart),
        element("td", point.range, "range"),
      );
      return row;
    }

    function showHover(u) {
      const index = u.cursor.idx;
      const found = index === null || index === undefined || u.cursor.left < 0 ? [] : lines
        .filter((line) => line.shown && line.points[index] !== null)
        .map((line) => [line, line.points[index]])
        .sort(([, a], [, b]) => (coldRate(b) ?? -1) - (coldRate(a) ?? -1));
      hover.hidden = found.length === 0;
      if (hover.hidden) { return; }
      const body = element("tbody", "");
      const remarks = new Set();
      for (const [line, point] of found) {
        body.append(hoverRow(line, point));
        for (const remark of point.remarks) { remarks.add(line.label + ": " + remark); }
      }
      hover.replaceChildren(element("strong", "depth " + data.depths[index]), element("table", body));
      for (const remark of remarks) { hover.append(element("p", remark)); }
      const at = u.over.offsetLeft + u.cursor.left;
      const left = at - 14 - hover.offsetWidth; // first choice: curves rise to the right
      const beside = left >= 0 ? left : at + 14;
      const most = Math.max(0, frame.clientWidth - hover.offsetWidth);
      hover.style.left = Math.min(Math.max(0, beside), most) + "px";
    }

    function draw() {
      const at = chart ? chart.cursor.idx : null;
      if (chart) { chart.destroy(); }
      readInk();
      const columns = lines.map((line) => line.points.map(coldRate));
      chart = new uPlot(options(), [xs, ...columns], frame);
      const canvas = chart.root.querySelector("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", frame.dataset.description);
      frame.append(hover); // above the chart
      if (at !== null && at !== undefined && !hover.hidden) { pointAt(at); }
    }

    function pointAt(index) {
      chart.setCursor({ left: chart.valToPos(xs[index], "x"), top: 10 });
    }

    function point(index) {
      pointedAt = index;
      lines.forEach((line, i) => { chart.series[i + 1].alpha = alpha(i); });
      chart.redraw(false);
    }

    function legendButton(line, index) {
      const button = element("button", swatch(line));
      button.type = "button";
      button.append(line.label);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        line.shown = !line.shown;
        button.setAttribute("aria-pressed", String(line.shown));
        pointedAt = -1;
        draw();
      });
      button.addEventListener("mouseenter", () => { if (line.shown) { point(index); } });
      button.addEventListener("mouseleave", () => point(-1));
      legend.append(button);
    }

    function keys(event) {
      const last = xs.length - 1;
      const now = hover.hidden ? null : chart.cursor.idx;
      const next = {
        ArrowLeft: now === null ? last : Math.max(0, now - 1),
        ArrowRight: now === null ? 0 : Math.min(last, now + 1),
        Home: 0,
        End: last,
      }[event.key];
      if (event.key === "Escape") { chart.setCursor({ left: -10, top: -10 }); }
      if (next === undefined) { return; }
      event.preventDefault();
      pointAt(next);
    }

    function scaleSwitch() {
      const buttons = document.querySelectorAll("#plot-bar [data-scale]");
      for (const button of buttons) {
        button.addEventListener("click", () => {
          scale = button.dataset.scale;
          for (const other of buttons) { other.setAttribute("aria-pressed", String(other === button)); }
          draw();
        });
      }
    }

    byId("plot-bar").hidden = false;
    frame.hidden = false;
    legend.hidden = false;
    lines.forEach(legendButton);
    scaleSwitch();
    frame.addEventListener("keydown", keys);
    draw();
    new ResizeObserver(() => { if (chart.width !== frame.clientWidth) { draw(); } }).observe(frame);
    return { draw };
  }

  // ---- start -------------------------------------------------------------------------------

  const theme = remembered();
  if (theme === "light" || theme === "dark") { root.dataset.theme = theme; }
  const holder = byId("plot-data");
  const plot = holder ? Plot(JSON.parse(holder.textContent)) : null;
  themeSwitch(() => { if (plot) { plot.draw(); } });
  copyButton();
  saveButton();
})();
