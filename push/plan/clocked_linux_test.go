package plan

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// clocked measures the steps of a plan by the processor time of their thread, which does not depend on other processes.
// A long step is named by the functions in which it begins and ends.
type clocked struct {
	phase   string
	from    []uintptr // the stack at which the last step ended
	began   time.Duration
	longest map[string]time.Duration
}

// noted is the duration from which a step is named.
const noted = 3 * time.Millisecond

func processorTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// over ends a step; it always returns true, so that each turn has one step.
func (c *clocked) over() bool {
	took := processorTime() - c.began
	here := make([]uintptr, 40)
	here = here[:runtime.Callers(2, here)]
	if took >= noted {
		name := c.phase + ": " + callers(c.from) + " to " + callers(here)
		c.longest[name] = max(c.longest[name], took)
	}
	c.from, c.began = here, processorTime()
	return true
}

// callers returns the names of the innermost functions of the plan on a stack.
func callers(stack []uintptr) string {
	var names []string
	for frames, more := runtime.CallersFrames(stack), true; more && len(names) < 4; {
		var f runtime.Frame
		f, more = frames.Next()
		name := f.Function[strings.LastIndex(f.Function, "/")+1:]
		passes := strings.Contains(name, "clocked") || strings.HasSuffix(name, ".pause") || strings.HasSuffix(name, ".yield")
		if strings.Contains(f.Function, "/push/plan") && !passes {
			names = append(names, fmt.Sprintf("%s:%d", name, f.Line))
		}
	}
	return strings.Join(names, " < ")
}

// change plans a change, and join plans a joining proxy.
func (c *clocked) change(phase string, p *Planner, ch mirror.Change) {
	c.phase, c.began = phase, processorTime()
	p.Begin(ch)
	for c.over(); p.Step(c.over); {
	}
	c.over()
	p.End()
	c.over()
}

func (c *clocked) join(phase string, p *Planner, namespace string, labels ...string) {
	c.phase, c.began = phase, processorTime()
	j := p.BeginJoin(node(namespace, "a", append(labels, "app=attack")...))
	for j.Step(c.over) {
	}
	c.over()
	j.End()
	c.over()
}

// readersOfLabels are rules of a tenant, ns0, for its own n services, whose results depend on the clients' labels.
var readersOfLabels = map[string]func(t testing.TB, n int) []model.Record{
	"failover by labels": func(t testing.TB, n int) (all []model.Record) {
		for i := range n {
			all = append(all, svc(t, fmt.Sprintf("ns0/w%d", i), fmt.Sprintf("10.207.%d.%d", i/250, i%250+1), "http:80:HTTP"),
				rec(t, model.KindEndpoints, fmt.Sprintf("ns0/w%d-1", i), fmt.Sprintf("hosts: [w%d.ns0.svc.cluster.local]\n"+
					"ports: [{name: http, number: 8080}]\nendpoints: [{address: 10.208.%d.%d, namespace: ns0, health: HEALTH_READY}]", i, i/250, i%250+1)),
				rec(t, model.KindDestinationRule, fmt.Sprintf("ns0/w%d", i), fmt.Sprintf("host: w%d.ns0.svc.cluster.local\n"+
					"trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}, loadBalancer: {localityLbSetting: {failoverPriority: [role]}}}", i)))
		}
		return all
	},
	"routes by labels": func(t testing.TB, n int) (all []model.Record) {
		for i := range n {
			h, matches := fmt.Sprintf("w%d.ns0.svc.cluster.local", i), strings.Builder{}
			for k := range 50 {
				fmt.Fprintf(&matches, "{sourceLabels: {role: v%d}}, ", k)
			}
			all = append(all, svc(t, fmt.Sprintf("ns0/w%d", i), fmt.Sprintf("10.207.%d.%d", i/250, i%250+1), "http:80:HTTP"),
				rec(t, model.KindVirtualService, fmt.Sprintf("ns0/w%d", i),
					fmt.Sprintf("hosts: [%s]\nhttp: [{match: [%s], route: [{destination: {host: %s}}]}]", h, &matches, h)))
		}
		return all
	},
}

// BenchmarkAttackByLabels plans rules that read the labels of clients: the change beside 50 clients, and the joins of
// 50 more, all with different labels.
func BenchmarkAttackByLabels(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(readersOfLabels)) {
		for _, n := range []int{100, 300, 1000} {
			b.Run(fmt.Sprintf("%s/n=%d", strings.ReplaceAll(name, " ", "_"), n), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				base := bigMesh(b, 500)
				came := base.Apply(2, readersOfLabels[name](b, n), nil)
				c := &clocked{longest: map[string]time.Duration{}}
				b.ReportAllocs()
				for b.Loop() {
					p := New(Settings{Pool: &pool.Pool{}, Snapshot: base})
					for i := range 50 {
						p.Join(node("ns1", fmt.Sprint("p", i), fmt.Sprintf("role=v%d", i)))
					}
					c.change("change", p, came)
					for i := range 50 {
						c.join("join", p, "ns1", fmt.Sprintf("role=v%d", 25+i))
					}
				}
				c.report(b)
			})
		}
	}
}

// report logs the longest steps by name, and reports the longest one as longest-ms.
func (c *clocked) report(b *testing.B) {
	names := slices.SortedFunc(maps.Keys(c.longest), func(x, y string) int { return int(c.longest[y] - c.longest[x]) })
	longest := time.Duration(0)
	for i, name := range names[:min(5, len(names))] {
		if i == 0 {
			longest = c.longest[name]
		}
		b.Logf("%v %s", c.longest[name].Round(time.Millisecond/10), name)
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}

// BenchmarkAttack plans the attacks of a tenant in a mesh of 500 services: the change for a proxy of another namespace,
// then a join of the tenant's own proxy, an edit of one record, and the deletion of all. It reports the longest step as
// longest-ms, and logs long steps by name.
func BenchmarkAttack(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		for _, n := range []int{25, 100, 250, 500} {
			b.Run(fmt.Sprintf("%s/n=%d", strings.ReplaceAll(name, " ", "_"), n), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				base, records, less := bigMesh(b, 500), attacks[name](b, n), attacks[name](b, n-1)
				var keys []model.Key
				for _, r := range records {
					keys = append(keys, r.Meta().Key)
				}
				came := base.Apply(2, records, nil)
				edited := came.New.Apply(3, less[:1], nil)
				gone := edited.New.Apply(4, nil, keys)
				c := &clocked{longest: map[string]time.Duration{}}
				b.ReportAllocs()
				for b.Loop() {
					p := New(Settings{Pool: &pool.Pool{}, Snapshot: base})
					p.Join(node("ns1", "a"))
					c.change("change", p, came)
					c.join("join", p, "ns0")
					c.change("edit", p, edited)
					c.change("deletion", p, gone)
				}
				c.report(b)
			})
		}
	}
}
