package e2e

import (
	"fmt"
	"testing"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/problem"
)

// poisoned is a DestinationRule with which the plan of the build "novelty" panics.
func poisoned(subset string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: bad, namespace: town}
spec: {host: s003, subsets: [{name: %s, labels: {version: v1}}]}
`, subset)
}

// An object with which the plan panics is named and left out, and does nothing else: what is written beside it, and after it, reaches
// everybody, no stream ends, proxies that come later are served, and so is one that has restarted. When it is mended it applies.
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
		quiet(t, fleet) // what else the mended object changes, too
	}
	if all, err := d.problems(); err != nil || len(all) != 1 || all[0].Analyzer != problem.DestinationRuleSubsetNotSelectPods { // no endpoint has labels
		t.Errorf("the object is mended: %+v, %v", all, err)
	}
	unharmed(t, f)
	unharmed(t, late)
}
