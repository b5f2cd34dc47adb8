package mesh

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"navarch.io/navarch/push/xds"
)

// GatewayLabel is the label that selects the gateway of the mesh: istio: GatewayLabel.
const GatewayLabel = "ingressgateway"

const (
	frontName = "front"       // of the Gateways that the routes are bound to
	frontHost = "example.com" // suffix of their hosts
	httpsPort = 443
)

// Port returns the port of the HTTP server of the routes.
func (s Settings) Port() int { return cmp.Or(s.FrontPort, httpPort) }

const missingPrefix = "missing-"

// Missing reports whether a cluster is one of the destinations of routes that do not exist on purpose.
func Missing(cluster string) bool { return strings.Contains(cluster, "|"+missingPrefix) }

// route is the k-th route of the gateway: a VirtualService of one host in a namespace.
type route struct {
	index    int
	listener int // index of its HTTPS server; -1: plain HTTP
	space    *namespace
	service  *service
}

// route returns the k-th route. Those from Settings.Routes on are not in the folder that Write makes.
func (w *Mesh) route(k int) route {
	r := route{index: k, listener: -1, space: w.spaces[k%len(w.spaces)], service: w.services[k%len(w.services)]}
	if n := w.Settings.Listeners; n > 0 {
		r.listener = k % n
		r.space = w.spaces[r.listener%len(w.spaces)]
	}
	return r
}

func (r route) name() string { return fmt.Sprintf("route-%05d", r.index) }

// host returns the only host of the route.
func (r route) host() string {
	if r.listener >= 0 {
		return r.name() + "." + listenerHost(r.listener)
	}
	return r.name() + "." + frontHost
}

func listenerHost(i int) string { return fmt.Sprintf("l-%04d.%s", i, frontHost) }

// routedBy returns the Gateway of the route, namespace/name, and the name of the route configuration.
func (w *Mesh) routedBy(r route) (gateway, configuration string) {
	if r.listener >= 0 {
		return r.space.name + "/" + frontName, fmt.Sprintf("https.%d.https-%04d.%s.%s", httpsPort, r.listener, frontName, r.space.name)
	}
	return w.spaces[0].name + "/" + frontName, fmt.Sprintf("http.%d", w.Settings.Port())
}

// marker identifies an edition of the route in the bytes that proxies receive.
func (r route) marker(edition int) string { return fmt.Sprintf("%s-edition-%d.", r.name(), edition) }

// routeFile returns the file of a route with two rules and operations on headers. The destination of the second rule
// does not exist. direct replaces the destinations by an answer of the gateway itself.
func (w *Mesh) routeFile(r route, edition int, direct bool) file {
	gateway, _ := w.routedBy(r)
	var b bytes.Buffer
	head(&b, networking, "VirtualService", r.space.name, r.name())
	fmt.Fprintf(&b, "spec:\n  hosts: [%s]\n  gateways: [%s]\n  http:\n", r.host(), gateway)
	for i, host := range []string{r.service.host(), missingPrefix + r.name() + "." + r.space.name + ".svc." + domain} {
		fmt.Fprintf(&b, "  - name: %s%d\n", r.marker(edition), i)
		if i == 0 {
			b.WriteString("    match: [{uri: {prefix: /api}, headers: {x-tenant: {exact: a}}}]\n")
		}
		fmt.Fprintf(&b, "    headers:\n      request: {set: {x-route: %s}, remove: [x-internal]}\n"+
			"      response: {add: {x-edition: \"%d\"}}\n", r.name(), edition)
		if direct {
			b.WriteString("    directResponse: {status: 200}\n")
		} else {
			fmt.Fprintf(&b, "    route: [{destination: {host: %s, port: {number: %d}}}]\n", host, httpPort)
		}
	}
	return file{fmt.Sprintf("routes/%s/%s.yaml", r.space.name, r.name()), b.Bytes()}
}

// fronts returns the files of the Gateways that routes are bound to: one HTTP server for all hosts, or in each
// namespace its part of the HTTPS servers.
func (w *Mesh) fronts() (all []file) {
	if w.Settings.Routes == 0 {
		return nil
	}
	for i, space := range w.spaces {
		var b bytes.Buffer
		head(&b, networking, "Gateway", space.name, frontName)
		fmt.Fprintf(&b, "spec:\n  selector: {istio: %s}\n  servers:\n", GatewayLabel)
		if w.Settings.Listeners == 0 {
			fmt.Fprintf(&b, "  - {port: {number: %d, name: http, protocol: HTTP}, hosts: [\"*\"]}\n", w.Settings.Port())
			return []file{{"gateways/" + frontName + ".yaml", b.Bytes()}}
		}
		for k := i; k < w.Settings.Listeners; k += len(w.spaces) {
			fmt.Fprintf(&b, "  - {port: {number: %d, name: https-%04d, protocol: HTTPS}, hosts: [\"*.%s\"],\n"+
				"     tls: {mode: SIMPLE, credentialName: cert-%04[2]d}}\n", httpsPort, k, listenerHost(k))
		}
		all = append(all, file{"gateways/" + frontName + "." + space.name + ".yaml", b.Bytes()})
	}
	return all
}

// Route writes the next edition of the k-th route of the gateway, or creates it.
func (c *Churn) Route(k int) Edit { return c.route(k, false) }

// Answer creates the k-th route of the gateway, which answers 200 itself, and returns its host.
func (c *Churn) Answer(k int) (e Edit, host string) { return c.route(k, true), c.mesh.route(k).host() }

func (c *Churn) route(k int, direct bool) Edit {
	if c.routes == nil {
		c.routes = map[int]int{}
	}
	c.routes[k]++
	r := c.mesh.route(k)
	_, configuration := c.mesh.routedBy(r)
	return Edit{What: "route of " + r.host(), put: c.put, files: []file{c.mesh.routeFile(r, c.routes[k], direct)},
		Record: "VirtualService/" + r.space.name + "/" + r.name(),
		Expect: []Expect{{Type: xds.Route, Names: []string{configuration}, Marker: r.marker(c.routes[k])}}}
}

// Routes creates the routes of the gateway from index `from` up to `to` in one edit. Only the last one is expected.
func (c *Churn) Routes(from, to int) Edit {
	var e Edit
	var files []file
	for k := from; k < to; k++ {
		e = c.Route(k)
		files = append(files, e.files...)
	}
	e.What, e.files = fmt.Sprintf("%d routes", to-from), files
	return e
}
