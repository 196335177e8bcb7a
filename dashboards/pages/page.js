"use strict";
// Draws the figures of a page when they come into view, in the colours of the screen, and shows the
// trial of a point that is clicked. The page brings its own data; nothing is fetched.

const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
const darkColours = JSON.parse(document.getElementById("dark-colours").textContent);
const pageData = JSON.parse(document.getElementById("page-data").textContent);
const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const drawn = new Set();

function inTheScreensColours(json) {
  if (!darkScreen.matches) return json;
  return json.replace(/#[0-9A-Fa-f]{6}\b/g, (colour) => darkColours[colour.toUpperCase()] || colour);
}

function draw(place) {
  const first = !drawn.has(place.id);
  const source = document.getElementById(`${place.id}-figure`).textContent;
  const figure = JSON.parse(inTheScreensColours(source));
  drawn.add(place.id);
  return Plotly.react(place, figure.data, figure.layout, config).then(() => {
    if (first) place.on("plotly_click", clicked);
  });
}

function clicked(event) {
  const id = event.points[0].customdata;
  if (typeof id === "string" && pageData.trials && id in pageData.trials) showTrial(id);
}

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The plan on the network: a box per layer, the boxes of a stage together.
function planBoxes(trial) {
  const boxes = element("div", undefined, "plan");
  const layers = pageData.networks[trial.network] || [];
  let stage, group;
  [...trial.plan].forEach((level, i) => {
    const [name, of] = layers[i] || [`layer ${i + 1}`, ""];
    if (group === undefined || of !== stage) {
      stage = of;
      group = element("div", undefined, "stage");
      group.append(element("small", stage));
      boxes.append(group);
    }
    const box = element("span", level, `level ${level}`);
    box.title = `${name}: ${pageData.levels[level] || level}`;
    group.append(box);
  });
  return boxes;
}

function showTrial(id) {
  const trial = pageData.trials[id];
  const panel = document.getElementById("trial");
  if (!panel) return;
  const list = element("dl");
  for (const [name, text] of trial.rows) list.append(element("dt", name), element("dd", text));
  panel.replaceChildren(element("h3", id), planBoxes(trial), list);
  if (trial.command) panel.append(element("pre", trial.command));
  panel.dataset.trial = id;
  panel.hidden = false;
  panel.scrollIntoView({ block: "nearest" });
}

const places = [...document.querySelectorAll(".figure")];
const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  },
  { rootMargin: "300px" },
);
places.forEach((place) => watcher.observe(place));
darkScreen.addEventListener("change", () => places.filter((p) => drawn.has(p.id)).forEach(draw));
window.addEventListener("beforeprint", () => places.filter((p) => !drawn.has(p.id)).forEach(draw));
for (const row of document.querySelectorAll("tr[data-trial]")) {
  row.addEventListener("click", () => showTrial(row.dataset.trial));
}
