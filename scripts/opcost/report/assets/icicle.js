// The module tree as an icicle: as wide as its cost, in the order of the calls, deeper downwards.

const NARROW = 0.002; // of the width: what is narrower is not drawn
const LEGIBLE = 20; // pixels that a name needs
const LETTER = 7; // pixels

function treeOf({ model, modules, totals }, quantity) {
  const made = (name, parent) => {
    const path = parent?.parent ? `${parent.path}.${name}` : parent ? name : "";
    const depth = parent ? parent.depth + 1 : 0;
    return { name, path, parent, depth, cost: 0, calls: 0, most: 0, rows: new Set(), inside: new Map() };
  };
  const root = made(model, null);
  for (const [path, kind, calls, costs, operator, rows] of modules) {
    const add = (node) => {
      node.cost += costs[quantity];
      node.calls += calls;
      for (const row of rows) node.rows.add(row);
      if (operator && costs[quantity] > node.most) [node.most, node.operator] = [costs[quantity], operator];
    };
    let node = root;
    add(root);
    for (const name of path ? path.split(".") : []) {
      if (!node.inside.has(name)) node.inside.set(name, made(name, node));
      node = node.inside.get(name);
      add(node);
    }
    node.kind = kind;
  }
  root.total = totals[quantity] ?? root.cost;
  return root;
}

function nodeAt(root, path) {
  return (path ? path.split(".") : []).reduce((node, name) => node?.inside.get(name), root);
}

const prefixes = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

function si(value, unit) {
  const [scale, prefix] = prefixes.find(([least]) => value >= least) ?? prefixes[3];
  return `${Number((value / scale).toPrecision(3))} ${prefix}${unit}`;
}

// Draw `root` into `place`, and call `say` with each node that is pointed to, focused or enlarged.
function icicle(place, root, unit, say) {
  const buttons = new Map();

  function add(node, left, width) {
    const [colour, ink] = details.colours[node.operator] ?? details.colours["other operators"];
    const name = [node.name, node.kind].filter(Boolean).join(" ");
    const cost = si(node.cost, unit);
    const room = width * place.clientWidth;
    const button = element("button", name);
    if (room > LETTER * (name.length + cost.length + 4)) button.append(element("small", cost));
    button.type = "button";
    button.role = "treeitem";
    button.tabIndex = -1;
    button.classList.toggle("narrow", room < LEGIBLE);
    button.setAttribute("aria-level", node.depth + 1);
    button.setAttribute("aria-label", `${node.path || node.name}, ${cost}, ${share(node.cost, root.total)}`);
    Object.assign(button.style, { left: `${100 * left}%`, width: `${100 * width}%`, top: `${1.7 * node.depth}rem` });
    if (!node.inside.size && node.parent) Object.assign(button.style, { background: colour, color: ink });
    button.onclick = () => enlarge(node, true);
    button.onfocus = button.onpointerenter = () => say(node, root);
    buttons.set(node, button);
    place.append(button);
  }

  function below(node, left, width) {
    for (const child of node.inside.values()) {
      const part = node.cost ? (width * child.cost) / node.cost : 0;
      if (part >= NARROW) {
        add(child, left, part);
        below(child, left, part);
      }
      left += part;
    }
  }

  function enlarge(node, focus) {
    buttons.clear();
    place.replaceChildren();
    const above = [];
    for (let each = node.parent; each; each = each.parent) above.unshift(each);
    for (const each of above) add(each, 0, 1);
    add(node, 0, 1);
    below(node, 0, 1);
    place.style.height = `${1.7 * (1 + Math.max(...[...buttons.keys()].map(({ depth }) => depth)))}rem`;
    buttons.get(node).tabIndex = 0;
    if (focus) buttons.get(node).focus();
    say(node, root);
  }

  place.onkeydown = (event) => {
    const [node] = [...buttons].find(([, button]) => button === document.activeElement) ?? [];
    if (!node) return;
    const beside = [...buttons.keys()].filter(({ depth }) => depth === node.depth);
    const at = beside.indexOf(node);
    const next = {
      ArrowUp: node.parent,
      ArrowDown: [...node.inside.values()].find((each) => buttons.has(each)),
      ArrowLeft: beside[at - 1],
      ArrowRight: beside[at + 1],
      Escape: root,
    }[event.key];
    if (!next) return;
    event.preventDefault();
    if (event.key === "Escape") enlarge(root, true);
    else buttons.get(next).focus();
  };
  enlarge(root, false);
}

const share = (part, whole) => {
  const percent = whole ? (100 * part) / whole : 0;
  return `${percent >= 9.95 ? percent.toFixed(0) : percent.toFixed(1)}%`;
};

