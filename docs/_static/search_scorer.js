// How the search of the site orders its results. Sphinx gives a page the score of its best word, and counts headings as
// titles, so that most pages tie and their titles decide. Here every word of the question counts: most in the title of
// a page or in its keywords (the lines at the top of docs/*.md), less in a heading, least in the text. Pages of the guide
// come before the reference, and the reference before the changes.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  // words of the title and of the keywords of each page, as stems
  words: null,
  read() {
    const index = Search._index;
    const stemmer = new Stemmer();
    const stems = (text) => splitQuery(text.toLowerCase()).map((word) => stemmer.stemWord(word));
    const titles = index.titles.map((title) => new Set(stems(title)));
    const keywords = index.docnames.map(() => new Set());
    for (const [entry, places] of Object.entries(index.indexentries))
      for (const [file, , isMain] of places) if (isMain) stems(entry).forEach((word) => keywords[file].add(word));
    return { titles, keywords };
  },

  place(page) {
    if (["changes", "contributing", "genindex"].includes(page)) return -10;
    if (["glossary", "cheat_sheet", "papers", "papers_nytro", "baselines"].includes(page)) return 0;
    if (page.startsWith("api/")) return 2;
    return page.startsWith("auto_examples/") ? 3 : 8;
  },

  score([page, title, anchor, description, score, filename, kind]) {
    if (kind === "object") return /^method|^attribute|^property/.test(description) ? score - 8 : score;
    if (kind !== "text") return score + this.place(page);
    this.words ??= this.read();
    const file = Search._index.docnames.indexOf(page);
    const has = (files) => files !== undefined && [].concat(files).includes(file);
    const asked = [...Search._parseQuery(new URLSearchParams(window.location.search).get("q") ?? "")[1]];
    const points = asked.map((word) => {
      if (this.words.titles[file].has(word)) return 30;
      if (this.words.keywords[file].has(word)) return 25;
      if (has(Search._index.titleterms[word])) return 10;
      return has(Search._index.terms[word]) ? 4 : 1;
    });
    return points.reduce((sum, value) => sum + value, 0) / Math.max(1, points.length) + this.place(page);
  },
};
