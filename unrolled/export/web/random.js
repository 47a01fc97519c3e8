// The random numbers of Python's `random.Random(seed)`: the Mersenne Twister (Matsumoto & Nishimura 1998).

const SIZE = 624;
const MIDDLE = 397;

export class Random {
  constructor(seed) {
    this.state = new Uint32Array(SIZE);
    this.place = SIZE;
    this.seed(keyOf(seed));
  }

  seed(key) {
    const { state } = this;
    state[0] = 19650218;
    for (let i = 1; i < SIZE; i += 1) state[i] = Math.imul(1812433253, mixed(state[i - 1])) + i;
    let i = 1;
    let j = 0;
    const next = () => {
      i += 1;
      if (i >= SIZE) {
        state[0] = state[SIZE - 1];
        i = 1;
      }
    };
    for (let k = Math.max(SIZE, key.length); k > 0; k -= 1) {
      state[i] = (state[i] ^ Math.imul(mixed(state[i - 1]), 1664525)) + key[j] + j;
      next();
      j = (j + 1) % key.length;
    }
    for (let k = SIZE - 1; k > 0; k -= 1) {
      state[i] = (state[i] ^ Math.imul(mixed(state[i - 1]), 1566083941)) - i;
      next();
    }
    state[0] = 0x80000000;
  }

  // 32 random bits.
  bits() {
    if (this.place === SIZE) this.twist();
    let y = this.state[this.place];
    this.place += 1;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  twist() {
    const { state } = this;
    for (let i = 0; i < SIZE; i += 1) {
      const y = (state[i] & 0x80000000) | (state[(i + 1) % SIZE] & 0x7fffffff);
      state[i] = state[(i + MIDDLE) % SIZE] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.place = 0;
  }

  // A number in [0, 1), with 53 random bits.
  random() {
    const high = this.bits() >>> 5;
    const low = this.bits() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }
}

function mixed(value) { return value ^ (value >>> 30); }

// A whole number in words of 32 bits, the lowest first.
function keyOf(seed) {
  const key = [];
  for (let rest = BigInt(seed); rest > 0n; rest >>= 32n) key.push(Number(rest & 0xffffffffn));
  return key.length ? key : [0];
}
