package mesh

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
)

// state is the part of one service that edits change.
type state struct {
	pods    []pod
	unready map[int]bool // by index of the Pod
	edition int          // edition of its VirtualService; 0: as generated, or no VirtualService
	policy  int          // edition of its AuthorizationPolicy; 0: as generated, or no policy
	port    int          // number added to 8080, the HTTP port of its Pods
	tuned   int          // edition of its DestinationRule
}

func (s *service) pristine() state { return state{pods: s.pods} }

// file is one file of the folder.
type file struct {
	path string // relative, with slashes
	data []byte
}

// Files yields all files of the mesh: path, relative with slashes, and content. A service is in one or two files, and
// every other object in a file of its own, so that an edit changes one file.
func (w *Mesh) Files() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		give := func(f file) bool { return yield(f.path, f.data) }
		for _, f := range w.mesh() {
			if !give(f) {
				return
			}
		}
		for _, s := range w.services {
			for _, f := range w.files(s) {
				if !give(f) {
					return
				}
			}
		}
	}
}

// files returns the generated files of one service.
func (w *Mesh) files(s *service) []file {
	st := s.pristine()
	var all []file
	if w.Settings.Form == Istio {
		all = append(all, s.entry(st))
	} else {
		all = append(all, s.podsFile(st), s.slice(st))
	}
	if s.virtual {
		all = append(all, s.virtualService(st))
	}
	if s.rule != noRule {
		all = append(all, s.destinationRule(st))
	}
	if s.policy {
		all = append(all, s.authorization(st))
	}
	return all
}

// mesh returns the files that belong to no service.
func (w *Mesh) mesh() []file {
	all := []file{w.cluster()}
	for _, space := range w.spaces {
		if space.sidecar {
			all = append(all, space.sidecarFile(false))
		}
	}
	for i := range w.Settings.Gateways {
		all = append(all, w.gateway(i))
	}
	all = append(all, w.fronts()...)
	for k := range w.Settings.Routes {
		all = append(all, w.routeFile(w.route(k), 0, false))
	}
	return all
}

// cluster returns the file with namespaces and nodes.
func (w *Mesh) cluster() file {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s, seed %d.\n", w.Settings.Name, w.Settings.Seed)
	for _, space := range w.spaces {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n"+
			"  labels:\n    istio-injection: enabled\n    navarch.io/tenant: %[1]s\n---\n", space.name)
	}
	for i := range w.Settings.Zones {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n"+
			"  labels:\n    topology.kubernetes.io/region: %s\n    topology.kubernetes.io/zone: %s\n---\n",
			nodeName(i), region, zoneName(i))
	}
	return file{"cluster.yaml", b.Bytes()}
}

// head writes the first lines of a namespaced object.
func head(b *bytes.Buffer, apiVersion, kind, namespace, name string) {
	fmt.Fprintf(b, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n  namespace: %s\n", apiVersion, kind, name, namespace)
}

const (
	networking = "networking.istio.io/v1"
	security   = "security.istio.io/v1"
)

// podsFile returns the file with the Service and its Pods.
func (s *service) podsFile(st state) file {
	var b bytes.Buffer
	head(&b, "v1", "Service", s.space.name, s.name)
	fmt.Fprintf(&b, "spec:\n  clusterIP: %s\n  selector:\n    app: %s\n  ports:\n", s.address, s.name)
	fmt.Fprintf(&b, "  - {name: http, port: %d, targetPort: 8080}\n  - {name: tcp, port: %d, targetPort: %[2]d}\n", httpPort, tcpPort)
	for _, p := range st.pods {
		b.WriteString("---\n")
		head(&b, "v1", "Pod", s.space.name, p.name)
		fmt.Fprintf(&b, "  labels:\n    app: %s\n    version: %s\n    security.istio.io/tlsMode: istio\n", s.name, p.version)
		fmt.Fprintf(&b, "  ownerReferences:\n  - {apiVersion: apps/v1, kind: StatefulSet, name: %s, uid: %[1]s, controller: true}\n", s.name)
		fmt.Fprintf(&b, "spec:\n  serviceAccountName: %s\n", s.name)
		if p.node != "" {
			fmt.Fprintf(&b, "  nodeName: %s\n", p.node)
		}
		fmt.Fprintf(&b, "  containers:\n  - {name: app, image: app}\nstatus:\n  phase: Running\n  podIP: %s\n", p.address)
	}
	return file{fmt.Sprintf("services/%s/%s.yaml", s.space.name, s.name), b.Bytes()}
}

// slice returns the file with the service's EndpointSlice.
func (s *service) slice(st state) file {
	var b bytes.Buffer
	head(&b, "discovery.k8s.io/v1", "EndpointSlice", s.space.name, s.name+"-slice")
	fmt.Fprintf(&b, "  labels:\n    kubernetes.io/service-name: %s\naddressType: IPv4\nports:\n", s.name)
	fmt.Fprintf(&b, "- {name: http, port: %d, protocol: TCP}\n- {name: tcp, port: %d, protocol: TCP}\nendpoints:\n", 8080+st.port, tcpPort)
	for i, p := range st.pods {
		fmt.Fprintf(&b, "- addresses: [%s]\n  conditions: {ready: %t}\n", p.address, !st.unready[i])
		if p.node != "" {
			fmt.Fprintf(&b, "  nodeName: %s\n", p.node)
		}
		fmt.Fprintf(&b, "  targetRef: {kind: Pod, namespace: %s, name: %s}\n", s.space.name, p.name)
	}
	return file{fmt.Sprintf("endpoints/%s/%s.yaml", s.space.name, s.name), b.Bytes()}
}

// entry returns the file with the service as a ServiceEntry, for a server that reads only Istio's kinds.
func (s *service) entry(st state) file {
	var b bytes.Buffer
	head(&b, networking, "ServiceEntry", s.space.name, s.name)
	fmt.Fprintf(&b, "spec:\n  hosts: [%s]\n  addresses: [%s]\n"+
		"  location: MESH_INTERNAL\n  resolution: STATIC\n  ports:\n", s.host(), s.address)
	fmt.Fprintf(&b, "  - {name: http, number: %d, protocol: HTTP, targetPort: %d}\n"+
		"  - {name: tcp, number: %d, protocol: TCP}\n  endpoints:\n", httpPort, 8080+st.port, tcpPort)
	for i, p := range st.pods {
		if st.unready[i] {
			continue // a ServiceEntry cannot express readiness
		}
		fmt.Fprintf(&b, "  - address: %s\n    serviceAccount: %s\n"+
			"    labels: {app: %[2]s, version: %s, security.istio.io/tlsMode: istio}\n", p.address, s.name, p.version)
		if p.zone != "" {
			fmt.Fprintf(&b, "    locality: %s/%s\n", region, p.zone)
		}
	}
	return file{fmt.Sprintf("endpoints/%s/%s.yaml", s.space.name, s.name), b.Bytes()}
}

// marker returns the route's name, which identifies the edition in the bytes that proxies receive.
func (s *service) marker(st state) string { return fmt.Sprintf("%s-edition-%d.", s.name, st.edition) }

// virtualService returns the VirtualService's file. One request in ten goes to v2 if the service has subsets; editions
// differ in the timeout.
func (s *service) virtualService(st state) file {
	var b bytes.Buffer
	head(&b, networking, "VirtualService", s.space.name, s.name)
	fmt.Fprintf(&b, "spec:\n  hosts: [%s]\n  http:\n  - name: %s\n    timeout: %dms\n    route:\n", s.host(), s.marker(st), 5000+st.edition)
	if s.rule == noRule {
		fmt.Fprintf(&b, "    - destination: {host: %s, port: {number: %d}}\n", s.host(), httpPort)
	} else {
		for i, weight := range []int{90, 10} {
			fmt.Fprintf(&b, "    - destination: {host: %s, subset: v%d, port: {number: %d}}\n      weight: %d\n", s.host(), i+1, httpPort, weight)
		}
	}
	return file{fmt.Sprintf("virtualservices/%s.%s.yaml", s.name, s.space.name), b.Bytes()}
}

// destinationRule returns the file of the DestinationRule with its subsets; editions differ in a connection limit.
func (s *service) destinationRule(st state) file {
	var b bytes.Buffer
	head(&b, networking, "DestinationRule", s.space.name, s.name)
	fmt.Fprintf(&b, "spec:\n  host: %s\n  trafficPolicy:\n"+
		"    connectionPool: {tcp: {maxConnections: %d}}\n    outlierDetection: {consecutive5xxErrors: 5}\n", s.host(), 100+st.tuned)
	switch s.rule {
	case distribute:
		fmt.Fprintf(&b, "    loadBalancer:\n      localityLbSetting:\n        distribute:\n"+
			"        - from: %s/%s/*\n          to: {\"%[1]s/%[2]s/*\": 80, \"%[1]s/%[3]s/*\": 20}\n",
			region, zoneName(0), zoneName(1))
	case failover:
		b.WriteString("    loadBalancer:\n      localityLbSetting:\n" +
			"        failoverPriority: [topology.kubernetes.io/region, topology.kubernetes.io/zone]\n")
	case noRule, subsets: // no locality settings
	}
	b.WriteString("  subsets:\n  - {name: v1, labels: {version: v1}}\n  - {name: v2, labels: {version: v2}}\n")
	return file{fmt.Sprintf("destinationrules/%s.%s.yaml", s.name, s.space.name), b.Bytes()}
}

// authorization returns the file of an AuthorizationPolicy for callers of the own namespace; editions differ in the
// allowed path.
func (s *service) authorization(st state) file {
	var b bytes.Buffer
	head(&b, security, "AuthorizationPolicy", s.space.name, s.name)
	fmt.Fprintf(&b, "spec:\n  selector:\n    matchLabels: {app: %s}\n  action: ALLOW\n  rules:\n", s.name)
	fmt.Fprintf(&b, "  - from:\n    - source: {namespaces: [%s]}\n"+
		"    to:\n    - operation: {paths: [\"/edition-%d/*\", \"/api/*\"]}\n", s.space.name, st.policy)
	return file{fmt.Sprintf("policies/%s.%s.yaml", s.name, s.space.name), b.Bytes()}
}

// sidecarFile returns the Sidecar of a namespace. A narrowed Sidecar shows the own namespace only.
func (n *namespace) sidecarFile(narrowed bool) file {
	var b bytes.Buffer
	head(&b, networking, "Sidecar", n.name, "default")
	hosts := []string{`"./*"`}
	for _, other := range n.sees {
		if !narrowed {
			hosts = append(hosts, `"`+other.name+`/*"`)
		}
	}
	fmt.Fprintf(&b, "spec:\n  egress:\n  - hosts: [%s]\n", strings.Join(hosts, ", "))
	return file{"sidecars/" + n.name + ".yaml", b.Bytes()}
}

// gateway returns the file of a Gateway and its VirtualService.
func (w *Mesh) gateway(i int) file {
	s := w.services[i%len(w.services)]
	name := fmt.Sprintf("gw-%03d", i)
	var b bytes.Buffer
	head(&b, networking, "Gateway", s.space.name, name)
	fmt.Fprintf(&b, "spec:\n  selector: {istio: ingressgateway}\n  servers:\n"+
		"  - port: {number: %d, name: http, protocol: HTTP}\n    hosts: [%s.example.com]\n---\n", httpPort, name)
	head(&b, networking, "VirtualService", s.space.name, name)
	fmt.Fprintf(&b, "spec:\n  hosts: [%s.example.com]\n  gateways: [%[1]s]\n"+
		"  http:\n  - route:\n    - destination: {host: %s, port: {number: %d}}\n", name, s.host(), httpPort)
	return file{"gateways/" + name + ".yaml", b.Bytes()}
}
