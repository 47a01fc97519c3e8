// Plotly charts with a common style: accessible colours, values on hover, room for labels, text descriptions.

import { largest, make } from "unrolled/elements";
import { colours, grid, ink, rem } from "unrolled/theme";

const DASHES = ["solid", "dash", "dot", "dashdot"];
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const MOST_LABELS = 120;
const MOST_IN_A_ROW = 8;  // names in a legend above a chart; longer legends are beside it and scroll

function axis(given) {
  const title = given?.title?.text ? { ...given.title, standoff: rem(0.7) } : given?.title;
  return { gridcolor: grid(), zerolinecolor: grid(), linecolor: grid(), zeroline: false, ...given, title };
}

export function layout({ xaxis, yaxis, ...extra }) {
  return {
    margin: { l: rem(4.2), r: rem(0.8), t: rem(1), b: rem(3.6) }, font: { size: rem(0.78), color: ink() }, hovermode: "closest",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hoverlabel: { font: { size: rem(0.8) } },
    xaxis: axis(xaxis), yaxis: axis(yaxis), ...extra,
  };
}

// The width of a chart: that of the page, or a larger requested one.
function pixels(width) { return Math.max(width ?? 0, document.getElementById("view").clientWidth - rem(6)); }

// An axis labelled with tokens, some of them if there are many; horizontal if there is room.
export function tokenAxis(places, tokens, extra = {}, { most = MOST_LABELS, width } = {}) {
  const every = Math.ceil(tokens.length / Math.max(1, Math.min(most, Math.floor(pixels(width) / rem(0.85)))));
  const kept = places.map((_, i) => i).filter((i) => i % every === 0);
  const half = places.length > 1 ? (places[1] - places[0]) / 2 : 0.5;
  const room = pixels(width) / Math.max(1, kept.length) / rem(0.46);  // letters that fit between two labels
  const upright = kept.every((i, n) => n === 0 || (tokens[i].length + tokens[kept[n - 1]].length) / 2 <= room);
  return {
    range: places.length ? [places[0] - half, places.at(-1) + half] : undefined,  // the same for heat maps and curves
    tickmode: "array", tickvals: kept.map((i) => places[i]), ticktext: kept.map((i) => shortened(tokens[i])),
    tickfont: { family: "monospace", size: rem(0.72) }, tickangle: upright ? 0 : -90, automargin: !upright || extra.autorange === "reversed" || extra.side === "top", ...extra,
  };
}

function shortened(token) { return token.length > 24 ? `${token.slice(0, 23)}…` : token; }

// A logarithmic axis with round ticks: powers of ten, or multiples in a small range.
export function logAxis(series, extra = {}) {
  const values = series.flat().filter((value) => value > 0);
  if (!values.length) return { type: "log", showticklabels: false, ...extra };
  const high = Math.log10(largest(values)), low = -Math.log10(largest(values.map((value) => 1 / value)));
  const pad = Math.max(0.06 * (high - low), 0.1), from = Math.floor(low - pad), to = Math.ceil(high + pad);
  const decades = Array.from({ length: to - from + 1 }, (_, i) => from + i);
  const every = Math.ceil(decades.length / 8);
  const few = low > -2.5 && high < 3.5;
  const ticks = high - low > 2
    ? decades.filter((power) => power % every === 0).map((power) => [10 ** power, few ? plain(10 ** power) : `10<sup>${power}</sup>`])
    : between(decades, low - pad, high + pad).map((value) => [value, plain(value)]);
  return { type: "log", range: [low - pad, high + pad], tickmode: "array", tickvals: ticks.map(([value]) => value), ticktext: ticks.map(([, text]) => text), ...extra };
}

// Round numbers between two powers of ten: the coarsest set with three ticks.
function between(decades, low, high) {
  const inside = (times) => decades.flatMap((power) => times.map((one) => one * 10 ** power)).filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
  const found = [[1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]].map(inside);
  return found.find((ticks) => ticks.length > 2) ?? found.at(-1);
}

function plain(value) { return value >= 0.001 && value < 10000 ? String(Number(value.toPrecision(2))) : value.toExponential(0).replace("e", "·10<sup>").replace("+", "") + "</sup>"; }

// The container of a chart: scrolls if it is wide, with a hint; the title above does not scroll.
function place(parent, title, height, width, most) {
  const caption = make("figcaption"), cue = make("p", { class: "quiet cue", hidden: true }, "Wider than the page: scroll sideways →");
  const inner = make("div", { class: "plot", role: "img" }), outer = make("div", { class: "scroll" }, inner);
  inner.style.height = `${height * rem() / 16}px`;
  if (most) inner.style.maxWidth = `${most}px`;
  if (width) inner.style.minWidth = `${width}px`;
  inner.caption = caption;
  parent.append(make("figure", {}, caption, cue, outer));
  const look = () => {
    const wide = outer.scrollWidth > outer.clientWidth + 4;
    cue.hidden = !wide;
    if (wide) outer.setAttribute("tabindex", "0"); else outer.removeAttribute("tabindex");
  };
  new ResizeObserver(look).observe(inner);
  return inner;
}

function name(inner, title, about) {
  inner.caption.textContent = title ?? "";
  inner.caption.hidden = !title;
  inner.setAttribute("aria-label", [title, about].filter(Boolean).join(". "));
}

function short(value) { return value === null || !Number.isFinite(value) ? "unknown" : Number(value.toPrecision(4)); }

// The text description of a heat map.
function heatInWords(z, rows, columns) {
  let low = Infinity, high = -Infinity, where = "";
  z.forEach((row, y) => row.forEach((value, x) => {
    if (value === null) return;
    if (value < low) low = value;
    if (value > high) { high = value; where = `${rows?.[y] ?? y}, ${columns?.[x] ?? x}`; }
  }));
  return `Heat map of ${z.length} rows and ${z[0]?.length ?? 0} columns, from ${short(low)} to ${short(high)}, largest at ${where}`;
}

// The text description of lines, at most six of them.
function linesInWords(data) {
  const words = data.filter((one) => one.y?.length && one.name).slice(0, 6).map((one) => {
    const values = one.y.filter((value) => value !== null && Number.isFinite(value));
    return values.length ? `${one.name}: ${values.length} values from ${short(-largest(values.map((v) => -v)))} to ${short(largest(values))}, last ${short(values.at(-1))}` : `${one.name}: no values`;
  });
  return `Chart of ${data.length} ${data.length === 1 ? "line" : "lines"}. ${words.join("; ")}`;
}

export function heat(parent, { z, x, y, title, colours: scale, low, high, xaxis, yaxis, hover, height, width, most, bar, names = {}, below = false, empty }) {
  const inner = place(parent, title, height, width, most);
  name(inner, title, empty ?? heatInWords(z, names.rows, names.columns));
  const data = [{
    type: "heatmap", z, x, y, colorscale: scale, zmin: low, zmax: high, hovertemplate: `${hover}<extra></extra>`, hoverongaps: false,
    colorbar: {  // at the left end: at the right it would scroll out of sight
      orientation: "h", thickness: rem(0.6), len: Math.min(rem(18), pixels(0) * 0.6), lenmode: "pixels", x: 0, xanchor: "left", y: below ? -0.02 : 1.01, yanchor: below ? "top" : "bottom",
      title: { text: bar ?? "", side: "top", font: { size: rem(0.72) } }, tickfont: { size: rem(0.7) }, outlinewidth: 0, xpad: 0,
    },
  }];
  Plotly.newPlot(inner, data, layout({ xaxis: { showgrid: false, ...xaxis }, yaxis: { showgrid: false, ...yaxis }, annotations: inTheMiddle(empty) }), CONFIG);
  return inner;
}

// Lines over x; `extra` are further traces. A chart passed as `again` is redrawn in place and keeps its zoom.
export function curves(parent, series, { title, x, xaxis, yaxis, height = 280, width, shapes, marks = true, extra = [], again, palette = colours(), empty }) {
  const inner = again ?? place(parent, title, height, width);
  const data = Object.entries(series).map(([name, y], i) => ({
    type: "scatter", mode: marks ? "lines+markers" : "lines", name, y, x: Array.isArray(x) ? x : x?.[name],
    line: { color: palette[i % palette.length], dash: DASHES[Math.floor(i / palette.length) % DASHES.length], width: marks ? 2 : 1.3 },
    marker: { size: 5 }, hovertemplate: `${name}: %{y:.4g}<extra>%{x}</extra>`, connectgaps: false,
  })).concat(extra);
  name(inner, title, empty ?? linesInWords(data));
  Plotly.react(inner, data, layout({ xaxis, yaxis, shapes, annotations: inTheMiddle(empty), showlegend: data.length > 1, legend: legendOf(data.length), uirevision: "same" }), CONFIG);
  return inner;
}

// The reason inside an empty chart, at its left end.
function inTheMiddle(text) {
  return text ? [{ text, xref: "paper", yref: "paper", x: 0, xanchor: "left", xshift: rem(8), y: 0.5, showarrow: false, font: { size: rem(0.9) } }] : [];
}

export function legendOf(count) {
  const font = { size: rem(0.75) };
  return count > MOST_IN_A_ROW ? { font, bgcolor: "rgba(0,0,0,0)" } : { font, orientation: "h", x: 0, y: 1.01, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" };
}

export function draw(parent, data, { title, about, ...extra }, height, width, again) {
  const inner = again ?? place(parent, title, height, width);
  name(inner, title, about ?? linesInWords(data));
  Plotly.react(inner, data, layout({ uirevision: "same", ...extra }), CONFIG);
  return inner;
}

