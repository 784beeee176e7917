// The rules of wheelfab/compat/verdict.py and offer.py, to the letter of each reason: a test compares
// both over the whole cross product.
const NO_GPU = "none";

function verdict(row, torch, python, glibc, gpu, driver) {
  const entry = row.torch.find((item) => item.torch === torch);
  const image = row.gpus.find((item) => item.capability === gpu);
  const found = [
    ...torchSays(entry, torch),
    ...pythonSays(row, entry, python),
    ...glibcSays(row, entry, glibc),
    ...gpuSays(row, image, gpu),
    ...driverSays(row, entry, image, driver),
  ];
  for (const answer of ["no", "untested"]) {
    const reasons = found.filter((item) => item.answer === answer).map((item) => item.reason);
    if (reasons.length) return { answer, by: null, reasons, computed: [] };
  }
  return works(entry, image, python, glibc);
}

function works(entry, image, python, glibc) {
  const reasons = [{ axis: "torch", text: entry.reason }];
  const computed = [];
  if (!entry.pythons_seen.includes(python)) computed.push("python");
  if (!entry.glibcs_seen.includes(glibc)) computed.push("glibc");
  if (image) {
    reasons.push({ axis: "gpu", text: image.reason });
    computed.push(...(image.measured ? ["driver"] : ["gpu", "driver"]));
  }
  return { answer: "works", by: entry.by, reasons, computed };
}

function torchSays(entry, torch) {
  if (!entry) return [gap("torch", `torch ${torch} is not in this table`)];
  if (entry.answer === "works") return [];
  return [{ answer: entry.answer, reason: { axis: "torch", text: entry.reason } }];
}

function pythonSays(row, entry, python) {
  const said = [];
  const mine = row.pythons.find((item) => item.python === python);
  if (!mine) said.push(gap("python", `Python ${python} is not in this table`));
  else if (mine.answer !== "works") {
    said.push({ answer: mine.answer, reason: { axis: "python", text: mine.reason } });
  }
  if (entry && entry.pythons.length && !entry.pythons.includes(python)) {
    said.push(no("python", `torch ${entry.torch} has no wheel for Python ${python}`));
  }
  return said;
}

function glibcSays(row, entry, glibc) {
  if (!numbers(glibc).length) return [gap("glibc", `${glibc} is no glibc release`)];
  const said = [];
  if (row.glibc === null) said.push(gap("glibc", "no tag of the wheel says which glibc it needs"));
  else if (older(glibc, row.glibc)) said.push(no("glibc", `needs glibc ${row.glibc}, not ${glibc}`));
  if (entry && entry.glibc !== null && older(glibc, entry.glibc)) {
    said.push(no("glibc", `torch ${entry.torch} needs glibc ${entry.glibc}, not ${glibc}`));
  }
  return said;
}

function gpuSays(row, image, gpu) {
  if (gpu === NO_GPU) return [];
  if (row.cuda === null) return [no("gpu", "has no device code: CPU only")];
  if (!image) return [gap("gpu", `compute capability ${gpu} is not in this table`)];
  return image.code === null ? [no("gpu", image.reason)] : [];
}

function driverSays(row, entry, image, driver) {
  if (!image || image.code === null) return [];
  if (!numbers(driver).length) return [gap("driver", "which driver is not known")];
  const said = [];
  const what = image.code === "ptx" ? "PTX" : "machine code";
  if (image.driver === null) {
    said.push(gap("driver", `the oldest driver for CUDA ${row.cuda} ${what} is not known`));
  } else if (older(driver, image.driver)) {
    const text = `its CUDA ${row.cuda} ${what} needs driver ${image.driver}, not ${driver}`;
    said.push(no("driver", text));
  }
  if (!entry || entry.driver === null || !older(driver, entry.driver)) return said;
  if (entry.builds_complete) {
    const whose = `every CUDA build of torch ${entry.torch}`;
    said.push(no("driver", `${whose} needs driver ${entry.driver}, not ${driver}`));
  } else {
    const known = `the CUDA builds of torch ${entry.torch} that are known`;
    said.push(gap("driver", `${known} need driver ${entry.driver}, not ${driver}`));
  }
  return said;
}

const no = (axis, text) => ({ answer: "no", reason: { axis, text } });
const gap = (axis, text) => ({ answer: "untested", reason: { axis, text } });

function numbers(text) {
  const parts = text.split(".");
  return parts.every((part) => /^[0-9]{1,4}$/.test(part)) ? parts.map(Number) : [];
}

// As Python compares tuples: number by number, and a beginning is less than the whole.
function compare(a, b) {
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

const older = (a, b) => compare(numbers(a), numbers(b)) < 0;

const ANSWERS = ["works", "untested", "no"];
const CHANGES = [["torch"], ["driver"], ["python"], ["glibc"]];
const PAIRS = [
  ["torch", "driver"],
  ["torch", "python"],
  ["driver", "python"],
  ["torch", "glibc"],
];

function offer(table, picked) {
  const best = bestOf(table.wheels, picked);
  if (!best) return { cell: "", verdict: null, nearest: [] };
  return { cell: best.row.cell, verdict: best.verdict, nearest: nearestOf(table, picked, best.verdict) };
}

function judge(row, picked) {
  return verdict(row, picked.torch, picked.python, picked.glibc, picked.gpu, picked.driver);
}

function bestOf(rows, picked) {
  let best = null;
  for (const row of rows) {
    const found = judge(row, picked);
    const rank = rankOf(row, found, picked);
    if (!best || compare(rank, best.rank) < 0) best = { row, verdict: found, rank };
  }
  return best;
}

function rankOf(row, found, picked) {
  const onCpu = picked.gpu === NO_GPU;
  const image = row.gpus.find((item) => item.capability === picked.gpu);
  const newest = [...numbers(row.cuda ?? "0"), 0];
  return [
    ANSWERS.indexOf(found.answer),
    Number(onCpu === (row.cuda !== null)),
    found.answer === "works" ? 0 : found.reasons.length,
    Number(image !== undefined && image.code !== "cubin"),
    -newest[0],
    -newest[1],
  ];
}

function nearestOf(table, picked, found) {
  const better = ANSWERS.slice(0, ANSWERS.indexOf(found.answer));
  let nearest = [];
  for (const answer of better) {
    nearest = changesOf(table, picked, answer);
    if (nearest.length) break;
  }
  if (picked.gpu !== NO_GPU && better.length) {
    const best = bestOf(table.wheels, { ...picked, gpu: NO_GPU });
    if (best && better.includes(best.verdict.answer)) {
      nearest.push({ values: { gpu: NO_GPU }, cell: best.row.cell, answer: best.verdict.answer });
    }
  }
  return nearest;
}

function changesOf(table, picked, answer) {
  const singles = CHANGES.map((axes) => changeOf(table, picked, axes, answer)).filter(Boolean);
  if (singles.length) return singles;
  for (const axes of PAIRS) {
    const change = changeOf(table, picked, axes, answer);
    if (change) return [change];
  }
  return [];
}

function changeOf(table, picked, axes, answer) {
  for (const values of combinations(table, picked, axes)) {
    const best = bestOf(table.wheels, { ...picked, ...values });
    if (best && best.verdict.answer === answer) return { values, cell: best.row.cell, answer };
  }
  return null;
}

function* combinations(table, picked, axes) {
  const [first, ...rest] = axes;
  for (const value of valuesOf(table, picked, first)) {
    if (!rest.length) yield { [first]: value };
    else for (const more of combinations(table, picked, rest)) yield { [first]: value, ...more };
  }
}

function valuesOf(table, picked, axis) {
  const { axes } = table;
  if (axis === "driver") {
    if (picked.gpu === NO_GPU) return [];
    return axes.driver.map((item) => item.driver).filter((name) => older(picked.driver, name));
  }
  if (axis === "glibc") return axes.glibc.filter((name) => older(picked.glibc, name));
  const names = axes[axis];
  const at = names.includes(picked[axis]) ? names.indexOf(picked[axis]) : names.length;
  const order = [...names.keys()].sort((a, b) => Math.abs(a - at) - Math.abs(b - at) || b - a);
  return order.filter((i) => i !== at).map((i) => names[i]);
}
