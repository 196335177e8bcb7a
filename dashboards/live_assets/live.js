"use strict";
// What the live page does in the browser: figures in the colours of the screen, and whether the
// server still answers. Everything else is asked of the server.

(() => {
  const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
  darkScreen.addEventListener("change", () =>
    window.dash_clientside.set_props("dark", { data: darkScreen.matches }),
  );

  const coloured = (json, dark, colours) => {
    const none = window.dash_clientside.no_update;
    if (!json) return [none, none];
    const exchanged = (colour) => colours[colour.toUpperCase()] || colour;
    const figure = JSON.parse(dark ? json.replace(/#[0-9A-Fa-f]{6}\b/g, exchanged) : json);
    // What was drawn while it was hidden has the wrong width.
    setTimeout(() => window.dispatchEvent(new Event("resize")), 50);
    return [figure, { width: "100%", height: `${figure.layout.height}px` }];
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    bitfront: { coloured, isDark: () => darkScreen.matches },
  });
})();
