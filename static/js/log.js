// The log: wrapping that lasts; #L125 or #L120-L131 picks lines and puts them in the middle; links to picked lines.
(function () {
  "use strict";
  var KEY = "faultline.wrap";
  var anchor = 0;

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

  function range() {
    var match = /^#L(\d{1,15})(?:-L?(\d{1,15}))?$/.exec(location.hash);
    if (!match) return null;
    var first = Number(match[1]);
    var last = Number(match[2] || match[1]);
    return first <= last ? [first, last] : [last, first];
  }

  function name(picked) { return picked[0] === picked[1] ? "L" + picked[0] : "L" + picked[0] + "-L" + picked[1]; }

  function line(number) { return document.getElementById("L" + number); }

  // A link that shows the picked lines to anybody, with or without script.
  function address(button, picked) {
    if (!picked) return location.href;
    var query = picked[0] === picked[1] ? "?line=" + picked[0] : "?lines=" + picked[0] + "-" + picked[1];
    return location.origin + button.dataset.base + query + "#" + name(picked);
  }

  function mark() {
    var picked = range();
    document.querySelectorAll(".log .picked").forEach(function (old) { old.classList.remove("picked"); });
    var first = null;
    if (picked) {
      // Only lines that are here are looked at, however long the range is.
      document.querySelectorAll("#log li[id]").forEach(function (item) {
        var number = Number(item.id.slice(1));
        if (number < picked[0] || number > picked[1]) return;
        item.classList.add("picked");
        first = first || item;
        var fold = item.closest("details");
        if (fold) fold.open = true;
      });
      anchor = picked[0];
      tell(picked);
    }
    return first;
  }

  function tell(picked) {
    var said = document.getElementById("picked-lines");
    var quote = document.getElementById("quote-lines");
    var copy = document.querySelector("[data-copy-lines]");
    var part = document.querySelector("[data-part]");
    if (said) said.textContent = (picked[0] === picked[1] ? "Line " + picked[0] : "Lines " + picked[0] + " to " + picked[1]) + " picked.";
    if (quote) {
      quote.hidden = false;
      quote.href = quote.dataset.base + "?quote=" + encodeURIComponent(quote.dataset.stream + ":" + picked[0] + "-" + picked[1]) + "#compose";
    }
    if (copy) {
      copy.querySelector("span").textContent = "Copy " + name(picked);
      copy.dataset.copy = address(copy, picked);
    }
    if (part && picked[0] !== picked[1]) part.href = part.dataset.part + "?first=" + picked[0] + "&last=" + picked[1];
  }

  // Lines that the address names and that are not on this page: ask the server for them, once.
  function fetchMissing(picked) {
    var copy = document.querySelector("[data-copy-lines]");
    var first = document.querySelector("#log li[id]");
    if (!picked || !copy || !first || line(picked[0])) return;
    var target = address(copy, picked);
    if (target.split("#")[0] !== location.href.split("#")[0]) location.replace(target);
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

  document.querySelectorAll("[data-copy-lines]").forEach(function (button) { button.dataset.copy = location.href; });

  document.addEventListener("click", function (event) {
    var link = event.target.closest ? event.target.closest("#log a.ln") : null;
    if (!link || event.ctrlKey || event.metaKey || event.altKey) return;
    var number = Number(link.hash.slice(2));
    event.preventDefault();
    var picked = event.shiftKey && anchor ? [Math.min(anchor, number), Math.max(anchor, number)] : [number, number];
    var from = event.shiftKey && anchor ? anchor : number;
    history.replaceState(history.state, "", "#" + name(picked));
    mark();
    anchor = from;
    if (event.shiftKey) getSelection().removeAllRanges();
  });

  var first = mark() || document.querySelector("#log .moment") || document.querySelector("#log .cause") || document.querySelector("#log .range");
  if (first) first.scrollIntoView({ block: "center", inline: "nearest" });
  fetchMissing(range());
  window.addEventListener("hashchange", function () {
    var item = mark();
    if (item) item.scrollIntoView({ block: "center", inline: "nearest" });
    else fetchMissing(range());
  });
  // Reading on by scrolling: the next lines come when their link comes near, and lines far behind leave the page, so
  // that a log of any length can be read through. Only after a scroll of the reader's, never by itself.
  var log = document.getElementById("log");
  var MOST = 1500, KEEP = 900, STEP = 50;
  var scrolled = false;

  function behind(first, last, way) {
    var item = document.createElement("li");
    var link = document.createElement("a");
    item.className = "fold";
    link.className = "btn quiet";
    link.dataset.more = way;
    link.href = "?first=" + first + "&last=" + last + log.dataset.rest + "#L" + (way === "up" ? last : first);
    link.setAttribute("hx-get", log.dataset.lines + "?first=" + first + "&last=" + last + "&way=" + way + log.dataset.rest);
    link.setAttribute("hx-target", "closest li");
    link.setAttribute("hx-swap", "outerHTML");
    link.textContent = "Lines " + first.toLocaleString("en") + " to " + last.toLocaleString("en");
    var cell = document.createElement("span");
    cell.appendChild(link);
    item.append(document.createElement("span"), cell);
    return item;
  }

  function numbers(item) { return Array.from(item.id ? [item] : item.querySelectorAll("li[id]"), function (one) { return Number(one.id.slice(1)); }); }

  function prune(way) {
    var count = log.querySelectorAll("li[id]").length;
    if (count <= MOST || log.contains(document.activeElement) && document.activeElement !== log) return;
    var edge = 0, next;
    while (count > KEEP && (next = way === "down" ? log.firstElementChild : log.lastElementChild)) {
      var gone = numbers(next);
      if (gone.length) edge = way === "down" ? Math.max.apply(null, gone) : Math.min.apply(null, gone);
      count -= gone.length;
      next.remove();
    }
    if (!edge) return;
    var item = way === "down" ? behind(Math.max(1, edge - STEP + 1), edge, "up") : behind(edge, edge + STEP - 1, "down");
    if (way === "down") log.prepend(item); else log.append(item);
    if (window.htmx) window.htmx.process(item);
  }

  if (log && log.dataset.lines && window.IntersectionObserver) {
    var near = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting || !scrolled || !window.htmx) return;
        scrolled = false;
        near.unobserve(entry.target);
        window.htmx.trigger(entry.target, "click");
      });
    }, { rootMargin: "300px 0px" });
    var watch = function () { log.querySelectorAll("a[data-more='down']").forEach(function (link) { near.unobserve(link); near.observe(link); }); };
    window.addEventListener("wheel", function () { scrolled = true; watch(); }, { passive: true });
    window.addEventListener("touchmove", function () { scrolled = true; watch(); }, { passive: true });
    window.addEventListener("keydown", function (event) { if (/^(PageDown|ArrowDown|End| )$/.test(event.key)) { scrolled = true; watch(); } });
    document.addEventListener("htmx:afterSwap", function (event) {
      var asked = event.detail.pathInfo && event.detail.pathInfo.requestPath || "";
      if (asked.indexOf(log.dataset.lines) === 0) prune(/way=up/.test(asked) ? "up" : "down");
    });
  }
  // Lines that came later may be among the picked ones.
  document.addEventListener("htmx:afterSwap", function () { if (range()) mark(); });
})();
