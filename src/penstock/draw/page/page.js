// Wires keys, pointer, wheel and search to the view, then draws for the first time.

const query = document.getElementById("query");
const found = document.getElementById("found");

// ---- keyboard ----

function firstVisible() {
  for (const line of view.rows.filter((row) => row.kind === "lane")) {
    if (line.top + line.height < top() + AXIS) continue;
    const { timeline, lane } = line;
    const row = Math.max(placeAbove(timeline.start, view.left - 1e-9, lane.first, lane.end), lane.first);
    return { timeline, row: Math.min(row, lane.end - 1) };
  }
  return null;
}

function along(op, step) {
  const lane = op.timeline.lanes[op.timeline.laneOf[op.row]];
  const row = op.row + step;
  return row >= lane.first && row < lane.end ? { timeline: op.timeline, row } : null;
}

// The op of the next lane up or down that runs nearest to the middle of this one.
function across(op, step) {
  const lanes = view.rows.filter((row) => row.kind === "lane");
  const here = lanes.indexOf(rowOf(op.timeline, op.row));
  const line = lanes[here + step];
  if (!line) return null;
  const middle = (op.timeline.start[op.row] + op.timeline.end[op.row]) / 2;
  const { timeline, lane } = line;
  const row = placeAbove(timeline.start, middle, lane.first, lane.end) - 1;
  return { timeline, row: Math.max(row, lane.first) };
}

function nextInOrder(op, step) {
  const neighbour = along(op, step);
  if (neighbour) return neighbour;
  const lanes = view.rows.filter((row) => row.kind === "lane");
  const line = lanes[lanes.indexOf(rowOf(op.timeline, op.row)) + step];
  return line && { timeline: line.timeline, row: step > 0 ? line.lane.first : line.lane.end - 1 };
}

function causeOf(op) {
  const [row] = waitedFor(op);
  return row === undefined ? null : { timeline: op.timeline, row };
}

const MOVES = {
  ArrowLeft: (op) => along(op, -1),
  ArrowRight: (op) => along(op, +1),
  ArrowUp: (op) => across(op, -1),
  ArrowDown: (op) => across(op, +1),
  Enter: causeOf,
};

const PANS = {
  ArrowLeft: () => pan(-80),
  ArrowRight: () => pan(80),
  ArrowUp: () => scroll.scrollBy(0, -60),
  ArrowDown: () => scroll.scrollBy(0, 60),
  Enter: () => focusOn(firstVisible()),
};

const ALWAYS = {
  "+": () => zoom(1.4),
  "=": () => zoom(1.4),
  "-": () => zoom(1 / 1.4),
  0: fit,
  Home: () => look(0, view.scale),
  End: () => look(LENGTH, view.scale),
  PageUp: () => scroll.scrollBy(0, -view.height * 0.8),
  PageDown: () => scroll.scrollBy(0, view.height * 0.8),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return letGo(event);
  if (event.key === "Tab") return onTab(event);
  const panning = event.shiftKey || !state.focus;
  const move = ALWAYS[event.key] || (panning ? PANS[event.key] : null);
  if (move) move();
  else if (MOVES[event.key]) focusOn(MOVES[event.key](state.focus) || state.focus);
  else return;
  event.preventDefault();
  showTip();
}

// Tab walks the ops in order and leaves the picture after the last one, or after Escape.
function onTab(event) {
  const target = state.focus && nextInOrder(state.focus, event.shiftKey ? -1 : +1);
  if (!target) return;
  event.preventDefault();
  focusOn(target);
}

function letGo(event) {
  if (!light()) return;
  event.preventDefault();
  focusOn(null);
}

picture.addEventListener("keydown", onKey);
picture.addEventListener("focus", () => {
  if (!state.focus && picture.matches(":focus-visible") && !dragging) focusOn(firstVisible());
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target === query) return;
  event.preventDefault();
  query.focus();
});

// ---- pointer and wheel ----

let dragging = null;

function onPointerDown(event) {
  if (event.button !== 0) return;
  dragging = { x: event.clientX, y: event.clientY, left: view.left, top: top(), moved: false };
  picture.setPointerCapture(event.pointerId);
}

function onPointerMove(event) {
  if (dragging) return drag(event);
  state.pointer = { x: event.offsetX, y: event.offsetY };
  const op = opAt(event.offsetX, event.offsetY);
  const same = op && state.hover && op.row === state.hover.row && op.timeline === state.hover.timeline;
  if (!same) {
    state.hover = op;
    picture.classList.toggle("over-op", Boolean(op));
    redraw();
  }
  showTip();
}

function drag(event) {
  const [dx, dy] = [event.clientX - dragging.x, event.clientY - dragging.y];
  if (!dragging.moved && Math.hypot(dx, dy) < 4) return;
  dragging.moved = true;
  state.hover = null;
  picture.classList.add("dragging");
  scroll.scrollTop = dragging.top - dy;
  look(dragging.left - dx / view.scale, view.scale);
  showTip();
}

function onPointerUp(event) {
  const clicked = dragging && !dragging.moved;
  dragging = null;
  picture.classList.remove("dragging");
  if (clicked) focusOn(opAt(event.offsetX, event.offsetY));
}

function onPointerLeave() {
  state.hover = null;
  redraw();
  showTip();
}

// Over the names the wheel scrolls the page; over the picture it zooms, or pans sideways.
function onWheel(event) {
  if (event.offsetX < GUTTER && !event.ctrlKey) return;
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX);
  else if (event.shiftKey) pan(event.deltaY);
  else zoom(Math.exp(-event.deltaY * 0.002), event.offsetX);
  showTip();
}

picture.addEventListener("pointerdown", onPointerDown);
picture.addEventListener("pointermove", onPointerMove);
picture.addEventListener("pointerup", onPointerUp);
picture.addEventListener("pointercancel", onPointerUp);
picture.addEventListener("pointerleave", onPointerLeave);
picture.addEventListener("wheel", onWheel, { passive: false });
document.getElementById("in").addEventListener("click", () => zoom(1.4));
document.getElementById("out").addEventListener("click", () => zoom(1 / 1.4));
document.getElementById("fit").addEventListener("click", fit);

// ---- search ----

const QUERY = /^(\d+)?([a-z])?(\d+)?(?:\.(\d+))?$/i;

// Rows that a query names; a part left out matches anything, a lone number is a microbatch.
function matches(text) {
  const parts = QUERY.exec(text.trim());
  if (!parts || !text.trim()) return [];
  const [stage, kind, mb, slice] = parts.slice(1);
  const wanted = kind ? { stage, mb, slice } : { mb: stage, slice };
  const fits = (timeline, row) =>
    (!kind || timeline.kind[row] === kind.toUpperCase()) &&
    Object.entries(wanted).every(
      ([column, value]) => value === undefined || timeline[column][row] === Number(value),
    );
  return TIMELINES.flatMap((timeline) =>
    [...timeline.start.keys()].filter((row) => fits(timeline, row)).map((row) => ({ timeline, row })),
  );
}

const search = { text: "", ops: [], at: 0 };

function onSearch(event) {
  event.preventDefault();
  if (query.value !== search.text) {
    Object.assign(search, { text: query.value, ops: matches(query.value), at: 0 });
  } else if (search.ops.length) {
    search.at = (search.at + 1) % search.ops.length;
  }
  found.textContent = search.ops.length ? `${search.at + 1} of ${search.ops.length}` : "no such op";
  focusOn(search.ops[search.at] || null);
}

document.getElementById("search").addEventListener("submit", onSearch);
query.addEventListener("keydown", (event) => {
  if (event.key === "Escape" || event.key === "ArrowDown") picture.focus();
});

// ---- start ----

function resize() {
  const whole = view.scale <= fittingScale() * 1.0001;
  measure();
  if (whole) fit();
  else look(view.left, view.scale);
}

scroll.addEventListener("scroll", redraw);
new ResizeObserver(resize).observe(scroll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readTheme();
  redraw();
});
readTheme();
buildLegend();
measure();
fit();
