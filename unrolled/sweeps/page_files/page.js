"use strict";
const sweep = JSON.parse(document.getElementById("sweep").textContent);
const columns = ["number", "state", "score", "seconds", "steps", "epochs", ...sweep.keys, "note"];
const titles = { number: "trial", score: sweep.metric, seconds: "seconds", steps: "updates" };
const texts = new Set(["state", "note", ...sweep.keys.filter((key) => sweep.rows.some((row) => typeof row[key] === "string"))]);
let order = { column: "number", down: false };

function shown(value) {
  if (value === undefined || value === null) return "";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(4)));
}

function sorted() {
  const { column, down } = order;
  const missing = (row) => row[column] === undefined || row[column] === null || row[column] === "";
  return [...sweep.rows].sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const way = typeof a[column] === "number" && typeof b[column] === "number"
      ? a[column] - b[column] : String(a[column]).localeCompare(String(b[column]));
    return down ? -way : way;
  });
}

function drawTable() {
  const table = document.getElementById("trials");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const column of columns) {
    const cell = document.createElement("th"), button = document.createElement("button");
    const arrow = order.column === column ? (order.down ? " ▼" : " ▲") : "";
    button.textContent = (titles[column] ?? column) + arrow;
    button.onclick = () => {
      const first = column === "score" && sweep.higher;
      order = { column, down: order.column === column ? !order.down : first };
      drawTable();
    };
    if (texts.has(column)) cell.className = "text";
    cell.append(button);
    head.append(cell);
  }
  const body = table.createTBody();
  for (const row of sorted()) {
    const line = body.insertRow();
    line.className = row.number === sweep.best ? "best" : row.state;
    for (const column of columns) {
      const cell = line.insertCell();
      cell.textContent = shown(row[column]);
      if (typeof row[column] === "number") cell.title = String(row[column]);
      if (column === "note") cell.className = "note";
      else if (texts.has(column)) cell.className = "text";
    }
  }
}

function dimension(key, rows, label) {
  const values = rows.map((row) => row[key]);
  const numeric = values.every((value) => typeof value === "number");
  if (numeric && sweep.logarithmic.includes(key)) {
    const logs = values.map(Math.log10), ticks = [];
    for (let power = Math.floor(Math.min(...logs)); power <= Math.ceil(Math.max(...logs)); power += 1) {
      for (const head of [1, 2, 5]) {
        const tick = power + Math.log10(head);
        if (tick >= Math.min(...logs) && tick <= Math.max(...logs)) ticks.push(tick);
      }
    }
    return { label, values: logs, tickvals: ticks, ticktext: ticks.map((tick) => shown(10 ** tick)) };
  }
  if (numeric) return { label, values };
  const names = values.map((value) => (value === undefined || value === null ? "not used" : String(value)));
  const all = [...new Set(names)].sort();
  return { label, values: names.map((name) => all.indexOf(name)), tickvals: all.map((_, i) => i), ticktext: all };
}

function drawLines() {
  const place = document.getElementById("parallel"), hint = document.querySelector("#lines .hint");
  const rows = sweep.rows.filter((row) => row.state === "complete" && row.score !== null);
  if (rows.length < 2) {
    document.getElementById("lines").remove();
    return;
  }
  if (!window.Plotly) {
    place.append(picture("parallel", "Trials as lines across all keys"));
    return;
  }
  hint.textContent = "Complete trials. Drag along an axis to keep the trials that cross it there; drag a name to move its axis.";
  const scores = rows.map((row) => row.score);
  const trace = {
    type: "parcoords",
    line: { color: scores, colorscale: "Viridis", reversescale: !sweep.higher, showscale: true },
    dimensions: [...sweep.keys.map((key) => dimension(key, rows, key)), { label: sweep.metric, values: scores }],
    labelfont: { size: 12 },
  };
  Plotly.newPlot(place, [trace], { height: 420, margin: { l: 90, r: 60, t: 60, b: 30 } }, { responsive: true });
}

function picture(name, alt) {
  const image = document.createElement("img");
  image.src = sweep.pictures[name];
  image.alt = alt;
  return image;
}

function drawPictures() {
  const section = document.getElementById("pictures");
  const named = { history: "Scores of all trials", importance: "Importance of each key" };
  for (const [name, title] of Object.entries(named)) {
    if (!sweep.pictures[name]) continue;
    const head = document.createElement("h2");
    head.textContent = title;
    section.append(head, picture(name, title));
  }
}

const states = {};
for (const row of sweep.rows) states[row.state] = (states[row.state] ?? 0) + 1;
const best = sweep.rows.find((row) => row.number === sweep.best);
document.getElementById("summary").textContent =
  `${sweep.rows.length} trials: ${Object.entries(states).map(([state, count]) => `${count} ${state}`).join(", ")}. ` +
  (best ? `Best ${sweep.metric} ${shown(best.score)}, trial ${best.number}. ` : "") +
  `Searched: ${sweep.keys.map((key) => `${key} in ${sweep.spaces[key]}`).join("; ")}.`;
drawLines();
drawPictures();
drawTable();
