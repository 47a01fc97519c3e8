// Colours and text size for plotly, which ignores the style sheet.

const darkness = matchMedia("(prefers-color-scheme: dark)");

export function dark() { return darkness.matches; }

export function onTheme(listener) { darkness.addEventListener("change", listener); }

// Rem to pixels, at the current text size.
export function rem(count = 1) { return count * parseFloat(getComputedStyle(document.documentElement).fontSize); }

export function zoom(factor) { document.documentElement.style.setProperty("--zoom", factor || 1); }

export function ink() { return dark() ? "#e6e6e6" : "#1a1a1a"; }
export function grid() { return dark() ? "#3a4048" : "#e3e3e3"; }
export function back() { return dark() ? "#16191d" : "#ffffff"; }
export function faint() { return dark() ? "#6b737d" : "#a8a8a8"; }

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c00"];
const DARK = ["#56b4e9", "#ff8c42", "#2fc79b", "#e79fc9", "#f0c040", "#8fb8ff", "#ffffff", "#d6d65c"];
export function colours() { return dark() ? DARK : LIGHT; }

// As in the figures: matplotlib's RdBu, viridis and magma. In the dark, zero is dark.
export const SQUASHED = "Viridis";
export const FLOW = [[0, "#000004"], [0.25, "#51127c"], [0.5, "#b73779"], [0.75, "#fc8961"], [1, "#fcfdbf"]];
export const INK = [[0, "#fff"], [1, "#000"]];
export function signed() {
  return dark() ? [[0, "#ffb199"], [0.25, "#d6604d"], [0.5, "#1d2126"], [0.75, "#4393c3"], [1, "#b5dcff"]]
    : [[0, "#67001f"], [0.25, "#d6604d"], [0.5, "#f7f7f7"], [0.75, "#4393c3"], [1, "#053061"]];
}
export function greys() { return dark() ? [[0, "#16191d"], [1, "#ffffff"]] : [[0, "#ffffff"], [1, "#000000"]]; }

// A token's background: `share` from −1 to 1 of the largest value; blue above 0, red below.
export function tint(share) {
  if (share === null || Number.isNaN(share)) return "transparent";
  const strength = (0.7 * Math.min(1, Math.abs(share))).toFixed(3);
  return share >= 0 ? `rgba(38, 132, 210, ${strength})` : `rgba(214, 76, 50, ${strength})`;
}
