// Single-key shortcuts. Off while typing, with a modifier held, or when switched off in the menu (WCAG 2.1.4).
(function () {
  "use strict";
  var waiting = 0;

  function enabled() {
    var box = document.getElementById("keys");
    return Boolean(box && box.checked);
  }

  function rows() { return Array.prototype.slice.call(document.querySelectorAll(".failures tbody tr[id]")); }

  function cursor() { return document.querySelector(".failures tr.cursor"); }

  function place(row) {
    var before = cursor();
    if (before) before.classList.remove("cursor");
    row.classList.add("cursor");
    var link = row.querySelector(".why > a");
    link.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  function step(by) {
    var all = rows();
    if (!all.length) {
      if (inLog(by, false)) return;
      follow(by > 0 ? "[data-key='j']" : "[data-key='k']");
      return;
    }
    var at = all.indexOf(cursor());
    var next = all[at < 0 ? 0 : at + by];
    if (next) place(next);
  }

  // In a log the same keys go from line to line; capitals pick the lines on the way.
  function inLog(by, extend) { return Boolean(window.faultline && window.faultline.line && window.faultline.line(by, extend)); }

  function follow(selector) {
    var link = document.querySelector(selector);
    if (link && link.offsetParent) link.click();
  }

  // The button is only reached: Enter presses it, so that one slipped key confirms nothing.
  function focus(selector, hint) {
    var target = document.querySelector(selector);
    if (!target) return;
    target.focus();
    target.scrollIntoView({ block: "nearest" });
    var live = document.getElementById("live");
    if (hint && live) live.textContent = hint;
  }

  var actions = {
    j: function () { step(1); },
    k: function () { step(-1); },
    o: function () { var row = cursor(); if (row) row.querySelector(".why > a").click(); },
    e: function () {
      var row = cursor();
      if (row && row.dataset.evidence) location.href = row.dataset.evidence;
      else follow("[data-key='e']");
    },
    n: function () { follow("[data-key='n']"); },
    p: function () { follow("[data-key='p']"); },
    u: function () { follow("[data-key='u']"); },
    c: function () { focus("[data-key='c']", "Press Enter to confirm"); },
    x: function () {
      var row = cursor();
      var pick = row && row.querySelector("input[name='pick']");
      if (pick) pick.click(); else follow("[data-key='x']");
    },
    m: function () {
      var target = document.querySelector("[data-key='m']");
      if (target && target.tagName === "A") { if (target.offsetParent) target.click(); } else focus("[data-key='m']");
    },
    J: function () { inLog(1, true); },
    K: function () { inLog(-1, true); },
    s: function () { follow("[data-key='s']"); },
    w: function () { follow("[data-key='w']"); },
    y: function () { follow("[data-key='y']"); },
    ",": function () { follow("[data-key=',']"); },
    ".": function () { follow("[data-key='.']"); },
    z: function () { follow("[data-key='z']"); },
    "/": function () { var box = document.querySelector("input[type='search']"); if (box) { box.focus(); box.select(); } },
    "?": function () { var panel = document.getElementById("shortcuts"); if (panel && panel.showModal) panel.showModal(); },
    g: function () { waiting = Date.now(); }
  };

  document.addEventListener("keydown", function (event) {
    var target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !enabled()) return;
    if (/^(input|textarea|select)$/i.test(target.tagName) && !/^(checkbox|radio|button|submit)$/.test(target.type)) return;
    if (target.isContentEditable || document.querySelector("dialog[open]")) return;
    if (Date.now() - waiting < 1500) {
      waiting = 0;
      var link = document.querySelector("[data-go='" + CSS.escape(event.key) + "']");
      if (link) { event.preventDefault(); link.click(); return; }
    }
    var action = actions[event.key];
    if (action) { event.preventDefault(); action(); }
  });
})();
