// Open pages of the built site in chromium, wide and narrow, light and dark: nothing may be wider than the window, no
// code may be cut, no picture may be missing, axe may find nothing serious, and the search must answer what a newcomer
// asks with the right page among the first three.
//
//   npm install --no-save playwright-core axe-core
//   node docs/check_in_browser.mjs docs/_build/html [folder for screenshots]
//
// CHROMIUM names the browser, /usr/bin/chromium by default; PAGES a list of pages, separated by commas. FULL=1 makes
// screenshots of whole pages. PAGES=all opens every page. VIEWS is a list such as "1280 light,390 dark": all four by default.
// PROGRESS=1 names each page that is done.
import { readFileSync, readdirSync, mkdirSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, resolve } from "node:path";

const require = createRequire(resolve("package.json")); // modules of the folder it is run in
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [site, shots] = process.argv.slice(2);
if (!site) throw new Error("give the folder of the built site");
if (shots) mkdirSync(shots, { recursive: true });
const every = () =>
  readdirSync(site, { recursive: true })
    .filter((name) => name.endsWith(".html") && !/^(404|genindex|py-modindex|_)/.test(name))
    .map((name) => name.replaceAll("\\", "/").replace(/\.html$/, ""));
const pages = process.env.PAGES === "all" ? every() : (
  process.env.PAGES ??
  "index,user_guide,which_estimator,tables,uncertainty,plots,devices,troubleshooting,coming_from,benchmarks,papers," +
    "command_line,auto_examples/index,auto_examples/tables/regression,api/index,api/gyrfalcon.FalkonRegressor," +
    "api/kernels_module,search"
).split(",");

// the search reads pages, which browsers do not let it do without a server
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png" };
const server = createServer((request, response) => {
  const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
  try {
    const body = readFileSync(resolve(site, `.${path}`));
    response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});
let wrong = 0;
const complain = (where, what) => {
  wrong += 1;
  console.log(`${where}: ${what}`);
};

// Each page is loaded once, and looked at in one view after the other. axe runs with all its rules in the first view of a
// page, and then with those on which width and theme have an effect.
const views = (process.env.VIEWS ?? "1280 light,1280 dark,390 light,390 dark").split(",").map((view) => view.split(" "));
const depends = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "button-name", "link-name", "list"];
const complete = { type: "tag", values: ["wcag2a", "wcag2aa"] };
const context = await browser.newContext({ colorScheme: "light" });
// what is on other hosts is not part of the check
await context.route((url) => url.origin !== origin, (route) => route.abort());
const page = await context.newPage();
page.setDefaultTimeout(300_000); // a busy machine may stand still for minutes

async function look(name, size, theme, rules) {
  const where = `${name} ${size} ${theme}`;
  if (page.viewportSize().width !== Number(size)) {
    await page.setViewportSize({ width: Number(size), height: 900 });
    await page.waitForTimeout(400); // the theme lets tables that scroll be reached by the keyboard 300 ms later
  }
  await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
  await page.evaluate((mode) => {
    document.documentElement.dataset.mode = mode;
    document.documentElement.dataset.theme = mode;
  }, theme);
  // colours that change gradually have no contrast half-way
  await page.evaluate(() => Promise.allSettled(document.getAnimations().map((animation) => animation.finished)));
  const path = shots && resolve(shots, `${name.replaceAll("/", "_")}_${size}_${theme}.png`);
  if (shots) await page.screenshot({ path, fullPage: process.env.FULL === "1" });
  const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (over > 0) complain(where, `the page is ${over} pixels wider than the window`);
  const cut = await page.evaluate(() =>
    [...document.querySelectorAll("div.highlight pre")]
      .filter((block) => block.scrollWidth > block.clientWidth + 1)
      .map((block) => block.textContent.slice(0, 40)),
  );
  if (cut.length) complain(where, `${cut.length} blocks of code are cut, the first is ${JSON.stringify(cut[0])}`);
  const found = await page.evaluate(
    (runOnly) => window.axe.run(document, { runOnly, resultTypes: ["violations"] }),
    rules,
  );
  for (const violation of found.violations) {
    const places = violation.nodes.slice(0, 3).map((node) => node.target.join(" "));
    complain(where, `${violation.id} (${violation.impact}) ${violation.nodes.length} times: ${places.join(", ")}`);
  }
}

for (const name of pages) {
  await page.setViewportSize({ width: Number(views[0][0]), height: 900 });
  await page.goto(`${origin}/${name}.html${name === "search" ? "?q=penalty" : ""}`);
  if (name === "search") {
    // results come one after another; the sentence around the word is fetched
    await page.waitForSelector("#search-results li p.context").catch(() => complain(name, "nothing found"));
  }
  const missing = await page.evaluate(() =>
    [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
  );
  for (const source of missing.filter((source) => source.startsWith(origin))) complain(name, `no picture ${source}`);
  await page.evaluate(axe);
  for (const [at, [size, theme]] of views.entries())
    await look(name, size, theme, at ? { type: "rule", values: depends } : complete);
  if (process.env.PROGRESS) console.log(`looked at ${name}`);
}
await context.close();

// what a newcomer asks, and the pages that answer it; check_search.mjs asks the same without a browser
const questions = JSON.parse(readFileSync(new URL("search_questions.json", import.meta.url), "utf8"));
const asking = await browser.newContext({ viewport: { width: 1280, height: 900 } });
await asking.route((url) => url.origin !== origin, (route) => route.abort());
const asked = await asking.newPage();
asked.setDefaultTimeout(60_000);
for (const [question, answers] of Object.entries(process.env.PAGES && process.env.PAGES !== "all" ? {} : questions)) {
  await asked.goto(`${origin}/search.html?q=${encodeURIComponent(question)}`);
  await asked.waitForSelector("#search-results li:nth-child(3) a").catch(() => null);
  const found = await asked.evaluate(() =>
    [...document.querySelectorAll("#search-results > ul > li > a")].map((link) => new URL(link.href).pathname),
  );
  const distinct = [...new Set(found)].slice(0, 3);
  if (!answers.some((name) => distinct.includes(`/${name}.html`)))
    complain(`search ${question}`, `${answers.join(" or ")} is not among ${distinct.join(", ")}`);
}
await browser.close();
server.close();
console.log(wrong ? `${wrong} complaints` : `${pages.length} pages, ${views.map((view) => view.join(" ")).join(", ")}: nothing to complain about`);
process.exitCode = wrong ? 1 : 0;
