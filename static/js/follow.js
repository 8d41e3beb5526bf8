// From a list to its rows and on to the next: on the page of a row, j, k and u keep to the list that it was opened from.
// Without it they lead to the newer and older ones of all, and to the whole list.
(function () {
  "use strict";
  var KEY = "faultline.lists";

  function kept() {
    try { return JSON.parse(sessionStorage.getItem(KEY) || "{}"); } catch (error) { return {}; }
  }

  function keep(lists) {
    try { sessionStorage.setItem(KEY, JSON.stringify(lists)); } catch (error) { /* private window */ }
  }

  function href(selector) {
    var link = document.querySelector(selector);
    return link ? link.pathname + link.search : "";
  }

  // What kind of thing the rows lead to: "attempts" or "incidents".
  function kind(path) { return path.split("/")[1]; }

  function remember(links) {
    var lists = kept(), name = kind(links[0].pathname), address = location.pathname + location.search;
    var before = lists[name] || {};
    lists[name] = {
      address: address,
      rows: links.map(function (link) { return link.pathname; }),
      next: href("a[rel='next']"),
      previous: href("a[rel='prev']"),
      last: before.address === address ? before.last : ""
    };
    keep(lists);
    return lists[name];
  }

  // The row that was open last stands under the cursor again.
  function mark(links, last) {
    if (document.querySelector("tr.cursor")) return;
    links.forEach(function (link) {
      if (link.pathname !== last) return;
      var row = link.closest("tr");
      row.classList.add("cursor");
      row.scrollIntoView({ block: "nearest" });
    });
  }

  function lead(key, address, word) {
    var link = document.querySelector("[data-key='" + key + "']");
    if (!link) return;
    link.hidden = !address;
    if (!address) return;
    link.setAttribute("href", address);
    if (!word) return;
    link.setAttribute("aria-label", word + " in the list");
    link.childNodes.forEach(function (node) {  // "Newer" is not what the order of that list may be
      if (node.nodeType === Node.TEXT_NODE && node.data.trim()) node.data = word;
    });
  }

  function apply() {
    var lists = kept(), list = lists[kind(location.pathname)];
    var at = list ? list.rows.indexOf(location.pathname) : -1;
    if (at < 0) return;
    lead("j", list.rows[at + 1] || list.next, "Next");
    lead("k", list.rows[at - 1] || list.previous, "Previous");
    lead("u", list.address);
    list.last = location.pathname;
    keep(lists);
  }

  function start() {
    var links = Array.prototype.slice.call(document.querySelectorAll("table.failures tbody .why > a"));
    if (links.length) mark(links, remember(links).last);
    else apply();
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
  window.addEventListener("pageshow", function (event) { if (event.persisted) start(); });
})();
