"use strict";
// Controls, tables and pictures of the numbers that arithmetic.js computes.

/* global above, audit, changes, frontier, grouped, isDefined, optimum, overall, rateOfAll, verdict */

const content = JSON.parse(document.getElementById("content").textContent);
const at = (id) => document.getElementById(id);
/** The thresholds of the original decisions of an attribute's groups, as places among the edges. */
const placesOf = ({ names, starts }) => names.map((_, k) => content.edges.indexOf(starts ? starts[k] : content.start));
const STARTS = content.attributes.flatMap(placesOf);
const MODE = STARTS.every((one) => one === STARTS[0]) ? "one" : "each";
const NO_LIMIT = 61;
const MOST_SHOWN = 60;
const SIGNS = { pass: "✔", fail: "✖", undecided: "?" };
const { ink, quiet, faint, cut, mark } = content.colours;
const GAP_STEPS = 20;
const MANY = 200; // groups for which a browser computes equalized odds, and frontiers, in seconds

const state = { attribute: 0, metric: "selection_rate", mode: MODE, places: [], gap: NO_LIMIT, fp: 1, fn: 1 };
let counts = []; // of the groups of the attribute
let shown = []; // places of the groups that have a row
let line = null; // the frontier of the last attribute, metric and costs

// ---------------------------------------------------------------------- words

const percent = (x) => (Number.isNaN(x) ? "–" : `${(100 * x).toFixed(1)}%`);
const points = (x) => (Number.isNaN(x) ? "–" : (100 * x).toFixed(1));
const rounded = (x, digits) => (Number.isNaN(x) ? "–" : x.toFixed(digits));
const whole = (x) => Math.round(x).toLocaleString("en");
const attribute = () => content.attributes[state.attribute];
const title = () => (state.metric === "equalized_odds" ? content.odds_title : rateOf(state.metric).title);
const rateOf = (name) => content.rates.find((rate) => rate.name === name);
const named = () => (state.metric === "equalized_odds" ? [...content.odds, "equalized_odds"] : [state.metric]);
const rateNames = () => (state.metric === "equalized_odds" ? content.odds : [state.metric]);
const constraint = () => (content.labelled ? content.constraints[state.metric] : undefined);
const limit = () => (state.gap === NO_LIMIT ? Infinity : state.gap / 200);
const costs = () => ({ fp: state.fp, fn: state.fn });

/** An element with attributes, and with text or elements inside. */
function made(tag, attributes = {}, ...inside) {
  const svg = ["svg", "line", "text", "rect", "circle", "polyline", "title", "path"].includes(tag);
  const one = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...inside);
  return one;
}

// ---------------------------------------------------------------------- the rule

const original = () => placesOf(attribute()).map((one) => above(content, one));

/** The rule that the controls name; null where there is none. */
function rule() {
  if (state.mode === "best" && constraint()) return optimum(content, counts, constraint(), limit(), costs());
  return counts.map((_, k) => above(content, state.places[state.mode === "one" ? 0 : k]));
}

const isMoved = (chances) => original().some((own, k) => own.some((one, b) => one !== chances[k][b]));

/** Whether thresholds can be set to the best for the allowed gap in the metric. */
const isAble = () =>
  Boolean(constraint()) && isDefined(counts, constraint()) && (state.metric !== "equalized_odds" || counts.length <= MANY);

/** The largest difference between groups that a rule has in the metric. */
const gapOf = (chances) => audit(content, counts, chances, true, named()).gaps[state.metric].difference.value;

/** A rule of one group in words. */
function inWords(chance) {
  const parts = [];
  for (let b = chance.length - 1; b >= 0; b -= 1) {
    const last = parts.at(-1);
    if (last && Math.abs(last.share - chance[b]) < 1e-9) last.from = b;
    else parts.push({ from: b, to: b + 1, share: chance[b] });
  }
  const [top] = parts;
  if (parts.length === 1) return top.share === 1 ? "everyone is selected" : top.share === 0 ? "no one is selected" : `everyone with probability ${rounded(top.share, 3)}`;
  return parts
    .filter(({ share }) => share > 0)
    .map(({ from, to, share }) => {
      const where = to === chance.length ? `from ${content.edges[from]}` : `${content.edges[from]} to below ${content.edges[to]}`;
      return share === 1 ? where : `${where} with probability ${rounded(share, 3)}`;
    })
    .join("; ");
}

// ---------------------------------------------------------------------- pictures

const svg = (width, height, name, ...inside) =>
  made("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, "font-size": 12 }, ...inside);
const stroke = (x1, y1, x2, y2, colour, width, dash) =>
  made("line", { x1, y1, x2, y2, stroke: colour, "stroke-width": width, ...(dash ? { "stroke-dasharray": dash } : {}) });
const text = (x, y, words, colour, anchor = "start") =>
  made("text", { x, y, fill: colour, "text-anchor": anchor, class: "halo" }, words);

const BARS = 48;
const WIDTH = 300;
const inside = (share) => 4 + Math.min(Math.max(share, 0), 1) * (WIDTH - 8);

/** The thresholds worth a step of a slider, from the first to the last, and the axis of the scores that rows have. */
function reach() {
  const there = content.edges.flatMap((_, b) => (content.rows.some((cell) => cell.some((bins) => bins[b])) ? [b] : []));
  const first = Math.min(there[0], ...STARTS);
  const last = Math.max(Math.min(there.at(-1) + 1, content.edges.length - 1), ...STARTS);
  const long = content.edges[last] - content.edges[first];
  const more = there.at(-1) === last ? long / Math.max(last - first, 1) || 1 : 0; // the last bin has no end
  return { first, last, low: content.edges[first], long: long + more };
}
const AXIS = reach();
const onAxis = (score) => inside((score - AXIS.low) / AXIS.long);

/** Bars of a group's scores: the part with label 1 is filled; rows of a bin lie evenly in it. The threshold is drawn later. */
function bars(group) {
  const heights = Array.from({ length: BARS }, () => [0, 0]);
  const placeOfBin = (b) => ((b < content.edges.length ? content.edges[b] : AXIS.low + AXIS.long) - AXIS.low) / AXIS.long * BARS;
  group.mass.forEach((bins, label) =>
    bins.forEach((mass, b) => {
      if (!mass) return;
      const from = Math.min(Math.max(placeOfBin(b), 0), BARS - 1);
      const to = Math.min(Math.max(placeOfBin(b + 1), from + 1e-9), BARS);
      for (let k = Math.floor(from); k < to; k += 1) {
        const part = (Math.min(to, k + 1) - Math.max(from, k)) / (to - from);
        heights[k][label] += mass * part;
      }
    }),
  );
  const most = Math.max(...heights.map(([a, b]) => a + b)) || 1;
  const width = (WIDTH - 8) / BARS;
  return heights.flatMap(([none, some], k) => {
    const [low, high] = [none, some].map((mass) => (36 * mass) / most);
    const part = (y, height, fill) => made("rect", { x: 4 + k * width + 0.5, y, width: width - 1, height, fill, stroke: mark, "stroke-width": 0.6 });
    const only = content.labelled ? "#fff" : mark;
    return [...(high ? [part(40 - high, high, mark)] : []), ...(low ? [part(40 - high - low, low, only)] : [])];
  });
}

/** A value on its interval, from 0 to 1, and the limit as seen from the best group. */
function interval(value, [low, high], edge) {
  const parts = [stroke(4, 12, WIDTH - 4, 12, "#ececec", 1)];
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) parts.push(stroke(inside(tick), 4, inside(tick), 20, faint, 0.8));
  if (!Number.isNaN(value)) {
    parts.push(stroke(inside(low), 12, inside(high), 12, ink, 2));
    for (const end of [low, high]) parts.push(stroke(inside(end), 8, inside(end), 16, ink, 1.5));
    parts.push(made("circle", { cx: inside(value), cy: 12, r: 4.2, fill: mark }));
  }
  if (edge !== null) parts.push(stroke(inside(edge), 0, inside(edge), 24, cut, 2, "5 3"));
  return parts;
}

/** Round limits of an axis, and its ticks. */
function scale(numbers) {
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const raw = (high - low || Math.abs(high) || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((one) => one >= raw * 0.999);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.max(Math.ceil(high / step - 1e-9), Math.floor(low / step + 1e-9) + 1)];
  const ticks = Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
  return { share: (x) => (x - ticks[0]) / (ticks.at(-1) - ticks[0]), ticks };
}

function drawFrontier(here, there) {
  const across = scale([0, ...line.map(({ gap }) => gap), here.gap, there.gap].filter((x) => !Number.isNaN(x)).map((x) => 100 * x));
  const up = scale([...line.map(({ cost }) => cost), here.cost, there.cost]);
  const x = (gap) => 52 + across.share(100 * gap) * 376;
  const y = (cost) => 270 - up.share(cost) * 240;
  const parts = [];
  for (const tick of across.ticks) {
    parts.push(stroke(x(tick / 100), 30, x(tick / 100), 274, faint, 0.8), text(x(tick / 100), 288, String(+tick.toPrecision(6)), quiet, "middle"));
  }
  for (const tick of up.ticks) parts.push(stroke(48, y(tick), 428, y(tick), faint, 0.8), text(44, y(tick) + 4, String(+tick.toPrecision(6)), quiet, "end"));
  parts.push(stroke(52, 270, 428, 270, ink, 1), stroke(52, 30, 52, 270, ink, 1));
  parts.push(text(240, 306, `gap in ${title()}, points`, ink, "middle"), text(8, 14, "cost per 100 rows", ink));
  parts.push(made("polyline", { points: line.map(({ gap, cost }) => `${x(gap)},${y(cost)}`).join(" "), fill: "none", stroke: ink, "stroke-width": 1.8 }));
  const place = (one, solid, words, lift) => {
    if (Number.isNaN(one.gap)) return;
    const side = x(one.gap) > 280 ? "end" : "start";
    parts.push(
      made("circle", { cx: x(one.gap), cy: y(one.cost), r: 5.5, fill: solid ? cut : "#fff", stroke: cut, "stroke-width": 2 }),
      text(x(one.gap) + (side === "end" ? -10 : 10), y(one.cost) + lift, words, cut, side),
    );
  };
  place(there, false, "original decisions", 16);
  place(here, true, "current settings", -8);
  at("picture").replaceChildren(svg(440, 314, "The lowest cost for each gap, with the original decisions and the current settings", ...parts));
}

// ---------------------------------------------------------------------- the rows of groups

/** Make the rows of the attribute's groups; what changes in them is filled in later. */
function buildGroups() {
  counts = grouped(content, attribute());
  state.places = placesOf(attribute());
  const names = attribute().names;
  const first = audit(content, counts, original(), false, ["selection_rate"]).rates.selection_rate.values;
  const order = names.map((_, k) => k).sort((a, b) => first[a] - first[b]);
  const many = names.length > MOST_SHOWN;
  shown = many ? [...order.slice(0, MOST_SHOWN / 2), ...order.slice(-MOST_SHOWN / 2)] : names.map((_, k) => k);
  at("groups-note").hidden = !many;
  at("groups-note").textContent = `The ${MOST_SHOWN / 2} groups with the lowest and the ${MOST_SHOWN / 2} with the highest original selection rate are shown. Gaps and totals include all ${names.length}.`;
  at("groups").tBodies[0].replaceChildren(
    ...shown.map((k) => {
      const rows = counts[k].rows.flat().reduce((a, b) => a + b, 0);
      const slider = made("input", { type: "range", min: AXIS.first, max: AXIS.last, step: 1, "aria-label": `Threshold for ${names[k]}` });
      slider.style.setProperty("--part", (content.edges[AXIS.last] - AXIS.low) / AXIS.long);
      slider.addEventListener("input", () => {
        state.places[k] = slider.valueAsNumber;
        update();
      });
      return made("tr", {},
        made("th", { scope: "row" }, names[k], made("small", {}, `${whole(rows)} rows`)),
        made("td", {}, svg(WIDTH, 44, `Scores of ${names[k]}, and the threshold`, ...bars(counts[k]), stroke(4, 40, WIDTH - 4, 40, ink, 1)), slider, made("span", { class: "text" })),
        made("td"),
        made("td", { class: "number" }));
    }),
  );
}

/** The rate that is as far from the best group as the limit allows; null where there is none. */
function bestWithin(name, rates) {
  const there = rates.filter((one) => !Number.isNaN(one));
  if (limit() === Infinity || !there.length) return null;
  return rateOf(name).better === "smaller" ? Math.min(...there) + limit() : Math.max(...there) - limit();
}

function fillGroups(chances, result) {
  const edges = rateNames().map((name) => bestWithin(name, result.rates[name].values));
  const moves = changes(counts, original(), chances);
  [...at("groups").tBodies[0].rows].forEach((row, i) => {
    const k = shown[i];
    const [scores, rate] = [row.cells[1], row.cells[2]];
    const [picture, slider, words] = scores.children;
    picture.querySelectorAll(".threshold").forEach((one) => one.remove());
    chances[k].forEach((share, b) => {
      const before = b ? chances[k][b - 1] : 0;
      if (share > before + 1e-9) {
        const one = stroke(onAxis(content.edges[b]), 0, onAxis(content.edges[b]), 44, cut, 2, share < 1 ? "3 3" : "");
        one.classList.add("threshold");
        picture.append(one);
      }
    });
    slider.hidden = state.mode !== "each";
    slider.value = state.places[k];
    slider.setAttribute("aria-valuetext", String(content.edges[state.places[k]]));
    words.textContent = inWords(chances[k]);
    rate.replaceChildren(
      ...rateNames().flatMap((name, i_) => {
        const [own, ends] = [result.rates[name].values[k], result.rates[name].limits[k]];
        const begin_ = rateNames().length > 1 ? `${rateOf(name).title} ` : "";
        const reads = Number.isNaN(own) ? "undefined: no such rows" : `${percent(own)} (${points(ends[0])} to ${points(ends[1])})`;
        const words_ = `${rateOf(name).title} of ${attribute().names[k]}: ${reads}`;
        return [svg(WIDTH, 24, words_, ...interval(own, ends, edges[i_])), made("span", { class: "text" }, begin_ + reads)];
      }),
    );
    const { gained, lost, all } = moves[k];
    const parts = [[gained, "more selected"], [lost, "fewer selected"]].filter(([mass]) => mass > 1e-9);
    row.cells[3].textContent = parts.length ? parts.map(([mass, what]) => `${whole(mass)} ${what} (${percent(mass / all)})`).join(", ") : "no change";
  });
  at("h-rate").textContent = `${rateNames().map((name) => rateOf(name).title).join(" and ")} with interval`;
}

// ---------------------------------------------------------------------- all of it

function answer(result, moved) {
  const { difference } = result.gaps[state.metric];
  const level = `${+(100 * content.confidence).toPrecision(6)}%`;
  const out = at("answer");
  if (Number.isNaN(difference.value)) {
    out.replaceChildren(`By ${attribute().name}, ${title()} is defined for fewer than two groups, so there is no gap.`);
    return;
  }
  const names = difference.groups.map((k) => attribute().names[k]);
  const rates = result.rates[state.metric];
  const [first, second] = rates ? difference.groups.map((k) => percent(rates.values[k])) : ["", ""];
  const begin = rates
    ? `By ${attribute().name}, ${title()} is ${first} for ${names[0]} and ${second} for ${names[1]}: ${points(difference.value)} points apart`
    : `By ${attribute().name}, the larger gap of true and false positive rates is ${points(difference.value)} points, between ${names.join(" and ")}`;
  const where = moved ? ", for all thresholds at once" : "";
  out.replaceChildren(`${begin} (${level} CI ${points(difference.low)} to ${points(difference.high)}${where}). `);
  if (limit() !== Infinity) {
    const own = verdict(difference, limit());
    out.append(made("strong", { class: `mark ${own}` }, `${SIGNS[own]} ${own}`), ` for a limit of ${points(limit())} points.`);
  }
}

function fillAll(chances, moved, result, first) {
  const both = [[chances, moved], [original(), false]];
  const rate = (name) => both.map(([own, was]) => gap(ofAll(name, own, was), percent));
  const ofAll = (name, own, was) => {
    const { value, limits } = rateOfAll(content, name, counts, own, was);
    return { value, low: limits[0], high: limits[1] };
  };
  const gap = ({ value, low, high }, write) => `${write(value)} (${write(low)} to ${write(high)})`;
  const ratio = (x) => rounded(x, 3);
  const rows = [
    [`${title()}, largest difference between groups, points`, ...[result, first].map((one) => gap(one.gaps[state.metric].difference, points))],
    [`${title()}, smallest ratio between groups`, ...[result, first].map((one) => gap(one.gaps[state.metric].ratio, ratio))],
    ["selected", ...rate("selection_rate")],
  ];
  const [here, there] = content.labelled ? both.map(([own]) => overall(content, counts, own, costs())) : [];
  if (content.labelled) {
    rows.push(
      ["accuracy", ...rate("accuracy")],
      ["balanced accuracy", percent(here.balanced), percent(there.balanced)],
      ["cost per 100 rows", rounded(here.cost, 2), rounded(there.cost, 2)],
    );
  }
  at("all").tBodies[0].replaceChildren(
    ...rows.map(([name, ...cells]) => made("tr", {}, made("th", { scope: "row" }, name), ...cells.map((one) => made("td", { class: "number" }, one)))),
  );
  return [here, there];
}

let key = "";
let waiting = 0;

/** The lowest cost at each gap: computed when the controls rest, since it is the work of many optima. */
function fillFrontier(result, first, [here, there]) {
  clearTimeout(waiting);
  at("frontier").hidden = !isAble() || counts.length > MANY;
  if (at("frontier").hidden) return;
  at("frontier-note").textContent = `The line shows the lowest cost of group thresholds on these rows, for each allowed gap in ${title()}.`;
  const draw = () =>
    drawFrontier(
      { gap: result.gaps[state.metric].difference.value, cost: here.cost },
      { gap: first.gaps[state.metric].difference.value, cost: there.cost },
    );
  const now = `${state.attribute} ${state.metric} ${state.fp} ${state.fn}`;
  if (now === key) {
    draw();
    return;
  }
  waiting = setTimeout(() => {
    const widest = gapOf(optimum(content, counts, constraint(), Infinity, costs()));
    const gaps = Array.from({ length: GAP_STEPS + 1 }, (_, k) => (widest * k) / GAP_STEPS);
    line = frontier(content, counts, constraint(), gaps, costs());
    key = now;
    draw();
  }, 30);
}

/** The threshold, in units of the score, at which the costs of the two errors are equal; null where it has none. */
function fairThreshold() {
  const p = state.fp / (state.fp + state.fn);
  if (content.scale === "raw") return state.fp === state.fn ? content.start : null;
  return { probability: p, percent: 100 * p, margin: 2 * p - 1, logit: Math.log(p / (1 - p)) }[content.scale];
}

const option = (name, value) => {
  if (content.call) return `, ${name}=${typeof value === "string" ? `'${value}'` : value}`;
  return name === "output" ? ` -o ${value}` : ` --${name} ${value}`;
};

const FIXED = "Its rates and gaps equal those shown. Its intervals assume that thresholds were set before anyone saw the data.";

/** The command for what is shown, and a note on it. */
function command() {
  const end = content.call ? ")" : "";
  const own = attribute();
  const same = state.places.every((one) => one === state.places[0]);
  if (state.mode === "one" || (state.mode === "each" && same)) {
    const [before, after] = own.checks[state.metric];
    const check = limit() === Infinity ? "" : `${before}${limit()}${after}`;
    return [`${content.audit}${option("threshold", content.edges[state.places[0]])}${check}${end}`, FIXED];
  }
  if (state.mode === "each" && own.cuts.length) {
    const [before, after] = own.checks[state.metric];
    const check = limit() === Infinity ? "" : `${before}${limit()}${after}`;
    const cuts = own.cuts.map((text, k) => (k ? content.edges[state.places[k - 1]] : "") + text).join("");
    return [`${content.audit}${cuts}${check}${end}`, FIXED];
  }
  if (!isAble()) return ["", "No command sets group thresholds for this metric and these groups. Choose selection rate, TPR, FPR or equalized odds, and groups for which it is defined."];
  if (own.no_repair) return ["", own.no_repair];
  const threshold = fairThreshold();
  if (threshold === null || !Number.isFinite(threshold)) return ["", "No command takes these costs with this score."];
  if (content.exponent !== null && threshold !== content.start && !Number.isInteger(threshold * 2 ** content.exponent))
    return ["", `These costs correspond to a threshold of ${threshold}, which is not an edge of the score bins of these counts. Count the rows again with that threshold.`];
  const wanted = state.mode === "best" ? limit() : gapOf(rule());
  const slack = Number.isFinite(wanted) ? Math.min(Math.ceil(wanted * 1e6) / 1e6, 1) : 1;
  const line = own.repair + option("constraint", constraint()) + option("slack", slack) + option("threshold", threshold) + option("output", "repaired.fairfix") + end;
  const other = state.mode === "best" ? "It finds the best thresholds" : "This repair finds the best thresholds for the gap shown";
  const how = content.exponent === null
    ? " on its training rows and evaluates them on the others. So its numbers differ from those here, which use all rows."
    : " on all of these counts, without an evaluation. To evaluate them, give counts of other rows as holdout.";
  return [line, other + how];
}

function fillCommand() {
  const [line_, note] = command();
  at("command").textContent = line_;
  at("command").parentElement.hidden = at("copy").hidden = !line_;
  at("command-note").textContent = note;
  at("copied").textContent = "";
}

/** The settings as a sentence, for print. */
function settings() {
  const how = {
    one: `one threshold for all groups, ${content.edges[state.places[0]]}`,
    each: "one threshold for each group",
    best: "the best thresholds for the allowed gap",
  }[state.mode];
  const gap = limit() === Infinity ? "no limit" : `${points(limit())} points`;
  return `Groups by ${attribute().name}; ${title()}; ${how}; allowed gap: ${gap}; cost of a false positive ${state.fp}, of a false negative ${state.fn}.`;
}

const audits = new Map();

/** The audit of the original decisions, kept: its exact intervals take longest. */
function firstAudit() {
  const now = `${state.attribute} ${state.metric}`;
  if (!audits.has(now)) audits.set(now, audit(content, counts, original(), false, named()));
  return audits.get(now);
}

function update() {
  const able = isAble();
  at("best").querySelector("input").disabled = !able;
  if (!able && state.mode === "best") {
    state.mode = "one";
    document.querySelector('input[value="one"]').checked = true;
  }
  const chances = rule();
  const moved = isMoved(chances);
  const first = firstAudit();
  const result = moved ? audit(content, counts, chances, true, named()) : first;
  at("one").hidden = state.mode !== "one";
  at("threshold").value = state.places[0];
  at("threshold").setAttribute("aria-valuetext", String(content.edges[state.places[0]]));
  const { value } = rateOfAll(content, "selection_rate", counts, chances, false);
  at("threshold-text").textContent = `${content.edges[state.places[0]]}, ${percent(value)} selected`;
  at("gap").value = state.gap;
  at("gap-text").textContent = state.gap === NO_LIMIT ? "no limit" : `${points(limit())} points`;
  at("gap").setAttribute("aria-valuetext", at("gap-text").textContent);
  at("looked").hidden = !moved;
  at("settings").textContent = settings();
  at("groups-caption").textContent = `Groups by ${attribute().name}`;
  answer(result, moved);
  fillGroups(chances, result);
  const totals = fillAll(chances, moved, result, first);
  fillFrontier(result, first, totals);
  fillCommand();
}

function about() {
  const label = content.labelled ? ` Filled bars are rows with ${content.label} 1, empty bars are rows with ${content.label} 0.` : "";
  const parts = [
    `Scores at or above a threshold are selected. Thresholds are the ${content.edges.length} edges of the score bins, from ${content.edges[0]} to ${content.edges.at(-1)}. Rates at these are exact.`,
    MODE === "each"
      ? `The original decisions use a threshold of ${content.score} for each group. At these thresholds, rates and intervals equal those of the audit.${label}`
      : `The original decisions use the threshold ${content.start} of ${content.score}. At this threshold, rates and intervals equal those of the audit.${label}`,
  ];
  if (content.labelled)
    parts.push("The best thresholds have the lowest cost on these rows. If thresholds alone cannot meet the allowed gap, scores between two thresholds are selected with a probability.");
  else parts.push("Without labels there are no error rates, no costs and no best thresholds.");
  if (content.mass) parts.push("With weights, intervals of moved thresholds use the effective number of rows.");
  if (content.hidden) parts.push(`Groups with fewer than ${content.hidden} rows are left out, with all of their rows.`);
  at("about").replaceChildren(...parts.map((one) => made("li", {}, one)));
  at("looked").textContent = "Exploration: these thresholds were chosen after looking at the data. So intervals hold for all thresholds and groups at once (Dvoretzky-Kiefer-Wolfowitz inequality). Confirm your choice on other rows.";
}

/** Check the mode of the original decisions. */
function startMode() {
  document.querySelector(`input[name="mode"][value="${MODE}"]`).checked = true;
}

function begin() {
  startMode();
  at("attribute").replaceChildren(...content.attributes.map(({ name }, k) => made("option", { value: k }, name)));
  const metrics = [...content.rates.filter(({ needs }) => needs.includes("decision")), ...(content.labelled ? [{ name: "equalized_odds", title: content.odds_title }] : [])];
  at("metric").replaceChildren(...metrics.map((one) => made("option", { value: one.name }, one.title)));
  at("threshold").min = AXIS.first;
  at("threshold").max = AXIS.last;
  for (const part of document.querySelectorAll(".costs, #best")) part.hidden = !content.labelled;
  at("attribute").addEventListener("change", () => {
    state.attribute = Number(at("attribute").value);
    buildGroups();
    update();
  });
  at("metric").addEventListener("change", () => {
    state.metric = at("metric").value;
    update();
  });
  for (const one of document.querySelectorAll('input[name="mode"]'))
    one.addEventListener("change", () => {
      state.mode = one.value;
      if (state.mode === "one") state.places = state.places.map(() => state.places[0]);
      update();
    });
  at("threshold").addEventListener("input", () => {
    state.places = state.places.map(() => at("threshold").valueAsNumber);
    update();
  });
  at("gap").addEventListener("input", () => {
    state.gap = at("gap").valueAsNumber;
    update();
  });
  for (const name of ["fp", "fn"])
    at(name).addEventListener("input", () => {
      const cost = at(name).valueAsNumber;
      if (!(cost >= 0)) return;
      state[name] = cost;
      update();
    });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("restore").addEventListener("click", (event) => {
    event.preventDefault();
    at("controls").reset();
    startMode();
    Object.assign(state, { attribute: 0, metric: "selection_rate", mode: MODE, gap: NO_LIMIT, fp: 1, fn: 1 });
    buildGroups();
    update();
  });
  at("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(at("command").textContent);
      at("copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(at("command"));
      at("copied").textContent = "selected: copy with the keyboard";
    }
  });
  about();
  buildGroups();
  update();
}

begin();
