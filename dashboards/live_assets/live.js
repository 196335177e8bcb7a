"use strict";
// What the live page does in the browser: figures in the colours of the screen, and whether the
// server still answers. Everything else is asked of the server.

(() => {
  const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
  darkScreen.addEventListener("change", () =>
    window.dash_clientside.set_props("dark", { data: darkScreen.matches }),
  );

  const coloured = (json, dark, colours) => {
    if (!json) return window.dash_clientside.no_update;
    const exchanged = (colour) => colours[colour.toUpperCase()] || colour;
    return JSON.parse(dark ? json.replace(/#[0-9A-Fa-f]{6}\b/g, exchanged) : json);
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    bitfront: { coloured, isDark: () => darkScreen.matches },
  });
})();
