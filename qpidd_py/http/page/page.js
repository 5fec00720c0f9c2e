// Asks the API every two seconds and shows the answers.  The login is kept in memory only.  All text is set as text.
"use strict";
const EVERY = 2000, ROWS = 50;
const COLUMNS = [["name", "Name"], ["messages_ready", "Ready"], ["messages_unacknowledged", "Unacknowledged"],
  ["consumers", "Consumers"], ["publish", "In /s"], ["deliver_get", "Out /s"]];
const at = id => document.getElementById(id);
const number = value => Math.round(value).toLocaleString("en");
let login = "", me = null, timer = 0, timeline = new Timeline(), clockOf = Date.now(), page = 1, pages = 1, sort = "name", reverse = false, before = new Map(), round = 0;

// What the user may not do is not shown.
const may = tag => me.tags.includes("administrator") || me.tags.includes(tag);

async function ask(path, method = "GET", body) {
  const headers = { Authorization: login, "X-Requested-With": "page" };
  const answer = await fetch("api/" + path, { method, headers, body: body && JSON.stringify(body) });
  clockOf = Date.parse(answer.headers.get("Date")) || Date.now();  // of the broker's machine
  const text = await answer.text(), found = text ? JSON.parse(text) : null;
  if (!answer.ok) throw Object.assign(new Error(found.reason || found.error), { status: answer.status });
  return found;
}

function cell(text, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  made.title = kind === "name" ? text : "";
  if (kind) made.className = kind;
  return made;
}

// A button that asks before it does something.
function action(title, question, work) {
  const button = document.createElement("button"), made = document.createElement("td");
  button.type = "button";
  button.textContent = title;
  button.title = question;
  button.onclick = () => confirm(question) && work().then(look, fail);
  made.append(button);
  return made;
}

function rows(id, items, cells) {
  at(id).replaceChildren(...items.map(item => {
    const row = document.createElement("tr");
    row.append(...cells(item));
    return row;
  }));
}

function warn(id, text) {
  at(id).hidden = !text;
  at(id).textContent = text || "";
}

// Of a counter that grows: a second, since the last round that knew it.
function rate(key, count, now) {
  const [then, old] = before.get(key) || [now, count];
  before.set(key, [now, count]);
  return now > then && count >= old ? 1000 * (count - old) / (now - then) : 0;
}

function showCluster(found) {
  at("cluster").hidden = !found;
  if (!found) return;
  const leads = found.status === "active" || found.status === "recovering";
  const where = leads ? "" : found.primary ? `; the primary is ${found.primary}` : "; no primary is known";
  at("state").textContent = `${found.name || "this broker"} is ${leads ? "the primary" : "a backup"} (${found.status}), epoch ${found.epoch}${where}`;
  at("state").className = leads ? "good" : "";
  const stall = found.stalled;
  warn("stalled", [stall && `Confirms have been waiting for ${number(stall.seconds)} s: ${stall.why}. It ends when ${stall.until}.`,
    found.isolated && "This primary is cut off; it serves no clients.", found.advice].filter(Boolean).join(" "));
  rows("members", found.members, item => [
    cell(item.name || item.id.slice(0, 8), "name"), cell(item.address), cell(item.state),
    item.counts === undefined ? cell("") : cell(item.counts ? "yes" : "no", item.counts ? "good" : "bad"),
    cell(item.lag ? `${number(item.lag.positions)} operations, ${number(item.lag.octets)} octets, ${item.lag.seconds.toFixed(1)} s` : ""),
    leads && item.state === "ready" && may("administrator") ? action("Make primary", `Hand over to ${item.name || item.address}? Clients reconnect to it.`,
      () => ask("ha/relocate", "POST", { to: item.address })) : cell("")]);
}

function showTimeline(cluster, events) {
  at("h-timeline").parentElement.hidden = !cluster || !events;
  if (!cluster || !events) return;
  timeline.take(events);
  timeline.stalled(cluster.stalled, 1000 * clockOf);
  timeline.show(cluster.name || "this broker", Number(at("span").value), 1000 * clockOf);
}

function showTotals(overview, now) {
  const totals = overview.queue_totals || {}, objects = overview.object_totals || {};
  const shown = { Ready: totals.messages_ready, Unacknowledged: totals.messages_unacknowledged, Queues: objects.queues,
    Connections: objects.connections, Consumers: objects.consumers };
  const stats = overview.message_stats || {};
  if (stats.publish !== undefined) shown["Published /s"] = rate(" published", stats.publish, now);
  if (stats.deliver_get !== undefined) shown["Delivered /s"] = rate(" delivered", stats.deliver_get, now);
  at("totals").replaceChildren(...Object.entries(shown).filter(([, value]) => value !== undefined).map(([name, value]) => {
    const pair = document.createElement("div"), term = document.createElement("dt"), data = document.createElement("dd");
    term.textContent = name;
    data.textContent = number(value);
    pair.append(term, data);
    return pair;
  }));
}

// A queue of another virtual host than / with its name.
function shown(item) {
  return item.vhost === "/" ? item.name : `${item.vhost}/${item.name}`;
}

function showQueues(found, now) {
  pages = found.page_count;
  at("place").textContent = `page ${found.page} of ${pages}, ${number(found.filtered_count)} queues`;
  at("previous").disabled = page <= 1;
  at("next").disabled = page >= pages;
  rows("queues", found.items, item => [...COLUMNS.map(([name]) => {
    if (name === "name") return cell(shown(item), "name");
    const stats = item.message_stats || {};
    return cell(number(name in stats ? rate(`${shown(item)} ${name}`, stats[name], now) : item[name] || 0), "number");
  }), item.messages_ready ? action("Purge", `Throw away the ${number(item.messages_ready)} ready messages of ${shown(item)}?`,
    () => ask(`queues/${encodeURIComponent(item.vhost)}/${encodeURIComponent(item.name)}/contents`, "DELETE")) : cell("")]);
}

// Tools and brokers, and this page's own requests, are no clients.
function showConnections(found) {
  rows("connections", found.filter(item => (item.client_properties || {}).product !== "qpidd-py"), item => {
    const end = may("administrator") || item.user === me.name ? action("Close", `Close the connection ${item.name} of ${item.user}?`,
      () => ask(`connections/${encodeURIComponent(item.name)}`, "DELETE")) : cell("");
    const { connection_name: called, product } = item.client_properties || {};
    return [cell(item.name, "name"), cell(called || product || "", "name"), cell(item.user), cell(item.state),
      cell(item.channels, "number"), end];
  });
}

function fail(error) {
  warn("error", error.status ? error.message : "qpid-http does not answer. The page goes on asking.");
}

async function look() {
  clearTimeout(timer);
  const mine = ++round, stale = () => mine !== round || !login;
  try {
    const name = at("filter").value, counted = ["publish", "deliver_get"].includes(sort) ? `message_stats.${sort}` : sort;
    const query = new URLSearchParams({ page, page_size: ROWS, sort: counted, sort_reverse: reverse, name });
    const lacking = error => error.status === 401 ? Promise.reject(error) : null;
    const who = me || await ask("whoami");
    if (stale()) return;
    me = who;
    const watched = path => may("monitoring") ? ask(path).catch(lacking) : null;
    const [overview, queues, connections, cluster, events] = await Promise.all([ask("overview"), ask(`queues?${query}`),
      ask(`connections?page=1&page_size=${ROWS}`), watched("ha/query"), watched(timeline.query)]);
    if (stale()) return;
    const now = performance.now();
    if (before.size > 10000) before = new Map();  // of queues that are not shown any more
    at("main").hidden = at("logout").hidden = false;
    at("login").hidden = true;
    at("title").textContent = overview.cluster_name || overview.node || "qpidd";
    if (!cluster) at("state").textContent = may("monitoring") ? "a single broker" : "";
    showCluster(cluster);
    showTimeline(cluster, events);
    showTotals(overview, now);
    showQueues(queues, now);
    showConnections(connections.items);
    warn("error", "");
  } catch (error) {
    if (stale()) return;
    if (error.status === 401) return leave("Wrong user or password, or no right to look.");
    if (error.status === 400 && page > 1) page = 1;  // queues have gone
    else fail(error);
  }
  if (login && !document.hidden) timer = setTimeout(look, EVERY);
}

function leave(text) {
  login = "";
  me = null;
  clearTimeout(timer);
  before = new Map();
  timeline = new Timeline();
  at("main").hidden = at("logout").hidden = true;
  at("login").hidden = false;
  at("state").textContent = "";
  at("password").value = "";
  warn("error", text);
}

function turn(by) {
  page = Math.min(Math.max(1, page + by), pages);
  look();
}

at("login").onsubmit = event => {
  event.preventDefault();
  const octets = new TextEncoder().encode(`${at("user").value}:${at("password").value}`);
  login = "Basic " + btoa(String.fromCharCode(...octets));
  at("state").textContent = "Loading…";  // the first list of many queues takes a while
  look();
};
document.onvisibilitychange = () => document.hidden || !login || look();
at("logout").onclick = () => leave("");
at("span").onchange = () => look();
at("filter").oninput = () => { page = 1; look(); };
at("previous").onclick = () => turn(-1);
at("next").onclick = () => turn(1);
at("columns").append(...COLUMNS.map(([name, title]) => {
  const head = document.createElement("th"), button = document.createElement("button");
  head.className = name === "name" ? "" : "number";
  button.type = "button";
  button.textContent = title;
  button.onclick = () => { reverse = sort === name ? !reverse : name !== "name"; sort = name; page = 1; look(); };
  head.append(button);
  return head;
}), document.createElement("th"));
