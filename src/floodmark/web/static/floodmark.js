/* Draws what the page carries as JSON: the graph of tables (laid out by dagre) and plots of runs (by uPlot). */
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const FIRST_LOOK = 40; // a larger graph begins with a neighbourhood
  const LANES_UP_TO = 120; // nodes: beyond, layers as lanes cost the layout too much
  const LAYERS = ["source", "bronze", "silver", "gold"];
  const NODE_HEIGHT = 46;
  const ASK_AGAIN = 15000; // milliseconds between two questions whether something has changed
  const FOLLOW = 2000;

  const make = (name, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text;
    return element;
  };
  const html = (name, text = "") => { const element = document.createElement(name); element.textContent = text; return element; };
  const NAME = "600 13px system-ui, sans-serif", PLACE = "400 11px system-ui, sans-serif"; // as the style has them
  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text, font) => { pen.font = font; return pen.measureText(text).width; };
  const cut = (text, room, font) => { // its end, since that tells tables apart
    let kept = text;
    while (kept.length > 1 && widthOf(kept === text ? kept : `…${kept}`, font) > room) kept = kept.slice(1);
    return kept === text ? text : `…${kept}`;
  };
  const statusOf = (thing) => (thing.status || "none").toLowerCase();
  const parts = (label) => { // where it is, and its own name: lake/silver and orders, main.gold and revenue
    const at = Math.max(label.lastIndexOf("/"), label.includes("/") ? -1 : label.lastIndexOf("."));
    return at < 1 ? ["", label] : [label.slice(0, at), label.slice(at + 1)];
  };

  class GraphView {
    constructor(root) {
      this.root = root;
      this.canvas = root.querySelector("[data-canvas]");
      this.data = JSON.parse(document.getElementById(root.dataset.graph).textContent);
      this.byId = new Map(this.data.nodes.map((node) => [node.id, node]));
      this.before = new Map(this.data.nodes.map((node) => [node.id, new Set()]));
      this.after = new Map(this.data.nodes.map((node) => [node.id, new Set()]));
      this.data.edges.forEach((edge) => {
        this.before.get(edge.target).add(edge.source);
        this.after.get(edge.source).add(edge.target);
      });
      this.panel = root.querySelector("[data-columns]");
      this.lit = new Set();
      this.chosen = "";
      this.touched = this.data.nodes.length > FIRST_LOOK; // whether it matters which node stands in the middle
      this.focus = root.dataset.focus || this.worst();
      this.shown = this.data.nodes.length <= FIRST_LOOK ? this.everything() : this.around(this.focus, 2);
      const all = root.querySelector("[data-all]");
      all.hidden = this.data.nodes.length <= FIRST_LOOK;
      all.addEventListener("click", () => this.show(this.everything()));
      root.querySelector("[data-find]").addEventListener("input", (event) => this.find(event.target.value));
      this.draw();
    }

    everything() { return new Set(this.byId.keys()); }

    worst() {
      const order = ["critical", "warning", "unknown", "healthy", "none"];
      const ranked = [...this.data.nodes].sort((a, b) => order.indexOf(statusOf(a)) - order.indexOf(statusOf(b)));
      return ranked.length ? ranked[0].id : "";
    }

    near(id) { return [...this.before.get(id), ...this.after.get(id)]; }

    around(id, steps) {
      let found = new Set(this.byId.has(id) ? [id] : []);
      for (let step = 0; step < steps; step += 1) found = new Set([...found, ...[...found].flatMap((each) => this.near(each))]);
      return found;
    }

    way(id) { // everything that it is made of, and everything that is made of it
      const found = new Set([id]);
      [this.before, this.after].forEach((next) => {
        const waiting = [id];
        while (waiting.length) next.get(waiting.pop()).forEach((each) => { if (!found.has(each)) { found.add(each); waiting.push(each); } });
      });
      return found;
    }

    find(text) {
      const word = text.trim().toLowerCase();
      const hits = this.data.nodes.filter((node) => node.label.toLowerCase().includes(word));
      if (!word || !hits.length) return;
      this.focus = hits[0].id;
      this.touched = true;
      this.chosen = "";
      this.lit = new Set();
      this.panel.replaceChildren();
      this.show(new Set(hits.slice(0, 20).flatMap((node) => [...this.around(node.id, 1)])));
    }

    show(ids) { this.shown = ids; this.draw(); }

    choose(id) {
      this.focus = id;
      this.touched = true;
      this.chosen = this.chosen === id ? "" : id;
      this.lit = new Set();
      this.show(new Set([...this.shown, ...this.around(id, 1)]));
      const drawn = this.canvas.querySelector(".node.focus");
      if (drawn) drawn.focus({ preventScroll: true });
      this.describe(id);
    }

    describe(id) {
      const node = this.byId.get(id);
      const head = html("p");
      head.append(html("strong", node.label));
      if (node.status) {
        const badge = html("span", node.status);
        badge.className = `badge ${statusOf(node)}`;
        head.append(" ", badge);
      }
      const lines = node.notes.map((note) => html("p", note));
      const jobs = html("p", node.jobs.length ? "Filled by " : "No job of this project fills it.");
      node.jobs.forEach((job, place) => {
        const link = html("a", job);
        link.href = this.root.dataset.jobs + encodeURIComponent(job);
        jobs.append(...(place ? [", "] : []), link);
      });
      const names = Object.keys(node.columns);
      const ask = html("p", names.length ? "Choose a column to see where it comes from:" : "Its columns are not known.");
      const row = html("p");
      row.append(...names.map((name) => this.columnButton(id, name)));
      this.panel.replaceChildren(head, ...lines, jobs, ask, row);
    }

    columnButton(id, name) {
      const button = html("button", name);
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => this.trace(id, name, button));
      return button;
    }

    trace(id, column, chosen) {
      this.panel.querySelectorAll("button").forEach((each) => each.setAttribute("aria-pressed", String(each === chosen)));
      this.panel.querySelectorAll("div").forEach((each) => each.remove());
      this.lit = new Set([id]);
      const box = html("div");
      box.append(html("p", `${column} of ${this.byId.get(id).label} comes from:`), this.origins(id, column, new Set([`${id}\n${column}`])));
      this.panel.append(box);
      this.shown = new Set([...this.shown, ...this.lit]);
      this.draw();
    }

    origins(id, column, seen) {
      const list = html("ul");
      const own = this.byId.get(id) ? this.byId.get(id).columns[column] || [] : [];
      if (!own.length) list.append(html("li", "nothing that is known"));
      own.forEach(([dataset, from, job, how]) => {
        const place = this.byId.get(dataset);
        const item = html("li", `${from} of ${place ? place.label : dataset} (${how}, job ${job})`);
        if (place) this.lit.add(dataset);
        const key = `${dataset}\n${from}`;
        if (place && place.jobs.length && !seen.has(key)) item.append(this.origins(dataset, from, new Set([...seen, key])));
        list.append(item);
      });
      return list;
    }

    draw() {
      const nodes = this.data.nodes.filter((node) => this.shown.has(node.id));
      const edges = this.data.edges.filter((edge) => this.shown.has(edge.source) && this.shown.has(edge.target));
      const graph = new dagre.graphlib.Graph({ multigraph: true });
      graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 60, marginx: 20, marginy: 30 });
      graph.setDefaultEdgeLabel(() => ({}));
      const widest = new Map(nodes.map((node) => [node.layer, 0]));
      nodes.forEach((node) => widest.set(node.layer, Math.max(widest.get(node.layer), this.width(node))));
      nodes.forEach((node) => graph.setNode(node.id, { width: widest.get(node.layer), height: NODE_HEIGHT }));
      edges.forEach((edge) => graph.setEdge(edge.source, edge.target, {}, edge.job));
      const layers = nodes.length <= LANES_UP_TO ? this.keepLayersApart(graph, nodes) : [];
      dagre.layout(graph);
      this.columnAt = [...new Set(nodes.map((node) => graph.node(node.id).x))].sort((a, b) => a - b);
      this.canvas.replaceChildren(this.picture(graph, nodes, edges, layers));
      this.scrollTo(graph.node(this.focus));
      const left = this.data.nodes.length - nodes.length;
      this.root.querySelector("[data-shown]").textContent = left ? `${nodes.length} of ${this.data.nodes.length} tables; choose one to widen` : "";
    }

    width(node) {
      const [where, name] = parts(node.label);
      return Math.max(110, Math.min(260, Math.max(40 + widthOf(name, NAME), 28 + widthOf(where, PLACE))));
    }

    keepLayersApart(graph, nodes) { // a post between two layers: everything of the one stands before it, of the other behind
      const layers = LAYERS.filter((layer) => nodes.some((node) => node.layer === layer));
      if (layers.length < 2) return [];
      graph.graph().ranksep = 34; // the posts are ranks too
      layers.slice(1).forEach((layer, place) => {
        const post = `\npost ${layer}`;
        graph.setNode(post, { width: 0, height: 0 });
        nodes.filter((node) => node.layer === layers[place]).forEach((node) => graph.setEdge(node.id, post, { weight: 0, minlen: 1 }, post));
        nodes.filter((node) => node.layer === layer).forEach((node) => graph.setEdge(post, node.id, { weight: 0, minlen: 1 }, post));
      });
      return layers;
    }

    lanes(graph, nodes, layers, height) {
      const spans = layers.map((layer) => {
        const own = nodes.filter((node) => node.layer === layer).map((node) => graph.node(node.id));
        return { layer, left: Math.min(...own.map((at) => at.x - at.width / 2)) - 12, right: Math.max(...own.map((at) => at.x + at.width / 2)) + 12 };
      });
      if (spans.some((span, place) => place && span.left < spans[place - 1].right)) return []; // an edge leads back: no lanes
      return spans.flatMap(({ layer, left, right }) => [
        make("rect", { class: `lane ${layer}`, x: left, y: 0, width: right - left, height, rx: 8 }),
        make("text", { class: `lane-name ${layer}`, x: left + 12, y: 18 }, layer.toUpperCase()),
      ]);
    }

    scrollTo(place) {
      if (!place) return;
      const scale = this.canvas.firstChild.clientWidth / this.canvas.firstChild.viewBox.baseVal.width || 1;
      this.canvas.scrollLeft = place.x * scale - this.canvas.clientWidth / 2;
      this.canvas.scrollTop = place.y * scale - this.canvas.clientHeight / 2;
    }

    picture(graph, nodes, edges, layers) {
      const width = Math.max(graph.graph().width || 10, 10);
      const height = Math.max(graph.graph().height || 10, 10);
      const scale = Math.max(0.72, Math.min(1, this.canvas.clientWidth / width || 1));
      const way = this.chosen && this.shown.has(this.chosen) ? this.way(this.chosen) : null;
      const svg = make("svg", { width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, class: way ? "chosen" : "", role: "group", "aria-label": "tables and the jobs between them" });
      const defs = make("defs");
      const marker = make("marker", { id: `arrow-${this.root.dataset.graph}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" });
      marker.append(make("path", { d: "M0 0 L8 4 L0 8 z" }));
      defs.append(marker);
      svg.append(defs, ...this.lanes(graph, nodes, layers, height), ...edges.map((edge) => this.line(graph, edge, way)), ...nodes.map((node) => this.box(graph, node, way)));
      return svg;
    }

    line(graph, edge, way) {
      const [from, to] = [graph.node(edge.source), graph.node(edge.target)];
      const [first, last] = [{ x: from.x + from.width / 2, y: from.y }, { x: to.x - to.width / 2, y: to.y }];
      const isNext = this.columnAt.indexOf(to.x) - this.columnAt.indexOf(from.x) === 1;
      const around = isNext ? [] : graph.edge(edge.source, edge.target, edge.job).points.slice(1, -1);
      const points = [first, ...around, last];
      const bend = (a, b) => { const x = (a.x + b.x) / 2; return `C${x.toFixed(1)} ${a.y.toFixed(1)} ${x.toFixed(1)} ${b.y.toFixed(1)} ${b.x.toFixed(1)} ${b.y.toFixed(1)}`; };
      const path = `M${first.x.toFixed(1)} ${first.y.toFixed(1)} ${points.slice(1).map((point, place) => bend(points[place], point)).join(" ")}`;
      const on = way && way.has(edge.source) && way.has(edge.target) ? " way" : "";
      const group = make("g");
      group.append(make("title", {}, `job ${edge.job}`), make("path", { d: path, class: `edge ${statusOf(edge)}${on}`, "marker-end": `url(#arrow-${this.root.dataset.graph})` }));
      return group;
    }

    box(graph, node, way) {
      const { x, y, width } = graph.node(node.id);
      const [where, name] = parts(node.label);
      const state = [this.touched && node.id === this.focus ? "focus" : "", this.lit.has(node.id) ? "lit" : "", way && way.has(node.id) ? "way" : ""].filter(Boolean).join(" ");
      const group = make("g", { class: `node ${statusOf(node)} ${node.layer} ${state}`, tabindex: 0, role: "button", transform: `translate(${x - width / 2},${y - NODE_HEIGHT / 2})` });
      const said = `${node.label}, ${node.layer}, ${node.status || "not watched"}`;
      group.setAttribute("aria-label", said);
      group.append(
        make("title", {}, [said, ...node.notes, ...(node.jobs.length ? [`filled by ${node.jobs.join(", ")}`] : [])].join("\n")),
        make("rect", { class: "box", width, height: NODE_HEIGHT, rx: 7 }),
        make("rect", { class: "band", x: 0.5, y: 8, width: 3.5, height: NODE_HEIGHT - 16, rx: 1.75 }),
        make("text", { class: "where", x: 13, y: 18 }, cut(where || node.layer, width - 24, PLACE)),
        make("text", { x: 13, y: 35 }, cut(name, width - 36, NAME)),
        make("circle", { class: "dot", cx: width - 13, cy: NODE_HEIGHT / 2, r: 4 }),
      );
      group.addEventListener("click", () => this.choose(node.id));
      group.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.choose(node.id); }
      });
      return group;
    }
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const twoDigits = (number) => String(number).padStart(2, "0");
  const utc = (seconds) => {
    const at = new Date(seconds * 1000);
    return `${at.getUTCFullYear()}-${twoDigits(at.getUTCMonth() + 1)}-${twoDigits(at.getUTCDate())} ${twoDigits(at.getUTCHours())}:${twoDigits(at.getUTCMinutes())} UTC`;
  };
  const short = (number) => (number >= 1e9 ? `${+(number / 1e9).toFixed(1)}G` : number >= 1e6 ? `${+(number / 1e6).toFixed(1)}M` : number >= 1e4 ? `${+(number / 1e3).toFixed(1)}k` : String(+number.toFixed(2)));
  const shown = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 2 : 1 });
  const ticks = [[86400 * 360, "{YYYY}"], [86400 * 28, "{MMM}"], [86400, "{MMM} {D}"], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]];

  function plot(place, times, values) { // one number over runs: when the pointer is on a run, its time and value
    const caption = html("p");
    caption.className = "caption";
    const said = html("span");
    caption.append(html("span", place.dataset.title), said);
    place.append(caption);
    const say = (index) => { said.textContent = index === null ? `last ${shown(values[values.length - 1])}` : `${utc(times[index])}: ${shown(values[index])}`; };
    const axis = { stroke: colour("--quiet"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const bars = place.dataset.kind === "bars";
    const line = { stroke: colour("--link"), width: bars ? 0 : 1.75, fill: bars ? colour("--link") : `${colour("--link")}1f`, points: { show: !bars && times.length <= 60, size: 5, fill: colour("--link") } };
    const options = {
      width: Math.max(200, place.clientWidth),
      height: 124,
      legend: { show: false },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      axes: [{ ...axis, size: 26, space: 64, grid: { show: false }, values: ticks.map(([step, form]) => [step, form, null, null, null, null, null, null, 1]) }, { ...axis, size: 46, space: 26, values: (_plot, marks) => marks.map(short) }],
      scales: { x: { range: (_plot, low, high) => [low - (high - low) / (2 * times.length - 2), high + (high - low) / (2 * times.length - 2)] }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      cursor: { y: false, drag: { x: false, y: false } },
      series: [{}, { label: place.dataset.title, ...line, ...(bars ? { paths: uPlot.paths.bars({ size: [0.7, 22] }) } : {}) }],
      hooks: { setCursor: [(drawn) => say(drawn.cursor.idx ?? null)] },
    };
    new uPlot(options, [times, values], place);
    say(null);
  }

  function drawPlots(holder) {
    if (holder.dataset.drawn || !holder.clientWidth) return;
    holder.dataset.drawn = "yes";
    const data = JSON.parse(holder.querySelector("script").textContent);
    holder.querySelectorAll("[data-plot]").forEach((place) => plot(place, data.times, data[place.dataset.plot]));
  }

  function askForNews(button) { // a page that is open says when it is old; it never moves under somebody's eyes
    button.addEventListener("click", () => location.reload());
    setInterval(async () => {
      if (document.hidden || !button.hidden) return;
      const answer = await fetch("/state", { credentials: "same-origin" }).catch(() => null);
      if (answer && answer.ok && (await answer.text()) !== button.dataset.state) button.hidden = false;
    }, ASK_AGAIN);
  }

  function start() {
    document.querySelectorAll("[data-graph]").forEach((root) => new GraphView(root));
    const seen = new IntersectionObserver((entries) => entries.filter((each) => each.isIntersecting).forEach((each) => drawPlots(each.target)), { rootMargin: "400px" });
    document.querySelectorAll("[data-plots]").forEach((each) => seen.observe(each));
    const open = () => { const wanted = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1))); if (wanted instanceof HTMLDetailsElement) wanted.open = true; };
    window.addEventListener("hashchange", open);
    open();
    document.querySelectorAll("[data-state]").forEach(askForNews);
    if (document.querySelector("[data-follow]")) setTimeout(() => location.reload(), FOLLOW);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
