"use strict";
// What the live page does in the browser: it draws figures in the colours of the screen, and keeps
// the reader's zoom and hidden traces. Everything else is done by the server.

(() => {
  const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
  darkScreen.addEventListener("change", () =>
    window.dash_clientside.set_props("dark", { data: darkScreen.matches }),
  );

  // Axes that were zoomed and traces that were hidden stay so while the figure is of the same search
  // and tab. Plotly's own uirevision forgets them when Dash draws again.
  const keepWhatTheReaderDid = (id, figure) => {
    const drawn = document.querySelector(`#${id} .js-plotly-plot`)?._fullLayout;
    if (!drawn || drawn.uirevision !== figure.layout.uirevision) return;
    for (const name of Object.keys(figure.layout).filter((key) => /^[xy]axis/.test(key))) {
      const axis = figure.layout[name];
      if (drawn[name]?.autorange === false && !axis.range) {
        Object.assign(axis, { range: [...drawn[name].range], autorange: false });
      }
    }
    const data = document.querySelector(`#${id} .js-plotly-plot`)._fullData || [];
    const hidden = new Set(data.filter((t) => t.visible === "legendonly").map((t) => t.name));
    for (const trace of figure.data) if (hidden.has(trace.name)) trace.visible = "legendonly";
  };

  // A figure that was drawn while its place was hidden, or had another width, is fitted to it.
  setInterval(() => {
    for (const plot of document.querySelectorAll(".slot .js-plotly-plot, #trial-curve .js-plotly-plot")) {
      const width = plot.clientWidth;
      if (width > 0 && plot._fullLayout && Math.abs(plot._fullLayout.width - width) > 2) window.Plotly?.Plots.resize(plot);
    }
  }, 300);

  // Dash calls its check boxes and radio buttons options of a list, which they are not, and puts
  // fields that are hidden from screen readers into the order of the tab key.
  const NAMES = { methods: "only methods", states: "only states", tab: "what is shown" };
  const repaired = () => {
    for (const [id, name] of Object.entries(NAMES)) {
      const list = document.getElementById(id);
      const role = id === "tab" ? "radiogroup" : "group";
      if (!list || list.getAttribute("role") === role) continue; // else this would call itself
      list.setAttribute("role", role);
      list.setAttribute("aria-label", name);
    }
    for (const label of document.querySelectorAll("label[role=option], label[aria-selected]")) {
      label.removeAttribute("role");
      label.removeAttribute("aria-selected");
    }
    for (const field of document.querySelectorAll(".dash-dropdown-focus-target[tabindex='0']")) field.tabIndex = -1;
  };
  const watched = new Set();
  const repairs = new MutationObserver(repaired);
  const finding = setInterval(() => {
    for (const place of document.querySelectorAll(".live header, .filters, .tabs, #pickers")) {
      if (watched.has(place)) continue;
      watched.add(place);
      repairs.observe(place, { childList: true, subtree: true, attributes: true, attributeFilter: ["role", "tabindex", "aria-selected"] });
      repaired();
    }
    if (watched.size >= 4) clearInterval(finding);
  }, 100);

  const coloured = (json, dark, colours) => {
    const none = window.dash_clientside.no_update;
    if (!json) return [none, none];
    const exchanged = (colour) => colours[colour.toUpperCase()] || colour;
    const figure = JSON.parse(dark ? json.replace(/#[0-9A-Fa-f]{6}\b/g, exchanged) : json);
    keepWhatTheReaderDid(window.dash_clientside.callback_context.outputs_list[0].id, figure);
    return [figure, { width: "100%", height: `${figure.layout.height}px` }];
  };

  // A trial is chosen by a click on anything that names it, such as a row or a card.
  document.addEventListener("click", (event) => {
    const named = event.target.closest?.("[data-trial]");
    if (named) window.dash_clientside.set_props("chosen", { data: named.dataset.trial });
  });

  // The reader's choice of another search to compare with opens the tab that shows both.
  const compared = (others, tab) => {
    const some = (others || []).length > 0;
    if (some === (tab === "compare")) return window.dash_clientside.no_update;
    return some ? "compare" : "front";
  };

  const made = (kind, text, attributes) => {
    const element = document.createElement(kind);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    return element;
  };

  // The table of trials: sorted and filtered here, so that it answers at once.
  const FEW = 100;
  const table = { data: null, sort: null, down: false, words: "", all: false };
  const isNumber = (column) => column.kind === "number" || column.kind === "percent";

  const cellText = (value, column) => {
    if (value === null || value === undefined || value === "") return "-";
    if (!isNumber(column)) return String(value);
    if (column.kind === "percent") return `${(100 * value).toFixed(2)} %`;
    if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(4)));
  };

  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    if (a !== "" && b !== "" && !Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };

  const chosenRows = () => {
    const { columns, rows } = table.data;
    const words = table.words.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => row.map((v, i) => `${columns[i].name}=${cellText(v, columns[i])}`).join(" ");
    const kept = words.length
      ? rows.filter((row) => words.every((word) => text(row).toLowerCase().includes(word)))
      : [...rows];
    const at = columns.findIndex((column) => column.name === table.sort);
    if (at < 0) return kept;
    const missing = (row) => row[at] === null || row[at] === undefined || row[at] === "";
    return kept.sort((a, b) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return (table.down ? -1 : 1) * compare(a[at], b[at]);
    });
  };

  const save = () => {
    const quoted = (v) => (/[",\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);
    const cell = (v) => quoted(v === null || v === undefined ? "" : String(v));
    const lines = [table.data.columns.map((column) => quoted(column.name)), ...chosenRows().map((row) => row.map(cell))];
    const blob = new Blob([lines.map((line) => line.join(",")).join("\n") + "\n"], { type: "text/csv" });
    const link = made("a", "", { href: URL.createObjectURL(blob), download: `${table.data.search}-trials.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const head = (column) => {
    const cell = made("th", undefined, { scope: "col", class: isNumber(column) ? "number" : "" });
    const sorted = table.sort === column.name;
    if (sorted) cell.setAttribute("aria-sort", table.down ? "descending" : "ascending");
    const button = made("button", column.name, { type: "button" });
    button.addEventListener("click", () => {
      table.down = sorted ? !table.down : isNumber(column);
      table.sort = column.name;
      drawTable();
      document.querySelector(`#trials th[aria-sort] button`)?.focus();
    });
    cell.append(button);
    return cell;
  };

  const line = (row, columns, front) => {
    const made_ = made("tr", undefined, { class: front.has(row[0]) ? "trial front" : "trial", "data-trial": row[0] });
    row.forEach((value, i) => {
      const kind = isNumber(columns[i]) ? "number" : columns[i].kind;
      const cell = made("td", undefined, { class: kind });
      if (kind === "id") cell.append(made("button", value, { type: "button", class: "plain" }));
      else cell.textContent = cellText(value, columns[i]);
      if (kind === "letters") cell.title = value;
      made_.append(cell);
    });
    return made_;
  };

  const drawTable = () => {
    const place = document.querySelector("#trials .scroll");
    const { columns, front } = table.data;
    const rows = chosenRows();
    const shown = table.all ? rows : rows.slice(0, FEW);
    const drawn = made("table");
    const top = made("tr");
    top.append(...columns.map(head));
    const body = made("tbody");
    const members = new Set(front);
    body.append(...shown.map((row) => line(row, columns, members)));
    const heads = made("thead");
    heads.append(top);
    drawn.append(heads, body);
    const { scrollLeft } = place;
    place.replaceChildren(drawn);
    place.scrollLeft = scrollLeft;
    document.querySelector("#trials .count").textContent =
      `${rows.length} of ${table.data.rows.length} trials; a bar marks those on the front`;
    const more = document.querySelector("#trials .more");
    more.hidden = shown.length === rows.length;
    more.firstChild.textContent = `show all ${rows.length}`;
  };

  const frame = (place) => {
    const bar = made("div", undefined, { class: "bar" });
    const field = made("input", undefined, {
      type: "search", placeholder: "filter: bnn lr=0.01 failed", "aria-label": "filter trials by words",
    });
    field.value = table.words;
    field.addEventListener("input", () => { table.words = field.value; drawTable(); });
    const button = made("button", "save as CSV", { type: "button" });
    button.addEventListener("click", save);
    bar.append(field, button, made("span", "", { class: "count faint", role: "status" }));
    const more = made("p", undefined, { class: "more" });
    const all = made("button", "", { type: "button" });
    all.addEventListener("click", () => { table.all = true; drawTable(); });
    more.append(all);
    const scroll = made("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": "trials" });
    place.replaceChildren(bar, scroll, more);
  };

  const tableShown = (data) => {
    const place = document.getElementById("trials");
    if (!data) {
      place.replaceChildren();
      table.data = null;
      return "";
    }
    if (table.data?.search !== data.search) Object.assign(table, { sort: null, down: false, words: "", all: false });
    const fresh = !table.data || table.data.search !== data.search;
    table.data = data;
    if (fresh || !place.firstChild) frame(place);
    const inside = place.contains(document.activeElement) && document.activeElement.closest("tr, th");
    if (!inside) drawTable();
    return String(data.rows.length);
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    bitfront: { coloured, compared, table: tableShown, isDark: () => darkScreen.matches },
  });
})();
