"use strict";
// Runs arithmetic.js on jobs from standard input, a list of {content, attribute, ...}, and prints a list of results.
const page = require("../../fairfix/interactive/arithmetic.js");

const done = JSON.parse(require("node:fs").readFileSync(0, "utf8")).map((job) => {
  const { content } = job;
  const counts = page.grouped(content, content.attributes[job.attribute]);
  const rule = (places) => counts.map((_, k) => page.above(content, places[k]));
  const costs = { fp: job.fp ?? 1, fn: job.fn ?? 1 };
  if (job.constraint) {
    const chances = page.optimum(content, counts, job.constraint, job.gap ?? Infinity, costs);
    return { chances };
  }
  const chances = rule(job.places);
  const result = page.audit(content, counts, chances, job.moved);
  const all = Object.fromEntries(
    content.rates.map(({ name }) => [name, page.rateOfAll(content, name, counts, chances, job.moved)]),
  );
  const verdicts = (job.limits ?? []).map((limit) => page.verdict(result.gaps.selection_rate.difference, limit));
  const changes = page.changes(counts, rule(job.places.map(() => content.edges.indexOf(content.start))), chances);
  return { ...result, verdicts, changes, overall: content.labelled ? page.overall(content, counts, chances, costs) : null, all };
});
process.stdout.write(JSON.stringify(done));
