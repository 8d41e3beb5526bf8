// Metrics beneath the timeline, in the units of its axis, so that one moment is one vertical line through all of them.
(function () {
  "use strict";
  var HEIGHT = 132;
  var dragged = null;
  var DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  function palette() {
    return ["--hardware", "--network", "--storage", "--platform", "--software", "--scheduler"].map(colour);
  }

  function said(at, zone) {
    return new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: zone }).format(new Date(at * 1000));
  }

  function figure(value) {
    if (value === null || value === undefined) return "";
    var size = Math.abs(value);
    return size >= 1e6 || (size > 0 && size < 1e-3) ? value.toExponential(2) : String(Math.round(value * 1000) / 1000);
  }

  function lines(data) {
    return function (u) {
      var ctx = u.ctx, box = u.bbox, ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.beginPath();
      ctx.rect(box.left, box.top, box.width, box.height);
      ctx.clip();
      data.axis.breaks.forEach(function (x) { line(u, ctx, box, x, colour("--edge"), 1, []); });
      data.events.forEach(function (event) {
        var kind = event.kind;
        if (kind === "root") {
          line(u, ctx, box, event.x, colour("--ink"), 2, []);
          var x = u.valToPos(event.x, "x", true), r = 5 * ratio;
          ctx.fillStyle = colour("--ink");
          ctx.beginPath();
          ctx.moveTo(x, box.top); ctx.lineTo(x + r, box.top + r); ctx.lineTo(x, box.top + 2 * r); ctx.lineTo(x - r, box.top + r);
          ctx.fill();
        } else if (kind === "end") line(u, ctx, box, event.x, colour("--ink-2"), 1.5, [5, 4]);
        else line(u, ctx, box, event.x, colour(kind === "warn" ? "--ink-2" : "--ink-3"), 1, [1, 4]);
      });
      ctx.restore();
    };
  }

  function line(u, ctx, box, x, stroke, width, dash) {
    var at = Math.round(u.valToPos(x, "x", true)), ratio = devicePixelRatio || 1;
    ctx.strokeStyle = stroke;
    ctx.lineWidth = width * ratio;
    ctx.setLineDash(dash.map(function (part) { return part * ratio; }));
    ctx.beginPath();
    ctx.moveTo(at, box.top);
    ctx.lineTo(at, box.top + box.height);
    ctx.stroke();
  }

  // A click beside a line of the timeline opens what it stands for.
  function marks(plot, data) {
    var led = data.events.filter(function (event) { return event.evidence; });
    function near(x) {
      var best = null;
      led.forEach(function (event) {
        var far = Math.abs(plot.valToPos(event.x, "x") - x);
        if (far <= 6 && (!best || far < best.far)) best = { far: far, event: event };
      });
      return best && best.event;
    }
    plot.over.addEventListener("mousemove", function (event) {
      var found = near(event.offsetX);
      plot.over.classList.toggle("leads", Boolean(found));
      plot.over.title = found ? found.text : "";
    });
    plot.over.addEventListener("click", function (event) {
      var found = near(event.offsetX);
      if (found) location.href = data.evidence + encodeURIComponent(found.evidence) + "/";
    });
  }

  function draw(host, data, chart, width) {
    var axis = data.axis, colours = palette(), scale = width / axis.width;
    var series = [{ label: "Time", value: function (u, x) { return x === null ? "" : said(window.faultline.momentAt(axis, x), data.zone); } }];
    chart.lines.forEach(function (one, index) {
      series.push({
        label: one.label + (one.cited ? " (evidence)" : ""),
        stroke: colours[index % colours.length],
        width: one.cited ? 2.5 : 1.25,
        dash: DASHES[Math.floor(index / colours.length) % DASHES.length],
        points: { show: one.values.length < 3 },
        value: function (u, value) { return figure(value); }
      });
    });
    var grid = { stroke: colour("--line"), width: 1 };
    var options = {
      width: Math.round(width), height: HEIGHT, padding: [6, (axis.width - axis.right) * scale, 0, 0],
      cursor: { sync: { key: "faultline", setSeries: false }, drag: { x: true, y: false, setScale: false } },
      legend: { live: true, markers: { width: 3, dash: function (u, index) { return index > colours.length ? "dashed" : "solid"; } } },
      scales: { x: { time: false, range: function () { return [axis.left, axis.right]; } },
        y: { range: function (u, low, high) {
          if (low === null) return [0, 1];
          var room = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
          return [low - room, high + room];
        } } },
      axes: [
        { stroke: colour("--ink-3"), grid: grid, ticks: grid, size: 24, font: "11px system-ui",
          splits: function () { return axis.ticks.map(function (tick) { return tick[0]; }); },
          values: function (u, splits) { return splits.map(function (x) { var tick = axis.ticks.find(function (one) { return one[0] === x; }); return tick ? tick[1] : ""; }); } },
        { stroke: colour("--ink-3"), grid: grid, ticks: grid, size: axis.left * scale, font: "11px system-ui", space: 28,
          values: function (u, splits) { return splits.map(figure); } }
      ],
      series: series,
      hooks: {
        draw: [lines(data)],
        // One axis for all: what is dragged over here zooms the timeline, and the plots with it.
        setSelect: [function (u) {
          if (u !== dragged || u.select.width < 6) return;  // the others only follow it
          dragged = null;
          var first = window.faultline.momentAt(axis, u.posToVal(u.select.left, "x"));
          var last = window.faultline.momentAt(axis, u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          window.faultline.zoom(first, last);
        }]
      }
    };
    var tables = chart.lines.map(function (one) { return [one.x, one.values]; });
    var joined = tables.length === 1 ? tables[0] : uPlot.join(tables);
    var plot = new uPlot(options, joined, host);
    plot.over.addEventListener("mousedown", function () { dragged = plot; });
    plot.over.addEventListener("dblclick", function () { window.faultline.whole(); });
    marks(plot, data);
    // The legend's rows switch a series on and off: a button for the keyboard too.
    host.querySelectorAll(".u-series th").forEach(function (head, index) {
      if (!index) return;
      head.tabIndex = 0;
      head.setAttribute("role", "button");
      head.setAttribute("aria-pressed", "true");
      var toggled = function () {
        head.setAttribute("aria-pressed", String(plot.series[index].show));
      };
      head.addEventListener("click", function () { setTimeout(toggled, 0); });
      head.addEventListener("keydown", function (event) {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        plot.setSeries(index, { show: !plot.series[index].show });
        toggled();
      });
    });
    var canvas = host.querySelector("canvas");
    if (canvas) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", chart.name + ", " + chart.lines.length + " series, from " + figure(chart.low) + " to " + figure(chart.high) +
        (chart.unit ? " " + chart.unit : "") + ". The table has its figures.");
    }
    return plot;
  }

  function start(box) {
    // While the samples of a new part are on their way, the page keeps its height.
    if (window.faultline.room) box.style.minHeight = window.faultline.room + "px";
    var word = box.querySelector("[data-plots-said]");
    var figureSvg = box.parentElement.querySelector("svg.fig");
    var plots = [], data = null;

    function width() { return (figureSvg || box).getBoundingClientRect().width; }

    function paint() {
      plots.forEach(function (plot) { plot.destroy(); });
      plots = [];
      data.charts.forEach(function (chart, index) {
        var part = box.querySelectorAll(".plot")[index];
        plots.push(draw(part, data, chart, width()));
      });
    }

    fetch(box.dataset.metrics, { credentials: "same-origin", headers: { Accept: "application/json" } })
      .then(function (answer) { if (!answer.ok) throw new Error(answer.status); return answer.json(); })
      .then(function (got) {
        data = got;
        var link = document.createElement("a");
        link.href = box.dataset.table;
        link.textContent = "all series as a table";
        word.textContent = data.charts.length ? "A diamond is the root, dashes the end; a click on a line opens what it stands for. " : "No samples in this time; ";
        word.appendChild(link);
        if (data.left_out) word.append(", " + data.left_out + " more metrics there");
        data.troubles.forEach(function (trouble) { word.append(" Not read: " + trouble + "."); });
        data.charts.forEach(function (chart) {
          var part = document.createElement("div");
          part.className = "plot";
          var name = document.createElement("h4");
          name.textContent = chart.name + (chart.unit ? ", " + chart.unit : "");
          if (chart.left_out) name.textContent += " (" + chart.left_out + " more series in the table)";
          part.appendChild(name);
          box.appendChild(part);
        });
        paint();
        box.style.minHeight = "";
        box.setAttribute("data-ready", "");
        var last = width(), waiting = 0;
        new ResizeObserver(function () {
          if (Math.abs(width() - last) < 1) return;
          last = width();
          clearTimeout(waiting);
          waiting = setTimeout(paint, 100);
        }).observe(figureSvg || box);
        repaint = paint;
      })
      .catch(function () { word.append(". The plots could not be loaded."); });
  }

  // The plots that are on the page now; those before a zoom are gone with their part of it.
  var repaint = function () {};
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { repaint(); });
  new MutationObserver(function () { repaint(); }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  document.addEventListener("faultline:timeline", function () { repaint = function () {}; document.querySelectorAll("[data-metrics]").forEach(start); });
  document.querySelectorAll("[data-metrics]").forEach(start);
})();
