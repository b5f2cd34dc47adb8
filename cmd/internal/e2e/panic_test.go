package e2e

import (
	"fmt"
	"testing"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/problem"
)

// poisoned returns a DestinationRule on which the planner of the build "novelty" panics.
func poisoned(subset string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: bad, namespace: town}
spec: {host: s003, subsets: [{name: %s, labels: {version: v1}}]}
`, subset)
}

// An object that makes the plan panic is named and left out, without other effects. Objects written with it and after
// it reach all proxies, no stream ends, proxies that join later are served, and so is a restarted process. After a
// correction the object applies.
func TestObjectThatPanics(t *testing.T) {
	parallel(t)
	const n = 10
	dir := townFolder(t, n)
	program := noveltyBinary(t)
	data := [2]string{t.TempDir(), t.TempDir()}
	d := startProgram(t, program, nil, "--config-dir", dir, "--data-dir", data[0])
	eventually(t, patience, whole(t, d, n, 1))
	f := builtIn(t, d, data[0]).fleet(12, sim.Config{}, d)
	words := []string{"DestinationRule town/bad", "panics"}
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)+poisoned("poison")) })
	d.hasProblem(t, words...)
	reaches(t, f, 3, func() { write(t, dir, "town.yaml", town(0, n, 3)+poisoned("poison")) })
	d.hasProblem(t, words...)
	undisturbed(t, f)

	again := startProgram(t, program, nil, "--config-dir", dir, "--data-dir", data[1])
	eventually(t, patience, whole(t, again, n, 3))
	late := builtIn(t, again, data[1]).fleet(4, sim.Config{}, again)

	fine := sim.Change{Type: xds.Cluster, Name: "outbound|80|fine|s003.town.svc.cluster.local", New: true}
	probes := []*sim.Probe{f.Watch(fine), late.Watch(fine)}
	write(t, dir, "town.yaml", town(0, n, 3)+poisoned("fine"))
	for i, fleet := range []*sim.Fleet{f, late} {
		acknowledged(t, probes[i])
		quiet(t, fleet) // further effects of the corrected object
	}
	if all, err := d.problems(); err != nil || len(all) != 1 || all[0].Analyzer != problem.DestinationRuleSubsetNotSelectPods { // no endpoint has labels
		t.Errorf("the object is mended: %+v, %v", all, err)
	}
	unharmed(t, f)
	unharmed(t, late)
}
