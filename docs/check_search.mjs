// Ask the search of the built site what a newcomer would ask: the page that answers must be among the first three. It
// runs the site's own searchtools.js with the site's own index.
//
//   node docs/check_search.mjs docs/_build/html
//
// search_questions.json has the questions, each with the pages that answer it.
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import vm from "node:vm";

const site = process.argv[2];
if (!site) throw new Error("give the folder of the built site");
const here = dirname(fileURLToPath(import.meta.url));
const questions = JSON.parse(readFileSync(resolve(here, "search_questions.json"), "utf8"));

// what the scripts ask of a browser when they are loaded: nothing is shown
const document = { addEventListener: () => null, querySelectorAll: () => [], getElementById: () => null };
const page = vm.createContext({ document, URLSearchParams, SPHINX_HIGHLIGHT_ENABLED: false, _ready: () => null, _: String });
vm.runInContext("var window = globalThis; var location = {}", page);
// in the order of search.html
for (const name of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"])
  vm.runInContext(readFileSync(resolve(site, name), "utf8"), page, { filename: name });

function answers(question) {
  page.location.search = `?q=${encodeURIComponent(question)}`;
  page.question = question;
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(question))", page);
  return [...new Set(results.reverse().map(([name]) => name))]; // the best is the last
}

let missed = 0;
for (const [question, pages] of Object.entries(questions)) {
  const first = answers(question).slice(0, 3);
  if (pages.some((name) => first.includes(name))) continue;
  missed += 1;
  console.log(`"${question}": ${pages.join(" or ")} is not among ${first.join(", ") || "no results"}`);
}
const count = Object.keys(questions).length;
console.log(`${count - missed} of ${count} questions find their page among the first three results`);
process.exitCode = missed ? 1 : 0;
