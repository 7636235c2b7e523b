/* Draws what the page carries as JSON: the graph of tables (laid out by dagre) and plots of runs (by uPlot). */
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const FIRST_LOOK = 40; // a larger graph begins with a neighbourhood
  const NODE_HEIGHT = 44;

  const make = (name, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text;
    return element;
  };
  const html = (name, text = "") => { const element = document.createElement(name); element.textContent = text; return element; };
  const cut = (text, most) => (text.length <= most ? text : `…${text.slice(1 - most)}`);
  const statusOf = (thing) => (thing.status || "none").toLowerCase();

  class GraphView {
    constructor(root) {
      this.root = root;
      this.canvas = root.querySelector("[data-canvas]");
      this.data = JSON.parse(document.getElementById(root.dataset.graph).textContent);
      this.byId = new Map(this.data.nodes.map((node) => [node.id, node]));
      this.near = new Map(this.data.nodes.map((node) => [node.id, new Set()]));
      this.data.edges.forEach((edge) => {
        this.near.get(edge.source).add(edge.target);
        this.near.get(edge.target).add(edge.source);
      });
      this.panel = root.querySelector("[data-columns]");
      this.lit = new Set();
      this.focus = root.dataset.focus || this.worst();
      this.shown = this.data.nodes.length <= FIRST_LOOK ? this.everything() : this.around(this.focus, 2);
      root.querySelector("[data-all]").addEventListener("click", () => this.show(this.everything()));
      root.querySelector("[data-find]").addEventListener("input", (event) => this.find(event.target.value));
      this.draw();
    }

    everything() { return new Set(this.byId.keys()); }

    worst() {
      const order = ["critical", "warning", "unknown", "healthy", "none"];
      const ranked = [...this.data.nodes].sort((a, b) => order.indexOf(statusOf(a)) - order.indexOf(statusOf(b)));
      return ranked.length ? ranked[0].id : "";
    }

    around(id, steps) {
      let found = new Set(this.byId.has(id) ? [id] : []);
      for (let step = 0; step < steps; step += 1) {
        found = new Set([...found, ...[...found].flatMap((each) => [...this.near.get(each)])]);
      }
      return found;
    }

    find(text) {
      const word = text.trim().toLowerCase();
      const hits = this.data.nodes.filter((node) => node.label.toLowerCase().includes(word));
      if (!word || !hits.length) return;
      this.focus = hits[0].id;
      this.show(new Set(hits.slice(0, 20).flatMap((node) => [...this.around(node.id, 1)])));
    }

    show(ids) { this.shown = ids; this.draw(); }

    widen(id) { this.focus = id; this.lit = new Set(); this.show(new Set([...this.shown, ...this.around(id, 1)])); this.refocus(); this.listColumns(id); }

    listColumns(id) {
      const names = Object.keys(this.byId.get(id).columns);
      const head = html("p", `Columns of ${this.byId.get(id).label}${names.length ? ": choose one to see where it comes from" : " are not known"}`);
      const buttons = names.map((name) => {
        const button = html("button", name);
        button.type = "button";
        button.setAttribute("aria-pressed", "false");
        button.addEventListener("click", () => this.trace(id, name, button));
        return button;
      });
      const row = html("p");
      row.append(...buttons);
      this.panel.replaceChildren(head, row);
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

    refocus() {
      const drawn = this.canvas.querySelector(".node.focus");
      if (drawn) drawn.focus();
    }

    draw() {
      const nodes = this.data.nodes.filter((node) => this.shown.has(node.id));
      const edges = this.data.edges.filter((edge) => this.shown.has(edge.source) && this.shown.has(edge.target));
      const graph = new dagre.graphlib.Graph({ multigraph: true });
      graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 60, marginx: 12, marginy: 12 });
      graph.setDefaultEdgeLabel(() => ({}));
      nodes.forEach((node) => graph.setNode(node.id, { width: Math.min(300, 40 + 7.2 * node.label.length), height: NODE_HEIGHT }));
      edges.forEach((edge) => graph.setEdge(edge.source, edge.target, {}, edge.job));
      dagre.layout(graph);
      this.canvas.replaceChildren(this.picture(graph, nodes, edges));
      const left = this.data.nodes.length - nodes.length;
      this.root.querySelector("[data-shown]").textContent = left ? `${nodes.length} of ${this.data.nodes.length} tables; choose one to widen` : "";
    }

    picture(graph, nodes, edges) {
      const { width = 10, height = 10 } = graph.graph();
      const svg = make("svg", { width: Math.max(width, 10), height: Math.max(height, 10), role: "group", "aria-label": "tables and the jobs between them" });
      const defs = make("defs");
      const marker = make("marker", { id: `arrow-${this.root.dataset.graph}`, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
      marker.append(make("path", { d: "M0 0 L8 4 L0 8 z" }));
      defs.append(marker);
      svg.append(defs, ...edges.map((edge) => this.line(graph, edge)), ...nodes.map((node) => this.box(graph, node)));
      return svg;
    }

    line(graph, edge) {
      const points = graph.edge(edge.source, edge.target, edge.job).points;
      const path = points.map((point, index) => `${index ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join(" ");
      const group = make("g");
      group.append(make("title", {}, `job ${edge.job}`), make("path", { d: path, class: statusOf(edge), "marker-end": `url(#arrow-${this.root.dataset.graph})` }));
      return group;
    }

    box(graph, node) {
      const { x, y, width } = graph.node(node.id);
      const group = make("g", { class: `node${node.id === this.focus ? " focus" : ""}${this.lit.has(node.id) ? " lit" : ""}`, tabindex: 0, role: "button", transform: `translate(${x - width / 2},${y - NODE_HEIGHT / 2})` });
      const said = `${node.label}, ${node.layer}, ${node.status || "not watched"}`;
      group.setAttribute("aria-label", said);
      group.append(
        make("title", {}, `${said}${node.jobs.length ? `; filled by ${node.jobs.join(", ")}` : ""}`),
        make("rect", { class: `box ${statusOf(node)}`, width, height: NODE_HEIGHT, rx: 6 }),
        make("rect", { class: `band ${node.layer}`, width: 6, height: NODE_HEIGHT, rx: 3 }),
        make("text", { class: "layer", x: 14, y: 14 }, node.layer.toUpperCase()),
        make("text", { x: 14, y: 32 }, cut(node.label, 38)),
      );
      group.addEventListener("click", () => this.widen(node.id));
      group.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.widen(node.id); }
      });
      return group;
    }
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function plot(place, times, values) {
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options = {
      title: place.dataset.title,
      width: Math.min(560, Math.max(260, place.parentElement.clientWidth - 8)),
      height: 180,
      legend: { live: true },
      axes: [axis, { ...axis, size: 64 }],
      scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      series: [{}, { label: place.dataset.title, stroke: colour("--link"), width: 1.5, points: { show: true, size: 5 } }],
    };
    new uPlot(options, [times, values], place);
  }

  function drawPlots(holder) {
    if (holder.dataset.drawn || !holder.clientWidth) return;
    holder.dataset.drawn = "yes";
    const data = JSON.parse(holder.querySelector("script").textContent);
    holder.querySelectorAll("[data-plot]").forEach((place) => plot(place, data.times, data[place.dataset.plot]));
  }

  function start() {
    document.querySelectorAll("[data-graph]").forEach((root) => new GraphView(root));
    document.querySelectorAll("[data-plots]").forEach(drawPlots);
    document.querySelectorAll("details").forEach((each) => each.addEventListener("toggle", () => each.querySelectorAll("[data-plots]").forEach(drawPlots)));
    const open = () => { const wanted = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1))); if (wanted instanceof HTMLDetailsElement) wanted.open = true; };
    window.addEventListener("hashchange", open);
    open();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
