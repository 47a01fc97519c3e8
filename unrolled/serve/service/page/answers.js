// Answers of each task, drawn.

import { draw, make, short } from "./elements.js";

export function drawn(task, answer, input) {
  const drawing = { classify: classified, tag: tagged, forecast, recognize: recognized }[task] || written;
  return drawing(answer, input);
}

export const said = (text) => make("p", { class: "said" }, text || "(nothing)");

function classified(answer) {
  if (answer.probabilities == null) return [said(short(answer.value, 6))];
  const rows = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]);
  const bars = rows.flatMap(([label, share]) => {
    const name = answer.labels?.includes(label) || label === answer.label ? "chosen" : "";
    const bar = make("span", { class: "bar" });
    bar.style.width = `${100 * share}%`;
    return [make("dt", { class: name }, label), make("dd", { class: name }, make("span", { class: "track" }, bar),
      make("span", { class: "share" }, `${(100 * share).toFixed(1)} %`))];
  });
  return [said(answer.label ?? (answer.labels || []).join(", ")), make("dl", { class: "bars" }, ...bars)];
}

function tagged(answer) {
  const kinds = [...new Set(answer.tags.map(kindOf))].filter((kind) => kind !== "O").sort();
  const tokens = answer.tokens || answer.tags.map((_, i) => String(i + 1));
  const chips = tokens.map((token, i) => {
    const plain = answer.tags[i] === "O";
    const share = answer.probabilities ? ` ${(100 * answer.probabilities[i]).toFixed(0)} %` : "";
    return make("li", { class: plain ? "plain" : `kind-${kinds.indexOf(kindOf(answer.tags[i])) % 6}` }, token,
      make("small", {}, plain ? share || "\u00a0" : answer.tags[i] + share));
  });
  return [make("ul", { class: "chips" }, ...chips)];
}

const kindOf = (tag) => tag.replace(/^[BIES]-/, "");

function recognized(answer) {
  const digits = answer.unit === "seconds" ? 2 : 0;
  const chips = answer.words.map((word) => make("li", { class: "plain" }, word.text,
    make("small", {}, `${word.start.toFixed(digits)}–${word.end.toFixed(digits)}`)));
  const times = chips.length ? [make("ul", { class: "chips" }, ...chips), make("p", { class: "quiet" }, `Times in ${answer.unit}.`)] : [];
  return [said(answer.text), ...times, ...others(answer)];
}

function written(answer) {
  if (answer == null || typeof answer !== "object" || typeof answer.text !== "string") {
    return [make("pre", {}, JSON.stringify(answer, null, 2))];
  }
  const facts = answer.log_prob == null ? [] : [make("p", { class: "quiet" },
    `log-probability ${short(answer.log_prob)}${answer.ended === false ? ", cut at its longest" : ""}`)];
  return [said(answer.text), ...facts, ...others(answer)];
}

function others(answer) {
  if (!answer.others?.length) return [];
  const rows = answer.others.map((one) => make("li", {}, one.text, make("small", {}, ` ${short(one.score)}`)));
  return [make("h2", {}, "Next best"), make("ol", { class: "others", start: 2 }, ...rows)];
}

const COLOURS = 6;

function forecast(answer, input) {
  const future = answer.forecast.map((row) => (Array.isArray(row) ? row : [row]));
  const past = (input?.rows || []).slice(-5 * Math.max(12, future.length));
  const columns = Math.min(COLOURS, future[0]?.length || 0);
  const table = make("table", {}, ...future.slice(0, 100).map((row, i) => make("tr", {}, make("th", { scope: "row" }, `+${i + 1}`),
    ...row.map((value) => make("td", {}, short(value, 6))))));
  const numeric = past.length && past.every((row) => row.length >= columns && row.slice(0, columns).every((cell) => typeof cell !== "string"));
  return [numeric ? chart(past, future, columns) : null, make("div", { class: "scroll" }, table)].filter(Boolean);
}

// The last rows and the next ones: a line for each column, what is forecast bold.
function chart(past, future, columns) {
  const [width, height, count] = [640, 220, past.length + future.length];
  const all = [...past, ...future].flatMap((row) => row.slice(0, columns)).filter((value) => value != null);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const x = (i) => 8 + ((width - 16) * i) / Math.max(1, count - 1);
  const y = (value) => height - 10 - ((height - 20) * (value - least)) / (most - least || 1);
  const line = (rows, first, column, kind) => draw("polyline", {
    class: `${kind} line-${column}`,
    points: rows.map((row, i) => (row[column] == null ? "" : `${x(first + i).toFixed(1)},${y(row[column]).toFixed(1)}`)).join(" "),
  });
  const lines = Array.from({ length: columns }, (_, column) => [
    line(past, 0, column, "past"), line([past[past.length - 1], ...future], past.length - 1, column, "future"),
    ...future.map((row, i) => (row[column] == null ? null : draw("circle", { class: `line-${column}`, cx: x(past.length + i), cy: y(row[column]), r: 3 }))),
  ]).flat();
  const now = draw("line", { class: "now", x1: x(past.length - 0.5), x2: x(past.length - 0.5), y1: 4, y2: height - 4 });
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${past.length} rows and ${future.length} forecast` }, now, ...lines);
}
