// The table of operators.

const shownNumber = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

function columnOf({ kind, value }, index, DataTable) {
  const words = kind === "choice" || kind === "text" || value === "model";
  const columnControl = value === "model" ? [["search"]] : [];
  // Types are given and numbers not searched: finding both out takes time with many rows.
  const type = words ? "string" : "num";
  const column = { data: index, type, searchable: words, className: words ? kind : "number", columnControl };
  if (kind === "choice") column.columnControl = [["searchList"]];
  if (value === "model") column.className = "model";
  if (words) return { ...column, render: { display: DataTable.render.text().display } };
  const tooNoisy = value === "time_half_width" ? 50 : Infinity;
  const shown = (number) => (number > tooNoisy ? "too noisy to say" : shownNumber.format(number));
  const display = (number) => (number === null ? "–" : shown(number));
  return { ...column, render: { display } };
}

// A row with what it is in the chosen model, or in the one of which it takes most.
function inModel({ columns, models }, row, model) {
  const uses = row.at(-1);
  const use = uses.find(([number]) => models[number] === model) ?? uses[0];
  const others = uses.length > 1 && !model ? ` and ${uses.length - 1} more` : "";
  const found = use && { share: use[2], calls: use[1], model: models[use[0]] + others };
  const cells = [];
  let plain = 0;
  let [time, total] = [null, 0];
  for (const [index, { kind, value }] of columns.entries()) {
    const cell = (kind === "use" ? found?.[value] : row[plain++]) ?? null;
    if (value === "time_s") time = cell;
    if (value === "total") total = index;
    cells.push(cell);
  }
  if (total) cells[total] = use && time !== null ? Number((use[1] * time).toPrecision(4)) : null;
  return cells;
}

const opener = {
  data: null,
  orderable: false,
  searchable: false,
  columnControl: [],
  render: {
    display: () =>
      '<button type="button" class="open" aria-expanded="false" aria-label="Details">+</button>',
  },
};

function operatorTable(DataTable, content) {
  const { columns, rows, models } = content;
  const titles = columns.map((column) => column.title);
  const most = models.length ? "share" : "time_s";
  const first = columns.findIndex(({ value }) => value === most);
  const table = new DataTable("#operator-table", {
    data: rows.map((row) => inModel(content, row)),
    columns: [opener, ...columns.map((column, index) => columnOf(column, index, DataTable))],
    order: [[first + 1, "desc"]],
    pageLength: 15,
    lengthMenu: [15, 50, 200],
    autoWidth: false,
    layout: { topStart: "search", topEnd: "info", bottomStart: "pageLength", bottomEnd: "paging" },
    language: {
      search: "Search: ",
      lengthMenu: "_MENU_ on a page",
      info: "_START_ to _END_ of _TOTAL_ measurements",
      columnControl: { dropdown: "Filter" },
    },
  });
  table.on("click", "button.open", (event) => {
    const row = table.row(event.target.closest("tr"));
    const button = event.target.closest("button");
    const open = !row.child.isShown();
    if (open) {
      const place = element("div", "", "details");
      row.child(place, "child").show();
      const cells = Object.fromEntries(titles.map((title, index) => [title, row.data()[index]]));
      fillDetails(place, row.index(), cells);
    } else {
      row.child.hide();
    }
    button.setAttribute("aria-expanded", open);
    button.textContent = open ? "−" : "+";
  });
  return table;
}

let changed = new Set(); // rows that are shown as they are in a model

// Show only some rows, as they are in a model, or all.
function choose(table, content, chosen) {
  const place = document.getElementById("chosen");
  place.hidden = !chosen;
  place.querySelector("b").textContent = chosen?.label ?? "";
  table.search("").columns().search("");
  table.search.fixed("chosen", chosen ? (text, row, index) => chosen.rows.has(index) : null);
  for (const index of changed) table.row(index).data(inModel(content, content.rows[index]));
  changed = chosen?.rows ?? new Set();
  for (const index of changed) table.row(index).data(inModel(content, content.rows[index], chosen.model));
  table.draw();
  if (chosen) document.getElementById("operators").scrollIntoView();
}

