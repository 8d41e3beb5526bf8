// The log: wrapping that lasts; #L125 or #L120-L131 picks lines and puts them in the middle; picking by mouse and by key;
// links to picked lines.
(function () {
  "use strict";
  var KEY = "faultline.wrap";
  var anchor = 0, head = 0;  // where a range began, and its other end
  var log = document.getElementById("log");

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
    var bar = document.getElementById("picked-bar");
    var todo = document.getElementById("picked-do");
    var copy = document.querySelector("[data-copy-lines]");
    var part = document.querySelector("[data-part]");
    if (said) said.textContent = picked ? (picked[0] === picked[1] ? "Line " + shown(picked[0]) : "Lines " + shown(picked[0]) + " to " + shown(picked[1])) + " picked" : "";
    if (bar) bar.classList.toggle("idle", !picked);
    if (todo) todo.hidden = !picked;
    if (copy) {
      copy.querySelector("span").textContent = picked ? "Copy " + name(picked) : "Copy link";
      copy.dataset.copy = address(copy, picked);
    }
    if (!picked) return;
    document.querySelectorAll("[data-quote]").forEach(function (link) {
      link.href = link.dataset.quote + "?quote=" + encodeURIComponent(link.dataset.stream + ":" + picked[0] + "-" + picked[1]) + link.dataset.to;
    });
    if (part && picked[0] !== picked[1]) {
      part.href = part.dataset.part + "?first=" + picked[0] + "&last=" + picked[1];
      part.querySelector("span").textContent = "The picked lines";
    }
  }

  function shown(number) { return number.toLocaleString("en"); }

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

  // ---------- picking ----------
  function pick(first, last) {
    history.replaceState(history.state, "", "#" + name([Math.min(first, last), Math.max(first, last)]));
    mark();
    anchor = first;
    head = last;
  }

  function unpick() {
    history.replaceState(history.state, "", location.pathname + location.search);
    mark();
    tell(null);
    anchor = 0;
  }

  function numberOf(link) { return Number(link.hash.slice(2)); }

  function numberAt(event) {
    var found = event.target.closest ? event.target.closest("#log a.ln") : null;
    return found && log && log.dataset.lines ? found : null;
  }

  document.addEventListener("click", function (event) {
    var link = numberAt(event);
    if (!link || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (event.shiftKey && anchor) {
      pick(anchor, numberOf(link));
      getSelection().removeAllRanges();
    } else if (!dragged) pick(numberOf(link), numberOf(link));
    dragged = false;
  });

  // Over the numbers with the button held: from the first to the one under the pointer.
  var from = 0, dragged = false;
  document.addEventListener("pointerdown", function (event) {
    var link = numberAt(event);
    from = link && event.button === 0 && !event.shiftKey && event.pointerType !== "touch" ? numberOf(link) : 0;
    dragged = false;
  });
  document.addEventListener("pointerover", function (event) {
    if (!from || !(event.buttons & 1)) return;
    var item = event.target.closest ? event.target.closest("#log li[id]") : null;
    var number = item ? Number(item.id.slice(1)) : 0;
    if (!number || (number === from && !dragged)) return;
    dragged = true;
    pick(from, number);
    getSelection().removeAllRanges();
  });
  document.addEventListener("dragstart", function (event) { if (numberAt(event)) event.preventDefault(); });
  // Text that is selected over several lines picks these lines.
  document.addEventListener("pointerup", function () {
    from = 0;
    setTimeout(function () {
      var selection = getSelection();
      if (!log || !log.dataset.lines || selection.isCollapsed || !selection.rangeCount) return;
      var ends = [selection.anchorNode, selection.focusNode].map(function (node) {
        var item = node && (node.nodeType === 1 ? node : node.parentElement);
        item = item && item.closest("#log li[id]");
        return item ? Number(item.id.slice(1)) : 0;
      });
      if (ends[0] && ends[1] && ends[0] !== ends[1]) pick(ends[0], ends[1]);
    }, 0);
  });

  // By key: the focus goes from line to line (and to folds); with shift the lines on the way are picked.
  function stops() {
    return Array.prototype.filter.call(log.querySelectorAll("a.ln, summary"), function (stop) { return stop.offsetParent !== null; });
  }

  function here() {
    var active = document.activeElement;
    if (active && log.contains(active)) {
      var item = active.closest("li[id]");
      if (active.matches("summary")) return active;
      if (item) return item.querySelector("a.ln");
    }
    var picked = range(), item2 = picked ? line(picked[1]) : log.querySelector(".cause, .range");
    return item2 ? item2.querySelector("a.ln") : null;
  }

  function step(by, extend) {
    if (!log || !log.dataset.lines) return false;
    var all = stops(), at = all.indexOf(here()), inside = log.contains(document.activeElement) && document.activeElement !== log;
    // The first key only takes up the line that is picked or shown; a further one goes on from it.
    var next = at < 0 ? all[0] : inside || extend ? all[at + by] : all[at];
    if (!next) return true;
    if (extend) {
      while (next && next.matches("summary")) next = all[all.indexOf(next) + by];
      if (!next) return true;
      var old = all[at] && all[at].matches("a.ln") ? numberOf(all[at]) : numberOf(next);
      pick(range() && anchor && head === old ? anchor : old, numberOf(next));
    }
    next.focus({ preventScroll: true });
    (next.closest("li[id]") || next).scrollIntoView({ block: "nearest", inline: "nearest" });
    return true;
  }

  window.faultline = Object.assign(window.faultline || {}, { line: step });

  document.addEventListener("keydown", function (event) {
    if (!log || !log.contains(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("[popover]")) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (step(event.key === "ArrowDown" ? 1 : -1, event.shiftKey)) event.preventDefault();
    } else if (event.key === "Escape" && range() && !document.querySelector(":popover-open")) unpick();
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
    if (count <= MOST) return;
    var edge = 0, next;
    while (count > KEEP && (next = way === "down" ? log.firstElementChild : log.lastElementChild)) {
      if (next.contains(document.activeElement)) break;
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
    var watch = function (way) {
      scrolled = true;
      log.querySelectorAll("a[data-more='" + way + "']").forEach(function (link) { near.unobserve(link); near.observe(link); });
    };
    var touched = 0;
    window.addEventListener("wheel", function (event) { if (event.deltaY) watch(event.deltaY > 0 ? "down" : "up"); }, { passive: true });
    window.addEventListener("touchstart", function (event) { touched = event.touches[0].clientY; }, { passive: true });
    window.addEventListener("touchmove", function (event) { watch(event.touches[0].clientY < touched ? "down" : "up"); }, { passive: true });
    window.addEventListener("keydown", function (event) {
      if (/^(PageDown|ArrowDown|End| |j|J)$/.test(event.key)) watch("down");
      if (/^(PageUp|ArrowUp|Home|k|K)$/.test(event.key)) watch("up");
    });
    // The line that is read stays where it is, whatever comes or goes above it.
    var held = null;
    document.addEventListener("htmx:beforeSwap", function (event) {
      if (!event.detail.pathInfo || (event.detail.pathInfo.requestPath || "").indexOf(log.dataset.lines) !== 0) return;
      var rows = log.querySelectorAll("li[id]"), inView = Array.prototype.find.call(rows, function (row) { return row.offsetParent && row.getBoundingClientRect().top >= 0; });
      held = inView ? { row: inView, top: inView.getBoundingClientRect().top } : null;
    });
    document.addEventListener("htmx:afterSwap", function (event) {
      var asked = event.detail.pathInfo && event.detail.pathInfo.requestPath || "";
      if (asked.indexOf(log.dataset.lines) !== 0) return;
      prune(/way=up/.test(asked) ? "up" : "down");
      if (held && held.row.isConnected) window.scrollBy(0, held.row.getBoundingClientRect().top - held.top);
      held = null;
    });
  }
  // The strip is the whole stream: a click goes to that place in it.
  document.addEventListener("click", function (event) {
    var strip = event.target.closest ? event.target.closest("svg.ruler[data-base]") : null;
    if (!strip || event.target.closest("a")) return;
    var box = strip.getBoundingClientRect();
    var number = Math.max(1, Math.min(Number(strip.dataset.total), Math.ceil((event.clientX - box.left) / box.width * Number(strip.dataset.total))));
    location.href = strip.dataset.base + "?line=" + number + (log ? log.dataset.rest : "") + "#L" + number;
  });

  // Lines that came later may be among the picked ones.
  document.addEventListener("htmx:afterSwap", function () { if (range()) mark(); });
})();
