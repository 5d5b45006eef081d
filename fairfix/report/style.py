"""The style of the HTML report: for screens from 360 pixels, for paper, and readable without colours."""

STYLE = """\
:root { color-scheme: light; }
* { box-sizing: border-box; }
body {
  margin: 0;
  background: #fff;
  color: #1a1a1a;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main, footer { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 {
  font-size: 1.3rem;
  margin: 2.2rem 0 .6rem;
  padding-top: .6rem;
  border-top: 2px solid #1a1a1a;
  overflow-wrap: anywhere;
}
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; overflow-wrap: anywhere; }
p, li, dd { max-width: 48rem; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
dt { font-weight: 600; margin-top: .6rem; overflow-wrap: anywhere; }
dd { margin: 0 0 0 1rem; }
.lead { font-size: 1.15rem; }
.mark { white-space: nowrap; padding: .1em .5em; border: 2px solid; border-radius: .3em; }
.mark.pass { color: #0b5d2a; background: #eef8f1; }
.mark.fail { color: #fff; background: #a3081e; border-color: #a3081e; }
.mark.undecided { color: #5a4500; background: #fff8e1; border-style: dashed; }
.mark.waived { color: #33415c; background: #eef1f8; border-style: dotted; }
.hint { display: none; }
.scroll { overflow-x: auto; max-width: 100%; margin: .6rem 0; }
.scroll:focus-visible, summary:focus-visible { outline: 3px solid #0072b2; outline-offset: 2px; }
table { border-collapse: collapse; min-width: min(100%, 13rem); font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .2rem 0; }
th, td {
  padding: .3rem .7rem .3rem 0;
  text-align: left;
  vertical-align: top;
  border-bottom: 1px solid #d0d0d0;
}
thead th { border-bottom: 2px solid #1a1a1a; }
tbody th { font-weight: 600; min-width: 7rem; overflow-wrap: anywhere; }
th.number, td.number { text-align: right; }
td.number, .value { white-space: nowrap; }
.cards tbody th { min-width: 12rem; }
thead th { vertical-align: bottom; }
nav ul { columns: 16rem; column-gap: 2rem; }
nav li { break-inside: avoid; }
a { color: #00558a; }
.figures {
  display: grid;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr));
  gap: 1.4rem 2rem;
}
.figures.large { grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
figure { margin: .6rem 0 1rem; min-width: 0; break-inside: avoid; }
figure.wide { max-width: 62rem; }
figcaption { font-size: .9rem; max-width: 48rem; margin-bottom: .4rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
figure.narrow svg { max-width: 27rem; }
figure.wide svg { max-width: 36rem; }
figure.narrow svg.drawn { max-width: 34rem; stroke-linejoin: round; stroke-linecap: butt; }
.halo { paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round; }
details { font-size: .9rem; }
summary { cursor: pointer; padding: .2rem 0; }
footer { border-top: 1px solid #d0d0d0; color: #595959; font-size: .85rem; }
@media (max-width: 40rem) {
  tbody th { position: sticky; left: 0; background: #fff; min-width: 8.4rem; max-width: 9rem; }
  caption { max-width: calc(100vw - 2rem); }
  .hint { display: block; margin: .8rem 0 -.4rem; color: #595959; font-size: .85rem; }
  .cards, .cards tbody, .cards tr, .cards th, .cards td, .cards caption {
    display: block;
    position: static;
    min-width: 0;
    max-width: none;
    text-align: left;
  }
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cards th, .cards td { border: 0; padding: .1rem 0; white-space: normal; overflow-wrap: anywhere; }
  .cards td[data-label]::before { content: attr(data-label) ": "; color: #595959; }
  .cards tr { border-bottom: 1px solid #d0d0d0; padding: .5rem 0; }
  .cards td:empty { display: none; }
}
@page { margin: 14mm; }
@media print {
  body { font-size: 10pt; }
  main, footer { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  nav, .hint { display: none; }
  table { font-size: 7.5pt; }
  th, td { padding-right: .35rem; }
  td.number, .value { white-space: normal; }
  figure.wide svg { max-width: 11cm; }
  .figures, .figures.large { grid-template-columns: 1fr 1fr; }
  h2, h3, caption, thead { break-after: avoid; }
  tr { break-inside: avoid; }
  .mark { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  details:not([open]) { display: none; }
}
"""
