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

  const coloured = (json, dark, colours) => {
    const none = window.dash_clientside.no_update;
    if (!json) return [none, none];
    const exchanged = (colour) => colours[colour.toUpperCase()] || colour;
    const figure = JSON.parse(dark ? json.replace(/#[0-9A-Fa-f]{6}\b/g, exchanged) : json);
    keepWhatTheReaderDid(window.dash_clientside.callback_context.outputs_list[0].id, figure);
    // A figure that was drawn while its place was hidden has the wrong width.
    setTimeout(() => window.dispatchEvent(new Event("resize")), 50);
    return [figure, { width: "100%", height: `${figure.layout.height}px` }];
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    bitfront: { coloured, isDark: () => darkScreen.matches },
  });
})();
