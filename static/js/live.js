// Polling that stays out of the way: none while the page is hidden, slower while the server fails, and a word when it does.
(function () {
  "use strict";
  var failures = 0;
  var skip = 0;

  document.addEventListener("htmx:beforeRequest", function (event) {
    if (!event.target.hasAttribute("data-poll")) return;
    if (document.hidden || skip > 0) {
      if (skip > 0) skip -= 1;
      event.preventDefault();
    }
  });

  function trouble(event) {
    if (!event.target.hasAttribute || !event.target.hasAttribute("data-poll")) return;
    failures += 1;
    skip = Math.min(8, Math.pow(2, failures) - 1);
    if (failures === 2) {
      var live = document.getElementById("live");
      if (live) live.textContent = "The server does not answer. This page may be out of date.";
      document.documentElement.setAttribute("data-stale", "");
    }
  }
  document.addEventListener("htmx:sendError", trouble);
  document.addEventListener("htmx:responseError", trouble);
  document.addEventListener("htmx:afterOnLoad", function (event) {
    if (!event.target.hasAttribute || !event.target.hasAttribute("data-poll")) return;
    failures = 0;
    document.documentElement.removeAttribute("data-stale");
  });

  // What is left empty in a form of filters does not belong into the address.
  document.addEventListener("submit", function (event) {
    var form = event.target;
    if (form.method !== "get" || !form.hasAttribute("data-submit-on-change")) return;
    var empty = Array.prototype.filter.call(form.elements, function (box) { return box.name && !box.value && !box.disabled; });
    empty.forEach(function (box) { box.disabled = true; });
    setTimeout(function () { empty.forEach(function (box) { box.disabled = false; }); }, 0);
  });

  // After Back the browser would show the choices that led away from the list; the list's own are those of its address.
  window.addEventListener("pageshow", function (event) {
    var entry = performance.getEntriesByType("navigation")[0];
    if (!event.persisted && !(entry && entry.type === "back_forward")) return;
    document.querySelectorAll("form[data-submit-on-change], form[role='search']").forEach(function (form) { form.reset(); });
  });

  // A filter applies when it is changed; without this script the form's button does it.
  document.addEventListener("change", function (event) {
    var form = event.target.form;
    if (form && form.hasAttribute("data-submit-on-change") && event.target.type !== "search" && event.target.type !== "text") {
      form.requestSubmit();
    }
  });
})();
