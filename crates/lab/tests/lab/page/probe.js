// Put into a copy of the page by the test: uses the page as a reader would and writes what it
// saw into attributes of the root element, where --dump-dom shows it.
window.addEventListener("load", () => {
  const root = document.documentElement;
  const tell = (name, value) => root.setAttribute("data-seen-" + name, String(value));
  const colour = (line) => getComputedStyle(document.querySelector(".ink-" + line)).color.match(/\d+/g).slice(0, 3).map(Number);

  // Pixels of the plot that have a backend's colour, almost exactly.
  function painted(backend) {
    const canvas = document.querySelector("#canvas canvas");
    if (!canvas) { return 0; }
    const [r, g, b] = colour(backend);
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const ctx = copy.getContext("2d", { willReadFrequently: true }); // or Chromium warns
    ctx.drawImage(canvas, 0, 0);
    const { data } = ctx.getImageData(0, 0, copy.width, copy.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) {
      const near = Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12;
      if (data[i + 3] > 240 && near) { count++; }
    }
    return count;
  }

  const all = () => ["sync", "threads", "uring", "fio"].map((name) => name + "=" + painted(name)).join(",");
  const settle = () => new Promise((done) => setTimeout(done, 120));
  const click = async (selector) => { document.querySelector(selector).click(); await settle(); };
  const background = () => getComputedStyle(document.body).backgroundColor;

  async function use() {
    await settle();
    tell("painted", all());
    tell("background", background());
    tell("resources", performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:")).join(" "));
    const canvas = document.querySelector("#canvas canvas").getBoundingClientRect();
    document.querySelector("#canvas").scrollIntoView({ block: "center" });
    const middle = document.querySelector("#canvas canvas").getBoundingClientRect();
    const hit = document.elementFromPoint(middle.left + middle.width / 2, middle.top + middle.height / 2);
    tell("visible", canvas.width > 800 && canvas.height > 300 && hit !== null && hit.closest("#canvas") !== null);
    tell("text", document.querySelector("#canvas canvas").getAttribute("aria-label"));

    document.querySelector("#canvas").dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
    await settle();
    tell("hover", document.querySelector("#hover").innerText.replace(/\s+/g, " "));
    const over = document.querySelector(".u-over");
    const box = over.getBoundingClientRect();
    over.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + 20, clientY: box.top + 50, bubbles: true }));
    await settle();
    tell("mouse", document.querySelector("#hover").innerText.replace(/\s+/g, " "));

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
    tell("other-painted", all());
    tell("other-background", background());
    await click("#theme");

    const pixels = () => document.querySelector("#canvas canvas").toDataURL();
    const linear = pixels();
    await click("[data-scale=log]");
    tell("log-differs", linear !== pixels());
    tell("log-painted", all());
    await click("[data-scale=linear]");

    const legend = [...document.querySelectorAll("#legend button")];
    legend.filter((button) => button.textContent.startsWith("uring")).forEach((button) => button.click());
    await settle();
    tell("without-uring", all());
    tell("done", true);
  }

  use().catch((error) => tell("error", error.stack)).finally(() => tell("errors", window.seenErrors.join(" | ")));
});
