// The glue between the page's data and two libraries: Vega-Lite draws, DataTables tabulates.

const details = JSON.parse(document.getElementById("details").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

async function unpacked(script) {
  const packed = atob(script.textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const text = (id) => unpacked(document.getElementById(id));
const data = async (id) => JSON.parse(await text(id));

async function library(id) {
  const url = URL.createObjectURL(new Blob([await text(id)], { type: "text/javascript" }));
  return import(url).finally(() => URL.revokeObjectURL(url));
}

function element(name, content = "", className = "") {
  const made = document.createElement(name);
  made.textContent = content;
  made.className = className;
  return made;
}

// Drawn again, as a legend that needs a further line in the final width would be cut off.
async function draw(place, spec) {
  const drawn = await vegaEmbed(place, spec, { renderer: "svg", actions: false, tooltip: { theme: "page" } });
  if (place.querySelector(".role-legend")) await drawn.view.resize().runAsync();
  return drawn;
}

// A link to the data of a chart, as CSV: the rows of all its datasets, with the union of columns.
function csvLink(title, datasets, names = {}) {
  const rows = Object.values(datasets).flat();
  const columns = [...new Set(rows.flatMap(Object.keys))].filter((column) => names[column] !== null);
  const cell = (value) => (/[",\n]/.test(value ?? "") ? `"${String(value).replaceAll('"', '""')}"` : (value ?? ""));
  const lines = rows.map((row) => columns.map((column) => cell(row[column])));
  const csv = [columns.map((column) => cell(names[column] ?? column)), ...lines].join("\n");
  const link = element("a", "CSV", "csv");
  link.download = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "_")}.csv`;
  link.setAttribute("aria-label", `${title}, as CSV`);
  link.href = URL.createObjectURL(new Blob([`${csv}\n`], { type: "text/csv" }));
  return link;
}

// Charts that can show shares do so, or not, all together.

const views = [];
const shares = document.getElementById("as-shares");
shares?.addEventListener("change", () => {
  for (const view of views) view.signal("shares", shares.checked).runAsync();
});

async function drawAll() {
  await library("vega");
  for (const place of document.querySelectorAll(".chart")) {
    const figure = place.closest("figure");
    const chart = JSON.parse(await unpacked(figure.querySelector("script")));
    figure.append(csvLink(figure.querySelector("h4").textContent, chart.datasets, chart.usermeta.columns));
    const { spec, view } = await draw(place, chart);
    if (spec.params?.some(({ name }) => name === "shares")) views.push(view);
  }
}

// A row's details.

const chunks = new Map();

function chunkOf(row) {
  const number = Math.floor(row / details.chunk);
  if (!chunks.has(number)) chunks.set(number, data(`chunk-${number}`));
  return chunks.get(number);
}

function result(columns, at, quantity) {
  const [value, low, high] = details.quantities[quantity].map((name) => columns[name]?.[at]);
  return [{ value, low, high }];
}

function shownOf(raw, what) {
  const shown = raw.values.length;
  if (shown === raw.count) return `${raw.count} ${what}.`;
  return `${shown} of ${raw.count} ${what}, at even distances; the database has all.`;
}

const value = (result, deviation) => result * (1 + deviation * details.step);

function blockChart(raw, middle) {
  const stride = raw.values.length > 1 ? (raw.count - 1) / (raw.values.length - 1) : 1;
  const disturbed = new Set(raw.disturbed);
  const values = raw.values.map((deviation, index) => ({
    block: Math.round(index * stride) + 1,
    time_s: value(middle[0].value, deviation),
    kind: disturbed.has(index) ? "disturbed" : "counted",
  }));
  return [details.charts.blocks, { values, result: middle }, shownOf(raw, "blocks of iterations")];
}

function powerChart(raw, middle) {
  let passed = 0;
  const values = raw.values.map((deviation, index) => {
    passed += raw.gaps_ms[index];
    return { after_s: passed / 1000, power_w: value(middle[0].value, deviation) };
  });
  return [details.charts.power, { values, result: middle }, shownOf(raw, "refreshes")];
}

function list(title, pairs, open) {
  const part = element("details");
  part.open = open;
  part.append(element("summary", title));
  const found = element("dl");
  for (const [name, shown] of pairs) {
    const term = element("dt", name);
    term.title = details.meanings[name] ?? "";
    found.append(term, element("dd", shown));
  }
  part.append(found);
  return part;
}

function flagList(names) {
  const flags = element("ul", "", "flags");
  for (const name of names.split(", ").filter(Boolean)) {
    const item = element("li");
    item.append(element("code", name), `: ${details.flags[name] ?? "not known"}`);
    flags.append(item);
  }
  return flags;
}

async function fillDetails(place, row, cells) {
  const chunk = await chunkOf(row);
  const at = row % details.chunk;
  const target = cells.target ?? Object.keys(details.common)[0];
  place.append(element("h4", cells["operator and shapes"]), flagList(cells.flags));
  const charts = element("div", "", "grid");
  place.append(charts);
  const known = Object.entries(chunk.columns).filter(([, values]) => values[at] !== null);
  const lists = element("div", "", "grid");
  lists.append(
    list("This measurement", known.map(([name, values]) => [name, values[at]]), true),
    list(`All measurements on ${target}`, Object.entries(details.common[target]), false),
  );
  place.append(lists);
  const drawn = [];
  const blocks = chunk.blocks[at];
  const power = chunk.power[at];
  if (blocks) drawn.push(blockChart(blocks, result(chunk.columns, at, "time")));
  if (power) drawn.push(powerChart(power, result(chunk.columns, at, "power")));
  if (!drawn.length) charts.append(element("p", "There are no raw values."));
  for (const [spec, datasets, note] of drawn) {
    const figure = element("figure");
    const chart = element("div", "", "chart");
    const title = `${cells["operator and shapes"]} ${spec.description}`;
    figure.append(chart, element("figcaption", note), csvLink(title, { values: datasets.values }));
    charts.append(figure);
    await draw(chart, { ...spec, datasets });
  }
  place.dataset.filled = "true";
}

// The modules of a model, and links from a module or an operator of a model to the table.
function modules(content, trees, show) {
  const place = document.getElementById("icicle");
  const said = document.getElementById("icicle-said");
  const model = document.getElementById("icicle-model");
  const quantity = document.getElementById("icicle-quantity");
  const rowsOf = (node, root, operator) => {
    const label = `${operator ?? (node.path || "All operators")} of ${root.name}`;
    const rows = [...node.rows].filter((row) => !operator || content.rows[row][0] === operator);
    return { label, rows: new Set(rows), model: root.name };
  };
  const say = (node, root) => {
    const unit = quantity?.value === "1" ? "J" : "s";
    const kind = node.kind ? ` (${node.kind})` : "";
    const cost = `${si(node.cost, unit)}, ${share(node.cost, root.total)} of ${root.name}`;
    said.replaceChildren(element("b", node.path || node.name), `${kind}: ${cost}, ${node.calls} calls. `);
    if (!node.rows.size) return;
    const button = element("button", `Show its operators (${node.rows.size})`);
    button.onclick = () => show(rowsOf(node, root));
    said.append(button);
  };
  const drawn = () => {
    const tree = trees[model.value];
    const number = Math.min(Number(quantity?.value ?? 0), tree.modules[0][3].length - 1);
    icicle(place, treeOf(tree, number), number ? "J" : "s", say);
    const rows = tree.modules.map(([module, type, calls, [time_s, energy_j], costliest]) => ({ module, class: type, calls, time_s, energy_j, costliest }));
    place.parentElement.querySelector("a")?.remove();
    place.after(csvLink(`Modules of ${tree.model} on ${tree.target}`, { rows }));
  };
  for (const control of [model, quantity]) control?.addEventListener("change", drawn);
  drawn();
  for (const button of document.querySelectorAll("button.show")) {
    const { model: name, target, operator, path } = button.dataset;
    button.addEventListener("click", () => {
      const root = treeOf(trees.find((tree) => tree.model === name && tree.target === target), 0);
      show(rowsOf(nodeAt(root, path), root, operator));
    });
  }
}

function modelTable(DataTable) {
  const table = document.querySelector(".cards-table");
  if (!table) return;
  const long = table.tBodies[0].rows.length > 10;
  const choices = [...table.tHead.rows[0].cells].flatMap((cell, at) => (cell.classList.contains("choice") ? [at] : []));
  new DataTable(table, {
    pageLength: 10,
    lengthMenu: [10, 50, 200],
    order: [],
    autoWidth: false,
    columnDefs: [{ targets: choices, columnControl: [["searchList"]] }],
    layout: { topStart: long ? "search" : null, topEnd: null, bottomStart: long ? "info" : null, bottomEnd: long ? "paging" : null },
    language: { search: "Search: ", info: "_START_ to _END_ of _TOTAL_", columnControl: { dropdown: "Filter" } },
  });
}

async function tabulate() {
  const [{ default: DataTable }, content] = await Promise.all([library("datatables"), data("table")]);
  const table = operatorTable(DataTable, content);
  const show = (chosen) => choose(table, content, chosen);
  document.querySelector("#chosen button").addEventListener("click", () => show(null));
  modelTable(DataTable);
  const trees = await data("icicles");
  if (trees.length) modules(content, trees, show);
}

const followTheme = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", followTheme);
followTheme();
await tabulate();
await drawAll();
document.documentElement.dataset.ready = "true";
