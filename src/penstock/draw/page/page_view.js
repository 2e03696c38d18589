// What part of the picture is seen: where rows stand, which time is at the left, how wide it is.

const GUTTER = 92;
const MARGIN = 64;
const AXIS = 30;
const TITLE = 36;
const TITLE_LINE = 18;
const STREAM = 16;
const GAP = 9;

const picture = document.getElementById("picture");
const scroll = document.getElementById("scroll");
const sheet = document.getElementById("sheet");

const view = { left: 0, scale: 1, width: 0, height: 0, rows: [], total: 0 };

const plotWidth = () => Math.max(view.width - GUTTER - MARGIN, 50);
const timeToX = (time) => GUTTER + (time - view.left) * view.scale;
const xToTime = (x) => view.left + (x - GUTTER) / view.scale;
const top = () => scroll.scrollTop;

// Rows share the height of the window, within what is comfortable to look at.
function heights() {
  const lanes = TIMELINES.flatMap((timeline) => timeline.lanes);
  const devices = TIMELINES.reduce((sum, timeline) => sum + timeline.peak.length, 0);
  const compute = lanes.filter((lane) => lane.stream === "compute");
  const parts = compute.reduce((sum, lane) => sum + laneHeight(lane, { lane: 1, strand: 0.72 }), 0);
  const streams = (lanes.length - compute.length) * STREAM;
  const titles = TIMELINES.reduce((sum, timeline) => sum + titleHeight(timeline), 0);
  const room = view.height - AXIS - titles - (GAP + 2) * devices - streams - 8;
  const lane = Math.min(Math.max(room / (parts + 0.75 * devices), 18), 40);
  return { lane, strand: lane * 0.72, stream: STREAM, memory: lane * 0.75 };
}

function layOut() {
  const size = heights();
  let y = AXIS;
  view.rows = [];
  const add = (row, height) => {
    view.rows.push({ ...row, top: y, height });
    y += height;
  };
  for (const timeline of TIMELINES) {
    add({ kind: "title", timeline }, titleHeight(timeline));
    timeline.peak.forEach((_, device) => {
      for (const lane of timeline.lanes.filter((lane) => lane.device === device)) {
        add({ kind: "lane", timeline, device, lane }, laneHeight(lane, size));
      }
      add({ kind: "memory", timeline, device }, size.memory + 2);
      y += GAP;
    });
  }
  view.total = y + 6;
  sheet.style.height = `${Math.max(view.total, view.height)}px`;
}

function laneHeight(lane, size) {
  if (lane.strands > 1) return size.strand * lane.strands;
  return lane.stream === "compute" ? size.lane : size.stream;
}

function measure() {
  const ratio = window.devicePixelRatio || 1;
  view.width = scroll.clientWidth;
  view.height = scroll.clientHeight;
  picture.width = Math.round(view.width * ratio);
  picture.height = Math.round(view.height * ratio);
  picture.style.width = `${view.width}px`;
  picture.style.height = `${view.height}px`;
  layOut();
}

const fittingScale = () => plotWidth() / LENGTH;

// The closest zoom shows the shortest op of the page as wide as a hand.
const SHORTEST = Math.min(
  ...TIMELINES.map((timeline) =>
    timeline.start.reduce((least, start, row) => {
      const length = timeline.end[row] - start;
      return length > 0 && length < least ? length : least;
    }, LENGTH),
  ),
);

function look(left, scale) {
  view.scale = Math.min(Math.max(scale, fittingScale()), Math.max(300 / SHORTEST, fittingScale()));
  const last = LENGTH - plotWidth() / view.scale;
  view.left = Math.min(Math.max(left, 0), Math.max(last, 0));
  redraw();
}

function zoom(factor, x = GUTTER + plotWidth() / 2) {
  const time = xToTime(x);
  const scale = Math.min(view.scale * factor, 300 / SHORTEST);
  look(time - (x - GUTTER) / Math.max(scale, fittingScale()), scale);
}

const pan = (pixels) => look(view.left + pixels / view.scale, view.scale);
const fit = () => look(0, fittingScale());

function rowOf(timeline, row) {
  const lane = timeline.lanes[timeline.laneOf[row]];
  return view.rows.find((line) => line.timeline === timeline && line.lane === lane);
}

// Where an op stands on the sheet, in pixels; narrow ops keep a pixel.
function boxOf(timeline, row, line = rowOf(timeline, row)) {
  const x = timeToX(timeline.start[row]);
  const width = (timeline.end[row] - timeline.start[row]) * view.scale;
  const strands = timeline.alone[row] === "0" ? line.lane.strands : 1;
  const height = line.height / strands;
  const strand = strands > 1 ? Number(timeline.strand[row]) : 0;
  return { x, width, y: line.top - top() + strand * height, height };
}

// Bring an op into sight: scroll to its row, pan to its time, and zoom in where it is too thin.
function reveal({ timeline, row }) {
  const line = rowOf(timeline, row);
  if (line.top < top() + AXIS) scroll.scrollTop = line.top - AXIS - 40;
  if (line.top + line.height > top() + view.height) {
    scroll.scrollTop = line.top + line.height + 60 - view.height;
  }
  const length = timeline.end[row] - timeline.start[row];
  const scale = length * view.scale >= 14 ? view.scale : 44 / Math.max(length, SHORTEST);
  const shown = plotWidth() / scale;
  const inside = timeline.start[row] >= view.left && timeline.end[row] <= view.left + shown;
  const left = inside && scale === view.scale ? view.left : timeline.start[row] - shown / 2;
  look(left, scale);
}

// The op under a point of the canvas, or null.
function opAt(x, y) {
  if (x < GUTTER || y < AXIS || x > view.width - MARGIN) return null;
  const at = y + top();
  const line = view.rows.find((row) => at >= row.top && at < row.top + row.height);
  if (!line || line.kind !== "lane") return null;
  const { timeline, lane } = line;
  const time = xToTime(x);
  const last = placeAbove(timeline.start, time, lane.first, lane.end) - 1;
  for (let row = last; row >= Math.max(lane.first, last - 2 * lane.strands); row--) {
    const box = boxOf(timeline, row, line);
    if (time <= timeline.end[row] && y >= box.y && y < box.y + box.height) return { timeline, row };
  }
  return null;
}
