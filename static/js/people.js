// Drafts outlive a lost session or a reload; the script is not needed for anything else. Printing.
(function () {
  "use strict";
  var PREFIX = "faultline.draft.";

  function store(name, value) {
    try {
      if (value) sessionStorage.setItem(name, value); else sessionStorage.removeItem(name);
    } catch (error) { /* private window */ }
  }

  function kept(name) {
    try { return sessionStorage.getItem(name) || ""; } catch (error) { return ""; }
  }

  function fields(form) {
    return Array.prototype.filter.call(form.elements, function (field) {
      return field.name && field.type !== "hidden" && field.type !== "submit" && field.type !== "button";
    });
  }

  function read(form) {
    return JSON.stringify(fields(form).map(function (field) {
      var ticked = field.type === "checkbox" || field.type === "radio";
      return [field.name, ticked ? field.value : "", ticked ? field.checked : field.value];
    }));
  }

  function write(form, text) {
    var saved;
    try { saved = JSON.parse(text); } catch (error) { return; }
    if (!Array.isArray(saved)) return;
    fields(form).forEach(function (field) {
      var ticked = field.type === "checkbox" || field.type === "radio";
      var found = saved.find(function (one) { return one[0] === field.name && (!ticked || one[1] === field.value); });
      if (!found) return;
      if (ticked) field.checked = found[2] === true;
      else if (typeof found[2] === "string" && (found[2] || field.tagName !== "SELECT")) field.value = found[2];
    });
  }

  function isEmpty(form) {
    return Array.prototype.every.call(form.querySelectorAll("textarea"), function (box) { return !box.value; });
  }

  document.querySelectorAll("form[data-draft]").forEach(function (form) {
    var name = PREFIX + form.getAttribute("action");
    // What was sent is marked. It is dropped once a page shows that it arrived: as a comment here, or by another page
    // than the form's. Else (a sign-in came in between) it is given back.
    var sent = kept(name + ".sent");
    if (sent && /^#c\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1))) store(name, "");
    store(name + ".sent", "");
    if (form.hasAttribute("data-kept")) store(name, "");  // the server has it
    else if (kept(name) && isEmpty(form)) write(form, kept(name));
    var save = function () { store(name, read(form)); };
    form.addEventListener("input", save);
    form.addEventListener("change", save);
    form.addEventListener("submit", function () {
      save();
      store(name + ".sent", "1");
    });
  });

  try {
    Object.keys(sessionStorage).forEach(function (name) {
      if (name.indexOf(PREFIX) !== 0 || !/\.sent$/.test(name)) return;
      store(name, "");
      store(name.slice(0, -5), "");
    });
  } catch (error) { /* private window */ }

  document.addEventListener("click", function (event) {
    if (!event.target.closest) return;
    if (event.target.closest("[data-draft-drop]")) {
      document.querySelectorAll("form[data-draft]").forEach(function (form) { store(PREFIX + form.getAttribute("action"), ""); });
    }
    if (event.target.closest("[data-print]")) window.print();
  });
})();
