// Plotly's charts in one manner: colours that everyone can tell apart, values on hover, room for labels.

export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const MOST_LABELS = 120;

function layout({ xaxis, ...extra }) {
  return { margin: { l: 64, r: 10, t: 14, b: 64 }, font: { size: 12 }, hovermode: "closest", xaxis: { zeroline: false, ...xaxis }, ...extra };
}

// An axis whose places are named by tokens; of many, some are named.
export function tokenAxis(places, tokens, extra = {}, most = MOST_LABELS) {
  const every = Math.ceil(tokens.length / most);
  const kept = places.map((_, i) => i).filter((i) => i % every === 0);
  const half = places.length > 1 ? (places[1] - places[0]) / 2 : 0.5;
  return {
    range: places.length ? [places[0] - half, places.at(-1) + half] : undefined,  // the same under a heat map and under curves
    tickmode: "array", tickvals: kept.map((i) => places[i]), ticktext: kept.map((i) => tokens[i]),
    tickfont: { family: "monospace", size: 11 }, tickangle: tokens.some((token) => token.length > 2) ? -90 : 0,
    automargin: true, ...extra,
  };
}

// Room for a chart that scrolls if it is wide; its title stands above and does not, and breaks where a line is full.
function place(parent, title, height, width, most) {
  const caption = document.createElement("h3");
  const outer = document.createElement("div");
  outer.className = "scroll";
  const inner = document.createElement("div");
  inner.className = "plot";
  inner.style.height = `${height}px`;
  if (most) inner.style.maxWidth = `${most}px`;
  if (width) inner.style.minWidth = `${width}px`;
  outer.append(inner);
  inner.caption = caption;
  parent.append(caption, outer);
  name(inner, title);
  return inner;
}

function name(inner, title) {
  inner.caption.textContent = title ?? "";
  inner.caption.hidden = !title;
}

export function heat(parent, { z, x, y, title, colours, low, high, xaxis, yaxis, hover, height, width, most, bar, scale = true }) {
  const inner = place(parent, title, height, width, most);
  const data = [{
    type: "heatmap", z, x, y, colorscale: colours, zmin: low, zmax: high, hovertemplate: `${hover}<extra></extra>`,
    showscale: scale, colorbar: { thickness: 12, title: { text: bar ?? "", side: "right" } }, hoverongaps: false,
  }];
  Plotly.newPlot(inner, data, layout({ xaxis, yaxis }), CONFIG);
  return inner;
}

// Lines over x; `extra` are further traces. A chart that is given `again` is redrawn in its place, as far as it is zoomed in.
export function curves(parent, series, { title, x, xaxis, yaxis, height = 280, width, shapes, marks = true, extra = [], again, colours = COLOURS }) {
  const inner = again ?? place(parent, title, height, width);
  name(inner, title);
  const data = Object.entries(series).map(([name, y], i) => ({
    type: "scatter", mode: marks ? "lines+markers" : "lines", name, y, x: Array.isArray(x) ? x : x?.[name],
    line: { color: colours[i % colours.length], dash: DASHES[Math.floor(i / colours.length) % DASHES.length], width: marks ? 2 : 1.3 },
    marker: { size: 5 }, hovertemplate: `${name}: %{y:.4g}<extra>%{x}</extra>`, connectgaps: false,
  })).concat(extra);
  const shown = layout({ xaxis, yaxis, shapes, showlegend: data.length > 1, legend: { orientation: "h", y: -0.35 }, uirevision: "same" });
  Plotly.react(inner, data, shown, CONFIG);
  return inner;
}

export function draw(parent, data, { title, ...extra }, height, width, again) {
  const inner = again ?? place(parent, title, height, width);
  Plotly.react(inner, data, layout({ uirevision: "same", ...extra }), CONFIG);
  return inner;
}

// As in the figures: matplotlib's RdBu, viridis and magma.
export const SIGNED = [[0, "#67001f"], [0.25, "#d6604d"], [0.5, "#f7f7f7"], [0.75, "#4393c3"], [1, "#053061"]];
export const SQUASHED = "Viridis";
export const INK = [[0, "#fff"], [1, "#000"]];
export const FLOW = [[0, "#000004"], [0.25, "#51127c"], [0.5, "#b73779"], [0.75, "#fc8961"], [1, "#fcfdbf"]];
