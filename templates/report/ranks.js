// One indicator on every rank, for the runs that have several.
const FIRST_RUNS = 40;
const ranks = { indicator: data.indicators.length - 1, all: false };
function startRanks() {
  if (!data.ranks.length) return;
  section("ranks").hidden = false;
  part("ranks", "controls").append(select("Indicator", data.indicators.map((_, at) => [String(at), INDICATORS[at].title]), String(ranks.indicator), (at) => { ranks.indicator = Number(at); drawRanks(); }));
  drawRanks();
}
function drawRanks() {
  const groups = Map.groupBy ? Map.groupBy(data.ranks, (rank) => rank.run) : data.ranks.reduce((map, rank) => map.set(rank.run, [...(map.get(rank.run) ?? []), rank]), new Map());
  const most = Math.max(...data.ranks.map((rank) => rank.indicators[ranks.indicator] ?? 0), 0) || 1;
  const shownRuns = [...groups].slice(0, ranks.all ? undefined : FIRST_RUNS);
  part("ranks", "body").replaceChildren(...shownRuns.map(([run, list]) => {
    const values = list.map((rank) => rank.indicators[ranks.indicator]), even = new Set(values).size === 1;
    return el("div", { class: "rankrun" }, el("div", { class: "who" }, runName(run), el("span", { class: "soft" }, settingWords(run))),
      el("div", { class: `rankbars${even ? " even" : ""}` }, ...list.flatMap((rank, at) => {
        const value = values[at], fill = el("i");
        fill.style.width = `${(Math.max(0, value ?? 0) / most) * 78}%`;
        return [el("span", {}, `rank ${rank.rank}, ${rank.samples} ${rank.samples === 1 ? "sample" : "samples"}`), el("span", { class: "track", title: `${exact(value)} MiB` }, fill, el("span", {}, value === null ? "not known" : `${number(value)} MiB`))];
      })));
  }));
  if (groups.size > shownRuns.length) part("ranks", "body").append(el("button", { type: "button", onclick: () => { ranks.all = true; drawRanks(); } }, `Show all ${groups.size} runs`));
}
