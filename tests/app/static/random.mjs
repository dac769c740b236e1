/** A generator of random numbers with a seed: mulberry32. */

/** @returns {(most: number) => number} draws a whole number from 0 on, below `most` */
export function dice(seed) {
  return (most) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * most);
  };
}
