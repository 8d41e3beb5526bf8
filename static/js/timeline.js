// The timeline: drag over it to zoom, keys while it has the focus. All of it is also links and a form, which need no script.
// What zooms is the server: marks that were one become several, and the plots beneath get finer samples.
(function () {
  "use strict";
  var SHORT = 6;  // pixels that are a click, not a drag

  // Where a moment (epoch seconds) is told by a place on the axis, in the picture's units.
  function momentAt(axis, x) {
    x = Math.min(Math.max(x, axis.left), axis.right);
    if (axis.turn === undefined || axis.turn === null) return axis.start + (axis.end - axis.start) * (x - axis.left) / (axis.right - axis.left);
    var half = axis.half || 2.5;
    if (x <= axis.middle) return axis.start + (axis.turn - axis.start) * Math.min(1, (x - axis.left) / (axis.middle - half - axis.left));
    return axis.turn + (axis.end - axis.turn) * Math.max(0, (x - axis.middle - half) / (axis.right - axis.middle - half));
  }

  function axisOf(svg) {
    var axis = {};
    ["left", "right", "width", "start", "end", "turn", "middle"].forEach(function (name) {
      if (svg.dataset[name] !== undefined) axis[name] = Number(svg.dataset[name]);
    });
    return axis;
  }

  function zoom(first, last) {
    var form = document.querySelector(".tl-form");
    if (!form || !(last > first)) return;
    form.elements.from.value = new Date(first * 1000).toISOString();
    form.elements.to.value = new Date(last * 1000).toISOString();
    form.requestSubmit();
  }

  function follow(name) {
    var link = document.querySelector("[data-zoom='" + name + "']");
    if (link) link.click();
  }

  window.faultline = Object.assign(window.faultline || {}, { momentAt: momentAt, zoom: zoom, whole: function () { follow("whole"); } });

  // ---------- dragging ----------
  var drag = null;

  function place(svg, event) {
    var box = svg.getBoundingClientRect();
    return (event.clientX - box.left) / box.width * 904;
  }

  function band(svg) {
    var rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("class", "band");
    rect.setAttribute("y", "38");
    rect.setAttribute("height", String(svg.viewBox.baseVal.height - 82));
    svg.appendChild(rect);
    return rect;
  }

  document.addEventListener("pointerdown", function (event) {
    var svg = event.target.closest ? event.target.closest("svg.timeline") : null;
    if (!svg || event.button !== 0 || event.pointerType === "touch") return;
    drag = { svg: svg, from: place(svg, event), x: event.clientX, rect: null };
  });
  document.addEventListener("pointermove", function (event) {
    if (!drag) return;
    if (!drag.rect && Math.abs(event.clientX - drag.x) < SHORT) return;
    if (!drag.rect) drag.rect = band(drag.svg);
    var axis = axisOf(drag.svg), clip = function (x) { return Math.min(Math.max(x, axis.left), axis.right); };
    var a = clip(drag.from), b = clip(place(drag.svg, event));
    drag.rect.setAttribute("x", String(Math.min(a, b)));
    drag.rect.setAttribute("width", String(Math.abs(b - a)));
    event.preventDefault();
  });
  document.addEventListener("pointerup", function (event) {
    if (!drag) return;
    var was = drag;
    drag = null;
    if (!was.rect) return;
    was.rect.remove();
    var axis = axisOf(was.svg), a = momentAt(axis, was.from), b = momentAt(axis, place(was.svg, event));
    // The click that ends a drag must not follow a mark.
    window.addEventListener("click", stop, { capture: true, once: true });
    setTimeout(function () { window.removeEventListener("click", stop, { capture: true }); }, 50);
    zoom(Math.min(a, b), Math.max(a, b));
  });
  function stop(event) { event.preventDefault(); event.stopPropagation(); }
  document.addEventListener("dragstart", function (event) {
    if (event.target.closest && event.target.closest("svg.timeline")) event.preventDefault();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape" && drag) {
      if (drag.rect) drag.rect.remove();
      drag = null;
    }
  });
  document.addEventListener("dblclick", function (event) {
    if (event.target.closest && event.target.closest("svg.timeline") && !event.target.closest("a")) follow("whole");
  });

  // ---------- keys, only while the picture has the focus ----------
  document.addEventListener("keydown", function (event) {
    if (event.target.id !== "tl-picture" || event.ctrlKey || event.metaKey || event.altKey) return;
    var name = { "+": "in", "=": "in", "-": "out", "0": "whole" }[event.key];
    if (event.shiftKey && event.key === "ArrowLeft") name = "earlier";
    if (event.shiftKey && event.key === "ArrowRight") name = "later";
    if (!name) return;
    event.preventDefault();
    follow(name);
  });

  // ---------- after the server has answered ----------
  var before = "";
  document.addEventListener("htmx:beforeSwap", function (event) {
    if (!event.target || event.target.id !== "timeline") return;
    before = document.activeElement ? document.activeElement.id : "";
    var table = document.getElementById("tl-table");
    var plots = document.querySelector(".plots");
    event.target.dataset.open = table && table.open ? "1" : "";
    window.faultline.room = plots ? plots.offsetHeight : 0;
    window.faultline.open = Boolean(table && table.open);
  });
  document.addEventListener("htmx:afterSettle", function (event) {
    var section = document.getElementById("timeline");
    if (!section || !event.target || event.target.id !== "timeline") return;
    var table = document.getElementById("tl-table");
    if (table && window.faultline.open) table.open = true;
    section.querySelectorAll("[data-script]").forEach(function (node) { node.hidden = false; });
    // The button that was pressed may have no use any more: the focus stays near it.
    if (before && !document.getElementById(before)) {
      var next = document.getElementById("tl-whole");
      if (next) next.focus({ preventScroll: true });
    }
    var live = document.getElementById("live");
    if (live) live.textContent = section.dataset.span || "";
    section.dispatchEvent(new CustomEvent("faultline:timeline", { bubbles: true }));
  });
})();
