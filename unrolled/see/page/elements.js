// Small helpers to build the page.

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// The same for SVG elements.
export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

// A labelled choice; `choices` are [value, shown] pairs or plain values.
export function choice(label, choices, chosen, onpick) {
  const select = make("select", { onchange: () => onpick(select.value) });
  for (const one of choices) {
    const [value, shown] = Array.isArray(one) ? one : [one, one];
    select.append(make("option", { value, selected: value === chosen }, shown));
  }
  return make("label", {}, `${label} `, select);
}

export function number(label, value, most, onpick) {
  const field = make("input", { type: "number", min: 0, max: most, value, onchange: () => onpick(field.value) });
  return make("label", {}, `${label} `, field);
}

// A number as text; a gap is a dash.
export function formatted(value, digits = 4) { return value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"); }

// The largest of many numbers, without gaps; Math.max(...values) fails for several hundred thousand.
export function largest(values, least = -Infinity) {
  let most = least;
  for (const value of values) if (value !== null && value > most) most = value;
  return most;
}

// Tokens as buttons. `shade` returns 0 to 1 for each, or `colour` its background; `about` the text on hover.
export function tokenStrip(tokens, { shade = () => 0, colour, about = () => "", pressed = () => false, hidden = () => false, mark = () => "", first = 0, onpick = () => {} }) {
  const strip = make("div", { class: "tokens", role: "group", "aria-label": "tokens" });
  tokens.forEach((token, place) => {
    const button = make("button", {
      type: "button",
      title: about(place),
      "aria-pressed": pressed(place) ? "true" : "false",
      "data-place": first + place,
      class: [hidden(place) ? "hidden-token" : "", mark(place)].join(" "),
      tabindex: place === 0 ? 0 : -1,
      onclick: () => onpick(place, button),
    }, token);
    button.style.background = colour ? colour(place) : `rgba(213, 94, 0, ${(0.75 * (shade(place) || 0)).toFixed(3)})`;
    strip.append(button);
  });
  strip.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const here = [...strip.children].indexOf(document.activeElement);
    if (!step || here < 0) return;
    strip.children[(here + step + tokens.length) % tokens.length].focus();
    event.preventDefault();
    event.stopPropagation();
  });
  return strip;
}

// The range of tokens that is shown, with paging buttons; null if all are.
export function pager(first, shown, all, onpick) {
  if (shown >= all) return null;
  const to = (label, place, there) => make("button", { type: "button", disabled: !there, onclick: () => onpick(place) }, label);
  return make("div", { class: "line quiet pager" },
    `tokens ${first.toLocaleString("en")} to ${(first + shown - 1).toLocaleString("en")} of ${all.toLocaleString("en")}`,
    to("← previous", Math.max(0, first - shown), first > 0), to("next →", first + shown, first + shown < all));
}
