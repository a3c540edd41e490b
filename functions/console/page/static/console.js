// Small help around htmx. Without it each page can still be read.
(function () {
  "use strict";
  var open = [];
  function live() { return document.getElementById("live"); }
  function stale(is) { document.getElementById("stale").hidden = !is; }
  function inLive(node) { var l = live(); return l && node && l.contains(node); }

  // A hidden page does not poll. A page whose text is being selected waits.
  document.addEventListener("htmx:beforeRequest", function (e) {
    var s = document.getSelection();
    if (document.hidden || (s && !s.isCollapsed && inLive(s.anchorNode))) { e.preventDefault(); }
  });
  // An answer without the live part, such as a page to sign in, must not empty this page.
  document.addEventListener("htmx:beforeSwap", function (e) {
    if ((e.detail.xhr.responseText || "").indexOf('id="live"') < 0) { e.detail.shouldSwap = false; stale(true); return; }
    open = Array.prototype.map.call(document.querySelectorAll("#live details[id][open]"), function (d) { return d.id; });
  });
  document.addEventListener("htmx:afterSwap", function () {
    stale(false);
    open.forEach(function (id) { var d = document.getElementById(id); if (d) { d.open = true; } });
  });
  ["htmx:sendError", "htmx:timeout", "htmx:responseError"].forEach(function (name) {
    document.addEventListener(name, function () { stale(true); });
  });

  // A browser keeps pages for its back button, with the state of then. Such a page is read again, by GET also after a form.
  window.addEventListener("pageshow", function (e) {
    if (e.persisted) { location.replace(location.pathname + location.search); }
  });

  // The arrow keys move along a nonce lane; "/" goes to the search.
  document.addEventListener("keydown", function (e) {
    var at = document.activeElement, step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (e.ctrlKey || e.metaKey || e.altKey) { return; }
    if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName)) {
      var find = document.getElementById("find");
      if (find) { e.preventDefault(); find.focus(); }
    } else if (step && at.closest && at.closest(".lane")) {
      var all = Array.prototype.slice.call(at.closest(".lane").querySelectorAll("a[data-nonce]"));
      var next = all[all.indexOf(at) + step];
      if (next) { e.preventDefault(); next.focus(); }
    }
  });
  // A button that was pressed once waits for its answer.
  document.addEventListener("submit", function (e) {
    if (e.target.method !== "post") { return; }
    setTimeout(function () { e.target.querySelectorAll("button").forEach(function (b) { b.disabled = true; }); }, 0);
  });
})();
