// Replaces in the shown page what differs from one run of ./scripts/screenshots to the next: times, ids, hashes, ports, and
// numbers of blocks, fees and attempts. It returns the page's text, and the ids with those in their places.
((known, clock, ports) => {
  "use strict";
  document.addEventListener("htmx:beforeRequest", e => e.preventDefault()); // the live part stays as it is
  const two = n => String(n).padStart(2, "0");
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
  const clean = e => e.textContent.replace(/\s+/g, " ").trim();

  // Ids. The n-th of a kind is the same in each run.
  const places = new Map(known.map(k => [k.was, k.is]));
  const random = seed => () => { // mulberry32
    seed = seed + 0x6D2B79F5 | 0;
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 4294967296;
  };
  const kinds = {
    uuid: [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, "0123456789abcdef", t => "019cad80-" + t.slice(0, 4) + "-7" + t.slice(4, 7) + "-a" + t.slice(7, 10) + "-" + t.slice(10, 22)],
    hash: [/\b0x[0-9a-f]{64}\b/g, "0123456789abcdef", t => "0x" + t],
    request: [/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", t => "01KJPR000" + t.slice(0, 17)],
    process: [/\b[A-Z2-7]{26}\b/g],
  };
  const place = (kind, was) => {
    if (kind === "process") { return "XLFFWXPOMKLDCXBMGSW5DRB7GN"; } // any of them may answer
    if (!places.has(was)) {
      const n = [...known].filter(k => k.kind === kind).length, next = random(1000 * Object.keys(kinds).indexOf(kind) + n);
      let text = "";
      while (text.length < 64) { text += kinds[kind][1][Math.floor(next() * kinds[kind][1].length)]; }
      known.push({ kind, was, is: kinds[kind][2](text) });
      places.set(was, known[known.length - 1].is);
    }
    return places.get(was);
  };
  const withIds = text => {
    for (const kind of Object.keys(kinds)) {
      text = text.replace(kinds[kind][0], was => [...places.values()].includes(was) ? was : place(kind, was));
    }
    return text;
  };
  const shorten = text => text.length <= 24 ? text : /^[0-9a-f]{8}-/.test(text) ? text.slice(0, 8) + "…" + text.slice(-6) : text.slice(0, 6) + "…" + text.slice(-4);
  all(".id[title]").filter(e => !e.querySelector(".id")).forEach(e => {
    const is = withIds(e.title);
    if (is !== e.title) { e.textContent = shorten(is); }
  });
  all("label[for=confirm] code").forEach(e => {
    const whole = known.find(k => k.was.endsWith(clean(e)));
    if (whole) { e.textContent = whole.is.slice(-6); }
  });

  // Times. Each instant of the page is a few seconds after the one before it, and the page is drawn at the clock.
  const step = 7, offset = { now: 0 };
  const span = s => s < 60 ? s + " s" : s < 600 && s % 60 ? Math.floor(s / 60) + " min " + s % 60 + " s" : Math.floor(s / 60) + " min";
  const full = seconds => new Date(clock + 1000 * seconds).toISOString().slice(0, 19).replace("T", " ");
  const drawn = document.querySelector("footer time");
  const say = (e, seconds) => {
    const was = clean(e);
    if (/^\d{4}-/.test(was)) { e.textContent = full(seconds) + " UTC"; }
    else if (/^for |^just now$/.test(was)) { e.textContent = seconds < 0 ? "for " + span(-seconds) : "just now"; }
    else { e.textContent = seconds < 0 ? span(-seconds) + " ago" : seconds > 0 ? "in " + span(seconds) : "now"; }
  };
  if (drawn) {
    const apart = (e, seconds) => { say(e, seconds); e.dataset.still = "yes"; };
    all("[data-page=chains] time").filter(e => e.closest("td")).forEach(e => apart(e, -1));
    all("main p").filter(p => /^Counted up to/.test(clean(p))).forEach(p => all("time", p).forEach(e => apart(e, -12)));
    all("dt").filter(e => clean(e) === "Next query").forEach(e => all("time", e.nextElementSibling).forEach(e => apart(e, 5)));
    all("[data-endpoint] dd").forEach(dd => all("time", dd).forEach(e => apart(e, /next $/.test((e.previousSibling || dd).textContent) ? 2 : -21)));
    all("table[aria-labelledby=queue] time").forEach(e => apart(e, -14));
    const times = all("time").filter(e => !e.dataset.still && e.getClientRects().length > 0);
    const micros = text => Date.parse(text.slice(0, 19) + "Z") * 1000 + Math.floor(1e6 * (text.match(/\.\d+/) || [0])[0]);
    const order = [...new Set(times.map(e => e.dateTime))].sort((a, b) => micros(a) - micros(b));
    // A time without a fraction is that of a text with whole seconds: the last instant of its second.
    const exact = text => /\.\d+Z$/.test(text) ? text : order.findLast(t => t.startsWith(text.slice(0, 19))) || text;
    // Two readings of one instant may differ by a microsecond.
    const instants = order.filter((t, i) => exact(t) === t && !(i > 0 && micros(t) - micros(order[i - 1]) < 3));
    const rank = text => instants.findLastIndex(t => micros(t) <= micros(exact(text)));
    times.forEach(e => say(e, step * (rank(e.dateTime) - rank(drawn.dateTime))));
    all("svg .when").forEach(e => {
      const state = e.parentNode.querySelector("text").textContent;
      const row = all("main tr").find(tr => tr.querySelector("th .badge") && clean(tr.querySelector("th .badge")) === state);
      if (row) { e.textContent = clean(row.querySelector("time")).slice(11, 19); }
    });
  }

  // Columns and terms whose numbers depend on when something was seen.
  const column = (name, change) => all("table").forEach(table => {
    const at = all("thead th", table).findIndex(th => clean(th) === name);
    all("tbody tr", table).forEach(tr => {
      const cell = at >= 0 && tr.cells.length > at && tr.cells[at];
      if (cell && /\d/.test(cell.textContent)) { change(cell); }
    });
  });
  const put = text => cell => { cell.textContent = text; };
  const term = (name, change) => all("dt").filter(e => clean(e) === name).forEach(e => change(e.nextElementSibling));
  const firstNumber = text => dd => {
    const walk = document.createTreeWalker(dd, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      if (/\d/.test(node.textContent)) { node.textContent = node.textContent.replace(/\d[\d\u202f]*/, text); return; }
    }
  };
  const block = "271", head = "273", tokens = new Map();
  column("Block", cell => { if (/^\d/.test(clean(cell))) { put(block)(cell); } });
  column("Head", put(head));
  column("Finalized", put("209"));
  column("Behind", put("0"));
  column("Fencing token", cell => { const was = clean(cell); tokens.set(was, tokens.get(was) || tokens.size + 7); put(tokens.get(was))(cell); });
  column("Sent", cell => put(clean(cell) === "0" ? "0" : "1")(cell));
  column("Retries", cell => put(clean(cell) === "0" ? "0" : "4")(cell));
  column("Max fee per gas", put("0.001000014 gwei"));
  column("Lease", put("free"));
  term("Base fee", put("0.000000007 gwei"));
  term("Lease", dd => put(/fencing token/.test(dd.textContent) ? "free; fencing token 7" : "nobody works on the submitter now")(dd));
  term("At block", firstNumber(block));
  term("Block", firstNumber(block));
  term("Retries", firstNumber("4"));
  term("Waiting", dd => { if (clean(dd)[0] !== "0") { firstNumber("40")(dd); } });
  term("Calls without an answer", dd => { if (clean(dd)[0] !== "0") { firstNumber("5")(dd); } });
  term("Blocks on top", firstNumber("3"));
  term("Revision", put("0123ab…4567"));
  term("Go", put("go1.26"));
  all("[data-field=version]").forEach(put("0.1.0"));
  all("[data-field=balance] .amount").forEach(put("999 999.9999 ether"));
  const rates = { "1": ["14", "5", "2", "4 s", "8 s"], "5": ["31", "20", "3", "4 s", "9 s"], "60": ["31", "20", "3", "4 s", "9 s"] };
  all("table[aria-labelledby=rates] tbody tr").forEach(tr => {
    const minutes = clean(tr.cells[0]).split(" ")[0];
    tr.cells[0].textContent = minutes + " min";
    rates[minutes].forEach((text, i) => { tr.cells[i + 1].textContent = text; });
  });

  // The rest of the text.
  const nodes = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const cell = node.parentElement.closest("td, dd, section, li, pre, p") || document.body;
    const seen = nodes.get(cell) || nodes.set(cell, []).get(cell);
    node.textContent = withIds(node.textContent)
      .replace(/\b127\.0\.0\.1:(\d+)/g, (_, port) => {
        if (ports[port] !== "node") { return "127.0.0.1:" + (ports[port] || "8080"); }
        if (!seen.includes(port)) { seen.push(port); }
        return "127.0.0.1:" + (8545 + seen.indexOf(port));
      })
      .replace(/\bat block \d+/g, "at block " + head).replace(/\b(block) \d[\d\u202f]*/g, (text, word) => /^at /.test(text) ? text : word + " " + (node.textContent.includes("at block") ? head : block))
      .replace(/-\d{13}\b/g, "-" + (clock - 60000)).replace(/\d+ failed attempts/g, "4 failed attempts").replace(/\d+\.\d+ s measured/g, "1.000 s measured")
      .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)/g, () => new Date(clock - 60000).toISOString().slice(0, 19) + "Z");
  }
  return { text: document.body.innerText.replace(/[ \t\u202f]+/g, " ").replace(/ ?\n\s*/g, "\n").trim(), known };
})
