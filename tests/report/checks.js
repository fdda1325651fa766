// What must hold of the open page whatever it shows. Each check returns sentences on what is wrong; none is right.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const squeezed = (text) => (text || "").replace(/\s+/g, " ").trim();
  const shown = (one) => one.checkVisibility({ visibilityProperty: true });
  const sized = (one) => { const box = one.getBoundingClientRect(); return box.width > 0 && box.height > 0; };

  // An element as a sentence names it: what it is, where, and how its text begins.
  function named(one) {
    const classes = (one.getAttribute("class") || "").split(/\s+/).filter(Boolean).map((name) => `.${name}`).join("");
    const own = `${one.localName}${one.id ? `#${one.id}` : ""}${classes}`;
    const near = one.parentElement && one.parentElement.closest("[id]");
    const text = squeezed(one.textContent).slice(0, 40);
    return `<${own}>${near ? ` in #${near.id}` : ""}${text ? ` "${text}"` : ""}`;
  }

  // Whether something scrolls sideways between the element and the page, so that it cannot widen the page.
  function held(one) {
    for (let up = one.parentElement; up && up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflowX !== "visible") return true;
    }
    return false;
  }

  // The page is no wider than its window, and nothing that hides what does not fit in it has something that does not.
  function width() {
    const page = document.scrollingElement, found = [];
    if (page.scrollWidth > page.clientWidth) {
      const beyond = (box, one) => Math.max(box.right, box.left + one.scrollWidth) > page.clientWidth + 0.5;
      const wide = all("body *").filter((one) => shown(one) && beyond(one.getBoundingClientRect(), one));
      const ends = wide.filter((one) => !held(one) && !wide.some((other) => other.parentElement === one && !held(other)));
      found.push(`the page is ${page.scrollWidth} px wide in ${page.clientWidth}: ${ends.slice(0, 8).map(named).join("; ")}`);
    }
    for (const one of all("html, body, body *")) {
      if (!(one instanceof HTMLElement) || /^(input|select|textarea)$/.test(one.localName) || !shown(one)) continue;
      const hides = /hidden|clip/.test(getComputedStyle(one).overflowX);
      if (hides && one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1) {
        found.push(`${named(one)} hides what is beyond ${one.clientWidth} of ${one.scrollWidth} px`);
      }
    }
    return found;
  }

  // A section shows before it tells: few words of running text before its first figure.
  function telling() {
    const most = 120, found = [];
    for (const section of all("section")) {
      const figure = section.querySelector("figure");
      if (!figure) continue;
      const before = all("p, li", section).filter((one) =>
        one.compareDocumentPosition(figure) & Node.DOCUMENT_POSITION_FOLLOWING && !one.closest("details, table, figure"));
      const words = squeezed(before.map((one) => one.textContent).join(" ")).split(" ").length;
      if (words > most) found.push(`${named(section)} has ${words} words before its first figure, of ${most} allowed`);
    }
    return found;
  }

  function figures() {
    const found = all("figure").filter((one) => !squeezed(one.querySelector("figcaption")?.textContent))
      .map((one) => `${named(one)} has no caption`);
    for (const svg of all("svg")) {
      if (!svg.closest("figure")) {
        if (!svg.closest("[aria-hidden=true]") && !svg.computedName) found.push(`${named(svg)} has no name`);
        continue;
      }
      if (!squeezed(svg.querySelector(":scope > title")?.textContent)) found.push(`${named(svg)} has no <title>`);
      if (shown(svg) && !svg.computedName) found.push(`${named(svg)} has no accessible name`); // a window shows one of two widths
      const texts = all("text", svg).filter((one) => squeezed(one.textContent) && shown(one) && sized(one));
      if (shown(svg) && !texts.some((one) => getComputedStyle(one).fill !== "none")) found.push(`${named(svg)} shows no text`);
    }
    return found;
  }

  function tables() {
    const found = [];
    for (const table of all("table")) {
      if (!table.querySelector("th")) found.push(`${named(table)} has no header`);
      for (const head of all("th", table)) if (!head.hasAttribute("scope")) found.push(`${named(head)} has no scope`);
      const caption = squeezed(table.caption?.textContent) || table.computedName;
      if (!caption) found.push(`${named(table)} has neither a caption nor a name`);
    }
    return found;
  }

  function ids() {
    const known = new Set(), found = [];
    for (const one of all("[id]")) {
      if (known.has(one.id)) found.push(`${named(one)}: the id occurs twice`);
      known.add(one.id);
    }
    return found;
  }

  // Whatever names another element by its id names one that is there.
  function references() {
    const found = [], lists = ["aria-labelledby", "aria-describedby", "aria-controls", "aria-owns", "for", "headers", "list"];
    const there = (one, id) => { if (!document.getElementById(id)) found.push(`${named(one)} names #${id}, which is not there`); };
    for (const one of all("*")) {
      for (const { name, value } of one.attributes) {
        if (lists.includes(name)) value.split(/\s+/).filter(Boolean).forEach((id) => there(one, id));
        if (/^(xlink:)?href$/.test(name) && value.startsWith("#")) there(one, decodeURIComponent(value.slice(1)));
        for (const [, id] of value.matchAll(/url\(["']?#([^"')]+)/g)) there(one, id);
      }
    }
    return found;
  }

  // A link within the page brings its target into the window. Needs scripts.
  async function links() {
    const found = [], known = new Set();
    for (const link of all("a[href^='#']")) {
      const hash = link.getAttribute("href"), target = document.getElementById(decodeURIComponent(hash.slice(1)));
      if (known.has(hash)) continue;
      known.add(hash);
      window.scrollTo(0, target ? target.getBoundingClientRect().top + scrollY > innerHeight ? 0 : 1e9 : 0);
      link.click();
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const box = target && target.getBoundingClientRect();
      if (!box || !shown(target) || box.top >= innerHeight || box.bottom < 0) found.push(`${named(link)} leads nowhere`);
    }
    return found;
  }

  function headings() {
    const found = [];
    let before = 0;
    for (const one of all("h1, h2, h3, h4, h5, h6").filter(shown)) {
      const level = Number(one.localName[1]);
      if (level > before + 1) found.push(`${named(one)} comes after h${before}`);
      if (level === 1 && before) found.push(`${named(one)} is a second h1`);
      if (!squeezed(one.textContent)) found.push(`${named(one)} is empty`);
      before = level;
    }
    return before ? found : ["there is no heading"];
  }

  // Without scripts a button does nothing, so none is shown.
  function idle() {
    return all("button:not([popovertarget], [commandfor]), [role=button], [role=tab]").filter(shown)
      .map((one) => `${named(one)} is shown and does nothing`);
  }

  const luminance = (rgb) => rgb.map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const over = (top, below) => below.map((part, place) => top[3] * top[place] + (1 - top[3]) * part);
  function colour(text) { // [red, green, blue, alpha] of a computed colour, or null: none, or a pattern
    const numbers = /^rgba?\(/.test(text) ? text.match(/[\d.]+/g).map(Number) : null;
    return numbers && [...numbers, 1].slice(0, 4);
  }

  // The colour as the filters of an element and of all around it leave it.
  function filtered(one, rgba) {
    const filters = [];
    for (let up = one; up; up = up.parentElement) filters.push(getComputedStyle(up).filter);
    const brush = new OffscreenCanvas(1, 1).getContext("2d");
    brush.filter = filters.filter((filter) => filter !== "none").join(" ") || "none";
    brush.fillStyle = `rgb(${rgba.slice(0, 3).join()})`;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data.slice(0, 3), rgba[3]];
  }

  // What is painted at a point by one element, with its opacity.
  function paint(one, x, y) {
    const style = getComputedStyle(one);
    if (one instanceof HTMLElement || one.localName === "svg") {
      const back = colour(style.backgroundColor);
      return back && filtered(one, back);
    }
    const at = one.getScreenCTM && new DOMPoint(x, y).matrixTransform(one.getScreenCTM().inverse());
    if (!one.isPointInFill || !one.isPointInFill(at)) return null;
    const found = colour(style.fill);
    if (!found) return null;
    found[3] *= style.fillOpacity * style.opacity;
    return filtered(one, found);
  }

  // Text in figures, which axe-core leaves to a person: at least 4.5 times as light as what is behind it, or as dark.
  function contrast() {
    const found = [];
    for (const text of all("svg text").filter((one) => squeezed(one.textContent) && shown(one) && sized(one))) {
      let box = text.getBoundingClientRect();
      const at = (part) => {
        const tall = box.height > box.width;
        return [box.x + box.width * (tall ? 0.5 : part), box.y + box.height * (tall ? part : 0.5)];
      };
      if ([0.25, 0.5, 0.75].some((part) => !document.elementsFromPoint(...at(part)).some((one) => text.contains(one)))) {
        text.scrollIntoView({ block: "center", inline: "center" });
        box = text.getBoundingClientRect();
      }
      const style = getComputedStyle(text), fill = colour(style.fill);
      if (!fill) continue;
      const ink = filtered(text, fill);
      ink[3] *= style.fillOpacity;
      for (let up = text; up instanceof SVGElement; up = up.parentElement) ink[3] *= getComputedStyle(up).opacity;
      let least = 21;
      for (const part of [0.25, 0.5, 0.75]) {
        const [x, y] = at(part);
        const stack = document.elementsFromPoint(x, y), place = stack.findIndex((one) => text.contains(one));
        const layers = [];
        for (const one of stack.slice(place + 1)) {
          const layer = paint(one, x, y);
          if (layer && layer[3] > 0) layers.push(layer);
          if (layer && layer[3] >= 1) break;
        }
        const behind = layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
        const [one, other] = [luminance(behind), luminance(over(ink, behind))].sort((a, b) => b - a);
        least = Math.min(least, (one + 0.05) / (other + 0.05));
      }
      if (least < 4.5) found.push(`${named(text)} has a contrast of ${least.toFixed(2)}`);
    }
    return found;
  }

  // Where Tab must come by: links, controls and what scrolls. Each is marked, for `focused`.
  function stops() {
    const native = "a[href], button, input:not([type=hidden]), select, textarea, summary, area[href], [contenteditable=true]";
    const groups = "[role=tablist], [role=toolbar], [role=radiogroup], [role=menu], [role=listbox], [role=grid]";
    const found = all("body *").filter((one) => {
      if (!shown(one) || !sized(one) || one.disabled || one.closest("[inert]")) return false;
      if (one.type === "radio" && !one.checked) return false; // the arrow keys reach the others of its group
      if (one.tabIndex < 0 && one.hasAttribute("tabindex") && one.closest(groups)) return false; // and here
      const style = getComputedStyle(one);
      const wide = /auto|scroll/.test(style.overflowX) && one.scrollWidth > one.clientWidth + 1;
      const tall = /auto|scroll/.test(style.overflowY) && one.scrollHeight > one.clientHeight + 1;
      return one.matches(native) || Number(one.getAttribute("tabindex") ?? -1) >= 0 || wide || tall;
    });
    found.forEach((one, place) => one.setAttribute("data-stop", place));
    return found.map(named);
  }

  // What has the focus: its mark, and whether it differs to the eye from what has not; null: the page itself.
  function focused() {
    const one = document.activeElement;
    if (!one || one === document.body || one === document.documentElement) return null;
    const look = () => { const style = getComputedStyle(one); return [style.boxShadow, style.borderColor, style.backgroundColor].join(); };
    const style = getComputedStyle(one), line = colour(style.outlineColor);
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 && !(line && line[3] < 0.5);
    const with_ = look();
    one.blur();
    const changed = with_ !== look();
    one.focus({ preventScroll: true, focusVisible: true });
    return { stop: one.getAttribute("data-stop") ?? named(one), name: named(one), seen: outlined || changed };
  }

  // The words of what must be on paper, in pieces without white space.
  function words() {
    const texts = all("h1, h2, h3, h4, figcaption, caption, th, td, dt, dd, svg text").filter(shown);
    return [...new Set(texts.flatMap((one) => (one.innerText ?? one.textContent).split(/\s+/)).filter(Boolean))];
  }

  // Leave two rows of each make in a table: what axe-core finds in one it finds in all, and it takes seconds a thousand.
  function thin() {
    const made = (one) => [one, ...all("*", one)].map((part) => `${part.localName}.${part.getAttribute("class")}`).join();
    for (const table of all("table")) {
      const known = new Map();
      for (const row of all("tr", table)) {
        const make = made(row), seen = known.get(make) || 0;
        if (seen > 1) row.remove();
        known.set(make, seen + 1);
      }
    }
    return [];
  }

  return { thin, width, telling, figures, tables, ids, references, links, headings, idle, contrast, stops, focused, words };
})()
