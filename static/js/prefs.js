// Theme and shortcuts: saved at once instead of by the form's button. Copying: the buttons appear only where it can work.
(function () {
  "use strict";
  var root = document.documentElement;
  root.setAttribute("data-js", "");

  function say(text) {
    var live = document.getElementById("live");
    if (live) live.textContent = text;
  }

  function save(form) {
    // The answer is a redirect to this page; it is not followed.
    return fetch(form.action, { method: "POST", body: new FormData(form), credentials: "same-origin", redirect: "manual" })
      .then(function (answer) { if (!answer.ok && answer.type !== "opaqueredirect") throw new Error(answer.status); say("Saved"); })
      .catch(function () { say("Not saved: the server did not answer"); });
  }

  function start() {
    document.querySelectorAll("[data-noscript]").forEach(function (node) { node.hidden = true; });
    document.querySelectorAll("[data-script]").forEach(function (node) { node.hidden = false; });

    var form = document.getElementById("prefs");
    if (form) {
      // Only the browser knows the reader's own zone.
      var own = "";
      try { own = Intl.DateTimeFormat().resolvedOptions().timeZone || ""; } catch (error) { /* stays UTC */ }
      if (own && form.elements.local_zone) form.elements.local_zone.value = own;
      form.addEventListener("change", function (event) {
        if (event.target.name === "theme") {
          if (event.target.value === "auto") root.removeAttribute("data-theme");
          else root.setAttribute("data-theme", event.target.value);
        }
        var saved = save(form);
        if (event.target.name === "zone") saved.then(function () { location.reload(); });
      });
    }

    // Menus close on Escape and on a click elsewhere.
    document.addEventListener("keydown", function (event) {
      if (event.key !== "Escape") return;
      document.querySelectorAll("details.menu[open]").forEach(function (menu) {
        menu.open = false;
        menu.querySelector("summary").focus();
      });
    });
    document.addEventListener("click", function (event) {
      document.querySelectorAll("details.menu[open]").forEach(function (menu) {
        if (!menu.contains(event.target)) menu.open = false;
      });
    });
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest ? event.target.closest("[data-copy]") : null;
    if (!button) return;
    var text = button.dataset.copy === "#" ? location.href : button.dataset.copy;
    var done = function () { say("Copied " + (button.dataset.copied || (text.length < 80 ? text : ""))); button.classList.add("done"); };
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(done, function () { say("Not copied: the browser refused"); });
      return;
    }
    // Plain http on another host than localhost: the old way still works there.
    var area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "sr";
    document.body.appendChild(area);
    area.select();
    var worked = false;
    try { worked = document.execCommand("copy"); } catch (error) { worked = false; }
    area.remove();
    button.focus();
    if (worked) done(); else say("Not copied: the browser refused");
  });

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
