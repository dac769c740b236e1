/**
 * Takes drafts in the real page by its own keys and clicks, while drafts arrive, grow, end elsewhere and disappear at
 * chosen times of a clock that this script moves. After each change it reads off the page what a person sees. Returns
 * each taking that inserted another text than the page had shown at that place 200 ms before, each visible row whose end
 * moved backwards, and how many takings did what.
 */
async ([seed, takings, decides]) => {
  const READ = 200;
  const random = () => { // mulberry32
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const upTo = (most) => Math.floor(random() * most);
  const pick = (list) => list[upTo(list.length)];

  // ---------------------------------------------------------------- the clock and the server
  let clock = performance.now();
  performance.now = () => clock;
  const rest = () => new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(null);
  });
  const pass = async () => { for (let i = 0; i < 2; i++) await rest(); };

  let asked = null; // the newest request: its rows as the server has them, and how to answer
  const network = window.fetch;
  window.fetch = async (path, init) => {
    if (path !== "/api/drafts") return network(path, init);
    const body = JSON.parse(init.body);
    const rows = [null, null, null];
    for (const { id, text } of body.kept ?? []) rows[id] = text;
    const answer = { n: body.n, rows, open: true };
    init.signal.addEventListener("abort", () => (answer.open = false));
    const stream = new ReadableStream({ start: (controller) => (answer.controller = controller) });
    asked = answer;
    return new Response(stream);
  };
  const WORDS = ["to", "the", "house", "and", "a", "hill", "market", "up", "by", "road", "river", "with", "home"];
  const piece = () => ` ${pick(WORDS)}`.slice(0, random() < 0.2 ? 3 : 99); // sometimes the beginning of a word
  const phrase = () => Array.from({ length: 1 + upTo(3) }, piece).join("");
  const change = (text) => {
    if (text === null) return random() < 0.7 ? phrase() : null;
    const chance = random();
    if (chance < 0.45) return text + piece();
    if (chance < 0.55) return text.slice(0, 1 + upTo(text.length)); // an end that moves backwards
    if (chance < 0.7) return text.slice(0, upTo(text.length)) + phrase(); // another end
    if (chance < 0.8) return phrase();
    return chance < 0.85 ? null : text;
  };
  async function arrive() {
    if (!asked?.open) {
      polydraft.editor.requestDrafts({ keep: true });
      await pass();
    }
    asked.rows = asked.rows.map(change);
    const done = random() < 0.25;
    const drafts = asked.rows.flatMap((text, id) => (text ? [{ id, text, probability: random(), whole: 0.1, finished: false }] : []));
    const line = { type: "drafts", n: asked.n, step: 1, done: done || decides, settled: random() < 0.8, hidden: 0, removed: "a", drafts };
    if (decides) {
      line.pays = drafts.filter(() => random() < 0.7).map(({ id, text }) => (
        { id, text: text.slice(0, 1 + upTo(text.length)), chance: 0.5, saved_ms: 9e9 }));
    } else if (done) line.ghost = drafts.length ? pick(drafts).id : null;
    asked.controller.enqueue(new TextEncoder().encode(JSON.stringify(line) + "\n"));
    if (line.done) {
      asked.controller.close();
      asked.open = false;
    }
    await pass();
  }

  // ---------------------------------------------------------------- the person
  const box = document.querySelector("#pd-text");
  const options = () => [...document.querySelectorAll(".pd-option-row")];
  const visible = (option) => !option.closest("[hidden]") && !option.classList.contains("pd-empty");
  const ghost = () => {
    const layer = document.querySelector(".pd-ghost");
    return layer.hidden ? "" : layer.querySelector(".pd-ghost-text").textContent.replace("\u200b", "");
  };
  const sight = () => ({
    at: clock, text: box.value, ghost: ghost(),
    rows: options().map((option) => (visible(option) ? option.querySelector(".pd-draft").textContent : "")),
    active: options().findIndex((option) => option.ariaSelected === "true"),
  });
  const put = (text) => {
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const press = (target, type, init, at) => {
    const Kind = type === "keydown" ? KeyboardEvent : PointerEvent;
    const event = new Kind(type, { bubbles: true, cancelable: true, ...init });
    Object.defineProperty(event, "timeStamp", { value: at });
    target.dispatchEvent(event);
  };
  function write() {
    const shown = ghost() || pick(sight().rows) || "";
    const chance = random();
    if (chance < 0.15) document.execCommand("delete");
    else document.execCommand("insertText", false, chance < 0.8 && shown ? shown[0] : pick(["x", " ", ","]));
  }

  const KEYS = {
    tab: (at) => press(box, "keydown", { key: "Tab", code: "Tab" }, at),
    word: (at) => press(box, "keydown", { key: "ArrowRight", code: "ArrowRight", ctrlKey: true }, at),
    row: (at, i) => press(box, "keydown", { key: String(i + 1), code: `Digit${i + 1}`, altKey: true }, at),
    "row's word": (at, i) => press(box, "keydown", { key: "!", code: `Digit${i + 1}`, altKey: true, shiftKey: true }, at),
    click: (at, i) => {
      const option = options()[i];
      if (!option || !visible(option)) return false;
      press(option, "pointerdown", {}, at);
      const text = option.querySelector(".pd-draft");
      const range = document.createRange();
      const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
      const node = nodes.nextNode();
      if (node && random() < 0.7) {
        range.setStart(node, upTo(node.length));
        range.setEnd(node, range.startOffset + 1);
      }
      const { left, top, width, height } = range.getBoundingClientRect();
      press(option, "click", { detail: 1, clientX: left + width / 2, clientY: top + height / 2 }, clock);
      return true;
    },
  };

  const shorter = (earlier, later) => later.text.startsWith(earlier.text) && later.rows.some((text, i) => {
    const [old, whole] = [earlier.rows[i] && earlier.text + earlier.rows[i], later.text + text];
    return text && old && old !== whole && old.startsWith(whole);
  });
  const wrong = [], shrunk = [], counts = { inserted: 0, refused: 0 };
  box.focus();
  for (let taking = 0; taking < takings; taking++) {
    clock += 100;
    put(`${taking} she went`);
    await pass();
    const seen = [sight()];
    for (let step = 3 + upTo(9); step > 0; step--) {
      clock += 5 + upTo(190);
      if (random() < 0.75) await arrive();
      else write();
      await pass();
      seen.push(sight());
      if (shorter(seen.at(-2), seen.at(-1))) shrunk.push(seen.slice(-2));
    }
    clock += upTo(random() < 0.5 ? 60 : 600);
    const pressed = clock - upTo(40); // the page may be late
    const now = sight();
    const then = seen.findLast(({ at }) => at <= pressed - READ) ?? { text: "", ghost: "", rows: [] };
    const how = pick(Object.keys(KEYS)), row = upTo(3);
    // The best draft is what was grey then, or else is now; without a list that may be any row. A row that is alone is the
    // grey text.
    const best = [then.ghost, ...(now.active < 0 ? then.rows : [then.rows[now.active]])];
    const places = how === "tab" || how === "word" ? best : [then.rows[row] ?? then.ghost];
    const stood = places.filter(Boolean).map((text) => then.text + text)
      .filter((text) => text.startsWith(now.text) && text !== now.text).map((text) => text.slice(now.text.length));
    if (KEYS[how](pressed, row) === false) continue; // nothing to click
    await pass();
    const inserted = box.value.slice(now.text.length);
    const parts = how === "click" || how.endsWith("word");
    const right = box.value.startsWith(now.text) && (!inserted || stood.some((text) => (parts ? text.startsWith(inserted) : text === inserted)));
    // Deleted letters were no draft, and the grey text alone may be that of another row.
    const must = stood.length > 0 && now.text.length >= then.text.length && (then.rows.length || how === "tab" || how === "word");
    if (!right || (must && !inserted)) wrong.push({ taking, how, row, pressed, inserted, stood, now, seen });
    counts[inserted ? "inserted" : "refused"]++;
  }
  return { wrong, shrunk, counts };
}
