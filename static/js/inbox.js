// The list of failures: suggestions under the search box, and how many rows are picked. Without it, both still work by hand.
(function () {
  "use strict";

  // ---------- suggestions ----------
  var box, list, timer = 0, asked = 0, active = -1;

  function options() { return Array.prototype.slice.call(list.querySelectorAll("[role='option']")); }

  function close() {
    asked += 1;  // what is still on its way comes too late
    list.hidden = true;
    active = -1;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  }

  function mark(index) {
    var all = options();
    all.forEach(function (option, at) { option.setAttribute("aria-selected", String(at === index)); });
    active = index;
    if (all[index]) {
      box.setAttribute("aria-activedescendant", all[index].id);
      all[index].scrollIntoView({ block: "nearest" });
    } else box.removeAttribute("aria-activedescendant");
  }

  function take(option) {
    box.value = option.dataset.query;
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
    close();
    if (/:$/.test(box.value)) ask();  // a field: its values next
  }

  function ask() {
    var number = asked += 1;
    if (box.selectionEnd !== box.value.length) { close(); return; }
    fetch(box.dataset.suggest + "?" + new URLSearchParams({ q: box.value }), { headers: { "HX-Request": "true", "HX-Current-URL": location.href }, credentials: "same-origin" })
      .then(function (answer) {
        var signIn = answer.headers.get("HX-Redirect");
        if (signIn) { location.href = signIn; return null; }
        return answer.ok ? answer.text() : "";
      })
      .then(function (html) {
        if (html === null || number !== asked || document.activeElement !== box) return;
        list.innerHTML = html;  // the server's own escaped markup
        if (!options().length) { close(); return; }
        list.hidden = false;
        box.setAttribute("aria-expanded", "true");
        mark(-1);
      })
      .catch(close);
  }

  function keys(event) {
    if (list.hidden) {
      if (event.key === "ArrowDown") { event.preventDefault(); ask(); }
      if (event.key === "Escape") { clearTimeout(timer); close(); }
      return;
    }
    var all = options();
    if (event.key === "ArrowDown") { event.preventDefault(); mark((active + 1) % all.length); }
    else if (event.key === "ArrowUp") { event.preventDefault(); mark((active <= 0 ? all.length : active) - 1); }
    else if (event.key === "Escape") { event.preventDefault(); close(); }
    else if (event.key === "Tab" && !event.shiftKey && box.value && !/\s$/.test(box.value)) { event.preventDefault(); take(all[Math.max(active, 0)]); }
    else if (event.key === "Enter" && active >= 0) { event.preventDefault(); take(all[active]); }
  }

  function suggestions() {
    box = document.querySelector("[data-suggest]");
    list = document.getElementById("suggest");
    if (!box || !list) return;
    box.setAttribute("role", "combobox");
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-expanded", "false");
    box.setAttribute("aria-controls", "suggest");
    box.addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(ask, 120); });
    box.addEventListener("keydown", keys);
    box.addEventListener("blur", close);
    list.addEventListener("mousedown", function (event) {
      var option = event.target.closest("[role='option']");
      if (option) { event.preventDefault(); take(option); }
    });
  }

  // ---------- selection ----------
  function picks() { return Array.prototype.slice.call(document.querySelectorAll("input[name='pick']")); }

  function count() {
    var bar = document.getElementById("bulk");
    if (!bar) return;
    var all = picks();
    var number = all.filter(function (pick) { return pick.checked; }).length;
    all.forEach(function (pick) { var row = pick.closest("tr"); if (row) row.classList.toggle("picked", pick.checked); });
    var everything = document.getElementById("all");
    bar.classList.toggle("idle", !number && !(everything && everything.checked));
    document.getElementById("picked").textContent = everything && everything.checked ? "all" : String(number);
    var page = document.getElementById("pick-page");
    if (page) { page.checked = number > 0 && number === all.length; page.indeterminate = number > 0 && number < all.length; }
  }

  function selection() {
    var bar = document.getElementById("bulk");
    if (!bar) return;
    document.addEventListener("change", function (event) {
      if (event.target.id === "pick-page") picks().forEach(function (pick) { pick.checked = event.target.checked; });
      if (event.target.name === "pick" || event.target.id === "pick-page" || event.target.id === "all") count();
    });
    bar.addEventListener("reset", function () { setTimeout(count, 0); });
    document.addEventListener("htmx:afterSettle", count);
    count();  // after Back the boxes are as they were
  }

  function start() {
    suggestions();
    selection();
    var sort = document.querySelector("select[data-submit]");
    if (sort) sort.addEventListener("change", function () { sort.form.requestSubmit(); });
  }
  window.addEventListener("pageshow", count);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
