"use strict";
// The arithmetic of the page: from counts to rates, intervals, gaps, verdicts and optimal thresholds. No DOM.
//
// A decision rule is `chance[group][bin]`, the probability of a positive decision: 0 or 1 for thresholds. Counts of a
// group are `{rows, mass, square}`, each `[label][bin]`: numbers of rows, sums of weights and of squared weights. What
// is named as a function of fairfix.stats is that function; the tests compare both. An undefined number is NaN.

const ROUNDING = 1e-12;

// ---------------------------------------------------------------------- quantiles of the beta distribution

/** The logarithm of the gamma function for x > 0: the recurrence up to 10, then Stirling's series. */
function logGamma(x) {
  let product = 1;
  for (; x < 10; x += 1) product *= x;
  const r = 1 / (x * x);
  const series = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r * (1 / 1188 - r * 691 / 360360))))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - Math.log(product);
}

/** The continued fraction of the incomplete beta function, by Lentz's method. */
function betaFraction(x, a, b) {
  const tiny = 1e-300;
  let d = 1 - ((a + b) * x) / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let c = 1;
  let out = d;
  for (let m = 1; m < 100000; m += 1) {
    let last = 1;
    for (const part of [
      (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
    ]) {
      d = 1 + part * d;
      d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + part / c;
      c = Math.abs(c) < tiny ? tiny : c;
      last = d * c;
      out *= last;
    }
    if (Math.abs(last - 1) < 1e-16) break;
  }
  return out;
}

/** The point of Beta(a, b), b >= 1, that leaves `tail` in (0, 1) below it: Newton's method on logarithms. */
function betaQuantile(tail, a, b) {
  const beta = logGamma(a) + logGamma(b) - logGamma(a + b);
  const wanted = Math.log(tail);
  const mean = a / (a + b);
  const spread = Math.sqrt((mean * (1 - mean)) / (a + b + 1));
  const start = (wanted + Math.log(a) + beta) / a; // the distribution function is at most x^a / (a B) there
  const guess = Math.log(mean - spread * Math.sqrt(Math.max(-2 * Math.log(2 * tail), 0)));
  let u = Math.min(guess > start ? guess : start, -1e-16);
  for (let step = 0; step < 100; step += 1) {
    const x = Math.exp(u);
    const density = a * u + b * Math.log1p(-x) - beta; // of log x, but for a factor 1 - x
    const below =
      x <= (a + 1) / (a + b + 2)
        ? density + Math.log(betaFraction(x, a, b) / a)
        : Math.log1p((-Math.exp(density) * betaFraction(-Math.expm1(u), b, a)) / b);
    const slope = Math.exp(density - Math.log1p(-x) - below);
    const move = (wanted - below) / slope;
    u = Math.min(u + move, u / 2); // the logarithm of the distribution function is concave: no step is too far to the left
    if (Math.abs(move) < 1e-15 * Math.max(1, Math.abs(u))) break;
  }
  return Math.exp(u);
}

const quantiles = new Map();

/** `betaQuantile`, kept: the same counts are asked for again and again. */
function keptQuantile(tail, a, b) {
  const key = `${tail} ${a} ${b}`;
  if (!quantiles.has(key)) quantiles.set(key, betaQuantile(tail, a, b));
  return quantiles.get(key);
}

// ---------------------------------------------------------------------- rates with intervals

const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);
const sidak = (alpha, count) => -Math.expm1(Math.log1p(-alpha) / Math.max(count, 1));
const divided = (above, below) => (below > 0 ? above / below : NaN);
const orZero = (number) => (Number.isNaN(number) ? 0 : number);

/** Sums of a rule in a group: `[label][decision]` of weights and of squared weights. */
function confusion(counts, chance) {
  const sums = (table) =>
    table.map((bins) => {
      let yes = 0;
      let no = 0;
      bins.forEach((one, b) => {
        yes += one * chance[b];
        no += one * (1 - chance[b]);
      });
      return [no, yes];
    });
  return { mass: sums(counts.mass), square: sums(counts.square) };
}

/** Sums (w, w²) of the entries of a confusion table; without labels the two are one. */
function entries(table, pairs, labelled) {
  const wanted = labelled ? pairs : table.mass.map((_, label) => [label, pairs[0][1]]);
  return ["mass", "square"].map((part) => sum(wanted.map(([label, decision]) => table[part][label][decision])));
}

/** Sums of success and of failure of a rate in every group: `[w, w², v, v²]` each. */
function rateSums(rate, tables) {
  const labelled = rate.needs.includes("label");
  return tables.map((table) => [
    ...entries(table, rate.success, labelled),
    ...entries(table, rate.failure, labelled),
  ]);
}

/** Proportions.weighted and Proportions: effective successes and totals of rates, with their values. */
function proportions(sums, weighted) {
  if (!weighted) return sums.map(([s, , f]) => ({ successes: s, total: s + f, value: divided(s, s + f) }));
  const ofOther = (mine) => {
    const units = sums.map(([s, s2, f, f2]) => (mine ? divided(f2, f) : divided(s2, s)));
    const own = sums.map(([s, s2, f, f2]) => (mine ? [s, s2] : [f, f2]));
    const masses = own.map(([m], k) => orZero(divided(m, units[k])));
    const squares = own.map(([, m2], k) => orZero(divided(m2, units[k] ** 2)));
    const times = divided(sum(squares), sum(masses));
    return own.map(([m, m2], k) => (m > 0 ? m2 / m : units[k] * (Number.isNaN(times) ? 1 : times)));
  };
  const [successWeight, failureWeight] = [ofOther(true), ofOther(false)];
  return sums.map(([s, s2, f, f2], k) => {
    const weight = s + f;
    const kish = divided(weight ** 2, s2 + f2);
    const linear = divided(weight ** 2, f * successWeight[k] + s * failureWeight[k]);
    const size = orZero(linear < (1 - ROUNDING) * kish ? linear : kish);
    const value = divided(s, weight);
    return { successes: Math.min(Math.max(orZero(value) * size, 0), size), total: size, value };
  });
}

/** Clopper-Pearson limits of every rate at a miscoverage. */
function exactLimits(rates, alpha) {
  return rates.map(({ successes, total, value }) => {
    if (Number.isNaN(value)) return [0, 1];
    const failures = total - successes;
    const low = successes > 0 ? keptQuantile(alpha / 2, successes, failures + 1) : 0;
    const high = failures > 0 ? 1 - keptQuantile(alpha / 2, failures, successes + 1) : 1;
    return [low, high];
  });
}

/** The level at which limits of all defined rates hold at once. */
const forAll = (rates, alpha) => sidak(alpha, rates.filter((one) => !Number.isNaN(one.value)).length);

/** The distance that an empirical distribution function of n rows exceeds anywhere with a chance of at most alpha. */
const dkw = (n, alpha) => (n > 0 ? Math.sqrt(Math.log(2 / alpha) / (2 * n)) : Infinity);

/**
 * Limits of every group's rate that hold for all thresholds at once, with a chance of error alpha in each group.
 *
 * Of a rate among rows chosen by label alone, that is the band of Dvoretzky, Kiefer, Wolfowitz and Massart. Any other is
 * made of two masses, of rows with label 1 and with label 0, each of which is a distribution function with a band.
 */
function bandLimits(rate, counts, chances, alpha) {
  const labels = new Set([...rate.success, ...rate.failure].map(([label]) => label));
  const size = (one, chosen) => {
    const mass = sum(chosen.map((label) => sum(one.mass[label])));
    return divided(mass ** 2, sum(chosen.map((label) => sum(one.square[label]))));
  };
  return counts.map((one, k) => {
    const table = confusion(one, chances[k]);
    const [s, , f] = rateSums(rate, [table])[0];
    if (!(s + f > 0)) return [0, 1];
    const all = one.mass.map((_, label) => label);
    const within = ([low, high]) => [Math.max(low, 0), Math.min(high, 1)];
    if (!rate.needs.includes("label") || labels.size === 1) {
      const chosen = rate.needs.includes("label") ? [...labels] : all;
      const margin = dkw(size(one, chosen), alpha);
      return within([s / (s + f) - margin, s / (s + f) + margin]);
    }
    const margin = dkw(size(one, all), alpha / 2);
    if (rate.success.length === 2) return within([s / (s + f) - 2 * margin, s / (s + f) + 2 * margin]);
    const total = sum(one.mass.map((bins) => sum(bins)));
    const [sLow, fLow] = [s, f].map((mass) => Math.max(mass / total - margin, 0));
    const [sHigh, fHigh] = [s, f].map((mass) => Math.min(mass / total + margin, 1));
    return within([sLow / (sLow + fHigh), sHigh / (sHigh + fLow)]);
  });
}

// ---------------------------------------------------------------------- gaps

const PAIRS = (k) => k * (k - 1);
const bonferroni = (alpha, directed) => alpha / Math.max(directed - 1, 1);
const defined = (values) => values.flatMap((value, k) => (Number.isNaN(value) ? [] : [k]));

/** The largest of f(i, j) over pairs of two places. */
function largest(places, f) {
  let best = -Infinity;
  for (const i of places) for (const j of places) if (i !== j) best = Math.max(best, f(i, j));
  return best;
}

/** The largest of x(i) + y(j) over pairs of two places: the best two of each are enough. */
function largestSum(places, x, y) {
  const best = (f) => [...places].sort((i, j) => f(j) - f(i)).slice(0, 2);
  const other = best(y);
  return Math.max(...best(x).flatMap((i) => other.flatMap((j) => (i === j ? [] : [x(i) + y(j)]))));
}

/** The groups with the largest and the smallest value; the first two where all are equal. */
function attained(values, there) {
  const pick = (better) => there.reduce((best, k) => (better(values[k], values[best]) ? k : best));
  const [top, bottom] = [pick((a, b) => a > b), pick((a, b) => a < b)];
  return top === bottom ? there.slice(0, 2) : [top, bottom];
}

/** gaps.difference_between_groups, of values with limits at a miscoverage: `limits(alpha)`. */
function differenceBetween(values, limits, alpha) {
  const there = defined(values);
  const complete = there.length === values.length;
  if (there.length < 2) return { value: NaN, low: 0, high: 1, groups: [], complete };
  const p = (k) => values[k];
  const strict = limits(bonferroni(alpha, PAIRS(there.length)));
  const loose = limits(alpha);
  const low = largest(there, (i, j) => p(i) - p(j) - Math.hypot(p(i) - strict[i][0], strict[j][1] - p(j)));
  const high = largest(there, (i, j) => p(i) - p(j) + Math.hypot(loose[i][1] - p(i), p(j) - loose[j][0]));
  const groups = attained(values, there);
  const value = Math.abs(p(groups[0]) - p(groups[1]));
  return { value, low: Math.max(low, 0), high: complete ? Math.min(high, 1) : 1, groups, complete };
}

/** gaps.ratio_between_groups. */
function ratioBetween(values, limits, alpha) {
  const there = defined(values);
  const complete = there.length === values.length;
  const most = Math.max(...there.map((k) => values[k]));
  if (there.length < 2 || !(most > 0)) return { value: NaN, low: 0, high: 1, groups: [], complete: false };
  const strict = limits(bonferroni(alpha, PAIRS(there.length))).map((ends) => ends.map(Math.log));
  const loose = limits(alpha).map((ends) => ends.map(Math.log));
  const log = values.map(Math.log);
  const positive = there.filter((k) => values[k] > 0);
  const zero = there.filter((k) => !(values[k] > 0));
  let low = 0;
  if (complete && !zero.length)
    low = Math.exp(-largest(there, (i, j) => log[i] - log[j] + Math.hypot(loose[i][1] - log[i], log[j] - loose[j][0])));
  let far = largest(positive, (i, j) => log[i] - log[j] - Math.hypot(log[i] - strict[i][0], strict[j][1] - log[j]));
  const least = Math.max(...there.map((k) => strict[k][0]));
  if (zero.length && least > -Infinity) far = Math.max(far, least - Math.min(...zero.map((k) => strict[k][1])));
  const groups = attained(values, there);
  const value = Math.min(...there.map((k) => values[k])) / most;
  return { value, low, high: Math.min(Math.exp(-Math.max(far, 0)), 1), groups, complete };
}

/** The same two gaps of values whose limits hold all at once: each end is the furthest that the limits allow. */
function gapsWithin(values, limits) {
  const there = defined(values);
  const complete = there.length === values.length;
  const none = { value: NaN, low: 0, high: 1, groups: [], complete };
  if (there.length < 2) return { difference: none, ratio: none };
  const groups = attained(values, there);
  const [top, bottom] = [Math.max, Math.min].map((pick) => pick(...there.map((k) => values[k])));
  const [low, high] = [0, 1].map((end) => (k) => limits[k][end]);
  const apart = largestSum(there, low, (k) => -high(k));
  const reach = largestSum(there, high, (k) => -low(k));
  const difference = { value: top - bottom, low: Math.max(apart, 0), high: complete ? Math.min(reach, 1) : 1, groups, complete };
  if (!(top > 0)) return { difference, ratio: { ...none, complete: false } };
  const least = Math.exp(-largestSum(there, (k) => Math.log(high(k)), (k) => -Math.log(low(k))));
  const most = Math.exp(-Math.max(largestSum(there, (k) => Math.log(low(k)), (k) => -Math.log(high(k))), 0));
  return { difference, ratio: { value: bottom / top, low: complete ? least : 0, high: most, groups, complete } };
}

/** gaps.combine of two gaps, each at half the miscoverage. */
function combined(gaps, smallest) {
  const pick = smallest ? Math.min : Math.max;
  const there = gaps.filter((gap) => !Number.isNaN(gap.value));
  const top = there.reduce((best, gap) => (best === null || pick(gap.value, best.value) !== best.value ? gap : best), null);
  return {
    value: top ? top.value : NaN,
    low: pick(...gaps.map((gap) => gap.low)),
    high: pick(...gaps.map((gap) => gap.high)),
    groups: top ? top.groups : [],
    complete: gaps.every((gap) => gap.complete && !Number.isNaN(gap.value)),
  };
}

/** Check.judge of a condition that a difference is at most a limit. */
function verdict(gap, limit) {
  if (Number.isNaN(gap.value)) return "undecided";
  if (gap.low > limit) return "fail";
  return gap.complete && gap.high <= limit ? "pass" : "undecided";
}

// ---------------------------------------------------------------------- an audit of a rule

/** The counts of the groups of an attribute, whose cells are added up. */
function grouped(content, attribute) {
  const labels = content.rows[0].length;
  const added = (tables, group) => {
    const out = Array.from({ length: labels }, () => content.edges.map(() => 0));
    tables.forEach((table, cell) => {
      if (attribute.cells[cell] !== group) return;
      table.forEach((bins, label) => bins.forEach((one, b) => { out[label][b] += one; }));
    });
    return out;
  };
  return attribute.names.map((_, group) => {
    const rows = added(content.rows, group);
    const mass = content.mass ? added(content.mass, group) : rows;
    return { rows, mass, square: content.square ? added(content.square, group) : rows };
  });
}

/** The rule that decides positively at and above the edge of a number, for one group. */
const above = (content, place) => content.edges.map((_, b) => (b >= place ? 1 : 0));

/** Values and limits of a rate in every group; `moved`: whether thresholds were chosen by these counts. */
function measured(content, rate, counts, chances, moved, alpha) {
  const tables = counts.map((one, k) => confusion(one, chances[k]));
  const own = proportions(rateSums(rate, tables), Boolean(content.mass));
  const values = own.map((one) => one.value);
  const fixed = !moved || !rate.needs.includes("decision");
  const limits = (level) => (fixed ? exactLimits(own, level) : bandLimits(rate, counts, chances, level));
  return { values, fixed, limits, simultaneous: (level) => limits(forAll(own, level)), alpha };
}

/** Both gaps of a rate at a miscoverage. */
function gapsOf(rate, alpha) {
  if (!rate.fixed) return gapsWithin(rate.values, rate.simultaneous(alpha));
  return {
    difference: differenceBetween(rate.values, rate.limits, alpha),
    ratio: ratioBetween(rate.values, rate.limits, alpha),
  };
}

/** What an audit of a rule says of the groups of one attribute: rates with limits, and gaps. */
function audit(content, counts, chances, moved, names) {
  const alpha = 1 - content.confidence;
  const out = { rates: {}, gaps: {} };
  const rates = content.rates.filter((rate) => !names || names.includes(rate.name));
  for (const rate of rates) {
    const own = measured(content, rate, counts, chances, moved, alpha);
    out.rates[rate.name] = { values: own.values, limits: own.simultaneous(alpha) };
    out.gaps[rate.name] = gapsOf(own, alpha);
  }
  const odds = content.rates.filter((rate) => content.odds.includes(rate.name));
  if (odds.length === 2 && (!names || names.includes("equalized_odds"))) {
    const two = odds.map((rate) => gapsOf(measured(content, rate, counts, chances, moved, alpha), alpha / 2));
    out.gaps.equalized_odds = {
      difference: combined(two.map((gap) => gap.difference), false),
      ratio: combined(two.map((gap) => gap.ratio), true),
    };
  }
  return out;
}

/**
 * A rate of all rows together, with limits. Those of moved thresholds that differ between groups are the means of the
 * groups' limits, which hold all at once; parts of groups are taken as fixed.
 */
function rateOfAll(content, name, counts, chances, moved) {
  const rate = content.rates.find((one) => one.name === name);
  const alpha = 1 - content.confidence;
  const sums = rateSums(rate, counts.map((one, k) => confusion(one, chances[k])));
  const [own] = proportions([[0, 1, 2, 3].map((part) => sum(sums.map((one) => one[part])))], Boolean(content.mass));
  if (!moved) return { value: own.value, limits: exactLimits([own], alpha)[0] };
  if (chances.every((chance) => chance.every((one, b) => one === chances[0][b]))) {
    const added = (part) => counts[0][part].map((bins, label) => bins.map((_, b) => sum(counts.map((one) => one[part][label][b]))));
    const pooled = { mass: added("mass"), square: added("square") };
    return { value: own.value, limits: bandLimits(rate, [pooled], [chances[0]], alpha)[0] };
  }
  const limits = bandLimits(rate, counts, chances, sidak(alpha, counts.length));
  const masses = sums.map(([s, , f]) => s + f);
  return { value: own.value, limits: [0, 1].map((end) => sum(limits.map((one, k) => one[end] * masses[k])) / sum(masses)) };
}

/** Balanced accuracy and cost per 100 of all rows together. */
function overall(content, counts, chances, costs) {
  const total = [[0, 0], [0, 0]];
  counts.forEach((one, k) =>
    confusion(one, chances[k]).mass.forEach((row, label) => row.forEach((mass, d) => { total[label][d] += mass; })),
  );
  const [[tn, fp], [fn, tp]] = total;
  const all = tn + fp + fn + tp;
  return {
    balanced: (divided(tp, tp + fn) + divided(tn, tn + fp)) / 2,
    cost: (100 * (costs.fp * fp + costs.fn * fn)) / all,
  };
}

/** Parts of every group that a rule decides positively and another does not, and the other way round. */
function changes(counts, before, after) {
  return counts.map((one, k) => {
    let [gained, lost, all] = [0, 0, 0];
    for (const bins of one.mass) {
      bins.forEach((mass, b) => {
        const more = after[k][b] - before[k][b];
        gained += mass * Math.max(more, 0);
        lost += mass * Math.max(-more, 0);
        all += mass;
      });
    }
    return { gained, lost, all };
  });
}

// ---------------------------------------------------------------------- the optimal thresholds within a gap

/**
 * The best thresholds of a group: ends of blocks of bins, from the highest score down, in which labels are pooled until
 * the part with label 1 falls from block to block (isotonic regression). A rule within a block is drawn by chance.
 */
function hull(counts) {
  const blocks = [];
  for (let b = counts.mass[0].length - 1; b >= 0; b -= 1) {
    const block = { from: b, neg: counts.mass[0][b], pos: counts.mass[1][b] };
    for (let last = blocks.at(-1); last; last = blocks.at(-1)) {
      const empty = !(block.neg + block.pos > 0) || !(last.neg + last.pos > 0);
      if (!empty && last.pos * (block.neg + block.pos) > block.pos * (last.neg + last.pos)) break;
      block.neg += last.neg;
      block.pos += last.pos;
      blocks.pop();
    }
    blocks.push(block);
  }
  const points = [{ end: counts.mass[0].length, pos: 0, neg: 0 }];
  for (const { from, pos, neg } of blocks) {
    const last = points.at(-1);
    points.push({ end: from, pos: last.pos + pos, neg: last.neg + neg });
  }
  return points;
}

/** The last place k with xs[k] <= x in numbers that do not fall. */
function placeOf(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The height at x of a line through points with rising xs. */
function heightAt(xs, ys, x) {
  const k = Math.min(placeOf(xs, x), xs.length - 2);
  if (k < 0) return ys[0];
  return ys[k] + (Math.min(Math.max((x - xs[k]) / (xs[k + 1] - xs[k]), 0), 1)) * (ys[k + 1] - ys[k]);
}

/** The rule of a best threshold of a hull. */
const ruleOf = (point, bins) => Array.from({ length: bins }, (_, b) => (b >= point.end ? 1 : 0));

/** The rule of a hull at x of a line through some of its points: that of a point, with a chance that of the next. */
function ruleAt(points, line, x, bins) {
  const at = Math.min(placeOf(line.xs, x), line.xs.length - 2);
  const share = Math.min(Math.max((x - line.xs[at]) / (line.xs[at + 1] - line.xs[at]), 0), 1);
  const [first, second] = [at, at + 1].map((k) => ruleOf(points[line.at[k]], bins));
  return first.map((one, b) => one + share * (second[b] - one)); // blocks without rows of the rate lie between the two
}

/** Points of a hull as a line over one rate, of equal rates the one of the larger value. */
function lineOf(points, axis, costs) {
  const total = axis(points.at(-1));
  const line = { xs: [], ys: [], at: [] };
  points.forEach((point, k) => {
    const [x, y] = [axis(point) / total, costs.fn * point.pos - costs.fp * point.neg];
    if (line.xs.length && !(x > line.xs.at(-1))) {
      if (y <= line.ys.at(-1)) return;
      for (const part of [line.xs, line.ys, line.at]) part.pop();
    }
    line.xs.push(x);
    line.ys.push(y);
    line.at.push(k);
  });
  return line;
}

const AXES = {
  demographic_parity: (point) => point.pos + point.neg,
  equal_opportunity: (point) => point.pos,
  predictive_equality: (point) => point.neg,
};

const NEEDED = { equal_opportunity: [1], predictive_equality: [0], equalized_odds: [0, 1] };

/** Whether every group has the rates that a constraint makes alike. */
const isDefined = (counts, constraint) =>
  counts.every((one) => (NEEDED[constraint] ?? []).every((label) => one.mass[label].some((mass) => mass > 0)));

/** The optimum where one rate of every group is within a band of a width, wherever the band is. */
function oneBand(hulls, axis, gap, costs, bins) {
  const lines = hulls.map((points) => lineOf(points, axis, costs));
  const tops = lines.map(({ ys }) => ys.indexOf(Math.max(...ys)));
  const best = (line, top, centre) =>
    Math.min(Math.max(line.xs[top], Math.max(centre - gap / 2, 0)), Math.min(centre + gap / 2, 1));
  const value = (centre) => sum(lines.map((line, k) => heightAt(line.xs, line.ys, best(line, tops[k], centre))));
  const places = lines.flatMap(({ xs }) => xs.flatMap((x) => [x - gap / 2, x + gap / 2]));
  const centres = [0, 1, ...places.filter((x) => x > 0 && x < 1)]
    .sort((a, b) => a - b)
    .filter((x, k, all) => k === 0 || x - all[k - 1] > ROUNDING); // equal values would end the search
  let [low, high] = [0, centres.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(centres[middle]) < value(centres[middle + 1])) low = middle + 1;
    else high = middle;
  }
  return lines.map((line, k) => ruleAt(hulls[k], line, best(line, tops[k], centres[low]), bins));
}

/** The largest value of a concave function between two ends, and where it is, by golden sections. */
function concaveMaximum(f, low, high) {
  const golden = (Math.sqrt(5) - 1) / 2;
  let [a, b] = [high - golden * (high - low), low + golden * (high - low)];
  let [fa, fb] = [f(a), f(b)];
  while (high - low > 1e-12) {
    if (fa < fb) {
      [low, a, fa] = [a, b, fb];
      b = low + golden * (high - low);
      fb = f(b);
    } else {
      [high, b, fb] = [b, a, fa];
      a = high - golden * (high - low);
      fa = f(a);
    }
    if (!(a < b)) break;
  }
  return [low, a, b, high].reduce((top, x) => (f(x) > top[1] ? [x, f(x)] : top), [low, f(low)]);
}

/** The optimum where true and false positive rates of all groups are each within a band of a width. */
function twoBands(hulls, gap, costs, bins) {
  const groups = hulls.map((points) => {
    const { pos, neg } = points.at(-1);
    const line = { xs: [], ys: [], at: [] };
    points.forEach((point, k) => {
      if (line.xs.length && !(point.pos / pos > line.xs.at(-1))) return; // the lowest false positive rate is the first
      line.xs.push(point.pos / pos);
      line.ys.push(point.neg / neg);
      line.at.push(k);
    });
    const [gain, loss] = [costs.fn * pos, costs.fp * neg];
    const values = line.xs.map((x, k) => gain * x - loss * line.ys[k]);
    const reach = (y) => { // the largest true positive rate at a false positive rate
      const k = placeOf(line.ys, y);
      if (k === line.ys.length - 1) return 1;
      return line.xs[k] + ((y - line.ys[k]) / (line.ys[k + 1] - line.ys[k])) * (line.xs[k + 1] - line.xs[k]);
    };
    return { ...line, gain, loss, reach, top: line.xs[values.indexOf(Math.max(...values))] };
  });
  const lowest = (group, x) => heightAt(group.xs, group.ys, x);
  const point = (group, tpr, fpr) => {
    const least = Math.max(fpr - gap / 2, 0);
    const from = Math.max(tpr - gap / 2, least, 0);
    const to = Math.min(tpr + gap / 2, group.reach(Math.min(fpr + gap / 2, 1)), 1);
    const x = Math.min(Math.max(Math.max(group.top, group.reach(least)), from), Math.max(to, from));
    return [x, Math.max(lowest(group, x), least), to - from];
  };
  const value = (tpr, fpr) =>
    sum(groups.map((group) => {
      const [x, y, room] = point(group, tpr, fpr);
      return room < -1e-9 ? -Infinity : group.gain * x - group.loss * y;
    }));
  const inner = (tpr) => {
    const least = Math.max(...groups.map((group) => lowest(group, Math.max(tpr - gap / 2, 0)))) - gap / 2;
    return concaveMaximum((fpr) => value(tpr, fpr), Math.max(least, 0), Math.min(tpr + gap, 1));
  };
  const [tpr] = concaveMaximum((x) => inner(x)[1], 0, 1);
  const [fpr] = inner(tpr);
  return groups.map((group, k) => mixture(hulls[k], group, point(group, tpr, fpr), bins));
}

/** The rule of a group with two rates: one on its hull, mixed with all or none where the rates are below the hull. */
function mixture(points, group, [x, y], bins) {
  const on = (tpr) => ruleAt(points, group, tpr, bins);
  const height = heightAt(group.xs, group.ys, x);
  if (y - height <= 1e-12) return on(x);
  if (1 - x < 1e-12) return on(1).map((one) => (one * (1 - y) + y - height) / (1 - height));
  // along the ray from the rule that selects all rows, to where it leaves the hull
  let [low, high] = [0, x];
  for (let step = 0; step < 200 && low < high; step += 1) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    const ray = 1 - ((1 - y) * (1 - middle)) / (1 - x);
    if (heightAt(group.xs, group.ys, middle) > ray || ray < 0) low = middle;
    else high = middle;
  }
  const share = (1 - x) / (1 - high);
  return on(high).map((one) => share * one + 1 - share);
}

/**
 * The rule of largest value `fn TP - fp FP` whose rates are within a gap: thresholds of each group, some drawn by chance.
 *
 * `gap` Infinity asks for none. Null where a rate that is to be alike is undefined in a group.
 */
function optimum(content, counts, constraint, gap, costs) {
  const bins = content.edges.length;
  const hulls = counts.map(hull);
  if (gap === Infinity || !(costs.fp > 0 || costs.fn > 0))
    return hulls.map((points) => {
      const values = points.map(({ pos, neg }) => costs.fn * pos - costs.fp * neg);
      return ruleOf(points[values.indexOf(Math.max(...values))], bins);
    });
  if (!isDefined(counts, constraint)) return null;
  if (constraint === "equalized_odds") {
    const free = optimum(content, counts, constraint, Infinity, costs);
    const rates = ["pos", "neg"].map((part) => counts.map((one, k) => {
      const mass = one.mass[part === "pos" ? 1 : 0];
      return sum(mass.map((m, b) => m * free[k][b])) / sum(mass);
    }));
    if (rates.every((own) => Math.max(...own) - Math.min(...own) <= gap)) return free;
    return twoBands(hulls, gap, costs, bins);
  }
  return oneBand(hulls, AXES[constraint], gap, costs, bins);
}

/** The cost per 100 rows of the best rule at each of some gaps. */
function frontier(content, counts, constraint, gaps, costs) {
  return gaps.flatMap((gap) => {
    const chances = optimum(content, counts, constraint, gap, costs);
    return chances ? [{ gap, cost: overall(content, counts, chances, costs).cost, chances }] : [];
  });
}

if (typeof module !== "undefined")
  module.exports = { above, audit, betaQuantile, changes, frontier, grouped, optimum, overall, rateOfAll, verdict };
