// Put into a copy of the page by the test: uses the page as a reader would and writes what it
// saw into attributes of the root element, where --dump-dom shows it.
window.addEventListener("load", () => {
  const root = document.documentElement;
  const find = (selector) => document.querySelector(selector);
  const set = (name, value) => root.setAttribute("data-seen-" + name, String(value));
  const style = (selector, property) => getComputedStyle(find(selector))[property];
  const place = (selector) => {
    const box = find(selector).getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom].map(Math.round).join(",");
  };
  // Whether what is drawn in the middle of an element is the element, or a part of it.
  const isUncovered = (selector) => {
    const box = find(selector).getBoundingClientRect();
    const top = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    return Boolean(top) && find(selector).closest("section").contains(top);
  };

  async function use() {
    set("width", innerWidth);
    for (const [name, selector] of [["device", ".tiles"], ["settings", "#settings table"], ["plot", "#headline svg"], ["knee", "#headline .mark text"]]) {
      set(name, place(selector));
      set(name + "-uncovered", isUncovered(selector));
    }
    set("sideways", document.scrollingElement.scrollWidth > innerWidth);
    set("background", style("body", "backgroundColor"));
    set("ink", style("body", "color"));
    set("lines", [...document.querySelectorAll("#headline .line")].map((line) => getComputedStyle(line).color.replace(/[^\d,]/g, "")).join(" "));
    set("figures", style("#settings tbody td:nth-child(3)", "textAlign") + " " + style("#settings tbody td:nth-child(3)", "fontVariantNumeric"));
    set("open", document.querySelectorAll("details[open]").length);
    set("resources", performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:")).join(" "));
    const dot = [...document.querySelectorAll("#headline .line")].pop().querySelector("g circle");
    const box = dot.getBoundingClientRect();
    const under = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    set("hover", under.parentElement.querySelector("title").textContent);

    find("#strategies summary").click();
    const cell = find("#strategies td.bad").getBoundingClientRect();
    set("bar", cell.width > 40 && style("#strategies td.bad", "backgroundImage").includes("88%"));
    find("#settings details:nth-of-type(2) summary").click();
    // The browser's own clipboard answers when another process has time.
    let written = "";
    const copy = async (writeText) => {
      Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
      find("#settings .copy").click();
      await new Promise((done) => setTimeout(done, 200));
      return find("#settings .copy").textContent + ": ";
    };
    set("copied", await copy(async (text) => { written = text; }) + written);
    set("selected", await copy(async () => { throw new Error("refused"); }) + getSelection().toString());
    find("#theme").click();
    set("other-background", style("body", "backgroundColor"));
    find("#theme").click();
    dispatchEvent(new Event("beforeprint"));
    set("printed", [...document.querySelectorAll("details:not([open])")].map((part) => part.id).join(" "));
    dispatchEvent(new Event("afterprint"));
  }

  use()
    .catch((error) => seenErrors.push("probe: " + error))
    .finally(() => { set("errors", seenErrors.join("; ")); set("done", true); });
});
