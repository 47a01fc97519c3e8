// Small helpers to build the page.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
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

// Tokens as buttons. `shade` gives each a number from 0 to 1, `about` the text on hover.
export function tokenStrip(tokens, { shade = () => 0, about = () => "", pressed = () => false, hidden = () => false, onpick }) {
  const strip = make("div", { class: "tokens", role: "group", "aria-label": "tokens" });
  tokens.forEach((token, place) => {
    const button = make("button", {
      type: "button",
      title: about(place),
      "aria-pressed": pressed(place) ? "true" : "false",
      "data-place": place,
      class: hidden(place) ? "hidden-token" : "",
      onclick: () => onpick(place, button),
    }, token);
    button.style.background = `rgba(213, 94, 0, ${(0.75 * shade(place)).toFixed(3)})`;
    strip.append(button);
  });
  strip.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const here = [...strip.children].indexOf(document.activeElement);
    if (step && here >= 0) { strip.children[(here + step + tokens.length) % tokens.length].focus(); event.preventDefault(); }
  });
  return strip;
}
