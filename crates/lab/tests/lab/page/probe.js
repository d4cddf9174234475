// Put into a copy of the page by the test: uses the page as a reader would and writes what it
// saw into attributes of the root element, where --dump-dom shows it.
window.addEventListener("load", () => {
  const root = document.documentElement;
  const tell = (name, value) => root.setAttribute("data-seen-" + name, String(value));
  const settle = () => new Promise((done) => setTimeout(done, 120));
  const click = async (selector) => { document.querySelector(selector).click(); await settle(); };
  const background = () => getComputedStyle(document.body).backgroundColor;

  async function use() {
    await settle();
    tell("background", background());
    tell("resources", performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:")).join(" "));
    const heat = () => [...new Set([...document.querySelectorAll(".heat tbody td")].map((cell) => getComputedStyle(cell).backgroundColor))].length;
    const shown = (strategy) => [...document.querySelectorAll(".heat tbody td")][strategy].innerText.trim();
    tell("heat", heat());
    tell("lost", getComputedStyle(document.querySelector(".heat td.lost")).boxShadow !== "none");
    tell("share", shown(5));
    await click("#figure-2");
    tell("rate", shown(5));
    await click("#figure-1");
    const bars = [...document.querySelectorAll("#interplay td[style]")].map((cell) => getComputedStyle(cell).backgroundImage);
    tell("bars", new Set(bars).size);
    // The tooth is as high as the frame allows, in the colour of its pace, and wide enough to be seen.
    const lines = [...document.querySelectorAll("#checkpoint .teeth path")];
    const heights = lines.map((line) => Math.round(line.getBBox().height));
    const inks = new Set(lines.map((line) => getComputedStyle(line).stroke));
    tell("teeth", heights.join(","));
    tell("teeth-inks", inks.size);
    tell("teeth-width", document.querySelector("#checkpoint .teeth svg").getBoundingClientRect().width > 800);

    // Eight readers climb, one does not, and the ceiling lies above both.
    const curves = [...document.querySelectorAll("#readahead .teeth path")];
    tell("curves", curves.map((line) => Math.round(line.getBBox().height)).join(","));
    tell("curve-inks", new Set(curves.map((line) => getComputedStyle(line).stroke)).size);
    const ceiling = document.querySelector("#readahead .teeth line[stroke-dasharray]");
    tell("ceiling", curves.every((line) => ceiling.getBBox().y < line.getBBox().y));
    tell("curves-of-mixture", document.querySelectorAll("#mixture .teeth path").length);

    await click("#theme");
    tell("other-heat", heat());
    tell("other-background", background());
    await click("#theme");

    tell("done", true);
  }

  use().catch((error) => tell("error", error.stack)).finally(() => tell("errors", window.seenErrors.join(" | ")));
});
