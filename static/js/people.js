// Drafts outlive a lost session or a closed tab; the script is not needed for anything else. Printing.
(function () {
  "use strict";
  function key(form) { return "faultline.draft." + form.getAttribute("action"); }

  function store(name, value) {
    try {
      if (value) sessionStorage.setItem(name, value); else sessionStorage.removeItem(name);
    } catch (error) { /* private window */ }
  }

  function kept(name) {
    try { return sessionStorage.getItem(name) || ""; } catch (error) { return ""; }
  }

  document.querySelectorAll("form[data-draft]").forEach(function (form) {
    var box = form.querySelector("textarea");
    if (!box) return;
    // What was sent is marked; it is dropped once the page shows it as a comment, and given back when it doesn't.
    var sent = kept(key(form) + ".sent");
    if (sent && document.getElementById(location.hash.slice(1)) && /^#c\d+$/.test(location.hash)) store(key(form), "");
    store(key(form) + ".sent", "");
    if (!box.value) box.value = kept(key(form));
    box.addEventListener("input", function () { store(key(form), box.value); });
    form.addEventListener("submit", function () {
      store(key(form), box.value);
      store(key(form) + ".sent", "1");
    });
  });

  document.addEventListener("click", function (event) {
    if (event.target.closest && event.target.closest("[data-print]")) window.print();
  });
})();
