// Dropping files anywhere on the page, a list of what was chosen, and how much has been sent. The form works without it.
(function () {
  "use strict";
  var form = document.getElementById("upload");
  var input = document.getElementById("files");
  var drop = document.getElementById("drop");
  var chosen = document.getElementById("chosen");
  if (!form || !input || !window.FormData) return;

  function size(bytes) {
    var units = ["B", "KB", "MB", "GB"];
    var at = 0;
    while (bytes >= 1000 && at < 3) { bytes /= 1000; at += 1; }
    return (at ? bytes.toFixed(1) : bytes) + " " + units[at];
  }

  function show() {
    chosen.textContent = "";
    Array.prototype.slice.call(input.files, 0, 20).forEach(function (file) {
      var item = document.createElement("li");
      item.textContent = file.name + ", " + size(file.size);
      chosen.appendChild(item);
    });
    if (input.files.length > 20) {
      var more = document.createElement("li");
      more.textContent = "and " + (input.files.length - 20) + " more";
      chosen.appendChild(more);
    }
  }
  input.addEventListener("change", show);

  ["dragover", "dragenter"].forEach(function (name) {
    document.addEventListener(name, function (event) {
      if (!event.dataTransfer || Array.prototype.indexOf.call(event.dataTransfer.types, "Files") < 0) return;
      event.preventDefault();
      drop.classList.add("over");
    });
  });
  document.addEventListener("dragleave", function (event) { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", function (event) {
    if (!event.dataTransfer || !event.dataTransfer.files.length) return;
    event.preventDefault();
    drop.classList.remove("over");
    input.files = event.dataTransfer.files;
    show();
  });

  form.addEventListener("submit", function (event) {
    if (!input.files.length) return;
    event.preventDefault();
    var button = form.querySelector("button[type='submit']");
    var bar = document.getElementById("bar");
    var sent = document.getElementById("sent");
    button.disabled = true;
    document.getElementById("sending").hidden = false;
    var request = new XMLHttpRequest();
    request.open("POST", form.action || location.href);
    request.setRequestHeader("X-Requested-With", "fetch");
    request.upload.addEventListener("progress", function (moved) {
      if (!moved.lengthComputable) return;
      bar.value = Math.floor(100 * moved.loaded / moved.total);
      sent.textContent = moved.loaded >= moved.total ? "All sent, being checked" : size(moved.loaded) + " of " + size(moved.total);
    });
    request.addEventListener("load", function () {
      var where = request.getResponseHeader("X-Location");
      if (where) { location.href = where; return; }
      // Refused: the answer is this page with the reasons; it replaces the form, so that Back still leads here.
      var page = new DOMParser().parseFromString(request.responseText, "text/html");
      var reasons = page.querySelectorAll("#refused li, .error");
      var box = document.getElementById("refused") || document.createElement("div");
      box.id = "refused";
      box.className = "notice";
      box.setAttribute("role", "alert");
      box.textContent = "";
      var head = document.createElement("strong");
      head.textContent = "Not taken. Nothing was kept.";
      box.appendChild(head);
      var list = document.createElement("ul");
      (reasons.length ? Array.prototype.map.call(reasons, function (node) { return node.textContent; })
        : ["The server answered " + request.status + (request.status === 413 ? ": too large." : ".")]
      ).forEach(function (text) {
        var item = document.createElement("li");
        item.textContent = text;
        list.appendChild(item);
      });
      box.appendChild(list);
      if (!box.parentNode) drop.parentNode.insertBefore(box, drop);
      document.getElementById("sending").hidden = true;
      button.disabled = false;
      box.scrollIntoView({ block: "nearest" });
    });
    request.addEventListener("error", function () {
      sent.textContent = "The connection broke. Nothing was kept; try again.";
      button.disabled = false;
    });
    request.send(new FormData(form));
  });
})();
