// Lights up one op: what it reads, who reads it, and why it started when it did.

const tip = document.getElementById("tip");
const said = document.getElementById("said");
const state = { focus: null, hover: null, pointer: null };

const light = () => state.hover || state.focus;

// Rows that `row` reads, each once, with the buffers and the time the last of them arrived.
function readsOf({ timeline, row }) {
  const { start, writer, buffer, delay } = timeline.edges;
  const found = new Map();
  for (let edge = start[row]; edge < start[row + 1]; edge++) {
    const entry = found.get(writer[edge]) || { row: writer[edge], words: [], time: 0 };
    entry.words.push(DATA.buffers[buffer[edge]]);
    entry.time = Math.max(entry.time, timeline.end[writer[edge]] + delay[edge]);
    found.set(writer[edge], entry);
  }
  return [...found.values()].sort((one, other) => other.time - one.time);
}

function readersFor({ timeline, row }) {
  const { start, reader, edgeOf } = timeline.readers;
  const found = new Map();
  for (let place = start[row]; place < start[row + 1]; place++) {
    const entry = found.get(reader[place]) || { row: reader[place], words: [] };
    entry.words.push(DATA.buffers[timeline.edges.buffer[edgeOf[place]]]);
    found.set(reader[place], entry);
  }
  return [...found.values()].sort((a, b) => timeline.start[a.row] - timeline.start[b.row]);
}

function previousInLane({ timeline, row }) {
  const lane = timeline.lanes[timeline.laneOf[row]];
  let before = row - 1;
  while (before >= lane.first && timeline.end[before] > timeline.start[row] + 1e-9) before--;
  return before >= lane.first ? before : -1;
}

// Rows whose end or arrival let this op start: what it reads, then the op before it in its lane.
function waitedFor(op) {
  const { timeline, row } = op;
  const near = (time) => Math.abs(time - timeline.start[row]) < 1e-9 * LENGTH;
  const causes = readsOf(op).filter((entry) => near(entry.time)).map((entry) => entry.row);
  const before = previousInLane(op);
  if (before >= 0 && near(timeline.end[before]) && !causes.includes(before)) causes.push(before);
  return causes;
}

function paintLight() {
  const op = light();
  if (!op) return;
  const { timeline, row } = op;
  const [reads, readers] = [readsOf(op), readersFor(op)];
  for (const entry of reads) paintRing(timeline, entry.row, theme.reads, 2);
  for (const entry of readers) paintRing(timeline, entry.row, theme.readers, 2);
  paintRing(timeline, row, theme.ink, 3);
  for (const entry of reads) paintLink(timeline, entry.row, row, theme.reads);
  for (const entry of readers) paintLink(timeline, row, entry.row, theme.readers);
}

function paintRing(timeline, row, colour, width) {
  const box = boxOf(timeline, row);
  const wide = { ...box, width: Math.max(box.width, 3) };
  paintOp(timeline, row, wide);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  pen.roundRect(wide.x, wide.y, wide.width, wide.height, 3);
  pen.stroke();
}

// From the end of the writer to the start of the reader, bent so that parallel links stay apart.
function paintLink(timeline, writer, reader, colour) {
  const from = boxOf(timeline, writer);
  const to = boxOf(timeline, reader);
  const [x0, y0] = [from.x + from.width, from.y + from.height / 2];
  const [x1, y1] = [to.x, to.y + to.height / 2];
  const bend = Math.min(Math.max(Math.abs(x1 - x0) * 0.5, 6), 90);
  const lift = y0 === y1 ? from.height * 0.8 : 0;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0 - lift, x1 - bend, y1 - lift, x1, y1);
  pen.stroke();
  pen.beginPath();
  pen.arc(x1, y1, 3, 0, 7);
  pen.fill();
}

function element(name, text, kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
}

function place({ timeline, row }) {
  const lane = timeline.lanes[timeline.laneOf[row]];
  const stream = lane.stream === "compute" ? "" : ` ${lane.stream}`;
  return `device ${lane.device}${stream}`;
}

function timeText({ timeline, row }) {
  const [start, end] = [timeline.start[row], timeline.end[row]];
  return `from ${number(start)} to ${number(end)}, takes ${number(end - start)}`;
}

function reasonText(op) {
  const { timeline } = op;
  const causes = waitedFor(op);
  if (!causes.length) return timeline.start[op.row] > 0 ? "" : "starts at once";
  const names = causes.map((row) => `${opText(timeline, row)} on ${place({ timeline, row })}`);
  return `waited for ${names.join(", and ")}`;
}

function listOf(op, entries) {
  const list = element("ul", "");
  const causes = waitedFor(op);
  for (const entry of entries.slice(0, 8)) {
    const name = opText(op.timeline, entry.row);
    const at = entry.time === undefined ? "" : `, at ${number(entry.time)}`;
    const where = place({ timeline: op.timeline, row: entry.row });
    const bound = entry.time !== undefined && causes.includes(entry.row);
    list.append(
      element("li", `${name} (${where}${at}): ${entry.words.join(", ")}`, bound ? "bound" : ""),
    );
  }
  if (entries.length > 8) list.append(element("li", `and ${entries.length - 8} more`));
  return list;
}

function fillTip(op) {
  const { timeline, row } = op;
  const head = element("h2", `${opText(timeline, row)} `);
  head.append(element("span", DATA.kinds[timeline.kind[row]].words));
  const several = TIMELINES.length > 1 ? `${timeline.name}, ` : "";
  tip.replaceChildren(head, element("p", `${several}${place(op)}, ${timeText(op)}`));
  const reason = reasonText(op);
  if (reason) tip.append(element("p", reason, "label"));
  const [reads, readers] = [readsOf(op), readersFor(op)];
  if (reads.length) tip.append(element("h3", "reads", "reads"), listOf(op, reads));
  if (readers.length) tip.append(element("h3", "read by", "readers"), listOf(op, readers));
}

function showTip() {
  const op = light();
  tip.hidden = !op;
  if (!op) return;
  fillTip(op);
  const area = picture.getBoundingClientRect();
  const box = boxOf(op.timeline, op.row);
  const anchor = state.hover ? state.pointer.x : box.x + box.width / 2;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const x = Math.min(area.left + anchor + 16, window.innerWidth - width - 8);
  tip.style.left = `${Math.max(x, 8)}px`;
  tip.style.top = `${Math.max(area.top + tipTop(op, height, area), 8)}px`;
}

// Below everything that is lit, or above it, or beside the op where neither has room.
function tipTop(op, height, area) {
  const lit = [op, ...readsOf(op), ...readersFor(op)].map(({ row }) => boxOf(op.timeline, row));
  const own = boxOf(op.timeline, op.row);
  const room = window.innerHeight - area.top - height - 8;
  const below = Math.max(...lit.map((box) => box.y + box.height)) + 10;
  const above = Math.min(...lit.map((box) => box.y)) - height - 10;
  if (below <= room) return below;
  return above >= 0 ? above : Math.min(own.y + own.height + 10, room);
}

function announce(op) {
  const words = DATA.kinds[op.timeline.kind[op.row]].words;
  const reads = readsOf(op).map((entry) => opText(op.timeline, entry.row));
  const readers = readersFor(op).map((entry) => opText(op.timeline, entry.row));
  said.textContent = [
    `${opText(op.timeline, op.row)}, ${words}`,
    TIMELINES.length > 1 ? `${op.timeline.name}, ${place(op)}` : place(op),
    timeText(op),
    reasonText(op),
    reads.length ? `reads ${reads.join(", ")}` : "reads nothing",
    readers.length ? `read by ${readers.join(", ")}` : "",
  ]
    .filter(Boolean)
    .join("; ");
}

function focusOn(op) {
  state.focus = op;
  state.hover = null;
  if (op) {
    reveal(op);
    announce(op);
  } else {
    said.textContent = "";
  }
  redraw();
  showTip();
}
