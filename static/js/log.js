// The log: long lines wrap on demand, and the choice lasts; opening an address with #L125 puts that line in the middle.
(function () {
  "use strict";
  var KEY = "faultline.wrap";

  function wrap(button, on) {
    button.setAttribute("aria-pressed", String(on));
    document.getElementById(button.dataset.wraps).classList.toggle("wrap-on", on);
  }

  function keep(on) {
    try { localStorage.setItem(KEY, on ? "1" : "0"); } catch (error) { /* private window */ }
  }

  function kept() {
    try { return localStorage.getItem(KEY) === "1"; } catch (error) { return false; }
  }

  function mark() {
    var match = /^#L(\d+)$/.exec(location.hash);
    var line = match && document.getElementById("L" + match[1]);
    document.querySelectorAll(".log .picked").forEach(function (old) { old.classList.remove("picked"); });
    if (line) line.classList.add("picked");
    return line;
  }

  document.querySelectorAll("[data-wraps]").forEach(function (button) {
    if (!document.getElementById(button.dataset.wraps)) return;
    wrap(button, kept());
    button.addEventListener("click", function () {
      var on = button.getAttribute("aria-pressed") !== "true";
      wrap(button, on);
      keep(on);
    });
  });

  var line = mark() || document.querySelector("#log .cause");
  if (line) line.scrollIntoView({ block: "center", inline: "nearest" });
  window.addEventListener("hashchange", mark);
})();
