// Paints what the view shows. Lanes whose ops are thinner than a few pixels are blended column by
// column, so that a hundred thousand ops cost no more than the pixels they fall on.

const THIN = 7;
const SMALL = 8;
const gapOf = (width) => Math.min(1, width * 0.15);
const pen = picture.getContext("2d");
const strip = document.createElement("canvas");
const theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "faint", "line", "memory", "reads", "readers"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.font = getComputedStyle(document.body).fontFamily;
  pen.font = `400 11px ${theme.font}`;
  theme.letter = pen.measureText("0").width;
}

const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
const COLOURS = {};
const PATTERNS = {};
for (const [kind, look] of Object.entries(DATA.kinds)) {
  COLOURS[kind] = look.colours.map(rgb);
  PATTERNS[kind] = tile(DATA.patterns[look.pattern]);
}

function tile(path) {
  if (!path) return null;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 6;
  const brush = canvas.getContext("2d");
  brush.strokeStyle = "rgb(0 0 0 / 16%)";
  brush.stroke(new Path2D(path));
  return pen.createPattern(canvas, "repeat");
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    paint();
  });
}

function paint() {
  const ratio = picture.width / view.width;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = theme.paper;
  pen.fillRect(0, 0, view.width, view.height);
  const rows = view.rows.filter(
    (row) => row.top + row.height > top() + AXIS && row.top < top() + view.height,
  );
  inPlot(() => {
    paintGrid();
    pen.globalAlpha = light() ? 0.35 : 1;
    for (const row of rows.filter((row) => row.kind === "lane")) paintLane(row);
    pen.globalAlpha = 1;
    for (const row of rows.filter((row) => row.kind === "memory")) paintMemory(row);
    paintLight();
  });
  for (const row of rows) paintName(row);
  paintAxis();
}

function inPlot(work) {
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, AXIS, plotWidth(), view.height - AXIS);
  pen.clip();
  font = "";
  work();
  pen.restore();
  font = "";
}

function paintLane(line) {
  const { timeline, lane } = line;
  const right = view.left + plotWidth() / view.scale;
  const before = placeAbove(timeline.start, view.left, lane.first, lane.end) - 2 * lane.strands;
  const first = Math.max(before, lane.first);
  const last = placeAbove(timeline.start, right, first, lane.end);
  if ((last - first) * THIN > plotWidth()) paintBlend(line, first, last);
  else for (let row = first; row < last; row++) paintOp(timeline, row, boxOf(timeline, row, line));
}

function paintOp(timeline, row, box) {
  const look = DATA.kinds[timeline.kind[row]];
  const shade = Number(timeline.shade[row]);
  const gap = gapOf(box.width);
  pen.fillStyle = look.colours[shade];
  roundBox(box, gap);
  if (box.width >= SMALL && PATTERNS[timeline.kind[row]]) {
    pen.fillStyle = PATTERNS[timeline.kind[row]];
    roundBox(box, gap);
  }
  paintLabel(timeline, row, box, look.inks[shade]);
}

function roundBox({ x, y, width, height }, gap) {
  const seen = Math.max(width - gap, 0.75);
  if (width < SMALL) return pen.fillRect(x, y + 0.5, seen, height - 1);
  pen.beginPath();
  pen.roundRect(x, y + 0.5, seen, height - 1, 2.5);
  pen.fill();
}

// The label stands in the middle of what can be seen of the op.
function paintLabel(timeline, row, box, ink) {
  if (box.width < theme.letter) return;
  const tall = box.height >= 27;
  const form = timeline.forms.find(
    ({ name, letters }) => letters * theme.letter + 2 <= box.width && (name !== "tall" || tall),
  );
  const left = Math.max(box.x, GUTTER);
  const right = Math.min(box.x + box.width, GUTTER + plotWidth());
  if (!form || right - left < theme.letter) return;
  const lines = labelLines(timeline, row, form.name);
  pen.fillStyle = pen.globalAlpha < 1 ? theme.ink : ink;
  lines.forEach((line, at) => {
    const y = box.y + box.height / 2 + (at - (lines.length - 1) / 2) * 12;
    write(line, (left + right) / 2, y, "center", box.height < 15 ? 9.5 : 11);
  });
}

function labelLines(timeline, row, form) {
  const { kind, mb, slice } = timeline;
  if (form === "full") return [opText(timeline, row)];
  if (form === "short") return [kind[row] + unitText(timeline, row)];
  if (form === "tall") return [`${kind[row]}${mb[row]}`, ...(slice[row] ? [`.${slice[row]}`] : [])];
  return [form === "unit" ? unitText(timeline, row) : kind[row]];
}

function write(text, x, y, align, size, weight = 400) {
  setFont(`${weight} ${size}px ${theme.font}`);
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(text, x, y);
}

// Setting a font is slow even when it does not change, and a frame may hold thousands of labels.
let font = "";
function setFont(wanted) {
  if (font !== wanted) pen.font = font = wanted;
}

// One pixel row per lane: each column has the mean colour of the ops in it, idle time left clear.
function paintBlend(line, first, last) {
  const width = Math.ceil(plotWidth());
  const sums = new Float32Array(width * 4);
  const { timeline } = line;
  for (let row = first; row < last; row++) {
    const from = Math.max(timeToX(timeline.start[row]) - GUTTER, 0);
    const end = timeToX(timeline.end[row]) - GUTTER;
    const to = Math.min(end - gapOf(end - from), width);
    const share = timeline.alone[row] === "0" ? 1 / line.lane.strands : 1;
    addSpan(sums, from, to, COLOURS[timeline.kind[row]][Number(timeline.shade[row])], share);
  }
  strip.width = width;
  strip.height = 1;
  strip.getContext("2d").putImageData(new ImageData(pixels(sums), width, 1), 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(strip, GUTTER, line.top - top() + 0.5, width, line.height - 1);
}

function addSpan(sums, from, to, colour, share) {
  for (let column = Math.floor(from); column < to; column++) {
    const cover = (Math.min(to, column + 1) - Math.max(from, column)) * share;
    for (let channel = 0; channel < 3; channel++) sums[4 * column + channel] += colour[channel] * cover;
    sums[4 * column + 3] += cover;
  }
}

function pixels(sums) {
  const bytes = new Uint8ClampedArray(sums.length);
  for (let at = 0; at < sums.length; at += 4) {
    const cover = sums[at + 3];
    if (cover === 0) continue;
    for (let channel = 0; channel < 3; channel++) bytes[at + channel] = sums[at + channel] / cover;
    bytes[at + 3] = 255 * cover;
  }
  return bytes;
}

// The highest level within each column, so that no peak is lost however far one zooms out.
function paintMemory(line) {
  const { time, level } = line.timeline.curves[line.device];
  const bottom = line.top - top() + line.height - 1;
  const unit = (line.height - 3) / PEAK;
  let next = placeAbove(time, view.left, 0, time.length);
  let now = next ? level[next - 1] : 0;
  let drawn = 0;
  const shape = new Path2D(`M${GUTTER} ${bottom}`);
  for (let x = GUTTER; x <= GUTTER + plotWidth(); x++) {
    let most = now;
    const until = xToTime(x + 1);
    for (; next < time.length && time[next] < until; next++) {
      now = level[next];
      most = Math.max(most, now);
    }
    if (most === drawn) continue;
    shape.lineTo(x, bottom - drawn * unit);
    shape.lineTo(x, bottom - most * unit);
    drawn = most;
  }
  shape.lineTo(GUTTER + plotWidth(), bottom - drawn * unit);
  shape.lineTo(GUTTER + plotWidth(), bottom);
  pen.fillStyle = pen.strokeStyle = theme.memory;
  pen.globalAlpha = 0.32;
  pen.fill(shape);
  pen.globalAlpha = 1;
  pen.lineWidth = 0.75;
  pen.stroke(shape);
}
