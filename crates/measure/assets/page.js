// The report page: the switch between light and dark, copy and save, and what print needs.
//
// Everything else of the page is plain HTML and SVG and works without this file.
(function () {
  "use strict";

  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  function themeSwitch() {
    const button = byId("theme");
    const name = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", "Switch to " + (isDark() ? "light" : "dark") + " colours");
    };
    try { // no storage, no memory
      const theme = localStorage.getItem("forebay-theme");
      if (theme === "light" || theme === "dark") { root.dataset.theme = theme; }
    } catch { /* as the system has it */ }
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try { localStorage.setItem("forebay-theme", root.dataset.theme); } catch { /* for now */ }
      name();
    });
    prefersDark.addEventListener("change", name);
  }

  function copyButton(button) {
    const text = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      let done = false;
      try {
        await navigator.clipboard.writeText(text.textContent);
        done = true;
      } catch {
        // Pages opened from a file may not write to the clipboard; select, so that a key can.
        getSelection().selectAllChildren(text);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }

  function saveButton() {
    const button = byId("save");
    button.hidden = false;
    button.addEventListener("click", () => {
      const report = JSON.stringify(JSON.parse(byId("report-data").textContent), null, 2) + "\n";
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([report], { type: "application/json" }));
      link.download = "report.json";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // On paper nothing can be opened; only the records stay closed, which are for machines.
  function openForPrint() {
    let opened = [];
    window.addEventListener("beforeprint", () => {
      opened = [...document.querySelectorAll("details:not([open]):not(#records)")];
      opened.forEach((part) => { part.open = true; });
    });
    window.addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));
  }

  // A link to a part shows it.
  function openTarget() {
    const part = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
    if (part && part.tagName === "DETAILS") { part.open = true; }
  }

  themeSwitch();
  document.querySelectorAll(".copy").forEach(copyButton);
  saveButton();
  openForPrint();
  openTarget();
  window.addEventListener("hashchange", openTarget);
})();
