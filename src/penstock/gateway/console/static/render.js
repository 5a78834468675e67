// A keyed renderer: describes elements with `h`, and changes the document as little as possible.
// Content is set as text and attributes alone, never parsed as markup. Styles are set through the CSSOM, which
// the content security policy allows.

const SVG = "http://www.w3.org/2000/svg";

// Describe an element. Children may be nested lists; null, undefined, true and false are left out.
export function h(tag, props, ...children) {
  const flat = [];
  flatten(children, flat);
  return { tag, props: props || {}, children: flat, key: props && props.key };
}

function flatten(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flatten(child, into);
    else if (child !== null && child !== undefined && child !== true && child !== false) {
      into.push(typeof child === "object" ? child : { text: String(child) });
    }
  }
}

// Show a description in a container, which belongs to the renderer from then on.
export function render(description, container) {
  patchChildren(container, [description], false);
}

function patchChildren(parent, wanted, isSvg) {
  const old = parent.rendered || [];
  const keyed = new Map();
  for (const each of old) if (each.key !== undefined) keyed.set(each.key, each);
  const next = [];
  let place = 0;
  for (const description of wanted) {
    let match = null;
    if (description.key !== undefined) {
      match = keyed.get(description.key) || null;
      if (match && !isSame(match, description)) match = null;
    } else {
      while (place < old.length && (old[place].key !== undefined || old[place].taken)) place++;
      if (place < old.length && isSame(old[place], description)) match = old[place++];
    }
    if (match && match.taken) match = null;
    if (match) {
      match.taken = true;
      next.push(patch(match, description, isSvg));
    } else {
      next.push(create(description, isSvg));
    }
  }
  for (const each of old) if (!each.taken) remove(parent, each);
  arrange(parent, next);
  for (const each of next) each.taken = false;
  parent.rendered = next;
}

// Put the nodes into order; nodes that are in place stay untouched, so focus and scrolling survive.
function arrange(parent, next) {
  let node = parent.firstChild;
  for (const each of next) {
    if (each.node === node) node = node.nextSibling;
    else parent.insertBefore(each.node, node);
  }
}

function isSame(mounted, description) {
  return mounted.tag === description.tag && (mounted.tag !== undefined || description.text !== undefined);
}

function create(description, isSvg) {
  if (description.text !== undefined) {
    return { tag: undefined, text: description.text, node: document.createTextNode(description.text) };
  }
  const svg = isSvg || description.tag === "svg";
  const node = svg ? document.createElementNS(SVG, description.tag) : document.createElement(description.tag);
  const mounted = { tag: description.tag, key: description.key, props: {}, node };
  setProps(mounted, description.props);
  patchChildren(node, description.children, svg);
  applyValue(node, description.props);
  if (description.props.mounted) description.props.mounted(node);
  return mounted;
}

function patch(mounted, description, isSvg) {
  if (description.text !== undefined) {
    if (mounted.text !== description.text) mounted.node.data = mounted.text = description.text;
    return mounted;
  }
  setProps(mounted, description.props);
  patchChildren(mounted.node, description.children, isSvg || description.tag === "svg");
  applyValue(mounted.node, description.props);
  if (description.props.updated) description.props.updated(mounted.node);
  return mounted;
}

function remove(parent, mounted) {
  release(mounted.node);
  if (mounted.node.parentNode === parent) parent.removeChild(mounted.node);
}

// Tell elements below a removed one that they are gone: charts and observers let go of their resources.
function release(node) {
  for (const child of node.rendered || []) release(child.node);
  if (node.released) node.released();
}

function setProps(mounted, wanted) {
  const { node, props } = mounted;
  for (const name of Object.keys(props)) if (!(name in wanted)) setProp(node, name, undefined, props[name]);
  for (const [name, value] of Object.entries(wanted)) {
    if (props[name] !== value) setProp(node, name, value, props[name]);
  }
  mounted.props = wanted;
}

const INTERNAL = new Set(["key", "mounted", "updated", "value", "checked"]);

function setProp(node, name, value, before) {
  if (INTERNAL.has(name)) return;
  if (name === "on") setHandlers(node, value || {}, before || {});
  else if (name === "style") setStyle(node, value || {}, before || {});
  else if (name === "data") Object.assign(node, value);
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

function setHandlers(node, wanted, before) {
  for (const [event, handler] of Object.entries(before)) {
    if (wanted[event] !== handler) node.removeEventListener(event, handler);
  }
  for (const [event, handler] of Object.entries(wanted)) {
    if (before[event] !== handler) node.addEventListener(event, handler);
  }
}

function setStyle(node, wanted, before) {
  for (const name of Object.keys(before)) if (!(name in wanted)) node.style.removeProperty(name);
  for (const [name, value] of Object.entries(wanted)) node.style.setProperty(name, value);
}

// The value of a control is set last, after its options exist, and only where the user is not ahead of it.
function applyValue(node, props) {
  if ("value" in props && node.value !== String(props.value ?? "")) node.value = props.value ?? "";
  if ("checked" in props && node.checked !== Boolean(props.checked)) node.checked = Boolean(props.checked);
}
