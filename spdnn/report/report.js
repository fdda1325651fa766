// What the page does beyond being read: sorts and searches its tables, changes units, shows the record behind a number.
// It works on what is already in the page and asks for nothing; texts go in as text, never as markup.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const made = (name, text = "", attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  // ---- numbers and units ----

  const standard = { rate: Number(document.querySelector("#units [name=rate]")?.value ?? 1e12), seconds: 1 };
  const units = { ...standard };

  // As spdnn/core/shown.py writes them.
  function significant(number, digits = 4) {
    if (number === 0) return "0";
    const magnitude = Math.floor(Math.log10(Math.abs(number)));
    if (magnitude < -4 || magnitude >= 15) return number.toExponential(digits - 1);
    const places = Math.max(0, digits - 1 - magnitude);
    return number.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  }

  function inUnits(root = document) {
    for (const one of all("data[data-unit]", root)) {
      const unit = one.dataset.unit;
      one.dataset.text ??= one.textContent;
      one.textContent = units[unit] === standard[unit] ? one.dataset.text : significant(one.value / units[unit]);
    }
    const form = document.getElementById("units");
    for (const one of all("[data-unit-name]", root)) {
      const select = form?.elements[one.dataset.unitName];
      if (select) one.textContent = select.selectedOptions[0].text;
    }
    for (const one of all(".seconds", root)) {
      one.textContent = { 1: "s", 1e-3: "ms", 1e-6: "µs" }[units.seconds];
    }
  }

  document.getElementById("units")?.addEventListener("change", (event) => {
    units[event.target.name] = Number(event.target.value);
    inUnits();
  });

  // ---- cards: on a telephone each cell of a row names its column ----

  for (const table of all("table")) {
    const heads = all("thead th", table).map((head) => head.textContent.replace(/\s+/g, " ").trim());
    for (const row of all("tbody tr", table)) {
      all("td", row).forEach((cell) => cell.setAttribute("data-head", heads[cell.cellIndex] ?? ""));
    }
    table.classList.add("carded");
  }

  // A link to what is folded away opens it.
  function unfold(hash) {
    for (let one = document.getElementById(decodeURIComponent(hash.slice(1))); one; one = one.parentElement) {
      if (one.localName === "details") one.open = true;
    }
  }
  addEventListener("hashchange", () => unfold(location.hash));
  document.addEventListener("click", (event) => {
    unfold(event.target.closest?.("a[href^='#']")?.getAttribute("href") ?? "");
  });
  unfold(location.hash);

  // Paper has no folds: what says whether each case passed, and on what machine, is printed open.
  addEventListener("beforeprint", () => {
    for (const one of all("section[aria-labelledby=cases] details, #table-environment")) one.open = true;
  });

  // ---- sorting ----

  function key(row, column) {
    const cell = row.cells[column];
    const value = cell?.querySelector("data")?.value;
    if (value !== undefined) return Number(value);
    const text = cell?.textContent.trim() ?? "";
    if (text === "" || text === "–") return null;
    const number = Number(text.replaceAll(",", "").replace(/ %$/, ""));
    return Number.isNaN(number) ? text : number;
  }

  // Numbers before texts; what is not known comes last in either direction.
  function compared(a, b, up) {
    if (a === null || b === null) return (a === null) - (b === null);
    const numbers = (typeof b === "number") - (typeof a === "number");
    const order = numbers || (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    return up ? order : -order;
  }

  function sort(table, column, up) {
    for (const body of table.tBodies) {
      const rows = Array.from(body.rows, (row) => [key(row, column), row]);
      rows.sort((a, b) => compared(a[0], b[0], up));
      body.append(...rows.map((entry) => entry[1]));
    }
    all("thead th", table).forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, column) => {
      const button = made("button", "", { type: "button", class: "sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const up = before ? before === "descending" : !head.classList.contains("number");
        sort(table, column, up);
      });
    });
  }

  // ---- searching: a long table keeps the rows that have every word ----

  for (const table of all("table.sortable")) {
    const rows = all("tbody tr", table);
    if (rows.length < 20) continue;
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const label = made("label", "Rows with ");
    const input = made("input", "", { type: "search", placeholder: "such as 1,024 × 120 A100" });
    const count = made("output", "", { "aria-live": "polite" });
    label.append(input, count);
    table.closest("details")?.querySelector("summary").after(label);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row, place) => { row.hidden = !words.every((word) => texts[place].includes(word)); });
      count.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    });
  }

  // ---- what the page carries ----

  async function carried(anchor) {
    const [head, body] = anchor.href.split(",");
    const bytes = Uint8Array.from(atob(body), (sign) => sign.charCodeAt(0));
    if (!head.includes("gzip")) return new TextDecoder().decode(bytes);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Without this script the compressed file itself is what the link gives.
  for (const anchor of all("a[download$='.gz']")) {
    anchor.addEventListener("click", async (event) => {
      if (anchor.href.startsWith("blob:")) return;
      event.preventDefault();
      const text = await carried(anchor);
      anchor.download = anchor.download.replace(/\.gz$/, "");
      anchor.href = URL.createObjectURL(new Blob([text]));
      anchor.click();
    });
  }

  const box = made("dialog", "", { "aria-labelledby": "record-title" });
  const title = made("h2", "", { id: "record-title", tabindex: "-1" });
  const text = made("pre", "", { tabindex: "0", "aria-label": "The record in JSON" });
  const copy = made("button", "Copy", { type: "button" });
  const close = made("button", "Close", { type: "button" });
  box.append(title, copy, close, text);
  close.addEventListener("click", () => box.close());
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      copy.textContent = "Selected";
    }
  });

  let records = null;
  async function show(number) {
    title.textContent = "This record";
    text.textContent = "…";
    copy.textContent = "Copy";
    box.showModal();
    records ??= JSON.parse(await carried(document.getElementById("records-json")));
    const record = records[number];
    title.textContent = record ? record.case : "This record";
    text.textContent = record ? JSON.stringify(record, null, 1) : "It is one of those that only the table of records has.";
  }

  document.body.append(box);
  for (const row of all("tr[data-record]")) {
    const head = row.querySelector("th");
    const button = made("button", "", { type: "button", class: "record", title: "Show this record" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => show(Number(row.dataset.record)));
  }
  for (const mark of all("svg [id*='-record-']")) {
    mark.classList.add("record");
    mark.addEventListener("click", () => show(Number(mark.id.split("-").at(-1))));
  }

  for (const element of all(".scripted")) element.hidden = false;
})();
