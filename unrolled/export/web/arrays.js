// Small operations on arrays {data, shape}.

export function row(array, number) {
  const width = array.shape[array.shape.length - 1];
  return array.data.subarray(number * width, (number + 1) * width);
}

// Rows along the first axis; one may be taken more than once.
export function takeRows(array, rows) {
  const width = array.shape.slice(1).reduce((a, b) => a * b, 1);
  const data = new array.data.constructor(rows.length * width);
  rows.forEach((from, to) => data.set(array.data.subarray(from * width, (from + 1) * width), to * width));
  return { data, shape: [rows.length, ...array.shape.slice(1)] };
}

export function softmax(scores) {
  const most = largest(scores);
  const powers = Float64Array.from(scores, (score) => Math.exp(score - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

export function largest(values) {
  let most = -Infinity;
  for (const value of values) if (value > most) most = value;
  return most;
}

// The first place of the highest number.
export function argmax(values) {
  let best = 0;
  for (let place = 1; place < values.length; place += 1) if (values[place] > values[best]) best = place;
  return best;
}

// The places of the highest numbers, from the highest down; of equal ones the first comes first.
export function top(values, count) {
  let order = Array.from(values, (_, place) => place);
  if (count < order.length / 8) { // most cannot be among them: sorting a large vocabulary takes longer
    const some = [];
    for (const place of order) {
      if (some.length === count && !(values[place] > values[some[count - 1]])) continue;
      let at = some.length;
      while (at > 0 && values[place] > values[some[at - 1]]) at -= 1;
      some.splice(at, 0, place);
      if (some.length > count) some.pop();
    }
    return some;
  }
  order = order.sort((a, b) => values[b] - values[a] || a - b);
  return order.slice(0, count);
}

// log(e^a + e^b)
export function logAdd(a, b) {
  const [most, least] = a > b ? [a, b] : [b, a];
  return least === -Infinity ? most : most + Math.log1p(Math.exp(least - most));
}
