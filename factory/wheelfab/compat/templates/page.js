// The form and its answer. All text goes in as text; nothing of the data is ever read as HTML.
const table = JSON.parse(document.getElementById("table").textContent);
const AXES = ["python", "torch", "gpu", "driver", "glibc"];
const NAMES = { python: "Python", torch: "torch", gpu: "GPU", driver: "driver", glibc: "glibc" };
const fields = Object.fromEntries(AXES.map((axis) => [axis, document.getElementById(axis)]));
const answer = document.getElementById("answer");

function make(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function picked() {
  const gpu = fields.gpu.selectedOptions[0].dataset.capability;
  const driver = gpu === NO_GPU ? "" : fields.driver.value.trim();
  return {
    torch: fields.torch.value,
    python: fields.python.value,
    glibc: fields.glibc.value,
    gpu,
    driver,
  };
}

function show() {
  const chosen = picked();
  const onCpu = chosen.gpu === NO_GPU;
  fields.driver.disabled = onCpu;
  const wrong = !onCpu && chosen.driver !== "" && !numbers(chosen.driver).length;
  fields.driver.setAttribute("aria-invalid", String(wrong));
  const given = offer(table, chosen);
  answer.className = `answer ${given.verdict ? given.verdict.answer : "no"}`;
  answer.replaceChildren(...(given.verdict ? told(given) : [make("p", "There is no wheel at all.")]));
  remember();
}

function told(given) {
  const row = table.wheels.find((item) => item.cell === given.cell);
  const found = given.verdict;
  if (found.answer === "works") return [make("h2", "Works"), ...lineOf(row), ...whyWorks(found)];
  const reasons = make("ul", "");
  for (const reason of found.reasons) {
    reasons.append(make("li", `${NAMES[reason.axis]}: ${reason.text}`));
  }
  if (found.answer === "untested") {
    const start = make("p", `The nearest wheel is that of ${row.cell}; it may work, nobody knows:`);
    return [make("h2", "Untested"), start, reasons, ...lineOf(row), ...changes(given.nearest)];
  }
  const start = make("p", `The nearest wheel is that of ${row.cell}:`);
  return [make("h2", "No wheel for this machine"), start, reasons, ...changes(given.nearest)];
}

function whyWorks(found) {
  const by = found.by === "loop" ? "Seen in loads of this wheel" : "By the symbol atlas, not loaded";
  const torch = found.reasons.find((reason) => reason.axis === "torch");
  const said = [make("p", `${by}: ${torch.text}.`)];
  for (const reason of found.reasons.filter((item) => item !== torch)) {
    said.push(make("p", `${NAMES[reason.axis]}: ${reason.text}.`));
  }
  if (found.computed.length) {
    const names = found.computed.map((axis) => NAMES[axis]).join(", ");
    said.push(make("p", `By tags and rules, not tried with this torch: ${names}.`));
  }
  return said;
}

function lineOf(row) {
  const pre = make("pre", "");
  pre.append(make("code", row.install, { id: "line" }));
  const buttons = make("p", "", { class: "buttons" });
  for (const [words, line] of [["Copy", row.install], ["Copy for uv", `uv ${row.install}`]]) {
    const copy = make("button", words, { type: "button" });
    copy.addEventListener("click", () => copyLine(copy, line, pre));
    buttons.append(copy);
  }
  const said = [pre, buttons];
  if (table.index_url === null) {
    said.push(make("p", "https://INDEX stands for the address where the index is served."));
  }
  return said;
}

async function copyLine(button, line, pre) {
  try {
    await navigator.clipboard.writeText(line);
    button.textContent = "Copied";
  } catch {
    pre.firstChild.textContent = line;
    getSelection().selectAllChildren(pre);
    button.textContent = "Selected: copy it with the keyboard";
  }
}

function changes(nearest) {
  if (!nearest.length) return [make("p", "Neither one change nor two together would help.")];
  const list = make("ul", "", { class: "nearest" });
  for (const change of nearest) {
    const item = make("li", "");
    const button = make("button", changeText(change), { type: "button" });
    button.addEventListener("click", () => take(change));
    item.append(button);
    list.append(item);
  }
  return [make("p", "Nearest:"), list];
}

function changeText(change) {
  const words = Object.entries(change.values).map(([axis, value]) => {
    if (axis === "gpu") return "use the CPU";
    if (axis === "driver") return `driver ${value} or newer`;
    return `${NAMES[axis]} ${value}`;
  });
  const tail = change.answer === "works" ? "" : ", untested";
  return `${words.join(" and ")} (${change.cell}${tail})`;
}

function take(change) {
  for (const [axis, value] of Object.entries(change.values)) fields[axis].value = value;
  show();
  fields[Object.keys(change.values)[0]].focus();
}

// What is picked stands in the address, so that it can be sent to someone.
function remember() {
  const values = new URLSearchParams(AXES.map((axis) => [axis, fields[axis].value]));
  history.replaceState(null, "", `#${values}`);
}

function recall() {
  for (const [axis, value] of new URLSearchParams(location.hash.slice(1))) {
    const field = Object.hasOwn(fields, axis) ? fields[axis] : null;
    if (!field) continue;
    const known = !field.options || [...field.options].some((option) => option.value === value);
    if (known) field.value = value.slice(0, 20);
  }
}

for (const field of Object.values(fields)) field.addEventListener("input", show);
document.getElementById("pick").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => { recall(); show(); });
recall();
show();
