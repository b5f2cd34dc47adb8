//go:build !race

package plan

import (
	"fmt"
	"testing"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// inputRules returns n rules that read inputs of proxies: locality, labels (of the workloads that a DestinationRule
// selects), telemetry, permitted callers. They apply to services 10 to 249, whatever the number of services.
func inputRules(t testing.TB, n int) (all []model.Record) {
	for i := range n {
		k := 10 + i%240
		ns, app := fmt.Sprintf("ns%d", k/10), fmt.Sprintf("a%d", i%5)
		name := fmt.Sprintf("%s/reads%d", ns, i)
		switch i % 4 {
		case 0:
			all = append(all, rec(t, model.KindDestinationRule, name, fmt.Sprintf(`host: s%d.%s.svc.cluster.local
trafficPolicy:
  outlierDetection: {consecutive5xxErrors: 5}
  loadBalancer: {localityLbSetting: {distribute: [{from: region/zone0/*, to: {region/zone0/*: 80, region/zone1/*: 20}}]}}
`, k, ns)))
		case 1:
			all = append(all, rec(t, model.KindDestinationRule, name, fmt.Sprintf(
				"host: s%d.%s.svc.cluster.local\nworkloadSelector: {matchLabels: {app: %s}}\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}", k, ns, app)))
		case 2:
			all = append(all, rec(t, model.KindTelemetry, name, "selector: {matchLabels: {app: "+app+"}}\naccessLogging: [{providers: [{name: envoy}]}]"))
		case 3:
			all = append(all, rec(t, model.KindAuthorizationPolicy, name, "selector: {app: "+app+"}"))
		}
	}
	return all
}

// inputPlanner plans services, rules that read inputs of proxies, and thirty proxies of ten namespaces, three zones and
// five applications.
func inputPlanner(t testing.TB, services, rules int) (*Planner, *pool.Pool) {
	shared := &pool.Pool{}
	s := bigMesh(t, services)
	p := New(Settings{Pool: shared, Snapshot: s.Apply(s.Revision()+1, inputRules(t, rules), nil).New})
	for i := range 30 {
		n := node(fmt.Sprintf("ns%d", i%10), fmt.Sprintf("p%d", i), fmt.Sprintf("app=a%d", i%5))
		n.Locality = fmt.Sprintf("region/zone%d", i/10)
		p.Join(n)
	}
	return p, shared
}

// inputEdits return an edit of service k, by name.
var inputEdits = map[string]func(t testing.TB, k, round int) model.Record{
	"endpoint": func(t testing.TB, k, round int) model.Record {
		return readyEndpoints(t, fmt.Sprintf("ns%d", k/10), fmt.Sprintf("s%d", k), 2+round%2)
	},
	"virtualservice": func(t testing.TB, k, round int) model.Record {
		return vsOf(t, fmt.Sprintf("ns%d/s%d", k/10, k), fmt.Sprintf("s%d.ns%d.svc.cluster.local", k, k/10), fmt.Sprintf("s%d.ns0.svc.cluster.local", 4+round%2), "")
	},
	"rule": func(t testing.TB, k, round int) model.Record {
		return rec(t, model.KindDestinationRule, fmt.Sprintf("ns%d/s%d", k/10, k),
			fmt.Sprintf("host: s%d.ns%d.svc.cluster.local\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}", k, k/10, round+1))
	},
	"telemetry": func(t testing.TB, k, round int) model.Record {
		return rec(t, model.KindTelemetry, fmt.Sprintf("ns%d/edited", k/10), fmt.Sprintf("accessLogging: [{providers: [{name: envoy}], filter: {expression: response.code >= %d}}]", 400+round%2))
	},
}

// An edit plans and builds only what it changes, whatever the number of services and of rules that read inputs.
// Listeners are built once for each set of reported telemetry: once if no Telemetry selects proxies, five times if
// Telemetries select the five applications. The steps counted are those of the ten scopes and thirty variants; steps in
// which a Telemetry makes a copy of a scope are not counted.
func TestInputsCostWhatAnEditTouches(t *testing.T) {
	for _, services := range []int{250, 500} {
		for rules, reports := range map[int]int64{1: 1, 500: 5} {
			more := map[int]int{500: 15}[rules] // virtual hosts that the five applications have apart, in three zones
			p, shared := inputPlanner(t, services, rules)
			apply := func(name string, round int) (moved int) {
				return len(p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{inputEdits[name](t, 3, round)}, nil)))
			}
			for _, c := range []struct {
				edit    string
				want    work
				move    int
				planned int
			}{
				{"endpoint", work{endpoints: 4}, 30, 40},
				{"virtualservice", work{routes: 10, hosts: 2}, 30, 110 + more},
				{"rule", work{clusters: 2, listeners: reports}, 30, 140 + more},
				// The listeners of one namespace: one for each service's TCP port, one for HTTP, and the two virtual listeners.
				{"telemetry", work{listeners: int64(services) + 3}, 3, 0},
			} {
				apply(c.edit, 0)
				moved := 0
				planned := 0
				for _, s := range p.scopes {
					s.pause = func() { planned++ }
				}
				if got := measure(shared, func() { moved = apply(c.edit, 1) }); got != c.want || moved != c.move || planned != c.planned {
					t.Errorf("%s with %d services and %d rules: built %+v, moved %d and planned %d pieces, want %+v, %d and %d", c.edit, services, rules, got, moved, planned, c.want, c.move, c.planned)
				}
			}
		}
	}
}

// BenchmarkInputs is BenchmarkEdit with rules that read inputs of proxies, and thirty proxies of three zones.
func BenchmarkInputs(b *testing.B) {
	for _, rules := range []int{1, 100, 1000} {
		for _, services := range []int{500, 1000, 4000} {
			for name, edit := range inputEdits {
				b.Run(fmt.Sprintf("%s/rules=%d/services=%d", name, rules, services), func(b *testing.B) {
					p, _ := inputPlanner(b, services, rules)
					var changes []mirror.Change
					s := p.Snapshot()
					for i := range b.N {
						c := s.Apply(s.Revision()+1, []model.Record{edit(b, i%10, i/10)}, nil)
						changes, s = append(changes, c), c.New
					}
					b.ResetTimer()
					for _, c := range changes {
						p.Apply(c)
					}
				})
			}
		}
	}
}
