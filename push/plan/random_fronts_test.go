//go:build !race

package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// mergeRow is a row of the merge table of gateways.md (1.3): two servers that are alone at a port, the older one first,
// and how many filter chains they have. If the younger one is lost, it is a problem.
type mergeRow struct {
	name           string
	older, younger string
	chains         int
	lost           bool
}

var mergeRows = []mergeRow{
	{"HTTP, HTTP: merged", "HTTP a.test", "HTTP2 b.test", 1, false},
	{"HTTP, TCP: younger lost", "HTTP a.test", "TCP *", 1, true},
	{"TCP, HTTP: younger lost", "TCP *", "GRPC a.test", 1, true},
	{"TCP, TCP: younger lost", "TCP *", "TCP *", 1, true},
	{"HTTPS, HTTPS, other hosts: both", "HTTPS+SIMPLE a.test", "HTTPS+MUTUAL b.test", 2, false},
	{"HTTPS, HTTPS, same host: younger lost", "HTTPS+SIMPLE a.test", "HTTPS+SIMPLE a.test", 1, true},
	{"HTTPS of a wildcard, PASSTHROUGH below: both", "HTTPS+SIMPLE *.test", "TLS+PASSTHROUGH x.www.test", 2, false},
	{"HTTPS, HTTP: both", "HTTPS+ISTIO_MUTUAL a.test", "HTTP a.test", 2, false},
	{"HTTP, HTTPS: younger lost", "HTTP a.test", "HTTPS+SIMPLE b.test", 1, true},
}

// firstPair is the port of the first pair of servers in a fronted mesh.
const firstPair = 7000

// frontGateway is a Gateway of a fronted mesh.
type frontGateway struct {
	name    string // namespace/name
	created int64
	servers []string
}

func (f *frontGateway) record(t testing.TB) model.Record {
	text := "{selector: {app: gw}, servers: [" + strings.Join(f.servers, ", ") + "]}"
	return rec(t, model.KindGateway, fmt.Sprintf("%s@%d", f.name, f.created), text)
}

// frontPair is a row at a port: the younger server is the last one of its Gateway so far.
type frontPair struct {
	mergeRow
	port  int
	key   model.Key // the younger server's
	index int
}

// frontedMesh is a random mesh with nine Gateways of three namespaces, whose servers collide, for one gateway.
type frontedMesh struct {
	*mesh
	fronts []*frontGateway // in order of precedence
	pairs  []frontPair
	nodes  []view.Node // the first is the gateway that all Gateways select
}

func newFrontedMesh(t testing.TB, seed uint64) *frontedMesh {
	m := &frontedMesh{mesh: newMesh(t, seed)}
	m.protocols = rand.New(rand.NewPCG(seed, 23))
	pick := func(from ...string) string { return from[m.entrances.IntN(len(from))] }
	for i := range 40 {
		m.edit()
		m.entrance()
		if i%4 == 0 {
			m.token()
			m.telemetry()
			m.extensions()
		}
	}
	for _, namespace := range namespaces {
		for _, name := range []string{"g0", "g1", "g2"} {
			m.fronts = append(m.fronts, &frontGateway{name: namespace + "/" + name, created: int64(1 + m.entrances.IntN(4))})
		}
	}
	slices.SortFunc(m.fronts, func(a, b *frontGateway) int { // by age, then by name before namespace
		of, name, _ := strings.Cut(a.name, "/")
		ofB, nameB, _ := strings.Cut(b.name, "/")
		return strings.Compare(fmt.Sprint(a.created, name, of), fmt.Sprint(b.created, nameB, ofB))
	})
	for range 24 {
		f := m.fronts[m.entrances.IntN(len(m.fronts))]
		f.servers = append(f.servers, m.withProtocols(m.server(pick, len(f.servers))))
	}
	m.addPairs()
	for _, f := range m.fronts {
		if len(f.servers) == 0 {
			f.servers = append(f.servers, m.server(pick, 0))
		}
		r := f.record(t)
		m.records[r.Meta().Key] = r
	}
	m.addRouters()
	return m
}

// addPairs adds four pairs of each row, each at a port of its own, and a VirtualService that all Gateways serve.
func (m *frontedMesh) addPairs() {
	add := func(i, port int, server string) *frontGateway {
		f := m.fronts[i]
		f.servers = append(f.servers, serverText(len(f.servers), port, server))
		return f
	}
	for i, row := range slices.Repeat(mergeRows, 4) {
		port := firstPair + i
		first := m.entrances.IntN(len(m.fronts) - 1)
		add(first, port, row.older)
		f := add(first+1+m.entrances.IntN(len(m.fronts)-first-1), port, row.younger)
		namespace, name, _ := strings.Cut(f.name, "/")
		key := model.Key{Kind: model.KindGateway, Namespace: namespace, Name: name}
		m.pairs = append(m.pairs, frontPair{row, port, key, len(f.servers) - 1})
	}
	var bound []string
	for _, f := range m.fronts {
		bound = append(bound, f.name)
	}
	const to = "route: [{destination: {host: s0.a.svc.cluster.local, port: {number: 80}}}]"
	all := rec(m.t, model.KindVirtualService, "a/all@1", fmt.Sprintf("{hosts: ['*'], gateways: [%s], exportTo: ['*'], "+
		"http: [{%s}], tcp: [{%s}], tls: [{match: [{sniHosts: [x.www.test]}], %s}]}", strings.Join(bound, ", "), to, to, to))
	m.records[all.Meta().Key] = all
}

// addRouters adds the gateways, and a Service that leads port 80 of the first to its port 9000, in half of the meshes.
func (m *frontedMesh) addRouters() {
	s0 := svc(m.t, "a/s0", "10.96.0.1", "http:80:HTTP")
	m.records[s0.Meta().Key] = s0
	gw := nodes()[6:9]
	gw[0].Name, gw[0].Addresses, gw[0].Labels = "gw-main", []string{"10.1.0.3"}, map[string]string{"app": "gw"}
	gw[0].Caps |= xds.CapIdentity
	m.nodes = gw
	if m.translates() {
		own := []model.Record{rec(m.t, model.KindService, "a/gw", "{hosts: [gw.a.svc.cluster.local], exportTo: ['*'], selector: {app: gw}, "+
			"addresses: [10.96.0.9], ports: [{name: http, number: 80, protocol: PROTOCOL_TCP, targetNumber: 9000}]}"),
			rec(m.t, model.KindEndpoints, "a/gw-1", "{hosts: [gw.a.svc.cluster.local], ports: [{name: http, number: 9000, service: 80}], "+
				"endpoints: [{address: 10.1.0.3, health: HEALTH_READY}]}")}
		for _, r := range own {
			m.records[r.Meta().Key] = r
		}
	}
}

func (m *frontedMesh) translates() bool { return len(m.fronts[0].servers)%2 == 0 }

// serverText returns a server of a Gateway from "PROTOCOL[+MODE] HOST".
func serverText(i, port int, server string) string {
	protocol, host, _ := strings.Cut(server, " ")
	protocol, mode, secure := strings.Cut(protocol, "+")
	tls := ""
	switch {
	case mode == "SIMPLE", mode == "MUTUAL":
		tls = ", tls: {credentialName: cert, mode: " + mode + "}"
	case secure:
		tls = ", tls: {mode: " + mode + "}"
	}
	return fmt.Sprintf("{port: {number: %d, name: p%d, protocol: %s}, hosts: ['%s']%s}", port, i, protocol, host, tls)
}

// counted counts the random servers, those of them whose port and bind are those of an older one, and the pairs of
// addPairs, by row, whose outcome in the plan is that of the row.
func (m *frontedMesh) counted(t *testing.T, p *Planner, set *manifest.Set, seen map[string]int) {
	t.Helper()
	taken := map[string]bool{}
	for _, f := range m.fronts {
		for _, s := range f.record(t).(*model.Gateway).Spec.GetServers() {
			port := s.GetPort().GetNumber()
			if firstPair <= port && port < firstPair+uint32(len(m.pairs)) {
				continue
			}
			if m.translates() && port == 80 {
				port = 9000
			}
			at := fmt.Sprint(port, " ", s.GetBind())
			if seen["servers"]++; taken[at] {
				seen["collide"]++
			}
			taken[at] = true
		}
	}
	problems := p.Problems()
	for _, pair := range m.pairs {
		lost := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Key == pair.key && strings.HasPrefix(p.Field, fmt.Sprintf("spec.servers[%d]", pair.index)) &&
				strings.HasSuffix(p.Message, "this server is not served, and that Gateway is unchanged")
		})
		name := xds.ListenerName("0.0.0.0", uint32(pair.port))
		chains := 0
		if set.Types[xds.Listener].Get(name) != nil {
			chains = len(listenerOf(t, set, name).FilterChains)
		}
		if lost != pair.lost || chains != pair.chains {
			of := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Key != pair.key })
			t.Errorf("%s: lost %v, %d chains, want %v, %d\n%v", pair.name, lost, chains, pair.lost, pair.chains, of)
			continue
		}
		seen[pair.name]++
	}
}
